"""A link in the form that the compiled kernel wants: the mean bit psi on [-1, 1] (the gradient in units of the clip),
times 2^31, as an odd polynomial or a table."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from flmc.checks import Array
from flmc.quantise import Link, Sign

NUM_TERMS = 8
"""Coefficients of the odd polynomial, highest first: degree 15."""
WORD_SCALE = 2.0**31

TOLERANCE = 5e-7
"""Largest error of psi before rounding: half of it is the error of the probability, which together with the rounding
of single precision stays below 1e-6."""
_MOST_NODES = 2**16
_STEEP = 1e25


Curve = tuple[np.float32, ...] | npt.NDArray[np.float32]
"""Coefficients of the odd polynomial (highest first), or values at equidistant nodes."""


def fit(link: Link, clip: float) -> Curve | None:
    """The cheapest form that is accurate to ``TOLERANCE``; None if there is none (a jump, a kink in a bad place)."""
    # The links of this package never change; a user's may.
    return _fit_once(link, clip) if link.proven else _fit(link, clip)


@lru_cache(maxsize=256)
def _fit_once(link: Link, clip: float) -> Curve | None:
    return _fit(link, clip)


def _fit(link: Link, clip: float) -> Curve | None:
    if isinstance(link, Sign):
        # So steep that anything but 0 saturates.
        return _rounded(np.array([_STEEP]))
    between = np.linspace(-1.0, 1.0, 20_011)
    wanted = link.mean(clip * between, clip)
    coefficients = _odd_polynomial(link, clip)
    if np.abs(_evaluate(coefficients, between) - wanted).max() <= TOLERANCE:
        return _rounded(coefficients)
    nodes = 2**8
    while nodes <= _MOST_NODES:
        grid = np.linspace(-1.0, 1.0, nodes + 1)
        values = link.mean(clip * grid, clip)
        middle = (grid[1:] + grid[:-1]) / 2
        error = np.abs((values[1:] + values[:-1]) / 2 - link.mean(clip * middle, clip)).max()
        if max(error, np.abs(np.interp(between, grid, values) - wanted).max()) <= TOLERANCE:
            return np.asarray(WORD_SCALE * values, np.float32)
        nodes *= 2
    return None


def _odd_polynomial(link: Link, clip: float) -> Array:
    """Coefficients of g, g^3, ... from Chebyshev interpolation, which is nearly the best."""
    degree = 2 * NUM_TERMS - 1
    points = np.polynomial.chebyshev.chebpts1(degree + 1)
    series = np.polynomial.chebyshev.chebfit(points, link.mean(clip * points, clip), degree)
    return np.asarray(np.polynomial.chebyshev.cheb2poly(series)[1::2], np.float64)


def _evaluate(coefficients: Array, t: Array) -> Array:
    return t * np.polynomial.polynomial.polyval(np.square(t), coefficients)


def _rounded(coefficients: Array) -> tuple[np.float32, ...]:
    padded = np.zeros(NUM_TERMS)
    padded[: len(coefficients)] = coefficients
    return tuple(np.float32(value) for value in WORD_SCALE * padded[::-1])
