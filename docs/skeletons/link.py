"""A link of your own: the probability that a gradient entry becomes a +1 bit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

import flmc
from flmc.base.arrays import Array


@dataclass(frozen=True)
class Cauchy(flmc.Link):
    """The distribution function of a Cauchy variable; ``scale`` is where it reaches 3/4."""

    # Facts, each only if it is proven. The density of this link is not log-concave, so that fact is
    # left out: one example is then accounted like a whole device.
    monotone: ClassVar[bool] = True
    odd: ClassVar[bool] = True

    scale: float = 20.0

    def probability(self, g: Array) -> Array:
        """For clipped gradient entries of any shape: values in [0, 1] that never decrease."""
        return np.asarray(0.5 + np.arctan(g / self.scale) / np.pi)

    # Optional. Without it the slope is a difference quotient of `probability`.
    def slope(self, clip: float) -> float:
        """Twice the derivative of the probability at 0."""
        return 2.0 / (np.pi * self.scale)

    # Optional. Without it searches keep the slope as it is.
    def with_slope(self, slope: float, clip: float) -> Cauchy:
        """The link of the same family with this slope."""
        return Cauchy(2.0 / (np.pi * slope))


uplink = flmc.Digital(link=Cauchy(20.0), clip=30.0)
