"""What limits the gain: what a user asks for, and what each constraint answers."""

from __future__ import annotations

import math
from dataclasses import dataclass

from flmc.base import checks
from flmc.base.errors import InvalidSetting


@dataclass(frozen=True)
class Limits:
    """What limits the gain besides power.

    * ``epsilon``: the privacy budget; None for no privacy limit (the cost is stated all the same).
    * ``delta``: of statements about one round; ``run_delta``: of statements about the whole run.
    * ``scope``: whether the budget is for a ``round`` (with ``delta``) or for the ``run`` (with
      ``run_delta``).
    * ``privacy``: ``tight``, ``tail``, ``paper`` or ``off``, see :mod:`flmc.privacy.event`.
    * ``neighbouring``: what is replaced, all data of a ``device`` or one ``example`` (needs the
      uplink's ``example_clip``).
    * ``allocation``: one gain for all rounds (``static``), or a run's budget spent where it matters
      (``adaptive``).
    * ``langevin``: ``calibrated`` (temperature 1), ``paper`` (the limit as printed) or ``off``.
    """

    epsilon: float | None = None
    delta: float = 0.01
    privacy: str = "tight"
    scope: str = "round"
    run_delta: float = 1e-5
    langevin: str = "calibrated"
    neighbouring: str = "device"
    allocation: str = "static"

    def __post_init__(self) -> None:
        if self.epsilon is not None:
            checks.positive("epsilon", self.epsilon, extreme=1e15)
        checks.between("delta", self.delta, 0.0, 1.0)
        checks.between("run_delta", self.run_delta, 0.0, 1.0)
        checks.one_of("privacy", self.privacy, ("tight", "tail", "paper", "off"))
        checks.one_of("scope", self.scope, ("round", "run"))
        checks.one_of("neighbouring", self.neighbouring, ("device", "example"))
        checks.one_of("allocation", self.allocation, ("static", "adaptive"))
        if self.allocation == "adaptive" and (
            self.scope != "run" or self.epsilon is None or self.privacy == "off"
        ):
            raise InvalidSetting(
                "allocation 'adaptive' needs a budget of the run: give epsilon and scope 'run'"
            )
        checks.one_of("langevin", self.langevin, ("calibrated", "paper", "off"))
        if self.scope == "run" and self.privacy in ("tail", "paper"):
            raise InvalidSetting(
                f"scope 'run' needs privacy 'tight', got {self.privacy!r}: a bound on the"
                " probability of a large loss in one round says nothing about the sum of losses"
                " over rounds, so it does not compose"
            )

    @property
    def criterion(self) -> str:
        """The criterion by which the cost of a round is stated."""
        return "tight" if self.privacy == "off" else self.privacy


@dataclass(frozen=True)
class GainLimits:
    """The largest gain each constraint allows in a kept round; infinite where it does not bind at
    all."""

    power: float
    langevin: float
    privacy: float

    @property
    def smallest(self) -> float:
        """What all of them allow."""
        return min(self.power, self.langevin, self.privacy)

    @property
    def binding(self) -> str:
        """The constraint that decides; `power` where the step was chosen so that power and Langevin
        noise meet."""
        limits = {"power": self.power, "privacy": self.privacy, "langevin": self.langevin}
        near = self.smallest * (1 + 1e-9)
        return next(
            (name for name, gain in limits.items() if gain <= near and math.isfinite(gain)), "none"
        )
