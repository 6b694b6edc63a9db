r"""Pairs of probabilities of a +1 bit under two neighbouring data sets: vertices of a polygon that
holds every pair which neighbouring data sets can make.

Given every other device's bits, a received entry is :math:`w = A b + z` up to a known constant, in
units of the noise's standard deviation. Under two data sets the bit b is +1 with probability p and
q:

.. math:: P = p\,N(A, 1) + (1-p)\,N(-A, 1), \qquad Q = q\,N(A, 1) + (1-q)\,N(-A, 1).

The hockey-stick divergence :math:`H_x(P \| Q)`, :math:`x = e^\epsilon`, is jointly convex in (p,
q), so its supremum over a set of pairs is at a vertex of a polygon around the set. The maximum over
the vertices is convex in x again: it is the privacy profile (delta as a function of epsilon) of one
pair of distributions, which dominates every pair in the polygon.

Close to :math:`x = 1` almost nothing of the divergence is information, so everything is computed
from the *excess* :math:`D(\epsilon) = \delta(\epsilon) - (1 - e^\epsilon)_+`, and from the gap
:math:`\gamma = p - q`. With :math:`c = e^\epsilon - 1` the best test is a threshold t,
:math:`e^{2At} = 1 + c/(\gamma - c q)`, and

.. math:: D = \gamma\,B(t) - |c|\,Q(\text{beyond } t), \qquad B(t) = \int_{t-A}^{t+A} \varphi,

where :math:`\varphi` is the standard normal density, and *beyond* means above t for :math:`\epsilon
\ge 0` and below t else. No term of D is the difference of two nearly equal numbers, however small
the gain or the gap.

A gradient entry that moves by at most s, from an unknown value v, makes the pairs :math:`(\Phi(v +
s), \Phi(v)) = (q + \gamma, q)` with the link :math:`\Phi`. Where the link's density :math:`\Phi'`
is log-concave, the gap :math:`\gamma` is a concave function of q, because :math:`d\gamma/dq =
\Phi'(v + s)/\Phi'(v) - 1` falls with v. So the curve of these pairs lies below its tangents. The
points where neighbouring tangents meet, with the two ends of the curve, are vertices of a polygon
that holds it. Their distance from the curve is of second order in the distance of the values v at
which tangents are drawn."""

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
"""Numbers of standard deviations beyond which noise counts as an infinite privacy loss. Its
probability is 6e-39 beyond ``REACH``, and 6e-300 beyond ``FAR_REACH``, which is used for tiny
deltas."""
_LOUD = 1e6
"""Largest amplitude of a bit, in standard deviations of the noise, that is used in computations. It
stands for all larger ones, because noise changes no bit at far smaller amplitudes already."""
_QUIET = 0.1
"""Amplitude A of a bit, in standard deviations of the noise, below which the normal probability of
the interval from t - A to t + A is integrated, because a difference of two tails would lose
digits."""
_FARTHEST = 600.0
"""Largest privacy loss that is used in computations, because exponentials of larger ones overflow;
larger losses count as infinite."""
_ROUNDING = 4e-16
"""The excess is delta(epsilon) - max(0, 1 - exp(epsilon)), computed as a difference of two
probabilities. This share of either of them is added to it, so that rounding never makes it too
small."""
_TURN = 0.1
"""Largest distance of neighbouring points at which the curve of pairs (p, q) of bit probabilities
under two data sets gets a tangent, measured by the sum of the angles 2 arcsin sqrt(q) and 2 arcsin
sqrt(p). Tangents so close meet at most 0.06 % of p - q beyond the curve."""
_TRIED = 1001
"""Number of values of a gradient entry on each of two grids, an even and a logarithmic one, from
which those are chosen at which the curve of bit probabilities gets a tangent."""
_HULL_ROUNDING = 1e-12
"""Relative amount by which differences p - q of the bit probabilities under two data sets are
enlarged, so that rounding leaves no possible pair (p, q) outside the polygon around all pairs."""


