"""Three special functions from the C library. SciPy has a ten times faster one for large arrays,
but importing ``scipy.special`` takes longer than a whole plan does: it is used, if it is there,
once an array is large."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import cast

import numpy as np

from flmc.base.arrays import Array

_erfc = np.frompyfunc(math.erfc, 1, 1)


_LARGE = 50_000
"""Numbers for which the C library takes 15 ms."""


@lru_cache(maxsize=1)
def _fast_ndtr() -> Callable[[Array], Array] | None:
    try:
        from scipy.special import ndtr as found
    except ImportError:
        return None
    return cast("Callable[[Array], Array]", found)


def expit(x: Array) -> Array:
    """The logistic function 1/(1 + exp(-x))."""
    with np.errstate(over="ignore"):  # exp(-x) = inf gives the right limit, 0
        return np.asarray(1.0 / (1.0 + np.exp(-x)))


def ndtr(x: Array) -> Array:
    """The standard normal distribution function, with full relative accuracy in the lower tail."""
    fast = _fast_ndtr() if np.size(x) > _LARGE else None
    if fast is not None:
        return np.asarray(fast(x), dtype=np.float64)
    return np.asarray(0.5 * _erfc(np.asarray(x) * -math.sqrt(0.5)), dtype=np.float64)


def log_ndtr(x: float) -> float:
    """Its logarithm; far in the lower tail, where the function itself underflows, by its asymptotic
    series."""
    if x > 0.0:
        return math.log1p(-0.5 * math.erfc(x * math.sqrt(0.5)))
    if x > -30.0:
        return math.log(0.5 * math.erfc(-x * math.sqrt(0.5)))
    inverse = 1.0 / (x * x)
    series = 1.0 - inverse * (1.0 - 3.0 * inverse * (1.0 - 5.0 * inverse * (1.0 - 7.0 * inverse)))
    return -0.5 * x * x - math.log(-x * math.sqrt(2 * math.pi)) + math.log(series)
