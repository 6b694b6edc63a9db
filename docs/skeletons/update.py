"""A server's update of your own: kinetic Langevin, with a thermostat of its own if you like."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import flmc
from flmc.base.arrays import Array


@dataclass(frozen=True)
class KineticLangevin(flmc.ServerUpdate):
    """A velocity that friction slows, that the estimate pushes, and that moves theta.

    A round keeps exp(-friction) of the velocity. Own noise brings the temperature ``own``, and the
    channel's the rest. ``slope`` is the uplink's, 1 for analog.
    """

    friction: float = 0.5
    own: float = 0.0
    slope: float = 1.0
    num_slots: ClassVar[int] = 1  # the velocity
    random: ClassVar[bool] = True
    # Half way between two positions the variance is the posterior's at every step, as a 2 x 2
    # Lyapunov equation shows; without this line draws are positions, and the step half as large.
    draw_at: ClassVar[str] = "midpoints"

    # Optional, as the next: without it nothing is claimed of temperature and effective step.
    @property
    def step_factor(self) -> float:
        """What one push moves theta in the long run, over the step: a geometric series."""
        return 1.0 / -math.expm1(-self.friction)

    @property
    def own_temperature(self) -> float:
        """Temperature that the update's own noise adds."""
        return self.own

    def next(
        self, state: flmc.ServerState, estimate: Array, step_size: float, normal: Array | None
    ) -> flmc.ServerState:
        """The velocity is all that the update remembers, (..., 1, entry)."""
        width = math.sqrt(2.0 * self.own * step_size * self.slope / self.step_factor)
        velocity = math.exp(-self.friction) * state.memory[..., 0, :] - step_size * estimate
        velocity = velocity + width * (0.0 if normal is None else normal)
        return flmc.ServerState(state.theta + velocity, velocity[..., None, :])
