r"""One-bit stochastic quantisation: entry :math:`g` becomes :math:`+1` with probability :math:`\Phi(g)`, else
:math:`-1`.

A *link* is the function :math:`\Phi`. What the sampler and the accountant need of it is derived from ``probability``
alone: the mean bit :math:`\psi(g) = 2\Phi(g) - 1`, its variance :math:`1 - \psi(g)^2`, the slope :math:`\kappa =
2\Phi'(0)` and the two extreme probabilities :math:`\Phi(\pm\ell)`."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from flmc import checks
from flmc.checks import Array
from flmc.errors import InvalidSetting
from flmc.special import expit, ndtr

_CHECK_POINTS = 2001


class Link(ABC):
    """Probability of a +1 bit. Your own link is a class with one method, ``probability``."""

    proven: ClassVar[bool] = False
    """Whether the link is known to be monotone everywhere, not only on the grid of the check. A subclass with a
    probability of its own does not inherit it."""

    def __init_subclass__(cls) -> None:
        if "probability" in vars(cls) and "proven" not in vars(cls):
            cls.proven = False

    @property
    def within_extremes(self) -> bool:
        """Whether devices use no probability beyond those at the clip, because nobody has changed how they are
        held."""
        kind = type(self)
        return (
            kind.bounded_probability is Link.bounded_probability
            and kind.extremes is Link.extremes
            and kind.mean is Link.mean
        )

    @abstractmethod
    def probability(self, g: Array) -> Array:
        """Probability that an entry g becomes +1: values in [0, 1] that never decrease with g."""

    def bounded_probability(self, g: Array, clip: float) -> Array:
        """What devices use: for a link that is not proven to be monotone, held between Phi(-clip) and Phi(clip), and
        1/2 where it is not a number. So the worst case is at the clip whatever the link does between the points of the
        check."""
        values = self.probability(g)
        if self.proven:
            return values
        high, low = self.extremes(clip)
        return np.clip(np.nan_to_num(values, nan=0.5), low, high)

    def mean(self, g: Array, clip: float) -> Array:
        """Expected bit, 2 Phi(g) - 1."""
        return 2.0 * self.bounded_probability(g, clip) - 1.0

    def slope(self, clip: float) -> float:
        r"""Small-signal gain :math:`\kappa = 2\Phi'(0)`, from a central difference of width 2e-5 of the clip.

        Refused where it is not finite and positive: such a quantiser does not scale the gradient, so there is no
        temperature to speak of.
        """
        width = 1e-5 * clip
        wide, narrow = (self._difference(w) / w for w in (width, width / 10))
        if narrow > 1.1 * wide:  # the difference quotient grows: a jump, or a slope without bound
            raise InvalidSetting(
                f"the link {name_of(self)} has no slope at 0 (a jump, or infinitely steep): the noise that the sampler"
                " needs cannot be calibrated; use langevin = 'paper' or 'off', or a link that is smooth at 0"
            )
        if not wide > 0:
            raise InvalidSetting(
                f"the link {name_of(self)} must rise at 0, got slope {wide:g}: small gradients would be lost"
            )
        return wide

    def _difference(self, width: float) -> float:
        """Phi(width) - Phi(-width)."""
        low, high = self.probability(np.array([-width, width]))
        return float(high - low)

    def extremes(self, clip: float) -> tuple[float, float]:
        """The worst-case pair (Phi(clip), Phi(-clip)): what a device can say at most."""
        high, low = self.probability(np.array([clip, -clip]))
        return float(high), float(low)

    def bound_to(self, clip: float) -> Link:
        """This link for gradients clipped at ``clip``; only a link whose shape depends on the clip differs."""
        return self

    def check(self, clip: float) -> None:
        """Refuse a function that is not a probability or that decreases somewhere on [-clip, clip]."""
        grid = np.linspace(-clip, clip, _CHECK_POINTS)
        try:
            values = np.asarray(self.probability(grid), dtype=np.float64)
        except Exception as error:
            raise InvalidSetting(
                f"the link {name_of(self)} failed on an array of {grid.size} entries: {error}"
            ) from error
        if values.shape != grid.shape:
            raise InvalidSetting(
                f"the link {name_of(self)} must return one probability per entry, got shape {values.shape}"
            )
        outside = values[~((values >= 0) & (values <= 1))]
        if outside.size:
            raise InvalidSetting(
                f"the link {name_of(self)} must return probabilities in [0, 1] for gradients in [-{clip:g}, {clip:g}],"
                f" got {outside[0]:g}"
            )
        fall = int(np.argmin(np.diff(values)))
        if values[fall + 1] - values[fall] < -1e-12:  # rounding of a flat link is not a fall
            raise InvalidSetting(f"the link {name_of(self)} must never decrease, but it falls near g = {grid[fall]:g}")
        if not values[0] < 0.5 < values[-1]:
            raise InvalidSetting(
                f"the link {name_of(self)} must rise from below 1/2 to above it over [-{clip:g}, {clip:g}], or devices"
                f" could pull one way only; got {values[0]:g} to {values[-1]:g}"
            )


@dataclass(frozen=True)
class Sigmoid(Link):
    r""":math:`\Phi(g) = 1/(1 + e^{-a g})` with a = ``slope_parameter``; :math:`\kappa = a/2`."""

    proven: ClassVar[bool] = True

    slope_parameter: float = 0.05

    def __post_init__(self) -> None:
        checks.positive("slope_parameter", self.slope_parameter)

    def probability(self, g: Array) -> Array:
        """The logistic function."""
        return np.asarray(expit(self.slope_parameter * g))

    def slope(self, clip: float) -> float:
        """a/2."""
        return self.slope_parameter / 2


@dataclass(frozen=True)
class Probit(Link):
    r""":math:`\Phi(g)` = the standard normal distribution function at :math:`a g`; :math:`\kappa = 2a/\sqrt{2\pi}`."""

    proven: ClassVar[bool] = True

    slope_parameter: float = 0.03

    def __post_init__(self) -> None:
        checks.positive("slope_parameter", self.slope_parameter)

    def probability(self, g: Array) -> Array:
        """The normal distribution function."""
        return np.asarray(ndtr(self.slope_parameter * g))

    def slope(self, clip: float) -> float:
        """2 a / sqrt(2 pi)."""
        return self.slope_parameter * math.sqrt(2 / math.pi)


@dataclass(frozen=True)
class Linear(Link):
    r""":math:`\Phi(g) = (1 + r g/\ell)/2`, 0 < r <= 1: the mean bit is proportional to the clipped gradient, so the
    quantiser is unbiased up to the scale :math:`\kappa = r/\ell`. The clip :math:`\ell` is the uplink's."""

    proven: ClassVar[bool] = True

    ratio: float = 1.0
    clip: float | None = None

    def __post_init__(self) -> None:
        if not 0 < checks.number("ratio", self.ratio) <= 1:
            raise InvalidSetting(f"ratio must lie in (0, 1], got {self.ratio!r}")

    def bound_to(self, clip: float) -> Linear:
        """The same ratio at this clip."""
        return replace(self, clip=clip)

    def probability(self, g: Array) -> Array:
        """A straight line through 1/2."""
        if self.clip is None:
            raise InvalidSetting(
                "a Linear link takes its clip from the uplink: use Digital(link=Linear(...), clip=...)"
            )
        return 0.5 + (0.5 * self.ratio / self.clip) * g

    def slope(self, clip: float) -> float:
        """r / clip."""
        return self.ratio / clip


@dataclass(frozen=True)
class Sign(Link):
    """The sign of the gradient, without randomness; a fair bit at exactly 0. It has no slope."""

    proven: ClassVar[bool] = True

    def probability(self, g: Array) -> Array:
        """0, 1/2 or 1."""
        return 0.5 + 0.5 * np.sign(g)


def quantise(probability: Array, uniform: Array) -> Array:
    r"""Bits: :math:`+1` where ``uniform`` (drawn from [0, 1)) lies below the probability :math:`\Phi(g)`, else
    :math:`-1`; never 0."""
    return np.where(uniform < probability, 1.0, -1.0)


def name_of(link: Link) -> str:
    """How a link is called in messages."""
    return type(link).__name__