@dataclass(frozen=True)
class PairHull:
    """Polygon around all pairs (p, q) that neighbouring data sets can make, p and q being the
    probabilities of a +1 bit under the first and the second data set; all arrays are (vertex)."""

    low: Array
    """Probability q of a +1 bit under the second data set at each vertex, (vertex)."""
    gap: Array
    """Difference p - q of the probabilities of a +1 bit under the first and the second data set at
    each vertex, positive, (vertex)."""
    miss: Array
    """Probability 1 - p of a -1 bit under the first data set at each vertex, (vertex)."""

    @classmethod
    def of(cls, pairs: Iterable[tuple[float, float]]) -> PairHull:
        """Polygon with the given vertices, each a pair of q, the probability of +1 under the second
        data set, and 1 - p, the probability of -1 under the first."""
        low, miss = (np.array(values) for values in zip(*pairs, strict=True))
        return cls(low, 1.0 - low - miss, miss)

    @property
    def largest_loss(self) -> float:
        """Largest magnitude of the privacy loss of one entry, at any gain; infinite if one of the
        data sets never gives a +1 bit, or never a -1 bit, at some vertex."""
        with np.errstate(divide="ignore"):
            ratios = np.maximum(np.log1p(self.gap / self.low), np.log1p(self.gap / self.miss))
        return float(np.max(ratios))

    @property
    def lattice(self) -> float | None:
        """Number of which the losses of all entries are whole multiples where bits are received
        without error: the largest loss if the polygon is one symmetric pair; else None."""
        bound = self.largest_loss
        one = len(self.low) == 1 and self.low[0] == self.miss[0]
        return bound if one and math.isfinite(bound) else None

    def loss(self, w: Array, amplitude: float) -> Array:
        """Privacy losses (vertex, point) at the received values ``w`` (point), limited to the range
        from -600 to 600; ``w`` and the ``amplitude`` of a bit are in standard deviations of the
        noise."""
        u = np.clip(2.0 * min(amplitude, _LOUD) * np.asarray(w), -700.0, 700.0)
        low, gap, miss = self.low[:, None], self.gap[:, None], self.miss[:, None]
        with np.errstate(divide="ignore"):
            # The loss is ln(1 + p (e^u - 1)) - ln(1 + q (e^u - 1)) with u = 2 A w. For a negative u
            # both arguments are divided by e^u, so that nothing overflows.
            rise, fall = np.expm1(np.maximum(u, 0.0)), np.expm1(np.maximum(-u, 0.0))
            up = np.log1p(gap * rise / (1.0 + low * rise))
            down = -np.log1p(gap * fall / (1.0 + miss * fall))
        return np.asarray(np.clip(np.where(u > 0, up, down), -_FARTHEST, _FARTHEST))

    def loss_range(self, amplitude: float, reach: float = REACH) -> tuple[float, float]:
        """Smallest and largest privacy loss over all vertices of the polygon and all received
        values within ``reach`` of plus or minus the ``amplitude`` of a bit; both are in standard
        deviations of the noise."""
        far = min(amplitude, _LOUD) + reach
        ends = self.loss(np.array([-far, far]), amplitude)
        return float(ends.min()), float(ends.max())

    def spread(self, amplitude: float) -> float:
        """Standard deviation of one entry's privacy loss under the first data set, at an amplitude
        in standard deviations of the noise: the largest over three vertices of the polygon.

        The result sets the step of a grid and is no bound, so the vertices at both ends and the one
        with the largest difference of bit probabilities suffice."""
        some = sorted({0, int(np.argmax(self.gap)), len(self.gap) - 1})
        few = PairHull(self.low[some], self.gap[some], self.miss[some])
        # The received value is noise about plus or minus the amplitude: the moments of the loss are
        # integrals over the noise by the trapezoidal rule, one for each bit.
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
        r"""Upper bound of the excess :math:`\delta(\epsilon) - (1 - e^\epsilon)_+` for every pair
        of bit probabilities in the polygon, at each of the given epsilons (point). It is the
        largest excess over the vertices, rounded up. Epsilons have either sign and a magnitude of
        at most 600; the amplitude of a bit is in standard deviations of the noise."""
        loud = min(amplitude, _LOUD)
        c = np.expm1(np.asarray(epsilon))
        low, gap, miss = self.low[:, None], self.gap[:, None], self.miss[:, None]
        above = gap - c * low
        # At an epsilon beyond the largest privacy loss, or below the smallest, all losses lie on
        # one side of it, and the excess is 0.
        with np.errstate(divide="ignore", invalid="ignore"):
            inside = (above > 0) & (c > -gap / (gap + miss))
            # The exact ratio is never below -1, but rounding may make it so.
            ratio = np.maximum(np.where(inside, c / above, 0.0), -1.0)
            t = np.abs(np.log1p(ratio)) / (2.0 * loud)
        far = ndtr(-loud - t)
        # The normal probability of the interval from t - A to t + A, which a difference of two
        # tails would give with few digits if the amplitude A is small.
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
    """Probabilities of a random bit before and after its gradient entry grows by a fixed amount.
    All arrays are (value), with one number for each value of the gradient entry before it grows."""

    low: Array
    """Probability q of a +1 bit before the gradient entry grows, for each value of the entry,
    (value)."""
    gap: Array
    """Growth p - q of the probability of a +1 bit, from q to p, when the gradient entry grows; for
    each value of the entry before that, (value), with full relative accuracy."""
    miss: Array
    """Probability of a -1 bit after the gradient entry has grown, for each value of the entry
    before that, (value), with full relative accuracy."""
    slope: Array
    """Derivative of ``gap`` with respect to ``low``, (value): the ratio of the link's derivatives
    after and before the gradient entry grows, minus 1."""


