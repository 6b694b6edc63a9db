r"""Pairs of bit probabilities whose convex hull holds every pair that neighbouring data can make.

Given every other device's bits, a received entry is :math:`w = A b + z` up to a known constant, in
units of the noise's standard deviation. Under two data sets the bit b is +1 with probability p and
q:

.. math:: P = p\,N(A, 1) + (1-p)\,N(-A, 1), \qquad Q = q\,N(A, 1) + (1-q)\,N(-A, 1).

The hockey-stick divergence :math:`H_x(P \| Q)`, :math:`x = e^\epsilon`, is jointly convex in (p,
q), so its supremum over a set of pairs is at a vertex of a polygon around the set. The maximum over
the vertices is convex in x again: it is the profile of one pair of distributions, which dominates
every pair in the polygon.

Close to :math:`x = 1` almost nothing of the divergence is information, so everything is computed
from the *excess* :math:`D(\epsilon) = \delta(\epsilon) - (1 - e^\epsilon)_+`, and from the gap
:math:`\gamma = p - q`. With :math:`c = e^\epsilon - 1` the best test is a threshold t,
:math:`e^{2At} = 1 + c/(\gamma - c q)`, and

.. math:: D = \gamma\,B(t) - |c|\,Q(\text{beyond } t), \qquad B(t) = \int_{t-A}^{t+A} \varphi,

where *beyond* means above t for :math:`\epsilon \ge 0` and below t else. No term of it is the
difference of two nearly equal numbers, however small the gain or the gap.

A gradient entry that moves by at most D, from an unknown place x, makes the pairs
:math:`(\Phi(x + D), \Phi(x)) = (q + \gamma, q)`. Where the link's density is log-concave, the gap
:math:`\gamma` is a concave function of q, because :math:`d\gamma/dq = \varphi(x + D)/\varphi(x) -
1` falls with x. So between two places the curve lies below its tangents there, and the points where
neighbouring tangents meet, with the two ends of the curve, are vertices of a polygon that holds it.
Their distance from the curve is of second order in the distance of the places."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, Protocol

import numpy as np

from flmc.base.arrays import Array
from flmc.base.special import ndtr, normal_between

REACH, FAR_REACH = 13.0, 37.0
"""Distances, in standard deviations, beyond which the noise's mass is counted as lost, that is as
an infinite loss: a mass of 6e-39, or of 6e-300 where delta is about as small."""
_LOUD = 1e6
"""Largest amplitude, in standard deviations of the noise, that is used in computations; the noise
changes no bit at much smaller ones."""
_QUIET = 0.1
"""Amplitude below which B(t), the normal mass between t - A and t + A, is integrated, because the
difference of two tails would lose digits."""
_FARTHEST = 600.0
"""Largest privacy loss that is used in computations, because exponentials of larger ones overflow;
larger losses count as infinite."""
_ROUNDING = 4e-16
"""Share of each of the two terms of the excess (delta less what is above 0 of 1 - exp(epsilon))
that is added to it, so that rounding never makes the excess too small.
"""
_TURN = 0.1
"""Largest distance of two neighbouring places on the curve of pairs (p, q) of bit probabilities
under two data sets, in the sum of the angles 2 arcsin sqrt(q) and 2 arcsin sqrt(p): it puts the
polygon's vertices 0.06 % of the gap p - q beyond the curve."""
_TRIED = 1001
"""Number of places of a gradient entry that are tried on each of two scales, one even and one
logarithmic, as places at which the curve of bit probabilities gets a tangent."""
_HULL_ROUNDING = 1e-12
"""Share by which gaps between the bit probabilities under two data sets are enlarged, so that
rounding leaves no pair of these outside the polygon."""


