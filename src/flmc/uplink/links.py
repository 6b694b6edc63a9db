"""The links that flmc brings: sigmoid, probit, linear and sign."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from flmc.base import checks
from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.base.special import expit, ndtr, normal_between
from flmc.privacy.bit_pairs import MovedBit
from flmc.privacy.gaussian_rate import GaussianRate, rate_of_bent_link, rate_of_straight_link
from flmc.uplink.link import Link, MeanCurve


@dataclass(frozen=True)
class Sigmoid(Link):
    r"""Logistic link, :math:`\Phi(g) = 1/(1 + e^{-a g})`, with slope :math:`\kappa = a/2`.

    Attributes
    ----------
    slope_parameter
        a, positive, in units of one over a gradient.

    Examples
    --------
    >>> float(flmc.Sigmoid(0.05).probability(np.array(0.0)))
    0.5
    """

    monotone: ClassVar[bool] = True
    odd: ClassVar[bool] = True
    log_concave: ClassVar[bool] = True

    slope_parameter: float = 0.05

    def __post_init__(self) -> None:
        checks.positive("slope_parameter", self.slope_parameter)

    def probability(self, g: Array) -> Array:
        """Probability of a +1 bit for each clipped gradient entry g, in the shape of ``g``:
        :math:`1/(1 + e^{-a g})` with the ``slope_parameter`` a."""
        return np.asarray(expit(self.slope_parameter * g))

    def moved(self, x: Array, shift: float) -> MovedBit:
        r"""Probabilities of a bit before and after the gradient entries ``x`` (entry) move up by
        ``shift``.

        With the shift D, the probability q of a +1 bit before the move and :math:`k = e^{a D} - 1`
        the probability grows by :math:`k q (1-q)/(1 + k q)`.
        """
        logit, rise = self.slope_parameter * np.asarray(x), self.slope_parameter * shift
        low, rest = expit(logit), expit(-logit)
        high, miss = expit(logit + rise), expit(-logit - rise)
        # ``gap`` is the growth of the probability, and ``slope`` the derivative of ``gap`` with
        # respect to the probability before the move: the ratio of the link's densities after and
        # before the move, minus 1.
        if rise > 1.0:
            # For a large move a difference of probabilities loses no digits, if it is taken between
            # the smaller of the probabilities and their complements. The formula for small moves
            # has exp(rise), which might overflow here.
            with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
                gap = np.where(low > 0.5, rest - miss, high - low)
                return MovedBit(low, gap, miss, high * miss / (low * rest) - 1.0)
        # For a small move a difference of probabilities would lose digits, so their growth comes
        # from the formula k q (1 - q)/(1 + k q), with the probability q before the move.
        k = math.expm1(rise)
        grown = 1.0 + k * low
        slope = k * (1.0 - 2.0 * low - k * np.square(low)) / np.square(grown)
        return MovedBit(low, k * low * rest / grown, miss, slope)

    def gaussian_rate(self, clip: float) -> GaussianRate:
        """Upper bounds of the rate c of a received bit: it reveals a move d of its gradient entry
        no better than a Gaussian mechanism whose means are c d standard deviations apart."""
        return rate_of_bent_link(self.slope_parameter / 2)

    def slope(self, clip: float) -> float:
        r"""Slope, the factor by which the mean bit scales a small gradient: half the
        ``slope_parameter``, at any clip."""
        return self.slope_parameter / 2

    def with_slope(self, slope: float, clip: float) -> Sigmoid:
        r"""Sigmoid whose mean bit scales small gradients by ``slope``, at any clip: its slope
        parameter is twice that."""
        return replace(self, slope_parameter=2.0 * slope)

    def curve(self, clip: float) -> MeanCurve:
        r"""Mean bit as a scaled standard function of a gradient entry g, :math:`\tanh(a g/2)` with
        the ``slope_parameter`` a."""
        return MeanCurve("tanh", self.slope_parameter / 2.0)


@dataclass(frozen=True)
class Probit(Link):
    r"""Normal link, :math:`\Phi(g) = \Pr(N(0, 1) \le a g)`, with slope :math:`\kappa =
    2a/\sqrt{2\pi}`.

    Attributes
    ----------
    slope_parameter
        a, positive, in units of one over a gradient.
    """

    monotone: ClassVar[bool] = True
    odd: ClassVar[bool] = True
    log_concave: ClassVar[bool] = True

    slope_parameter: float = 0.03

    def __post_init__(self) -> None:
        checks.positive("slope_parameter", self.slope_parameter)

    def probability(self, g: Array) -> Array:
        """Probability of a +1 bit for each clipped gradient entry g, in the shape of ``g``: the
        standard normal distribution function at :math:`a g` with the ``slope_parameter`` a."""
        return np.asarray(ndtr(self.slope_parameter * g))

    def moved(self, x: Array, shift: float) -> MovedBit:
        r"""Probabilities of a bit before and after the gradient entries ``x`` (entry) move up by
        ``shift``."""
        start, rise = self.slope_parameter * np.asarray(x), self.slope_parameter * shift
        gap = normal_between(np.abs(start + rise / 2), rise / 2)
        # The ratio of the normal densities after and before the move, minus 1. Its logarithm is
        # clipped to [-700, 700], because exp overflows beyond 709.
        slope = np.expm1(np.clip(-rise * (start + rise / 2), -700.0, 700.0))
        return MovedBit(ndtr(start), gap, ndtr(-start - rise), slope)

    def gaussian_rate(self, clip: float) -> GaussianRate:
        """Upper bounds of the rate c of a received bit: it reveals a move d of its gradient entry
        no better than a Gaussian mechanism whose means are c d standard deviations apart."""
        return rate_of_bent_link(self.slope_parameter * math.sqrt(2 / math.pi))

    def slope(self, clip: float) -> float:
        r"""Slope, the factor by which the mean bit scales a small gradient: :math:`\sqrt{2/\pi}`
        times the ``slope_parameter``, at any clip."""
        return self.slope_parameter * math.sqrt(2 / math.pi)

    def with_slope(self, slope: float, clip: float) -> Probit:
        r"""Probit link whose mean bit scales small gradients by ``slope``, at any clip: its slope
        parameter is :math:`\sqrt{\pi/2}` times that."""
        return replace(self, slope_parameter=slope * math.sqrt(math.pi / 2))

    def curve(self, clip: float) -> MeanCurve:
        r"""Mean bit as a scaled standard function of a gradient entry g,
        :math:`\operatorname{erf}(a g/\sqrt2)` with the ``slope_parameter`` a."""
        return MeanCurve("erf", self.slope_parameter / math.sqrt(2.0))


@dataclass(frozen=True)
class Linear(Link):
    r"""Straight link, :math:`\Phi(g) = (1 + r g/\ell)/2`, with slope :math:`\kappa = r/\ell`.

    The mean bit is proportional to the clipped gradient, so the quantiser is unbiased up to the
    scale :math:`\kappa`.

    Attributes
    ----------
    ratio
        r, in (0, 1]. With r = 1 the bit is certain at the clip, so that only the channel's noise
        hides it.
    clip
        :math:`\ell`; None until the uplink sets it to its own clip.

    Examples
    --------
    >>> uplink = flmc.Digital(link=flmc.Linear(0.9), clip=20.0)
    >>> uplink.link.clip, uplink.slope
    (20.0, 0.045)
    """

    monotone: ClassVar[bool] = True
    odd: ClassVar[bool] = True
    log_concave: ClassVar[bool] = True

    ratio: float = 1.0
    clip: float | None = None

    def __post_init__(self) -> None:
        if not 0 < checks.number("ratio", self.ratio) <= 1:
            raise InvalidSetting(f"ratio must lie in (0, 1], got {self.ratio!r}")

    def bound_to(self, clip: float) -> Linear:
        """This link for gradients clipped at ``clip``, where the probability of a +1 bit is again
        (1 + ratio)/2."""
        return replace(self, clip=clip)

    def probability(self, g: Array) -> Array:
        r"""Probability of a +1 bit for each clipped gradient entry g, in the shape of ``g``: the
        straight line :math:`(1 + r g/\ell)/2` with r = ``ratio`` and :math:`\ell` = ``clip``."""
        if self.clip is None:
            raise InvalidSetting(
                "a Linear link takes its clip from the uplink: use Digital(link=Linear(...),"
                " clip=...)"
            )
        return 0.5 + (0.5 * self.ratio / self.clip) * g

    def moved(self, x: Array, shift: float) -> MovedBit:
        r"""Probabilities of a bit before and after the gradient entries ``x`` (entry) move up by
        ``shift``: the probability of a +1 bit grows by the same amount at every entry."""
        # A probability below 1e-15 differs from 0 by rounding only, so it is set to 0: the bit is
        # certain there.
        low, miss = (np.where(p < 1e-15, 0.0, p) for p in map(self.probability, (x, -x - shift)))
        gap = np.full_like(low, 0.5 * self.slope(self.clip or 1.0) * shift)
        return MovedBit(low, gap, miss, np.zeros_like(low))

    def gaussian_rate(self, clip: float) -> GaussianRate:
        """Upper bounds of the rate c of a received bit: it reveals a move d of its gradient entry
        no better than a Gaussian mechanism whose means are c d standard deviations apart."""
        return rate_of_straight_link(self.ratio, clip)

    def slope(self, clip: float) -> float:
        r"""Slope, the factor by which the mean bit scales a gradient entry: ``ratio`` over
        ``clip``."""
        return self.ratio / clip

    def with_slope(self, slope: float, clip: float) -> Linear | None:
        r"""Straight link whose mean bit scales small gradients by ``slope``, at the clip ``clip``:
        its ratio is their product. None if the ratio would exceed 1."""
        ratio = slope * clip
        return replace(self, ratio=ratio, clip=clip) if ratio <= 1.0 else None

    def curve(self, clip: float) -> MeanCurve:
        r"""Mean bit as a scaled standard function of a clipped gradient entry: the identity of
        ``ratio`` / ``clip`` times the entry."""
        # np.positive is NumPy's identity function.
        return MeanCurve("positive", self.ratio / clip)


@dataclass(frozen=True)
class Sign(Link):
    """Sign of the gradient, without randomness; a fair bit at exactly 0.

    It has no slope at 0, so that the temperature is unknown, and only the channel's noise hides the
    bit."""

    monotone: ClassVar[bool] = True
    odd: ClassVar[bool] = True
    jumps: ClassVar[bool] = True

    def probability(self, g: Array) -> Array:
        """Probability of a +1 bit: 0 for a negative gradient, 1 for a positive one, 1/2 at 0."""
        # np.sign(0) is 0, which gives the probability 1/2 of a fair bit.
        return 0.5 + 0.5 * np.sign(g)

    def curve(self, clip: float) -> MeanCurve:
        """Mean bit as a standard function, the sign of the gradient."""
        return MeanCurve("sign", 1.0)
