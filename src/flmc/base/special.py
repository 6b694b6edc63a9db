"""Special functions, without SciPy for small arrays: median, logistic function, normal distribution
function with its inverse and its logarithm, and the variance of the mean of an autoregression.

With ``scipy.special`` instead, `flmc plan` takes 22 % more CPU time (0.72 s in place of 0.59,
medians of 15 interleaved starts), and its numbers have other last bits, so that plans would get
other digests. SciPy's normal distribution function is ten times faster for large arrays, so it is
imported once an array is large, if it is installed."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import cast

import numpy as np

from flmc.base.arrays import Array

_SHORT = 0.1
"""Half length of an interval below which its normal probability is computed by integration; a
difference of two probabilities would lose digits."""
_NODES, _FEW_NODES = 8, 5
"""Numbers of nodes of the Gauss-Legendre rule for the normal probability of an interval: ``_NODES``
for a half length from a tenth of ``_SHORT`` up to it, ``_FEW_NODES`` for a shorter one."""
_LARGE = 20_000
"""Size of an array, in numbers, above which SciPy's normal distribution function is used; the C
library, one number at a time, takes 6 ms for so many."""


def median(values: Array) -> float:
    """Median of all numbers in an array, with the same bits as ``np.median``; NaN if one of them is
    NaN."""
    # np.median would import the whole of numpy.ma: 3 % of the CPU time of `flmc plan`.
    ordered = np.sort(values, axis=None)  # np.sort puts NaN last
    if np.isnan(ordered[-1]):
        return math.nan
    return float(ordered[(ordered.size - 1) // 2 : ordered.size // 2 + 1].mean())


def expit(x: Array) -> Array:
    """Logistic function :math:`1/(1 + e^{-x})` of every entry."""
    with np.errstate(over="ignore"):  # exp(-x) = inf gives the right limit, 0
        return np.asarray(1.0 / (1.0 + np.exp(-x)))


def ndtr(x: Array) -> Array:
    """Standard normal distribution function of every entry, with full relative accuracy in the
    lower tail."""
    fast = _fast_ndtr() if np.size(x) > _LARGE else None
    return _by_c_library(x) if fast is None else np.asarray(fast(x), dtype=np.float64)


def ndtr_once(x: Array) -> Array:
    """Standard normal distribution function of every entry, for arrays that are computed only once:
    up to a million numbers by the C library, which takes no longer for them than importing SciPy
    does."""
    if np.size(x) > 50 * _LARGE:
        return ndtr(x)
    return _by_c_library(x)


def normal_between(centre: Array, half_width: float) -> Array:
    """Probability that a standard normal variable lies in each interval ``centre`` ±
    ``half_width``, with full relative accuracy; centres must not be negative."""
    if half_width >= _SHORT:
        return np.asarray(ndtr(half_width - centre) - ndtr(-half_width - centre))
    # The interval is short: the difference of the probabilities below its ends, which are nearly
    # equal, would lose digits, so the density is integrated by a Gauss-Legendre rule.
    total = np.zeros_like(centre, dtype=np.float64)
    count = _NODES if half_width > _SHORT / 10 else _FEW_NODES
    for node, weight in zip(*_legendre(count), strict=True):
        total += weight * np.exp(-0.5 * np.square(centre + half_width * node))
    return np.asarray(half_width / math.sqrt(2 * math.pi) * total)


def ndtri(p: Array) -> Array:
    """Standard normal quantile of every entry, a probability strictly between 0 and 1."""
    from statistics import NormalDist  # imported here, because few plans need it

    return np.asarray(np.frompyfunc(NormalDist().inv_cdf, 1, 1)(p), dtype=np.float64)


def log_ndtr(x: float) -> float:
    """Logarithm of the standard normal distribution function, without underflow in the tail."""
    if x > 0.0:
        # Where the function is near 1, its logarithm is computed from the complement, which is
        # small and has more digits.
        return math.log1p(-0.5 * math.erfc(x * math.sqrt(0.5)))
    # From -30 down the function would soon underflow, so an asymptotic series is used there.
    if x > -30.0:
        return math.log(0.5 * math.erfc(-x * math.sqrt(0.5)))
    inverse = 1.0 / (x * x)
    # The series has four terms after the leading 1: at x = -30 the next one is below 2e-12.
    series = 1.0 - inverse * (1.0 - 3.0 * inverse * (1.0 - 5.0 * inverse * (1.0 - 7.0 * inverse)))
    return -0.5 * x * x - math.log(-x * math.sqrt(2 * math.pi)) + math.log(series)


def variance_of_mean(memory: Array, count: int, neighbours: Array | None = None) -> Array:
    r"""Variance of the mean of n = ``count`` successive values of an autoregression of order one,
    relative to the variance of a single value, where r = ``memory`` is the correlation of
    neighbours: :math:`\frac1n\bigl[\frac{1+r}{1-r} - \frac{2r(1-r^n)}{n(1-r)^2}\bigr]`, 1 for
    :math:`r = 1`.

    With ``neighbours``, :math:`a`, values that are k apart have the correlation
    :math:`a r^{k-1}`, as the midpoints between the values of an autoregression with :math:`a = (1 +
    r)/2`. The result is :math:`\frac1n\bigl[1 + \frac{2a}{1-r} -
    \frac{2a(1-r^n)}{n(1-r)^2}\bigr]`."""
    # At r = 1 both terms of the formula are infinite. At the slightly smaller r that replaces it
    # the result is near its limit 1.
    r = np.minimum(memory, 1.0 - min(1e-6, 1e-3 / count))
    gap = 1 - r
    # The result is computed in place: for many values, allocating memory at each step would take
    # longer than the arithmetic.
    ended = np.asarray(r**count)
    np.subtract(1, ended, out=ended)
    ended *= 2 * (r if neighbours is None else neighbours)
    ended /= count * gap**2
    whole = np.asarray(1 + r if neighbours is None else gap + 2 * neighbours)
    whole /= gap
    whole -= ended
    whole /= count
    return whole


def _by_c_library(x: Array) -> Array:
    """Standard normal distribution function of every entry of an array, computed one number at a
    time by the C library."""
    scaled = np.asarray(np.asarray(x) * -math.sqrt(0.5), dtype=np.float64)
    # math.erfc gets Python floats from a list, and the results go straight into an array: an array
    # of objects would take twice as long.
    tails = np.fromiter(map(math.erfc, scaled.ravel().tolist()), np.float64, scaled.size)
    return np.asarray(0.5 * tails.reshape(scaled.shape))


@lru_cache(maxsize=1)
def _fast_ndtr() -> Callable[[Array], Array] | None:
    """SciPy's normal distribution function; None where SciPy is not installed."""
    try:
        from scipy.special import ndtr as fast
    except ImportError:
        return None
    return cast("Callable[[Array], Array]", fast)


@lru_cache(maxsize=2)
def _legendre(count: int) -> tuple[Array, Array]:
    """Nodes and weights, ``count`` each, of the Gauss-Legendre rule for integrals over [-1, 1]."""
    return np.polynomial.legendre.leggauss(count)