@dataclass(frozen=True)
class PairHull:
    """Vertices of a polygon around all pairs (p, q) of bit probabilities that neighbouring data
    sets can make; all arrays are (vertex)."""

    low: Array
    """Probability q of +1 under the second data set."""
    gap: Array
    """Difference p - q of the two probabilities of +1, positive."""
    miss: Array
    """Probability 1 - p of -1 under the first data set."""

    @classmethod
    def of(cls, pairs: Iterable[tuple[float, float]]) -> PairHull:
        """Polygon with the given vertices, each a pair of q, the probability of +1 under the second
        data set, and 1 - p, the probability of -1 under the first."""
        low, miss = (np.array(values) for values in zip(*pairs, strict=True))
        return cls(low, 1.0 - low - miss, miss)

    @property
    def largest_loss(self) -> float:
        """Largest privacy loss of one entry, whatever the gain; infinite where a bit is certain
        under one data set."""
        with np.errstate(divide="ignore"):
            ratios = np.maximum(np.log1p(self.gap / self.low), np.log1p(self.gap / self.miss))
        return float(np.max(ratios))

    def loss(self, w: Array, amplitude: float) -> Array:
        """Privacy losses (vertex, point), cut to the range from -600 to 600, at received values
        ``w`` (point); values and amplitude are in standard deviations of the noise."""
        u = np.clip(2.0 * min(amplitude, _LOUD) * np.asarray(w), -700.0, 700.0)
        low, gap, miss = self.low[:, None], self.gap[:, None], self.miss[:, None]
        with np.errstate(divide="ignore"):
            # For a negative u numerator and denominator are divided by exp(u), so that nothing
            # overflows.
            rise, fall = np.expm1(np.maximum(u, 0.0)), np.expm1(np.maximum(-u, 0.0))
            up = np.log1p(gap * rise / (1.0 + low * rise))
            down = -np.log1p(gap * fall / (1.0 + miss * fall))
        return np.asarray(np.clip(np.where(u > 0, up, down), -_FARTHEST, _FARTHEST))

    def loss_range(self, amplitude: float, reach: float = REACH) -> tuple[float, float]:
        """Smallest and largest privacy loss over the pairs of bit probabilities at all vertices, at
        received values within ``reach`` standard deviations of the noise from a bit of the given
        ``amplitude`` (in standard deviations too)."""
        far = min(amplitude, _LOUD) + reach
        ends = self.loss(np.array([-far, far]), amplitude)
        return float(ends.min()), float(ends.max())

    def spread(self, amplitude: float) -> float:
        """Standard deviation of the privacy loss under the first data set at the given amplitude:
        the largest over some vertices.

        It sets the size of a grid, not a bound, so the vertices at both ends and the one with the
        largest gap suffice."""
        some = sorted({0, int(np.argmax(self.gap)), len(self.gap) - 1})
        few = PairHull(self.low[some], self.gap[some], self.miss[some])
        # The received value is noise about +A or -A: a trapezoidal rule over the noise for each
        # bit.
        z = np.linspace(-8.0, 8.0, 97)
        weight = np.exp(-0.5 * z * z)
        weight /= weight.sum()
        loud = min(amplitude, _LOUD)
        losses = [few.loss(sign * loud + z, loud) for sign in (1.0, -1.0)]
        shares = (few.low + few.gap, few.miss)
        mean, square = (
            sum(
                share * (loss**power * weight).sum(axis=1)
                for share, loss in zip(shares, losses, strict=True)
            )
            for power in (1, 2)
        )
        return math.sqrt(max(float(np.max(square - np.square(mean))), 0.0))

    def excess(self, epsilon: Array, amplitude: float) -> Array:
        r"""Largest excess :math:`D(\epsilon)` over the vertices, rounded up, (point), which bounds
        :math:`\delta(\epsilon) - (1 - e^\epsilon)_+` for every pair in the hull; epsilons have
        either sign, and are at most 600 in magnitude."""
        loud = min(amplitude, _LOUD)
        c = np.expm1(np.asarray(epsilon))
        low, gap, miss = self.low[:, None], self.gap[:, None], self.miss[:, None]
        above = gap - c * low
        # At an epsilon beyond the largest privacy loss, or below the smallest, all losses lie on
        # one side of it, and the excess is 0.
        with np.errstate(divide="ignore", invalid="ignore"):
            inside = (above > 0) & (c > -gap / (gap + miss))
            # the exact ratio is never below -1, but rounding may make it so
            ratio = np.maximum(np.where(inside, c / above, 0.0), -1.0)
            t = np.abs(np.log1p(ratio)) / (2.0 * loud)
        far = ndtr(-loud - t)
        # the normal mass from t - A to t + A, which a difference of two tails would give with few
        # digits where the amplitude A is small
        if loud < _QUIET:
            between = normal_between(t, loud)
            near = far + between
        else:
            near = ndtr(loud - t)
            between = near - far
        beyond = np.where(c >= 0, low * near + (1.0 - low) * far, low * far + (1.0 - low) * near)
        first, second = gap * between, np.abs(c) * beyond
        excess = first - second + _ROUNDING * (first + second)
        return np.asarray(np.max(np.where(inside, np.maximum(excess, 0.0), 0.0), axis=0))


