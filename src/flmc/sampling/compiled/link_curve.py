"""A link in the form that machine code takes: the mean bit psi on [-1, 1] (the gradient in units of
the clip), times 2^31, as an odd polynomial or a table."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from flmc.base.arrays import Array
from flmc.uplink.link import Link

NUM_TERMS = (5, 8)
"""Numbers of coefficients that an odd polynomial may have: degree 9 or 15. The number is a constant
of the machine code, so that every further choice would be compiled by itself."""
WORD_SCALE = 2.0**31
"""Factor 2^31 between the mean bit and the threshold for a random word, which as a signed number
lies in [-2^31, 2^31)."""

TOLERANCE = 1.5e-6
"""Largest error of the mean bit psi in single precision, as machine code computes it. The
probability of a bit is (1 + psi)/2, so its error is half of this, and stays below 1e-6 together
with the resolution of a word."""
_MOST_NODES = 2**16
"""Largest number of intervals in the table of a link's mean bit."""
_STEEP = 1e25
"""Slope that stands for a jump at 0: every gradient but 0 saturates the bit, and 2^31 times the
slope is finite in single precision."""


FittedLink = tuple[np.float32, ...] | npt.NDArray[np.float32]
"""A link as machine code takes it: coefficients of an odd polynomial (highest first) that stands
for its mean bit, or values of the mean bit at equidistant gradients."""


def fit(link: Link, clip: float) -> FittedLink | None:
    r"""The cheapest form of a link that is accurate to ``TOLERANCE``: :math:`2^{31}\psi`, with the
    mean bit :math:`\psi(t) = 2\Phi(\ell t) - 1` at the clip :math:`\ell`.

    None if neither polynomial nor table is accurate enough, as for a jump beside 0 or for a kink
    between two nodes of the finest table."""
    # Only a frozen value can be a key of the cache: a user's own link may change after it was
    # fitted.
    frozen = dataclasses.is_dataclass(link) and type(link).__dataclass_params__.frozen
    return _fit_once(link, clip) if frozen else _fit(link, clip)


@lru_cache(maxsize=256)
def _fit_once(link: Link, clip: float) -> FittedLink | None:
    """Approximation of a link that cannot change, computed once for each clip and cached."""
    return _fit(link, clip)


def _fit(link: Link, clip: float) -> FittedLink | None:
    """Approximation of a link: the first that is accurate among polynomials of growing degree, then
    tables of growing size; None if none is."""
    if link.jumps:
        # A straight line so steep that every gradient but 0 saturates the bit; at 0 the mean bit is
        # 0.
        return _rounded(np.array([_STEEP]), NUM_TERMS[0])

    def mean(t: Array) -> Array:
        return 2.0 * link.bounded_probability(clip * t, clip) - 1.0

    # The error is measured at points that are no nodes of a table, which has a power of 2 of
    # intervals, except at -1, 0 and 1.
    between = np.linspace(-1.0, 1.0, 20_011).astype(np.float32)
    wanted = mean(between.astype(np.float64))
    # With an absolute tolerance, a link whose mean bit stays below 0.1 would pass with a wrong
    # curve: so the tolerance shrinks with its size.
    tolerance = TOLERANCE * min(1.0, 10 * float(np.abs(wanted).max()))
    for count in NUM_TERMS:
        terms = _rounded(_odd_polynomial(mean, count), count)
        if np.abs(_polynomial(terms, between) / WORD_SCALE - wanted).max() <= tolerance:
            return terms
    nodes = 2**8
    while nodes <= _MOST_NODES:
        table = np.asarray(WORD_SCALE * mean(np.linspace(-1.0, 1.0, nodes + 1)), np.float32)
        # The error of linear interpolation is largest about the middle between two nodes.
        middle = np.linspace(-1.0, 1.0, 2 * nodes + 1)[1::2].astype(np.float32)
        points = np.concatenate([between, middle])
        exact = np.concatenate([wanted, mean(middle.astype(np.float64))])
        if np.abs(_interpolated(table, points) / WORD_SCALE - exact).max() <= tolerance:
            return table
        nodes *= 2
    return None


def _polynomial(terms: tuple[np.float32, ...], t: npt.NDArray[np.float32]) -> Array:
    """Values at ``t`` of an odd polynomial with coefficients ``terms``, in single precision,
    operation by operation as machine code computes them."""
    square, value = t * t, np.full_like(t, terms[0])
    for term in terms[1:]:
        value = value * square + term
    return (value * t).astype(np.float64)


def _interpolated(table: npt.NDArray[np.float32], t: npt.NDArray[np.float32]) -> Array:
    """Values at ``t``, in [-1, 1], of the linear interpolation of ``table``, in single precision,
    operation by operation as machine code computes them."""
    half = np.float32(0.5) * np.float32(len(table) - 1)
    place = t * half + half
    node = np.clip(place.astype(np.int32), 0, len(table) - 2)
    return np.asarray(
        table[node] + (place - node.astype(np.float32)) * (table[node + 1] - table[node]),
        np.float64,
    )


def _odd_polynomial(mean: Callable[[Array], Array], num_terms: int) -> Array:
    """Coefficients of t, t^3, ... of an odd polynomial that approximates ``mean``, from Chebyshev
    interpolation, which is nearly the best."""
    degree = 2 * num_terms - 1
    points = np.polynomial.chebyshev.chebpts1(degree + 1)
    series = np.polynomial.chebyshev.chebfit(points, mean(points), degree)
    return np.asarray(np.polynomial.chebyshev.cheb2poly(series)[1::2], np.float64)


def _rounded(coefficients: Array, num_terms: int) -> tuple[np.float32, ...]:
    """Coefficients times 2^31 in single precision, highest first, padded with zeros to
    ``num_terms``."""
    padded = np.zeros(num_terms)
    padded[: len(coefficients)] = coefficients
    return tuple(np.float32(value) for value in WORD_SCALE * padded[::-1])
