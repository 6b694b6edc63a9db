"""The links that flmc brings: sigmoid, probit, linear and sign."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from flmc.base import checks
from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.base.special import expit, ndtr
from flmc.uplink.link import Link


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
    r""":math:`\Phi(g)` = the standard normal distribution function at :math:`a g`; :math:`\kappa =
    2a/\sqrt{2\pi}`."""

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
    r""":math:`\Phi(g) = (1 + r g/\ell)/2`, 0 < r <= 1: the mean bit is proportional to the clipped
    gradient, so the quantiser is unbiased up to the scale :math:`\kappa = r/\ell`. The clip
    :math:`\ell` is the uplink's."""

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
                "a Linear link takes its clip from the uplink: use Digital(link=Linear(...),"
                " clip=...)"
            )
        return 0.5 + (0.5 * self.ratio / self.clip) * g

    def slope(self, clip: float) -> float:
        """r / clip."""
        return self.ratio / clip


@dataclass(frozen=True)
class Sign(Link):
    """The sign of the gradient, without randomness; a fair bit at exactly 0. It has no slope."""

    proven: ClassVar[bool] = True
    jumps: ClassVar[bool] = True

    def probability(self, g: Array) -> Array:
        """0, 1/2 or 1."""
        return 0.5 + 0.5 * np.sign(g)
