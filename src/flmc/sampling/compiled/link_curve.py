"""A link in the form that the compiled kernel wants: the mean bit psi on [-1, 1] (the gradient in
units of the clip), times 2^31, as an odd polynomial or a table."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from flmc.base.arrays import Array
from flmc.uplink.link import Link

NUM_TERMS = (5, 8)
"""Coefficients of the odd polynomial, highest first: degree 9 or 15. Their number is known to the
compiler, and every further one would be compiled by itself."""
WORD_SCALE = 2.0**31

TOLERANCE = 1.5e-6
"""Largest error of psi, in single precision as the kernel computes it: half of it is the error of
the probability, which together with the resolution of a word stays below 1e-6."""
_MOST_NODES = 2**16
_STEEP = 1e25


Curve = tuple[np.float32, ...] | npt.NDArray[np.float32]
"""Coefficients of the odd polynomial (highest first), or values at equidistant nodes."""


def fit(link: Link, clip: float) -> Curve | None:
    """The cheapest form that is accurate to ``TOLERANCE``; None if there is none (a jump, a kink in
    a bad place)."""
    # A frozen value never changes; another link of a user's own may.
    frozen = dataclasses.is_dataclass(link) and type(link).__dataclass_params__.frozen
    return _fit_once(link, clip) if frozen else _fit(link, clip)


@lru_cache(maxsize=256)
def _fit_once(link: Link, clip: float) -> Curve | None:
    return _fit(link, clip)


def _fit(link: Link, clip: float) -> Curve | None:
    if link.jumps:
        # So steep that anything but 0 saturates.
        return _rounded(np.array([_STEEP]), NUM_TERMS[0])

    def mean(t: Array) -> Array:
        return 2.0 * link.bounded_probability(clip * t, clip) - 1.0

    between = np.linspace(-1.0, 1.0, 20_011).astype(np.float32)
    wanted = mean(between.astype(np.float64))
    # A weak link must keep its shape too.
    tolerance = TOLERANCE * min(1.0, 10 * float(np.abs(wanted).max()))
    for count in NUM_TERMS:
        terms = _rounded(_odd_polynomial(mean, count), count)
        if np.abs(_polynomial(terms, between) / WORD_SCALE - wanted).max() <= tolerance:
            return terms
    nodes = 2**8
    while nodes <= _MOST_NODES:
        table = np.asarray(WORD_SCALE * mean(np.linspace(-1.0, 1.0, nodes + 1)), np.float32)
        middle = np.linspace(-1.0, 1.0, 2 * nodes + 1)[1::2].astype(np.float32)
        points = np.concatenate([between, middle])
        exact = np.concatenate([wanted, mean(middle.astype(np.float64))])
        if np.abs(_interpolated(table, points) / WORD_SCALE - exact).max() <= tolerance:
            return table
        nodes *= 2
    return None


def _polynomial(terms: tuple[np.float32, ...], t: npt.NDArray[np.float32]) -> Array:
    """As the kernel does it, in single precision."""
    square, value = t * t, np.full_like(t, terms[0])
    for term in terms[1:]:
        value = value * square + term
    return (value * t).astype(np.float64)


def _interpolated(table: npt.NDArray[np.float32], t: npt.NDArray[np.float32]) -> Array:
    """As the kernel does it, in single precision."""
    half = np.float32(0.5) * np.float32(len(table) - 1)
    place = t * half + half
    node = np.clip(place.astype(np.int32), 0, len(table) - 2)
    return np.asarray(
        table[node] + (place - node.astype(np.float32)) * (table[node + 1] - table[node]),
        np.float64,
    )


def _odd_polynomial(mean: Callable[[Array], Array], num_terms: int) -> Array:
    """Coefficients of g, g^3, ... from Chebyshev interpolation, which is nearly the best."""
    degree = 2 * num_terms - 1
    points = np.polynomial.chebyshev.chebpts1(degree + 1)
    series = np.polynomial.chebyshev.chebfit(points, mean(points), degree)
    return np.asarray(np.polynomial.chebyshev.cheb2poly(series)[1::2], np.float64)


def _rounded(coefficients: Array, num_terms: int) -> tuple[np.float32, ...]:
    padded = np.zeros(num_terms)
    padded[: len(coefficients)] = coefficients
    return tuple(np.float32(value) for value in WORD_SCALE * padded[::-1])
