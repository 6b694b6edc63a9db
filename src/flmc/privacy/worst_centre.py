r"""One example instead of one device: an entry of the gradient moves by at most ``shift``, wherever
it is.

The pair of bit probabilities is then :math:`(\Phi(x + D), \Phi(x))` with an unknown centre x, in
either order, and the worst centre differs with epsilon. So the profile is the supremum over x in
:math:`[-\ell, \ell - D]` of the hockey-stick divergences. It is bounded cell by cell: within
:math:`[a, b]` the pair :math:`(\Phi(b + D), \Phi(a))` dominates, because the divergence grows with
the larger probability and falls with the smaller one. Cells that could still matter are divided.
The supremum is convex in :math:`e^\epsilon`, so the largest convex function below such bounds is a
bound too, and connect-the-dots applies."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from flmc.base.arrays import Array
from flmc.base.special import ndtr

_TOLERANCE = 2e-3
"""How much above the supremum the bound may be, relatively."""
_NEGLIGIBLE = 1e-10
"""The same relative to the largest divergence, for every epsilon."""
_LEVELS = 7
_CELLS_PER_SHIFT = 2
_MOST_CELLS = 4096


class ProbabilityCurve(Protocol):
    """What the accountant needs of a link."""

    def probability(self, g: Array) -> Array:
        """Probability of a +1 bit for clipped gradient entries, never decreasing."""


def deltas(p: Array, q: Array, amplitude: float, epsilon: Array) -> Array:
    r"""Hockey-stick divergences of bits that are +1 with probability p > q, sent with ``amplitude``
    and received in unit noise, element by element: the likelihood ratio grows with the received
    value, so the best test is a threshold t with :math:`e^{2 A t} = (e^\epsilon (1 - q) - (1 -
    p))/(p - e^\epsilon q)`."""
    growth = np.exp(epsilon)
    above, below = growth * (1.0 - q) - (1.0 - p), p - growth * q
    with np.errstate(divide="ignore", invalid="ignore"):
        threshold = np.log(np.maximum(above, 0.0) / below) / (2 * amplitude)
    threshold = np.where(below <= 0, np.inf, threshold)
    plus, minus = ndtr(amplitude - threshold), ndtr(-amplitude - threshold)
    first, second = p * plus + (1 - p) * minus, q * plus + (1 - q) * minus
    return np.asarray(np.maximum(first - growth * second, 0.0))


def is_odd(link: ProbabilityCurve, clip: float) -> bool:
    """Whether Phi(-x) = 1 - Phi(x): then a pair in the other order is that of another centre, x ->
    -x - D."""
    x = np.linspace(0.0, clip, 257)
    return bool(np.abs(link.probability(x) + link.probability(-x) - 1.0).max() < 1e-12)


def worst_profile(
    link: ProbabilityCurve, clip: float, shift: float, amplitude: float, epsilon: Array
) -> Array:
    """Upper bound of the divergence over all centres, for every epsilon."""

    def probability(x: Array) -> Array:
        return link.probability(np.clip(x, -clip, clip))

    one_order = is_odd(link, clip)

    def divergence(high: Array, low: Array, which: npt.NDArray[np.intp]) -> Array:
        first = deltas(high, low, amplitude, epsilon[which])
        return (
            first
            if one_order
            else np.maximum(first, deltas(1 - low, 1 - high, amplitude, epsilon[which]))
        )

    width = max(2 * clip - shift, 0.0)
    count = int(np.clip(np.ceil(_CELLS_PER_SHIFT * width / shift), 8, _MOST_CELLS))
    edges = -clip + width * np.linspace(0.0, 1.0, count + 1)
    attained, bound = np.zeros_like(epsilon), np.zeros_like(epsilon)
    # What is still open: the two ends of a cell, and which epsilon.
    left, right = np.tile(edges[:-1], epsilon.size), np.tile(edges[1:], epsilon.size)
    which: npt.NDArray[np.intp] = np.repeat(np.arange(epsilon.size), count)
    for level in range(_LEVELS):
        middle = (left + right) / 2
        exact = divergence(probability(middle + shift), probability(middle), which)
        np.maximum.at(attained, which, exact)
        above = divergence(probability(right + shift), probability(left), which)
        enough = attained * (1 + _TOLERANCE) + _NEGLIGIBLE * attained.max()
        open_ = (above > enough[which]) & (level < _LEVELS - 1)
        np.maximum.at(bound, which[~open_], above[~open_])
        if not open_.any():
            break
        ends = np.linspace(left[open_], right[open_], 5)
        left, right, which = ends[:-1].ravel(), ends[1:].ravel(), np.tile(which[open_], 4)
    return convex_below(np.exp(epsilon), np.maximum(bound, attained))


def convex_below(x: Array, values: Array) -> Array:
    """The largest convex function below ``values`` at increasing x > 0 that begins with 1 at x = 0.
    A convex function that is below the values, as the true profile is, is below this one too."""
    hull = [(0.0, 1.0)]
    for point in zip(x.tolist(), values.tolist(), strict=True):
        while len(hull) > 1 and _turns_up(hull[-2], hull[-1], point) <= 0:
            hull.pop()
        hull.append(point)
    places, heights = np.array(hull).T
    return np.asarray(np.interp(x, places, heights))


def _turns_up(a: tuple[float, float], b: tuple[float, float], c: tuple[float, float]) -> float:
    return (b[0] - a[0]) * (c[1] - a[1]) - (c[0] - a[0]) * (b[1] - a[1])
