"""Path gains, gains and who is scheduled, round by round, as the air announces them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from flmc.base.randomness import ROUNDS_PER_BLOCK
from flmc.deploy.air.channel import RoundOnAir
from flmc.planning.plans import Plan
from flmc.sampling.schedule import Schedule, draw_schedule


class Scheduled(NamedTuple):
    """A round as it is announced.

    Attributes
    ----------
    on_air
        The round.
    devices
        Who is to transmit, (device).
    """

    on_air: RoundOnAir
    devices: npt.NDArray[np.bool_]


class AirSchedule:
    """The rounds of a plan, drawn in blocks as a simulation draws them.

    Parameters
    ----------
    plan, seed
        The plan, and the seed of what is random; both decide every round.
    least_gain
        Nobody is scheduled in a round with a gain below it: the fade is too deep for the grid.
    """

    def __init__(self, plan: Plan, seed: int, least_gain: float = 0.0) -> None:
        self._plan, self._seed, self._least_gain = plan, seed, least_gain
        self._block = -1
        self._drawn: Schedule | None = None

    def round(self, number: int) -> Scheduled:
        """What is fixed for a round.

        Parameters
        ----------
        number
            The round, counted from 1.
        """
        block, index = divmod(number - 1, ROUNDS_PER_BLOCK)
        if self._drawn is None or block != self._block:
            self._drawn = draw_schedule(self._plan, self._seed, range(1), block)
            self._block = block
        drawn = self._drawn
        fading = np.asarray(drawn.fading[0, index])
        arriving = fading if drawn.arriving is None else np.asarray(drawn.arriving[0, index])
        devices = (
            np.ones(self._plan.num_devices, dtype=bool)
            if drawn.active is None
            else np.asarray(drawn.active[0, index] > 0)
        )
        gain = np.asarray(drawn.gain[0, index])
        if gain.min() < self._least_gain:
            devices = np.zeros_like(devices)
        return Scheduled(RoundOnAir(number, gain, fading, arriving), devices)
