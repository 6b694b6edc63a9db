"""What limits the gain: what a user asks for, and what each constraint answers."""

from __future__ import annotations

import math
from dataclasses import dataclass

from flmc import checks


@dataclass(frozen=True)
class Limits:
    """What limits the gain besides power.

    ``langevin``: ``calibrated`` (temperature 1, the default), ``paper`` (the limit as printed) or ``off``.
    """

    langevin: str = "calibrated"

    def __post_init__(self) -> None:
        checks.one_of("langevin", self.langevin, ("calibrated", "paper", "off"))


@dataclass(frozen=True)
class GainLimits:
    """The largest gain each constraint allows in a kept round; infinite where it does not bind at all."""

    power: float
    langevin: float
    privacy: float

    @property
    def smallest(self) -> float:
        """What all of them allow."""
        return min(self.power, self.langevin, self.privacy)

    @property
    def binding(self) -> str:
        """The constraint that decides; `power` where the step was chosen so that power and Langevin noise meet."""
        limits = {"power": self.power, "privacy": self.privacy, "langevin": self.langevin}
        near = self.smallest * (1 + 1e-9)
        return next((name for name, gain in limits.items() if gain <= near and math.isfinite(gain)), "none")
