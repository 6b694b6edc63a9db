"""Three special functions from the C library. SciPy has faster ones for large arrays, but importing ``scipy.special``
takes longer than a whole plan does."""

from __future__ import annotations

import math

import numpy as np

from flmc.checks import Array

_erfc = np.frompyfunc(math.erfc, 1, 1)


def expit(x: Array) -> Array:
    """The logistic function 1/(1 + exp(-x))."""
    with np.errstate(over="ignore"):  # exp(-x) = inf gives the right limit, 0
        return np.asarray(1.0 / (1.0 + np.exp(-x)))


def ndtr(x: Array) -> Array:
    """The standard normal distribution function, with full relative accuracy in the lower tail."""
    return np.asarray(0.5 * _erfc(np.asarray(x) * -math.sqrt(0.5)), dtype=np.float64)


def log_ndtr(x: float) -> float:
    """Its logarithm; far in the lower tail, where the function itself underflows, by its asymptotic series."""
    if x > 0.0:
        return math.log1p(-0.5 * math.erfc(x * math.sqrt(0.5)))
    if x > -30.0:
        return math.log(0.5 * math.erfc(-x * math.sqrt(0.5)))
    inverse = 1.0 / (x * x)
    series = 1.0 - inverse * (1.0 - 3.0 * inverse * (1.0 - 5.0 * inverse * (1.0 - 7.0 * inverse)))
    return -0.5 * x * x - math.log(-x * math.sqrt(2 * math.pi)) + math.log(series)
