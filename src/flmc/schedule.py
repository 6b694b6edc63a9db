"""From a plan and a realised channel to the rounds of a block."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from flmc.channel import invert_channel
from flmc.checks import Array
from flmc.langevin import Round
from flmc.plan import Plan
from flmc.power import realised_gain
from flmc.randomness import ROUNDS_PER_BLOCK, Purpose, generator


@dataclass(frozen=True)
class Schedule:
    """A block of rounds: ``gain`` (experiment, round, dim) and ``fading`` (experiment, round, device, dim), with a
    single experiment where the channel is the same for all; ``active`` (round, device) or None."""

    step_sizes: Array
    gain: Array
    fading: Array
    active: Array | None
    num_active: Array

    def __len__(self) -> int:
        return len(self.step_sizes)

    def active_devices(self, index: int) -> npt.NDArray[np.bool_] | None:
        """Who transmits, (device); None: all."""
        return None if self.active is None else self.active[index] > 0

    def round(self, index: int) -> Round:
        """One round of the block, with an axis for the chains."""
        gain, fading = self.gain[:, None, index], self.fading[:, None, index]
        amplitude = invert_channel(gain, fading, None if self.active is None else self.active[index])
        return Round(float(self.step_sizes[index]), gain, fading * amplitude, float(self.num_active[index]))


def draw_schedule(plan: Plan, seed: int, experiments: range, block: int) -> Schedule:
    """Draw the fading of each experiment (its chains share it) in a block of rounds."""
    first = block * ROUNDS_PER_BLOCK
    rounds = range(first, min(first + ROUNDS_PER_BLOCK, plan.num_rounds))
    if plan.uplink.fading.constant:
        return constant_schedule(plan, seed, rounds)
    shape = (len(rounds), plan.num_devices, plan.dim)
    draw = plan.uplink.fading.draw_checked
    return _schedule_of(
        plan, np.stack([draw(generator(seed, Purpose.FADING, e, 0, block), *shape) for e in experiments]), rounds
    )


def constant_schedule(plan: Plan, seed: int, rounds: range) -> Schedule:
    """Any rounds of a channel that is always the same."""
    drawn = plan.uplink.fading.draw_checked(generator(seed, Purpose.FADING), 1, plan.num_devices, plan.dim)
    return _schedule_of(plan, drawn[None], rounds)


def _schedule_of(plan: Plan, fading: Array, rounds: range) -> Schedule:
    """Take the smaller of the plan's cap and the power limit of the round. Nothing here looks at data, so the gain may
    be public. ``fading`` is (experiment, round or 1, device, dim)."""
    part = slice(rounds.start, rounds.stop)
    active = None if plan.active is None else plan.active[part]
    gain = realised_gain(plan.uplink, plan.gain if len(plan.gain) == 1 else plan.gain[part], fading, active)
    return Schedule(
        plan.step_sizes[part],
        np.broadcast_to(gain, (len(gain), len(rounds), plan.dim)),
        np.broadcast_to(fading, (len(fading), len(rounds), *fading.shape[2:])),
        active,
        plan.num_active[part],
    )
