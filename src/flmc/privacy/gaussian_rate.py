r"""Rate at which a received bit tells two values of its gradient entry apart, compared with a
Gaussian mechanism.

A received entry exceeds t with probability :math:`q = p\,\Phi(A - t) + (1-p)\,\Phi(-A - t)`, where
the bit is +1 with probability :math:`p(x)`, x being the gradient entry and A the amplitude in
standard deviations of the noise. The larger x, the more likely are large values, so the best tests
of two gradients are thresholds. If :math:`\Phi^{-1}(q)` never grows faster with x than at the rate
c, then moving x by d is no easier to see than moving the mean of a standard normal variable by c d,
at every threshold: the Gaussian mechanism with :math:`\mu = c d` dominates (docs/privacy.md,
section 7)."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from flmc.base.special import ndtri, normal_between
from flmc.privacy.root_finding import largest_argument

_ROUNDING = 1 + 1e-9
"""Factor by which the bounds of the rate, at which a bit tells two gradient entries apart, are
enlarged, so that neither rounding errors nor a search that ends early makes them too small."""
ROOT_HALF_PI = math.sqrt(math.pi / 2)
"""Rate of a bit without noise, for the sigmoid and the probit link, over the slope of the link,
which is twice its derivative at 0. A rate c says that the bit reveals a move d of its gradient
entry no better than a Gaussian mechanism whose means are c d standard deviations apart."""


class GaussianRate(NamedTuple):
    """Upper bounds of the rate c of a received bit: the bit reveals a move d of its gradient entry
    no better than a Gaussian mechanism whose means are c d standard deviations apart. One bound is
    close for bits of small amplitude (``soft``), the other holds for any amplitude (``loud``)."""

    soft: float
    r"""Factor s of the bound :math:`s\,(2\Phi(A) - 1)\,e^{A^2/2}` of the rate, with the amplitude A
    of the bit in standard deviations of the noise and the normal distribution function
    :math:`\Phi`. The bound holds for links whose derivative falls away from 0; ``ratio`` corrects
    it for others."""
    loud: float
    """Bound of the rate that holds for any amplitude of the bit: the rate of a bit without noise;
    it may be infinite."""
    ratio: float = 0.0
    r"""Parameter r of a straight link, whose bit is +1 with probability :math:`(1 \pm r)/2` for a
    gradient entry at plus or minus the clip; 0 for links whose derivative falls away from 0. The
    derivative of a straight link is constant, so for tests of the received value against t the
    bound with ``soft`` is multiplied by :math:`1/(y \coth y - r y)`, y = A t."""

    def at(self, amplitude: float, reach: float = math.inf) -> float:
        """Upper bound, possibly infinite, of the rate of a received bit, whose ``amplitude`` is in
        standard deviations of the noise. Only tests of the received value against thresholds up to
        ``reach`` standard deviations beyond the amplitude are considered."""
        if amplitude == 0.0:
            return 0.0
        # Above an amplitude of 2 the bound with ``soft``, which grows like exp(A^2/2), is mostly
        # larger than ``loud``.
        if amplitude > 2.0 and math.isfinite(self.loud):
            return self.loud
        if not (amplitude <= 10.0 and math.isfinite(self.soft)):
            return self.loud
        # The factor 2 Phi(A) - 1 of the soft bound, with the amplitude A and the normal
        # distribution function Phi.
        between = float(normal_between(np.array(0.0), amplitude))
        steeper = _steeper(self.ratio, amplitude * (amplitude + reach)) if self.ratio else 1.0
        return min(self.soft * between * math.exp(amplitude**2 / 2) * steeper, self.loud)


@lru_cache(maxsize=4096)
def _steeper(ratio: float, farthest: float) -> float:
    """Upper bound, nearly the maximum, of 1/(y coth y - r y) over y from 0 to ``farthest``, with r
    = ``ratio``: the factor that ``GaussianRate.soft`` needs for a straight link with parameter
    r."""
    if ratio < 0.01:
        # y coth y >= 1 + y^2/3 - y^4/45, so y coth y - r y is at least 1 - 3 r^2/4 - r^4/8. Its
        # inverse is at most 1 + r^2 for an r this small.
        return 1.0 + ratio**2

    # The denominator y coth y - r y is convex in y. This function is its derivative, which grows
    # from -r to 1 - r.
    def excess(y: float) -> float:
        return 1.0 / math.tanh(y) - y / math.sinh(y) ** 2 - ratio

    start = 1e-6 * ratio
    if farthest <= start:
        return 1.0 + farthest
    y = largest_argument(excess, start, min(farthest, 300.0))
    # The denominator y coth y - r y at its minimum, in a form without cancellation.
    depth = 2.0 * y / math.expm1(2.0 * y) + (1.0 - ratio) * y
    return _ROUNDING / min(1.0, depth) if depth > 0 else math.inf


def rate_of_bent_link(slope: float) -> GaussianRate:
    r"""Upper bounds of the rate at which bits of the sigmoid or the probit link tell two gradient
    entries apart. The ``slope`` :math:`\kappa` is twice the derivative at 0 of the probability of
    +1. This derivative falls away from 0 as fast as bits become certain, so the bounds for small
    and for any amplitude are both :math:`\kappa\sqrt{\pi/2}`."""
    rate = slope * ROOT_HALF_PI * _ROUNDING
    return GaussianRate(rate, rate)


def rate_of_straight_link(ratio: float, clip: float) -> GaussianRate:
    r"""Upper bounds of the rate at which bits of the straight link tell two gradient entries apart.
    A bit is +1 with probability :math:`(1 + r x/\ell)/2` for a gradient entry x, with r = ``ratio``
    and :math:`\ell` = ``clip``.

    A bit without noise has its largest rate for an entry at the clip,
    :math:`r/(2\ell\,\varphi(\Phi^{-1}((1-r)/2)))` with the normal density :math:`\varphi` and
    distribution function :math:`\Phi`; it is infinite for r = 1."""
    slope, rest = ratio / clip, (1.0 - ratio) / 2
    loud = math.inf
    if rest > 0.0:
        at_clip = math.exp(-0.5 * float(ndtri(np.array(rest))) ** 2) / math.sqrt(2 * math.pi)
        loud = slope / (2 * at_clip) * _ROUNDING
    return GaussianRate(slope * ROOT_HALF_PI * _ROUNDING, loud, ratio)
