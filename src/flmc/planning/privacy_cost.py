"""Privacy cost of a plan's gains, in a round and in a run, and the gain that a budget allows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flmc.base.arrays import Array
from flmc.base.errors import UnknownPrivacy
from flmc.base.tables import format_up
from flmc.planning.limits import Limits
from flmc.privacy.event import Event
from flmc.privacy.neighbours import relation_argument
from flmc.privacy.scheduled_event import ScheduledEvent
from flmc.privacy.trade_off import TradeOff
from flmc.privacy.transmissions import count_gains
from flmc.uplink.power import finite_cap
from flmc.uplink.scheduler import Scheduler
from flmc.uplink.schedulers import GivenDevices
from flmc.uplink.uplink import Uplink

_MOST_SORTED = 50_000_000
"""Largest number of gains (rounds x entries x devices) for which the gains of every device are
sorted and compared rank by rank, where devices transmit in given, different rounds. With more, the
run is charged for the largest gains of any rounds, which costs no less privacy."""
_ALWAYS = 1.0 - 1e-4
"""Probability of transmitting in a round from which on a device is charged as if it transmitted in
every round."""
_ROUNDING = 1e-6
"""Largest relative excess of a run's epsilon over the budget that may be a rounding error: the
budget itself is then stated, if the delta at the budget confirms it. Chances are raised by as
much."""


@dataclass(frozen=True)
class Exposure:
    """Privacy events of a plan: what the device that reveals most transmits, in its worst round and
    in the run, if every gain is as large as the plan allows."""

    round: Event
    """What the device that reveals most transmits in the round that reveals most."""
    run: Event
    """What the device that reveals most transmits in all rounds of the run."""
    num_rounds: int
    """Number of rounds in which the device that reveals most transmits, as counted in the event of
    the run; all rounds, where delta is averaged over schedules."""
    schedule: str = "worst"
    """Schedule for which the run is charged: ``worst`` (the largest number of rounds that the
    scheduler declares for a device), ``averaged`` (delta is averaged over the schedules that may be
    drawn), or ``known`` (the schedule that follows from given path gains)."""


@dataclass(frozen=True)
class Cost:
    """Statement of (epsilon, delta)-differential privacy: what a round or a run costs."""

    epsilon: float
    """Upper bound of epsilon; infinite where no finite one is known."""
    delta: float
    """Delta at which epsilon is stated."""
    coarse: bool = False
    """Whether the computation composed so many rounds that the accountant's grid is coarser than
    usual; epsilon is an upper bound all the same."""
    delta_at_zero: float | None = None
    """Delta that goes with epsilon 0, at most ``delta``, where ``epsilon`` of a round is 0, because
    0 alone would look like perfect privacy; None elsewhere."""

    def __str__(self) -> str:
        suffix = " (on a coarsened grid: an upper bound, looser than usual)" if self.coarse else ""
        return f"epsilon {format_up(self.epsilon)} at delta {self.delta:g}{suffix}"


def exposure_of(
    uplink: Uplink,
    gain: Array,
    scheduler: Scheduler,
    num_rounds: int,
    num_devices: int,
    dim: int,
    neighbouring: str = "device",
    relation: str = "replace",
    *,
    average: bool = False,
) -> Exposure:
    """Privacy events of the worst round and of the run, if every gain is at its cap, ``gain`` (1 or
    round, 1 or dim). Where the scheduler is random, the worst case that it declares counts; with
    ``average``, delta is averaged over its schedules if their law is known and all rounds have one
    cap.

    The event of the worst round has, in each entry, the largest cap of any round. The event of the
    run has as many rounds as the device that transmits most often. Where caps differ over rounds,
    it is that of an imagined device: its loudest gain, second loudest gain and so on are the
    largest that any device has, or, where devices are not compared one by one, the largest of any
    round.
    """
    caps = np.broadcast_to(finite_cap(uplink, gain), (len(gain), dim))
    often = scheduler.most_rounds(num_rounds, num_devices)
    # The worst round is charged for the largest cap of each entry in any round: no round is worse
    # than that.
    worst_round = uplink.event_of_rounds(
        caps.max(axis=0)[None], dim, neighbouring, 1, **relation_argument(relation)
    )
    if len(caps) == 1:
        chance = chance_of(uplink, scheduler, num_devices) if average else None
        if chance is not None:
            once = uplink.event_of_rounds(caps, dim, neighbouring, 1, **relation_argument(relation))
            event = ScheduledEvent(once, num_rounds, chance)
            return Exposure(worst_round, event, num_rounds, "averaged")
        # With one cap for all rounds the cost depends on how often a device transmits, and not on
        # when.
        run = uplink.event_of_rounds(caps, dim, neighbouring, often, **relation_argument(relation))
        return Exposure(worst_round, run, often)
    shared = uplink.shares_move(neighbouring)
    # Where the entries of a round share the move of one example, the caps of whole rounds are
    # ranked, each by its largest entry.
    if shared:
        caps = caps.max(axis=1, keepdims=True)
    # Sorting the gains of every device takes memory, so larger problems are charged for the largest
    # caps of any rounds instead, as in the ``else`` branch.
    if (
        isinstance(scheduler, GivenDevices)
        and caps.size * scheduler.active.shape[1] <= _MOST_SORTED
    ):
        loudest = _loudest_of_each_rank(caps, scheduler.active[:num_rounds])
    else:
        # In the worst case a device transmits, in each entry, in the rounds with the largest caps.
        loudest = np.sort(caps, axis=0)[::-1][:often]
    run = (
        uplink.event_of_rounds(
            loudest.reshape(-1, 1), dim, neighbouring, 1, **relation_argument(relation)
        )
        if shared
        else uplink.privacy_event(count_gains(loudest), neighbouring, **relation_argument(relation))
    )
    return Exposure(worst_round, run, often)


def chance_of(uplink: Uplink, scheduler: Scheduler, num_devices: int) -> float | None:
    """Probability with which a device transmits in a round, rounded up; None where the law of the
    schedule is not known, where channel estimates are inexact, or where a device transmits in every
    round, or nearly so."""
    # With inexact channel estimates the error that makes a device louder may also decide whether it
    # transmits, so delta must not be averaged over schedules as if they were independent.
    if uplink.estimated is not None or scheduler.everyone:
        return None
    chance = scheduler.chance(num_devices, uplink.known_fading)
    if chance is None or not 0.0 < chance < _ALWAYS:
        return None
    # Rounded up, because tails of probability laws are computed with rounding errors.
    return chance * (1.0 + _ROUNDING) + 1e-12


def why_unknown(uplink: Uplink, neighbouring: str, relation: str = "replace") -> str | None:
    """Reason why no privacy statement can be made of an uplink; None if one can."""
    try:
        uplink.check_noise_is_accounted()  # a class of a user's own may have other events of rounds
        uplink.event_of_rounds(np.ones((1, 1)), 1, neighbouring, 1, **relation_argument(relation))
    except UnknownPrivacy as reason:
        return str(reason)
    return None


def _loudest_of_each_rank(caps: Array, active: Array) -> Array:
    """Largest gain of each rank, (rank), over devices, where the gains at which a device transmits
    are sorted from the largest to the smallest and the largest has rank 1. ``caps`` are the gains
    (round, entry); ``active`` (round, device) says with 1 or 0 who transmits.

    At no rank has any device a larger gain, and a louder transmission reveals more: so the result
    costs at least as much privacy as any device's own gains."""
    loudest = np.zeros(caps.size)
    # Devices that transmit in the same rounds have the same gains, so each distinct set of rounds
    # is sorted once.
    for talks in np.unique(active.T > 0, axis=0):
        sent = np.sort(caps[talks].ravel())[::-1]
        np.maximum(loudest[: len(sent)], sent, out=loudest[: len(sent)])
    return loudest


