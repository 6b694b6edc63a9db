"""The schedule of a run: step, gain, path gains and active devices of every round.

It follows from the plan, the seed and the channel; no data enter, so it is public and known before
a round begins. Rounds are drawn in blocks of ``ROUNDS_PER_BLOCK``, each from random streams of its
own. A scheduler that may remember earlier rounds draws the whole run at once, and a block is a
slice of it, so that a resumed run and every role of a federation have the same devices active.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import reduce
from typing import NamedTuple

import numpy as np

from flmc.base.arrays import Array, without_copies
from flmc.base.randomness import ROUNDS_PER_BLOCK, Purpose, generator
from flmc.planning.plans import Plan
from flmc.planning.plans.expectation import calibrated_cap
from flmc.sampling.langevin import Round
from flmc.sampling.path_gains import (
    KEPT_BYTES,
    WholeRuns,
    constant_path_gains,
    draw_known_channel,
)
from flmc.uplink.power import realised_gain


@dataclass(frozen=True)
class Schedule:
    """Step sizes, gain, path gains and active devices of some rounds, for all experiments.

    Where all experiments share an array, its axis of experiments has length 1.

    Attributes
    ----------
    step_sizes
        Step size of every round, (round).
    gain
        Amplitude of a symbol at the receiver, (experiment, round, dim).
    fading
        Path gains as devices know them, (experiment, round, device, dim).
    active
        Active devices, (experiment, round, device): 1 for a device that transmits, else 0; None:
        all transmit.
    num_active
        Number of active devices, (experiment, round).
    arriving
        Where devices know only estimates of their path gains, the in-phase part of the true path
        gains, in the shape of ``fading``; None: ``fading`` holds the true path gains.
    """

    step_sizes: Array
    gain: Array
    fading: Array
    active: Array | None
    num_active: Array
    arriving: Array | None = None

    def __len__(self) -> int:
        """Number of rounds."""
        return len(self.step_sizes)

    def active_devices(self, index: int) -> Array | None:
        """Active devices of round ``index`` of this schedule, counted from 0: (experiment, 1,
        device), 1 for a device that transmits, else 0, with an axis of length 1 for the chains;
        None: all transmit."""
        return None if self.active is None else self.active[:, None, index]

    def round(self, index: int) -> Round:
        """Round ``index`` of this schedule, counted from 0; arrays get an axis of length 1 for the
        chains, which share the channel."""
        gain, fading = self.gain[:, None, index], self.fading[:, None, index]
        count: Array | float = self.num_active[:, None, index, None]
        if len(self.num_active) == 1:  # a plain number is cheaper than an array of one
            count = float(self.num_active[0, index])
        arriving = None if self.arriving is None else self.arriving[:, None, index]
        step = float(self.step_sizes[index])
        return Round(step, gain, fading, self.active_devices(index), count, arriving)


def is_shared(plan: Plan) -> bool:
    """Whether every experiment has the same channel and the same active devices: the fading is
    constant and the plan itself says which devices transmit."""
    return plan.uplink.known_fading.constant and _is_known(plan)


def _is_known(plan: Plan) -> bool:
    """Whether the plan itself says which devices transmit in every round, so that the scheduler
    need not draw them."""
    return plan.scheduler.everyone or plan.active is not None


def block_of(plan: Plan, block: int) -> range:
    """The ``ROUNDS_PER_BLOCK`` rounds of block number ``block``, which share random streams; fewer
    in the last block of the plan. Rounds and blocks are counted from 0."""
    first = block * ROUNDS_PER_BLOCK
    return range(first, min(first + ROUNDS_PER_BLOCK, plan.num_rounds))


def draw_schedule(plan: Plan, seed: int, experiments: range, block: int) -> Schedule:
    """Schedule of block number ``block`` of ``ROUNDS_PER_BLOCK`` rounds, counted from 0: path gains
    and active devices are drawn for each experiment, whose chains share them. Where all experiments
    share an array, its axis of experiments has length 1."""
    rounds = block_of(plan, block)
    if is_shared(plan):
        return shared_schedule(plan, seed, rounds)
    # Path gains are drawn first, because the scheduler may choose the active devices by them.
    fading, arriving = draw_known_channel(plan, seed, experiments, block, rounds)
    active = _draw_active(plan, seed, experiments, block, fading)
    return replace(schedule_of(plan, fading, active, rounds), arriving=arriving)


DrawSchedule = Callable[[Plan, int, range, int], Schedule]
"""Type of a function such as :func:`draw_schedule`, which returns the schedule of a block of rounds
for a plan, a seed, experiments and the number of the block. The schedule must depend on nothing
else, so that an interrupted run resumes with the same one."""


def shared_schedule(plan: Plan, seed: int, rounds: range) -> Schedule:
    """Schedule of the rounds ``rounds``, counted from 0, of a plan whose experiments all have the
    same channel and active devices; the axis of experiments has length 1."""
    fading = constant_path_gains(plan, seed)
    active = None if plan.active is None else plan.active[None, rounds.start : rounds.stop]
    # Nothing is drawn here from the random streams that begin with each block of rounds, so
    # ``rounds`` may begin inside a block.
    return schedule_of(plan, fading, active, rounds)


def draw_transmitting(plan: Plan, seed: int, num_experiments: int, rounds: range) -> Array | None:
    """Devices that transmit in the rounds ``rounds`` in at least one of the experiments: (round,
    device), 1 for a device that does, else 0; None if all devices transmit in all rounds."""
    if _is_known(plan):
        return None if plan.active is None else plan.active[rounds.start : rounds.stop]
    blocks = range(rounds.start // ROUNDS_PER_BLOCK, -(-rounds.stop // ROUNDS_PER_BLOCK))
    policies = _draw_policies(plan, seed, num_experiments, blocks)
    # The maximum over the experiments is 1 for a device that transmits in any of them.
    transmitting = reduce(np.maximum, policies)
    begin = rounds.start - blocks.start * ROUNDS_PER_BLOCK
    return transmitting[begin : begin + len(rounds)]


class Activity(NamedTuple):
    """How often devices transmit in a run: ``num_active`` is the number of active devices of every
    round, (experiment, round), or (1, round) where it is the same in all experiments;
    ``most_rounds`` is the largest number of rounds in which any one device transmits."""

    num_active: Array
    most_rounds: int


def draw_activity(plan: Plan, seed: int, num_experiments: int) -> Activity:
    """Number of active devices of every round of a run, and the largest number of rounds in which
    one device transmits, for the schedule that follows from ``seed``."""
    if _is_known(plan):
        return Activity(
            plan.num_active[None], plan.scheduler.most_rounds(plan.num_rounds, plan.num_devices)
        )
    blocks = range(-(-plan.num_rounds // ROUNDS_PER_BLOCK))
    counts, most_rounds = [], 0.0
    for active in _draw_policies(plan, seed, num_experiments, blocks):
        counts.append(active.sum(axis=1))
        most_rounds = max(most_rounds, active.sum(axis=0).max())
    return Activity(np.stack(counts), int(most_rounds))


def _draw_policies(plan: Plan, seed: int, num_experiments: int, blocks: range) -> Iterator[Array]:
    """Active devices, drawn by the scheduler, in the rounds of the blocks with the numbers
    ``blocks``. Yields an array (round, device) for one experiment after the other, with 1 for a
    device that transmits, else 0; a single array if the scheduler is not random, because all
    experiments then have the same active devices. The plan itself must not say who transmits."""
    if not plan.scheduler.forgets:
        rounds = slice(block_of(plan, blocks[0]).start, block_of(plan, blocks[-1]).stop)
        for experiment in range(num_experiments if plan.scheduler.random else 1):
            yield _whole_policies.draw(plan, seed, experiment)[rounds].astype(np.float64)
        return
    # All blocks of one experiment come before the next experiment: where rounds depend on each
    # other, the path gains of a whole run are then drawn only once.
    for experiment in range(num_experiments if plan.scheduler.random else 1):
        one, parts = range(experiment, experiment + 1), []
        for block in blocks:
            known = draw_known_channel(plan, seed, one, block, block_of(plan, block))
            parts.append(_ask_policy(plan, seed, one, block, known.fading)[0])
        yield np.concatenate(parts)


def _draw_active(
    plan: Plan, seed: int, experiments: range, block: int, fading: Array
) -> Array | None:
    """Active devices in a block of rounds, from the plan or else from the scheduler: (experiment,
    round, device), 1 for a device that transmits, else 0; None: all transmit."""
    if _is_known(plan):
        rounds = block_of(plan, block)
        return None if plan.active is None else plan.active[None, rounds.start : rounds.stop]
    return _ask_policy(plan, seed, experiments, block, fading)


def _ask_policy(plan: Plan, seed: int, experiments: range, block: int, fading: Array) -> Array:
    """Active devices in a block of rounds with path gains ``fading``, as the scheduler draws them:
    (experiment, round, device), 1 for a device that transmits, else 0. The axis of experiments has
    length 1 if the scheduler is not random."""
    rounds = block_of(plan, block)
    if not plan.scheduler.forgets:
        asked = experiments if plan.scheduler.random else range(1)
        wholes = [_whole_policies.draw(plan, seed, e) for e in asked]
        return np.stack([each[rounds.start : rounds.stop] for each in wholes]).astype(np.float64)
    if not plan.scheduler.random:
        # A scheduler that is not random has the same active devices in all experiments.
        experiments = experiments[:1]
        fading = fading[:1]
    channels = np.broadcast_to(fading, (len(experiments), len(rounds), *fading.shape[2:]))
    return np.stack(
        [
            plan.scheduler.draw_checked(
                generator(seed, Purpose.SCHEDULING, e, 0, block), rounds, channel
            )
            for e, channel in zip(experiments, channels, strict=True)
        ]
    )


def _draw_whole_policy(plan: Plan, seed: int, experiment: int) -> Array:
    """Whether each device transmits in each round of one experiment, (round, device). A scheduler
    that may remember earlier rounds draws all of them in one call."""
    one, last = range(experiment, experiment + 1), -(-plan.num_rounds // ROUNDS_PER_BLOCK)
    drawn = (
        draw_known_channel(plan, seed, one, block, block_of(plan, block)).fading[0]
        for block in range(last)
    )
    # A path gain that several devices or entries share is held once, so that a whole run fits into
    # memory.
    parts = [without_copies(part) for part in drawn]
    if not plan.uplink.known_fading.constant:
        parts = [
            np.broadcast_to(part, (len(block_of(plan, block)), *part.shape[1:]))
            for block, part in enumerate(parts)
        ]
        parts = [np.concatenate(parts)]
    fading = np.broadcast_to(parts[0], (plan.num_rounds, plan.num_devices, plan.dim))
    rng = generator(seed, Purpose.SCHEDULING, experiment)
    return plan.scheduler.draw_checked(rng, range(plan.num_rounds), fading).astype(np.bool_)


_whole_policies = WholeRuns(_draw_whole_policy, KEPT_BYTES)


def schedule_of(plan: Plan, fading: Array, active: Array | None, rounds: range) -> Schedule:
    """The schedule of the rounds ``rounds``, counted from 0, with path gains ``fading``
    (experiment, round or 1, device, dim) and active devices ``active`` (experiment, round, device),
    1 or 0 (None: all transmit).

    The gain of a round is the plan's largest gain, or the largest that the power limit allows in
    that round if this is smaller. Where the path gains decide which devices transmit, the gain is
    also at most the one that leaves the sampler enough noise for the number of active devices,
    unless the user set the gain. No data enter, so the gain may be public.
    """
    part = slice(rounds.start, rounds.stop)
    cap = plan.gain if len(plan.gain) == 1 else plan.gain[part]
    if plan.scheduler.by_channel and active is not None:
        # The gain at which the temperature is 1 falls with the number of active devices. The plan's
        # largest gain is for the round with the fewest devices; a round with more devices needs a
        # smaller gain to keep enough noise.
        cap = calibrated_cap(plan, cap, active.sum(axis=2)[..., None])
        cap = np.broadcast_to(cap, (*cap.shape[:2], plan.dim))
    gain = realised_gain(plan.uplink, cap, fading, active)
    full = np.full((1, len(rounds)), float(plan.num_devices))
    return Schedule(
        plan.step_sizes[part],
        np.broadcast_to(gain, (len(gain), len(rounds), plan.dim)),
        np.broadcast_to(fading, (len(fading), len(rounds), *fading.shape[2:])),
        active,
        full if active is None else active.sum(axis=2),
    )


class Realised(NamedTuple):
    """Active devices, gain and temperature of some rounds, over all experiments, for a plan where
    the path gains decide who transmits. The ledger records them: the union of active devices and
    the largest gain, so that no experiment costs more privacy than is recorded.

    Attributes
    ----------
    active
        1 for a device that is active in at least one experiment, else 0, (round, device).
    gain
        Largest gain over the experiments in which a device transmits in the round, (round, dim); 0
        if there is none.
    temperature
        Mean temperature over the experiments in which a device transmits in the round, (round); NaN
        if there is none, or if the temperature is not known (a link without slope).
    """

    active: Array
    gain: Array
    temperature: Array


def draw_realised(plan: Plan, seed: int, num_experiments: int, rounds: range) -> Realised:
    """Active devices, gain and temperature of some rounds, counted from 0, over all experiments,
    for a plan whose scheduler decides from the path gains which devices transmit."""
    # Schedules are drawn in whole blocks of rounds, each with its own random streams; ``part``
    # selects ``rounds`` from the drawn rounds.
    blocks = range(rounds.start // ROUNDS_PER_BLOCK, -(-rounds.stop // ROUNDS_PER_BLOCK))
    begin = rounds.start - blocks.start * ROUNDS_PER_BLOCK
    part = slice(begin, begin + len(rounds))
    active = np.zeros((len(rounds), plan.num_devices))
    gain, heat = np.zeros((len(rounds), plan.dim)), np.zeros(len(rounds))
    heard = np.zeros(len(rounds))  # number of experiments in which somebody transmits, (round)
    for experiment in range(num_experiments):
        one = range(experiment, experiment + 1)
        drawn = [draw_schedule(plan, seed, one, block) for block in blocks]
        count = np.concatenate([each.num_active[0] for each in drawn])[part]
        gains = np.concatenate([each.gain[0] for each in drawn])[part]
        talks = count > 0
        active = np.maximum(active, np.concatenate([_active(plan, each) for each in drawn])[part])
        gain = np.maximum(gain, np.where(talks[:, None], gains, 0.0))
        heard += talks
        if plan.effective_step_size is not None:
            heat += [
                _heat(plan, gains[i], count[i]) if talks[i] else 0.0 for i in range(len(rounds))
            ]
    # A round that is skipped in all experiments has no temperature; its 0/0 must not warn, and
    # np.where makes it NaN.
    with np.errstate(invalid="ignore"):
        mean = np.where(heard > 0, heat / heard, np.nan)
    return Realised(
        active, gain, mean if plan.effective_step_size is not None else np.full(len(heat), np.nan)
    )


def _active(plan: Plan, schedule: Schedule) -> Array:
    """Active devices of ``schedule``, which holds a single experiment: (round, device), 1 for a
    device that transmits, else 0."""
    if schedule.active is None:
        return np.ones((len(schedule), plan.num_devices))
    return np.asarray(schedule.active[0])


def _heat(plan: Plan, gain: Array, count: float) -> float:
    """Temperature of one round with the gain ``gain`` (dim) and ``count`` active devices."""
    return plan.temperature_at(gain, count)
