r"""Bits of a gradient entry that moves by at most D, from an unknown place: a polygon around all
their pairs.

At the place x the pair of probabilities is :math:`(\Phi(x + D), \Phi(x)) = (q + \gamma, q)`. Where
the link's density is log-concave, the gap :math:`\gamma` is a concave function of q, because
:math:`d\gamma/dq = \varphi(x + D)/\varphi(x) - 1` falls with x. So between two places the curve
lies below its tangents there, and the points where neighbouring tangents meet, with the two ends of
the curve, are vertices of a polygon that holds it. Their distance from the curve is of second order
in the distance of the places."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple, Protocol

import numpy as np

from flmc.base.arrays import Array
from flmc.privacy.bits.pair_hull import PairHull

_TURN = 0.1
"""Distance of two places in the sum of the angles 2 arcsin sqrt(q) and 2 arcsin sqrt(p): puts the
vertices 0.06 % of the gap beyond the curve."""
_TRIED = 1001
"""Places on each of the scales on which angles are measured."""
_ROUNDING = 1e-12
"""Share by which gaps are enlarged, so that rounding leaves no pair outside the polygon."""


class MovedBit(NamedTuple):
    """Probabilities of a bit at some places, before and after the gradient moved."""

    low: Array
    """Probability q of +1 before."""
    gap: Array
    """By how much it grows, with full relative accuracy."""
    miss: Array
    """Probability of -1 afterwards, with full relative accuracy."""
    slope: Array
    """Derivative of the gap with respect to q: the ratio of the densities, minus 1."""


class MovableLink(Hashable, Protocol):
    """What the accountant needs of a link whose density is log-concave."""

    def moved(self, x: Array, shift: float) -> MovedBit:
        """Probabilities before and after gradient entries at ``x`` moved up by ``shift``."""


def hull_of_moves(link: MovableLink, clip: float, shift: float) -> PairHull:
    r"""Polygon around the pairs of a bit whose gradient moves by at most ``shift``, in either
    order.

    The divergence grows with p and falls with q, so the longest move is the worst. The pairs in the
    other order are those of an odd link at the opposite place, which are on the same curve.

    Parameters
    ----------
    link
        An odd link, :math:`\Phi(-x) = 1 - \Phi(x)`, whose density is log-concave.
    clip
        Bound of the gradient entry: it stays in [-clip, clip].
    shift
        Largest move.

    Returns
    -------
    PairHull
        The vertices.
    """
    shift = min(shift, 2.0 * clip)
    nodes = link.moved(_places(link, clip, shift), shift)
    low, gap, miss, slope = (np.asarray(values, dtype=np.float64) for values in nodes)
    if not np.ptp(slope):  # a straight line: its ends are all
        ends = [0, -1]
        return PairHull(low[ends], gap[ends] * (1.0 + _ROUNDING), miss[ends])
    # Tangents at neighbouring places meet where both have the same height; on a straight piece
    # anywhere will do.
    bend = slope[:-1] - slope[1:]
    with np.errstate(divide="ignore", invalid="ignore"):
        share = (np.diff(gap) - slope[1:] * np.diff(low)) / (bend * np.diff(low))
    share = np.clip(np.where((bend > 0) & np.isfinite(share), share, 0.5), 0.0, 1.0)
    meet_low = low[:-1] + share * np.diff(low)
    meet_gap = np.maximum(
        gap[:-1] + slope[:-1] * (meet_low - low[:-1]), gap[1:] + slope[1:] * (meet_low - low[1:])
    )
    # 1 - p along the tangent at the upper place: a sum of positive terms.
    meet_miss = miss[1:] + (1.0 + slope[1:]) * (low[1:] - meet_low)
    return PairHull(
        np.concatenate([low[:1], meet_low, low[-1:]]),
        np.concatenate([gap[:1], meet_gap, gap[-1:]]) * (1.0 + _ROUNDING),
        np.concatenate([miss[:1], meet_miss, miss[-1:]]),
    )


def _places(link: MovableLink, clip: float, shift: float) -> Array:
    """Places in [-clip, clip - shift], the ends among them, at which both probabilities turn by
    little from one to the next."""
    if shift >= 2.0 * clip:
        return np.array([-clip])
    # The link may rise within any fraction of the clip, about 0 or about minus the shift.
    wide, near = np.linspace(-1.0, 1.0, _TRIED), np.geomspace(1e-6, 1.0, _TRIED)
    about = clip * np.unique(np.concatenate([wide, near, -near, [0.0]]))
    tried = np.concatenate([about, about - shift, [clip - shift]])
    tried = np.unique(tried[(tried >= -clip) & (tried <= clip - shift)])
    found = link.moved(tried, shift)
    # The smaller of a probability and its complement is the accurate one.
    angle = np.arcsin(np.sqrt(np.clip(found.low, 0.0, 1.0))) + np.arccos(
        np.sqrt(np.clip(found.miss, 0.0, 1.0))
    )
    turned = np.maximum.accumulate(2.0 * angle)
    count = max(1, int(np.ceil((turned[-1] - turned[0]) / _TURN)))
    wanted = np.linspace(turned[0], turned[-1], count + 1)
    index = np.searchsorted(turned, wanted)
    return np.asarray(
        tried[np.unique(np.concatenate([[0], index.clip(0, len(tried) - 1), [len(tried) - 1]]))]
    )
