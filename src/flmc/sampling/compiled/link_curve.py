"""Approximation of a link for machine code: its mean bit psi, times 2^31, as a function of the
gradient in units of the clip, on [-1, 1]; an odd polynomial or a table."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from flmc.base.arrays import Array
from flmc.uplink.link import Link

NUM_TERMS = (5, 8)
"""Numbers of coefficients that an odd polynomial may have: 5 for degree 9, 8 for degree 15. There
are only two, because machine code is compiled anew for each."""
WORD_SCALE = 2.0**31
"""Factor between the mean bit, in [-1, 1], and the threshold below which a random word, read as a
signed number in [-2^31, 2^31), gives a +1 bit."""

TOLERANCE = 1.5e-6
"""Largest accepted error of the mean bit psi as machine code computes it, in single precision; it
is smaller for a link whose mean bit stays below 0.1. The probability of a +1 bit is (1 + psi)/2, so
its error is half of this; together with the error from rounding the random word it stays below
1e-6."""
_MOST_NODES = 2**16
"""Largest number of intervals in the table of a link's mean bit. Where even this table is not
accurate enough, the numba engine refuses the plan."""
_STEEP = 1e25
"""Slope of the straight line that replaces a link with a jump at 0: the bit is then certain at
every gradient that is not within 1e-25 of 0. The engine compares probabilities with random whole
numbers of 32 bits, and 2^31 times the slope is still finite in single precision."""


FittedLink = tuple[np.float32, ...] | npt.NDArray[np.float32]
"""A link in the form that machine code takes: a tuple of coefficients of an odd polynomial, highest
first, that approximates 2^31 times its mean bit on [-1, 1]; or an array with the values of this
function at equidistant points."""


def fit(link: Link, clip: float) -> FittedLink | None:
    r"""The cheapest approximation of a link whose error is at most ``TOLERANCE``: of
    :math:`2^{31}\psi(t)` for t in [-1, 1], with the mean bit :math:`\psi(t) = 2\Phi(\ell t) - 1`
    at the clip :math:`\ell`.

    None if neither a polynomial nor a table is accurate enough, as for a jump elsewhere than at 0,
    or for a kink between two nodes of the finest table."""
    # Only a frozen dataclass can be a key of the cache: another link may change after it was
    # fitted.
    frozen = dataclasses.is_dataclass(link) and type(link).__dataclass_params__.frozen
    return _fit_once(link, clip) if frozen else _fit(link, clip)


@lru_cache(maxsize=256)
def _fit_once(link: Link, clip: float) -> FittedLink | None:
    """The result of :func:`fit` for an immutable link, cached for each link and clip."""
    return _fit(link, clip)


def _fit(link: Link, clip: float) -> FittedLink | None:
    """The result of :func:`fit`: the first accurate approximation of a link among polynomials of
    growing degree, then tables of growing size; None if none is accurate."""
    if link.jumps:
        # A link that jumps at 0 becomes a straight line so steep that every gradient but 0 makes
        # the bit certain; at 0 the mean bit is 0.
        return _rounded(np.array([_STEEP]), NUM_TERMS[0])

    def mean(t: Array) -> Array:
        return 2.0 * link.bounded_probability(clip * t, clip) - 1.0

    # The error is measured at 20011 points. Apart from -1, 0 and 1 they are no nodes of a table,
    # whose number of intervals is a power of 2.
    between = np.linspace(-1.0, 1.0, 20_011).astype(np.float32)
    wanted = mean(between.astype(np.float64))
    # The tolerance shrinks for links whose mean bit stays below 0.1: with an absolute tolerance, a
    # badly wrong approximation of a very flat link would pass.
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
    """Values at ``t`` of an odd polynomial with coefficients ``terms``, highest first, in single
    precision and with the same operations as in machine code."""
    square, value = t * t, np.full_like(t, terms[0])
    for term in terms[1:]:
        value = value * square + term
    return (value * t).astype(np.float64)


def _interpolated(table: npt.NDArray[np.float32], t: npt.NDArray[np.float32]) -> Array:
    """Values at ``t``, in [-1, 1], of the linear interpolation of ``table``, which has values at
    equidistant nodes from -1 to 1; in single precision and with the same operations as in machine
    code."""
    half = np.float32(0.5) * np.float32(len(table) - 1)
    place = t * half + half
    node = np.clip(place.astype(np.int32), 0, len(table) - 2)
    return np.asarray(
        table[node] + (place - node.astype(np.float32)) * (table[node + 1] - table[node]),
        np.float64,
    )


def _odd_polynomial(mean: Callable[[Array], Array], num_terms: int) -> Array:
    """The ``num_terms`` coefficients of t, t^3, ... of an odd polynomial that approximates the
    function ``mean`` on [-1, 1], from Chebyshev interpolation, which is nearly optimal."""
    degree = 2 * num_terms - 1
    points = np.polynomial.chebyshev.chebpts1(degree + 1)
    series = np.polynomial.chebyshev.chebfit(points, mean(points), degree)
    return np.asarray(np.polynomial.chebyshev.cheb2poly(series)[1::2], np.float64)


def _rounded(coefficients: Array, num_terms: int) -> tuple[np.float32, ...]:
    """Coefficients, given lowest first, times 2^31 in single precision, highest first, padded with
    zeros for the highest powers to ``num_terms``."""
    padded = np.zeros(num_terms)
    padded[: len(coefficients)] = coefficients
    return tuple(np.float32(value) for value in WORD_SCALE * padded[::-1])