def has_budget(uplink: Uplink, limits: Limits) -> bool:
    """Whether the limits state a privacy budget that bounds the gain of this uplink; always False
    for the ideal uplink."""
    return limits.epsilon is not None and limits.privacy != "off" and not uplink.noise_is_exact


def privacy_limited_gain(
    uplink: Uplink,
    limits: Limits,
    num_devices: int,
    dim: int,
    num_transmitting: int,
    chance: float | None = None,
) -> float:
    """Lower bound of the largest constant gain within the privacy budget; infinite without a
    budget.

    A device transmits in at most ``num_transmitting`` rounds. With a ``chance``,
    ``num_transmitting`` is the number of all rounds, in each of which a device transmits with this
    probability."""
    if not has_budget(uplink, limits):
        return float("inf")
    times, delta = (
        (1, limits.delta) if limits.scope == "round" else (num_transmitting, limits.run_delta)
    )
    one, unit_of, relation = (
        np.ones((1, 1)),
        limits.neighbouring,
        relation_argument(limits.relation),
    )
    unit = uplink.event_of_rounds(one, dim, unit_of, times, **relation)
    if chance is not None and limits.scope == "run":
        once = uplink.event_of_rounds(one, dim, unit_of, 1, **relation)
        unit = ScheduledEvent(once, num_transmitting, chance)
    return unit.allowed_gain(limits.epsilon or 0.0, delta, limits.criterion, num_devices)


