r"""Supremum over an unknown centre: an entry of the gradient moves by at most ``shift``, wherever
it is.

The pair of bit probabilities is :math:`(\Phi(x + D), \Phi(x))` with the shift D and an unknown
centre x, in either order, and the worst centre differs with epsilon. So the profile is the supremum
over x in :math:`[-\ell, \ell - D]` of the hockey-stick divergences. It is bounded cell by cell:
within :math:`[a, b]` the pair :math:`(\Phi(b + D), \Phi(a))` dominates, because the divergence
grows with the larger probability and falls with the smaller one. Cells that could still matter are
divided. The supremum is convex in :math:`e^\epsilon`, so the largest convex function below such
bounds is a bound too, and connect-the-dots applies."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from flmc.base.arrays import Array
from flmc.base.special import ndtr

_TOLERANCE = 2e-3
"""Distance of the bound from the supremum that is good enough, relative to the supremum."""
_NEGLIGIBLE = 1e-10
"""Distance of the bound from the supremum that is good enough for every epsilon, relative to the
largest divergence."""
_LEVELS = 7
"""Sizes of cells that are tried, each a quarter of the one before."""
_CELLS_PER_SHIFT = 2
"""Number of cells, at the beginning, in an interval as long as the shift."""
_MOST_CELLS = 4096
"""Largest number of cells at the beginning."""


class ProbabilityCurve(Protocol):
    """What the accountant needs of a link."""

    def probability(self, g: Array) -> Array:
        """Probability of a +1 bit, never decreasing with the gradient.

        Parameters
        ----------
        g
            Clipped gradient entries, in any shape.

        Returns
        -------
        Array
            Probabilities, in the shape of ``g``.
        """


def deltas(p: Array, q: Array, amplitude: float, epsilon: Array) -> Array:
    r"""Hockey-stick divergences of bits in unit noise, element by element.

    The likelihood ratio grows with the received value, so the best test is a threshold t with
    :math:`e^{2 A t} = (e^\epsilon (1 - q) - (1 - p))/(p - e^\epsilon q)`.

    Parameters
    ----------
    p, q
        Probability of a +1 bit under the first and the second data set, p > q.
    amplitude
        Amplitude A of a bit, in standard deviations of the noise.
    epsilon
        Epsilons; p, q and epsilon broadcast.

    Returns
    -------
    Array
        The smallest delta of each epsilon.
    """
    growth = np.exp(epsilon)
    above, below = growth * (1.0 - q) - (1.0 - p), p - growth * q
    with np.errstate(divide="ignore", invalid="ignore"):
        threshold = np.log(np.maximum(above, 0.0) / below) / (2 * amplitude)
    # Beyond the largest loss no received value speaks for p: nothing exceeds epsilon.
    threshold = np.where(below <= 0, np.inf, threshold)
    plus, minus = ndtr(amplitude - threshold), ndtr(-amplitude - threshold)
    first, second = p * plus + (1 - p) * minus, q * plus + (1 - q) * minus
    return np.asarray(np.maximum(first - growth * second, 0.0))


def is_odd(link: ProbabilityCurve, clip: float) -> bool:
    """Whether Phi(-x) = 1 - Phi(x), tried on a grid.

    Then a pair in the other order is that of another centre, -x - D in place of x.

    Parameters
    ----------
    link
        The link.
    clip
        End of the grid, which begins at 0.

    Returns
    -------
    bool
        True if the equation holds up to 1e-12.
    """
    x = np.linspace(0.0, clip, 257)
    return bool(np.abs(link.probability(x) + link.probability(-x) - 1.0).max() < 1e-12)


def worst_profile(
    link: ProbabilityCurve, clip: float, shift: float, amplitude: float, epsilon: Array
) -> Array:
    r"""Upper bound of the hockey-stick divergence over all centres, for every epsilon.

    Parameters
    ----------
    link
        Probability of +1 given the clipped gradient.
    clip
        Bound of the gradient entry.
    shift
        Largest move D of the gradient entry.
    amplitude
        Amplitude of a bit, in standard deviations of the noise.
    epsilon
        Epsilons, increasing, (point).

    Returns
    -------
    Array
        Delta of each epsilon, (point), convex in :math:`e^\epsilon`.
    """

    def probability(x: Array) -> Array:
        return link.probability(np.clip(x, -clip, clip))

    # For an odd link the other order is among the centres anyway, and need not be computed.
    one_order = is_odd(link, clip)

    def divergence(high: Array, low: Array, which: npt.NDArray[np.intp]) -> Array:
        first = deltas(high, low, amplitude, epsilon[which])
        return (
            first
            if one_order
            else np.maximum(first, deltas(1 - low, 1 - high, amplitude, epsilon[which]))
        )

    # Centres lie in [-clip, clip - shift]; a shift of twice the clip or more leaves one.
    width = max(2 * clip - shift, 0.0)
    count = int(np.clip(np.ceil(_CELLS_PER_SHIFT * width / shift), 8, _MOST_CELLS))
    edges = -clip + width * np.linspace(0.0, 1.0, count + 1)
    attained, bound = np.zeros_like(epsilon), np.zeros_like(epsilon)
    # What is still open: the two ends of a cell, and which epsilon.
    left, right = np.tile(edges[:-1], epsilon.size), np.tile(edges[1:], epsilon.size)
    which: npt.NDArray[np.intp] = np.repeat(np.arange(epsilon.size), count)
    for level in range(_LEVELS):
        middle = (left + right) / 2
        # What a centre attains is a lower bound of the supremum; the pair of the cell's ends is an
        # upper one. A cell is settled once its upper bound is hardly above what is attained
        # anywhere.
        exact = divergence(probability(middle + shift), probability(middle), which)
        np.maximum.at(attained, which, exact)
        above = divergence(probability(right + shift), probability(left), which)
        enough = attained * (1 + _TOLERANCE) + _NEGLIGIBLE * attained.max()
        # At the last level every cell is settled: its bound holds, tight or not.
        open_ = (above > enough[which]) & (level < _LEVELS - 1)
        np.maximum.at(bound, which[~open_], above[~open_])
        if not open_.any():
            break
        ends = np.linspace(left[open_], right[open_], 5)
        left, right, which = ends[:-1].ravel(), ends[1:].ravel(), np.tile(which[open_], 4)
    return convex_below(np.exp(epsilon), np.maximum(bound, attained))


def convex_below(x: Array, values: Array) -> Array:
    """Largest convex function below given values that begins with 1 at x = 0.

    A convex function that is below the values, as the true profile is, is below this one too.

    Parameters
    ----------
    x
        Increasing positive places, (point).
    values
        Values there, (point).

    Returns
    -------
    Array
        The function at the places, (point).
    """
    # Lower convex hull, from left to right: a point that lies above the line between its neighbours
    # is dropped.
    hull = [(0.0, 1.0)]
    for point in zip(x.tolist(), values.tolist(), strict=True):
        while len(hull) > 1 and _turns_up(hull[-2], hull[-1], point) <= 0:
            hull.pop()
        hull.append(point)
    places, heights = np.array(hull).T
    return np.asarray(np.interp(x, places, heights))


def _turns_up(a: tuple[float, float], b: tuple[float, float], c: tuple[float, float]) -> float:
    """Positive if the path from a by b to c turns upwards."""
    return (b[0] - a[0]) * (c[1] - a[1]) - (c[0] - a[0]) * (b[1] - a[1])
