"""What rounds really transmit where the channel decides: who, how loudly, and how hot that is.

It follows from the channel and the plan alone, so it is public, and known before a round begins."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from flmc.base.arrays import Array
from flmc.base.randomness import ROUNDS_PER_BLOCK
from flmc.planning.plans import Plan
from flmc.planning.temperature import temperature
from flmc.sampling.schedule import Schedule, draw_schedule


class Realised(NamedTuple):
    """Some rounds as they are transmitted, over all experiments.

    Attributes
    ----------
    active
        Who transmits in at least one experiment, (round, device) with 1 or 0.
    gain
        Largest gain of the experiments in which somebody transmits, (round, dim); 0 if nobody does.
    temperature
        Mean temperature of the experiments in which somebody transmits, (round); NaN if nobody
        does, or the link has no slope.
    """

    active: Array
    gain: Array
    temperature: Array


def draw_realised(plan: Plan, seed: int, num_experiments: int, rounds: range) -> Realised:
    """Some rounds of a plan whose policy follows the channel, as they are transmitted.

    Parameters
    ----------
    plan
        The plan.
    seed
        Of the run.
    num_experiments
        Data sets, each with a channel of its own.
    rounds
        Which rounds, counted from 0.
    """
    blocks = range(rounds.start // ROUNDS_PER_BLOCK, -(-rounds.stop // ROUNDS_PER_BLOCK))
    begin = rounds.start - blocks.start * ROUNDS_PER_BLOCK
    part = slice(begin, begin + len(rounds))
    active = np.zeros((len(rounds), plan.num_devices))
    gain, heat = np.zeros((len(rounds), plan.dim)), np.zeros(len(rounds))
    heard = np.zeros(len(rounds))
    for experiment in range(num_experiments):
        one = range(experiment, experiment + 1)
        drawn = [draw_schedule(plan, seed, one, block) for block in blocks]
        count = np.concatenate([each.num_active[0] for each in drawn])[part]
        gains = np.concatenate([each.gain[0] for each in drawn])[part]
        talks = count > 0
        active = np.maximum(active, np.concatenate([_active(plan, each) for each in drawn])[part])
        gain = np.maximum(gain, np.where(talks[:, None], gains, 0.0))
        heard += talks
        if plan.slope is not None:
            heat += [
                _heat(plan, gains[i], count[i]) if talks[i] else 0.0 for i in range(len(rounds))
            ]
    with np.errstate(invalid="ignore"):
        mean = np.where(heard > 0, heat / heard, np.nan)
    return Realised(active, gain, mean if plan.slope is not None else np.full(len(heat), np.nan))


def _active(plan: Plan, schedule: Schedule) -> Array:
    """Who transmits in the rounds of a schedule of one experiment, (round, device)."""
    if schedule.active is None:
        return np.ones((len(schedule), plan.num_devices))
    return np.asarray(schedule.active[0])


def _heat(plan: Plan, gain: Array, count: float) -> float:
    """Temperature of one round."""
    return temperature(plan.uplink, plan.step_size, gain, plan.num_devices, count, plan.scheduler)
