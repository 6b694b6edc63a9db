"""Gains, and numbers of transmitting devices, that a plan expects in its rounds. Where path gains
are random, both come from rounds that are drawn from the channel's law."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.base.randomness import Purpose, generator
from flmc.planning.temperature import langevin_gain
from flmc.uplink.csi import response
from flmc.uplink.planned_channels import PlannedRounds, draw_planned_rounds
from flmc.uplink.power import finite_cap, planned_gain, realised_gain
from flmc.uplink.scheduler import Scheduler
from flmc.uplink.uplink import Uplink

if TYPE_CHECKING:
    from flmc.planning.plans.plan_value import Plan


@dataclass(frozen=True)
class Expectation:
    """Gains and numbers of transmitting devices that a plan expects in its kept rounds; where the
    channel is random, they are those of rounds drawn from its law."""

    gain: Array
    """Expected gain of each entry, (round, dim): of each kept round, or of each drawn round where
    the channel is random. One row stands for all rounds where they are alike."""
    num_active: Array
    """Number of transmitting devices that goes with each row of ``gain``, (1 or round, 1)."""
    rounds: PlannedRounds | None = None
    """Rounds drawn from the channel's law, from which the expected values come, where path gains
    decide who transmits; else None."""


def expect(plan: Plan) -> Expectation:
    """Gains, and numbers of transmitting devices, that a plan expects in its kept rounds."""
    if plan.scheduler.by_channel:
        sizes = (plan.num_rounds, plan.num_devices, plan.dim)
        rounds = draw_planned_rounds(plan.scheduler, plan.uplink.known_fading, *sizes)
        cap = calibrated_cap(plan, plan.gain[:1], rounds.num_active)
        gain = realised_gain(
            plan.uplink,
            np.broadcast_to(cap, (len(cap), plan.dim)),
            rounds.fading,
            rounds.active,
        )
        return Expectation(gain, rounds.num_active, rounds)
    kept = range(plan.num_burn_in, plan.num_rounds)
    gain = planned_gain(
        plan.uplink, plan.gain, plan.planned_active, kept, plan.num_devices, plan.dim
    )
    active = plan.num_active[plan.num_burn_in :, None]
    # On a random channel more rounds may be drawn than are kept, and each has a gain. The numbers
    # of active devices are repeated, so that each gain has one.
    return Expectation(gain, active[np.arange(len(gain)) % len(active)])


def known_schedule(plan: Plan) -> tuple[Array, Array] | None:
    """Gains (round, dim) and active devices (round, device), 1 or 0, of all rounds of a plan whose
    path gains are public numbers and decide who transmits; None for any other plan. Gains are
    rounded up to four digits, as a ledger states them, but not above their caps. The gain of a
    round in which nobody transmits is 0."""
    fading = plan.uplink.known_fading
    fixed = (fading.given or fading.constant) and plan.uplink.estimated is None
    if not (plan.scheduler.by_channel and fixed):
        return None
    # The generator is only passed on: neither a fixed channel nor a policy that follows path gains
    # draws random numbers from it.
    rng = generator(0, Purpose.PLANNING, 1)
    paths = fading.draw_checked(rng, range(plan.num_rounds), plan.num_devices, plan.dim)
    active = plan.scheduler.draw_checked(rng, range(plan.num_rounds), paths)
    count = active.sum(axis=1, keepdims=True)
    cap = np.broadcast_to(calibrated_cap(plan, plan.gain, count), (len(active), plan.dim))
    gain = np.where(count > 0, realised_gain(plan.uplink, cap, paths, active), 0.0)
    return np.minimum(rounded_up(gain), finite_cap(plan.uplink, cap)), active


def rounded_up(gain: Array) -> Array:
    """Gains rounded up to four significant digits: upper bounds with few distinct values, whose
    privacy cost is quick to compute."""
    # The factors 1 -+ 1e-12 absorb the rounding of the division: a gain that has exactly four
    # digits must not grow by a whole unit, and none may come out smaller than it was.
    unit = 10.0 ** (np.floor(np.log10(np.maximum(gain, 1e-300))) - 3)
    return np.where(gain > 0, np.ceil(gain / unit * (1 - 1e-12)) * unit * (1 + 1e-12), 0.0)


def slope_of(uplink: Uplink, num_devices: int, policy: Scheduler) -> float | None:
    """Factor by which the mean received symbol, divided by the gain, scales a small gradient: the
    link's slope, times the mean factor with which symbols arrive if channel estimates are inexact.
    None for a link without a slope."""
    try:
        return response(uplink, num_devices, policy)
    except InvalidSetting:
        return None


def planned_active(plan: Plan) -> Array | None:
    """Which devices a plan expects to transmit, (round, device) with 1 or 0; None: every device in
    every round. Where path gains decide who transmits, the rows are rounds drawn at random."""
    if plan.scheduler.by_channel:
        return None if plan.expected.rounds is None else plan.expected.rounds.active
    return plan.scheduler.draw_planned(plan.num_rounds, plan.num_devices)


def calibrated_cap(plan: Plan, cap: Array, num_active: Array) -> Array:
    """Cap of the gain, (..., 1 or dim), in rounds in which ``num_active`` devices (..., 1)
    transmit, as their path gains decide.

    It is the smaller of ``cap``, the plan's own cap (..., 1 or dim), and the gain at which
    ``num_active`` devices leave the sampler enough noise; both follow from public numbers. A round
    without devices has the cap of a round with one. Where the user gave the gain, ``cap`` is not
    lowered.
    """
    if plan.binding == "given":
        return np.broadcast_to(cap, np.broadcast_shapes(cap.shape, num_active.shape))
    devices = np.maximum(num_active, 1.0)
    mode = plan.limits.langevin
    limit = langevin_gain(
        mode,
        plan.uplink,
        plan.step_size * (plan.update.heat or 1.0),
        plan.num_devices,
        devices,
        plan.scheduler,
    )
    return np.asarray(np.minimum(cap, limit))


class Turns(NamedTuple):
    """How often devices transmit, and how long they are silent, in the schedule from which a plan
    takes its expected gains."""

    fewest: int
    """Number of rounds in which the device that transmits least often does so."""
    most: int
    """Number of rounds in which the device that transmits most often does so."""
    longest_silence: int
    """Largest number of rounds in a row in which a device does not transmit."""
    num_rounds: int
    """Number of rounds of the schedule in which transmissions were counted."""
    exact: bool
    """Whether the run will have this schedule. If False, the schedule was drawn at random, and the
    run draws its own."""

    def __str__(self) -> str:
        often = f"{self.fewest}" if self.fewest == self.most else f"{self.fewest} to {self.most}"
        drawn = "" if self.exact else " of one drawn schedule"
        return (
            f"a device transmits in {often} of {self.num_rounds} rounds{drawn}, and is silent for"
            f" {self.longest_silence} in a row at most"
        )


def turns_of(plan: Plan) -> Turns | None:
    """How often devices transmit, and how long they are silent, in the schedule that a plan
    expects; None where every device transmits in every round."""
    if plan.scheduler.everyone:
        return None
    rounds, exact = plan.expected.rounds, not plan.scheduler.random
    if rounds is None:
        active = plan.planned_active
        assert active is not None  # the scheduler's array exists, because not all devices transmit
    else:
        fading = plan.uplink.known_fading
        exact = fading.given or fading.constant
        active = np.zeros((rounds.num_drawn, plan.num_devices))
        active[rounds.numbers] = rounds.active
        active = active[: plan.num_rounds]  # the first of several drawn runs
    often = active.sum(axis=0)
    # With an imagined transmission of every device before the first round and one after the last,
    # silences at the ends of the run have an end, and count.
    edge = np.ones((1, plan.num_devices))
    heard = np.concatenate([edge, active, edge]) > 0
    silences = (int(np.diff(np.flatnonzero(each)).max()) - 1 for each in heard.T)
    return Turns(int(often.min()), int(often.max()), max(silences), len(active), exact)


def activity_in_words(plan: Plan) -> str:
    """Number of devices that transmit in a round, and how they take turns, in words; where path
    gains decide who transmits, with the share of rounds in which the busiest device transmits and
    its standard error."""
    few, most = int(plan.num_active.min()), int(plan.num_active.max())
    count = str(few) if few == most else f"{few} to {most}"
    text = f"{count} of {plan.num_devices}"
    rounds = plan.expected.rounds
    turns = f"; {plan.turns}"
    if rounds is None:
        return text + turns
    # Standard error of a share p of n independent rounds, sqrt(p (1 - p)/n).
    error = math.sqrt(max(rounds.busiest * (1 - rounds.busiest), 0.0) / rounds.num_drawn)
    return (
        f"{text}, {plan.num_active.mean():.3g} on average; {100 * rounds.skipped:.2g} % of rounds"
        f" have nobody and are skipped. A device transmits in {100 * rounds.busiest:.3g} % of"
        f" rounds at most ({rounds.num_drawn} drawn channels, ± {100 * error:.1g} %). A device of a"
        f" deployment is charged for all of them; the ledger counts those in which it did{turns}"
    )