class MovableLink(Hashable, Protocol):
    """What the privacy accountant needs of a link (the probability of a +1 bit given a gradient
    entry), whose derivative must be log-concave."""

    def moved(self, x: Array, shift: float) -> MovedBit:
        """Probabilities of a bit before and after its gradient entry grows by ``shift`` from each
        of the values ``x`` (value)."""


# Cached, because searches for a gain ask for the polygon of the same move again and again.
@lru_cache(maxsize=64)
def hull_of_moves(link: MovableLink, clip: float, shift: float) -> PairHull:
    r"""Polygon around all pairs of probabilities of a +1 bit before and after its gradient entry,
    in [-clip, clip], moves by at most ``shift`` up or down.

    The divergence of the received values grows with the probability of +1 after the move, and falls
    with that before it, so the longest move is the worst. A move down from x makes the same pair as
    a move up from -x, because the ``link`` must satisfy :math:`\Phi(-x) = 1 - \Phi(x)`. Its
    derivative must be log-concave."""
    shift = min(shift, 2.0 * clip)
    nodes = link.moved(_places(link, clip, shift), shift)
    low, gap, miss, slope = (np.asarray(values, dtype=np.float64) for values in nodes)
    if not np.ptp(slope):  # the curve is a straight line: its ends are the hull
        ends = [0, -1]
        return PairHull(low[ends], gap[ends] * (1.0 + _HULL_ROUNDING), miss[ends])
    # A vertex of the polygon is the point where the tangents of the curve of pairs at two
    # neighbouring values of the gradient entry meet. Where the curve is straight both tangents
    # coincide, and the middle between the two points is taken.
    bend = slope[:-1] - slope[1:]
    with np.errstate(divide="ignore", invalid="ignore"):
        share = (np.diff(gap) - slope[1:] * np.diff(low)) / (bend * np.diff(low))
    share = np.clip(np.where((bend > 0) & np.isfinite(share), share, 0.5), 0.0, 1.0)
    meet_low = low[:-1] + share * np.diff(low)
    meet_gap = np.maximum(
        gap[:-1] + slope[:-1] * (meet_low - low[:-1]), gap[1:] + slope[1:] * (meet_low - low[1:])
    )
    # Probability of a -1 bit after the move at each vertex, followed along the tangent at the
    # larger of two neighbouring values: a sum of positive terms, in which no digits cancel.
    meet_miss = miss[1:] + (1.0 + slope[1:]) * (low[1:] - meet_low)
    return PairHull(
        np.concatenate([low[:1], meet_low, low[-1:]]),
        np.concatenate([gap[:1], meet_gap, gap[-1:]]) * (1.0 + _HULL_ROUNDING),
        np.concatenate([miss[:1], meet_miss, miss[-1:]]),
    )


def _places(link: MovableLink, clip: float, shift: float) -> Array:
    """Values (value) of a gradient entry in [-clip, clip - shift], both ends among them, so dense
    that the bit probabilities before and after a move up by ``shift`` change little from one to the
    next."""
    if shift >= 2.0 * clip:
        return np.array([-clip])
    # A steep link rises within a small part of the clipping interval, around 0. So values are tried
    # densely around 0, and around minus the shift, from where the move leads to 0.
    wide, near = np.linspace(-1.0, 1.0, _TRIED), np.geomspace(1e-6, 1.0, _TRIED)
    about = clip * np.unique(np.concatenate([wide, near, -near, [0.0]]))
    tried = np.concatenate([about, about - shift, [clip - shift]])
    tried = np.unique(tried[(tried >= -clip) & (tried <= clip - shift)])
    bit = link.moved(tried, shift)
    # arcsin sqrt(p) is computed as arccos sqrt(1 - p), because 1 - p, the probability of -1 after
    # the move, is known with full relative accuracy.
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