class MovedBit(NamedTuple):
    """Probabilities of a bit before and after its gradient entry moves up; all arrays are (place),
    one value for each place of the entry before the move."""

    low: Array
    """Probability q of a +1 bit before the gradient entry moves up, (place)."""
    gap: Array
    """Growth p - q of the probability of a +1 bit when the gradient entry moves up, with full
    relative accuracy, (place)."""
    miss: Array
    """Probability of a -1 bit after the gradient entry moved up, with full relative accuracy,
    (place)."""
    slope: Array
    """Derivative of ``gap``, the growth of the probability of a +1 bit when the gradient entry
    moves up, with respect to the probability before the move, (place): the ratio of the link's
    densities after and before the move, minus 1."""


class MovableLink(Hashable, Protocol):
    """Link (the probability of a +1 bit given a gradient entry) with a log-concave density, as far
    as the privacy accountant needs it."""

    def moved(self, x: Array, shift: float) -> MovedBit:
        """Probabilities of a bit before and after gradient entries at ``x`` (place) moved up by
        ``shift``."""


# Cached, because searches for a gain ask for the polygon of the same move again and again.
@lru_cache(maxsize=64)
def hull_of_moves(link: MovableLink, clip: float, shift: float) -> PairHull:
    """Polygon around the pairs of probabilities of a bit whose gradient entry, in [-clip, clip],
    moves by at most ``shift`` up or down.

    The divergence of the received values grows with the probability of +1 after the move, and falls
    with that before it, so the longest move is the worst. A move down makes the same pairs as a
    move up from the opposite place, because the link is odd. The link must be odd with a
    log-concave density."""
    shift = min(shift, 2.0 * clip)
    nodes = link.moved(_places(link, clip, shift), shift)
    low, gap, miss, slope = (np.asarray(values, dtype=np.float64) for values in nodes)
    if not np.ptp(slope):  # the curve is a straight line: its ends are the hull
        ends = [0, -1]
        return PairHull(low[ends], gap[ends] * (1.0 + _HULL_ROUNDING), miss[ends])
    # Tangents of the curve of pairs at neighbouring places meet where both have the same height;
    # where the curve is straight, any point between the places will do.
    bend = slope[:-1] - slope[1:]
    with np.errstate(divide="ignore", invalid="ignore"):
        share = (np.diff(gap) - slope[1:] * np.diff(low)) / (bend * np.diff(low))
    share = np.clip(np.where((bend > 0) & np.isfinite(share), share, 0.5), 0.0, 1.0)
    meet_low = low[:-1] + share * np.diff(low)
    meet_gap = np.maximum(
        gap[:-1] + slope[:-1] * (meet_low - low[:-1]), gap[1:] + slope[1:] * (meet_low - low[1:])
    )
    # The probability of -1 after the move, along the tangent at the upper place, as a sum of
    # positive terms, so that no digits cancel.
    meet_miss = miss[1:] + (1.0 + slope[1:]) * (low[1:] - meet_low)
    return PairHull(
        np.concatenate([low[:1], meet_low, low[-1:]]),
        np.concatenate([gap[:1], meet_gap, gap[-1:]]) * (1.0 + _HULL_ROUNDING),
        np.concatenate([miss[:1], meet_miss, miss[-1:]]),
    )


def _places(link: MovableLink, clip: float, shift: float) -> Array:
    """Places of a gradient entry in [-clip, clip - shift], both ends among them, so dense that the
    bit probabilities before and after the move change little from one place to the next."""
    if shift >= 2.0 * clip:
        return np.array([-clip])
    # The link may rise within any fraction of the clip, and does so about 0: before the move where
    # the entry is near 0, after it where the entry is near minus the shift.
    wide, near = np.linspace(-1.0, 1.0, _TRIED), np.geomspace(1e-6, 1.0, _TRIED)
    about = clip * np.unique(np.concatenate([wide, near, -near, [0.0]]))
    tried = np.concatenate([about, about - shift, [clip - shift]])
    tried = np.unique(tried[(tried >= -clip) & (tried <= clip - shift)])
    bit = link.moved(tried, shift)
    # The angle for the probability of +1 after the move is computed from that of -1, which is given
    # with full relative accuracy.
    angle = np.arcsin(np.sqrt(np.clip(bit.low, 0.0, 1.0))) + np.arccos(
        np.sqrt(np.clip(bit.miss, 0.0, 1.0))
    )
    turned = np.maximum.accumulate(2.0 * angle)
    count = max(1, int(np.ceil((turned[-1] - turned[0]) / _TURN)))
    wanted = np.linspace(turned[0], turned[-1], count + 1)
    index = np.searchsorted(turned, wanted)
    return np.asarray(
        tried[np.unique(np.concatenate([[0], index.clip(0, len(tried) - 1), [len(tried) - 1]]))]
    )