def affordable_rounds(
    uplink: Uplink,
    limits: Limits,
    gain: Array,
    scheduler: Scheduler,
    num_rounds: int,
    num_devices: int,
    dim: int,
) -> int:
    """Number of rounds, counted from the first, whose privacy cost is within the budget of the run,
    with caps of the gain ``gain`` (1 or round, 1 or dim); ``num_rounds`` without a budget of the
    run.

    Where a plan chose the gain, all rounds are within the budget; where the user gave it, they may
    not be.
    """
    if limits.scope != "run" or not has_budget(uplink, limits):
        return num_rounds

    def within(rounds: int) -> bool:
        if rounds == 0:
            return True
        part = gain if len(gain) == 1 else gain[:rounds]
        exposure = exposure_of(
            uplink,
            part,
            scheduler,
            rounds,
            num_devices,
            dim,
            limits.neighbouring,
            limits.relation,
            average=True,
        )
        return cost_of_run(exposure, limits).epsilon <= (limits.epsilon or 0.0) * (1 + 1e-9)

    if within(num_rounds):
        return num_rounds
    # Bisection is exact here, because the cost never falls as rounds are added.
    low, high = 0, num_rounds
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if within(middle) else (low, middle)
    return low


def cost_of_round(exposure: Exposure, limits: Limits, num_devices: int) -> Cost:
    """Privacy cost of the worst round, by the criterion that ``limits`` state."""
    epsilon = exposure.round.epsilon(limits.delta, limits.criterion, num_devices)
    # An epsilon of 0 alone would look like perfect privacy, so the delta that remains at epsilon 0
    # is stated with it.
    at_zero = exposure.round.delta(0.0, limits.criterion, num_devices) if epsilon == 0 else None
    return Cost(epsilon, limits.delta, delta_at_zero=at_zero)


def cost_of_run(exposure: Exposure, limits: Limits) -> Cost:
    """Privacy cost of the run, always by the criterion ``tight``: the other criteria do not compose
    over rounds."""
    epsilon, coarse = exposure.run.tight_epsilon(limits.run_delta)
    budget = limits.epsilon if limits.scope == "run" else None
    # The delta at the budget and the epsilon at delta are upper bounds on different grids, and may
    # differ in the tenth digit: where the first is within ``run_delta``, the budget itself is a
    # proven bound.
    if budget is not None and budget < epsilon <= budget * (1 + _ROUNDING):
        epsilon = budget if exposure.run.delta(budget) <= limits.run_delta else epsilon
    return Cost(epsilon, limits.run_delta, coarse)


def risk_in_words(risk: TradeOff | None, told_apart: str, delta: float) -> str:
    """What an attacker achieves at most, in a sentence: ``told_apart`` says what he decides;
    ``risk`` is None where no finite epsilon is known at ``delta``."""
    if risk is None:
        return f"not known: no finite epsilon is known at delta {delta:g}"
    return risk.in_words(told_apart, delta)
