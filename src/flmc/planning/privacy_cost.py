"""What a plan's gains cost in privacy, in a round and in a run, and the gain that a budget
allows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flmc.base.arrays import Array
from flmc.base.tables import format_up
from flmc.planning.limits import Limits
from flmc.privacy.event import Event
from flmc.privacy.transmissions import count_gains
from flmc.uplink.power import finite_cap
from flmc.uplink.scheduling import GivenDevices, Scheduler
from flmc.uplink.uplink import Uplink

NEIGHBOURING = {
    "device": "device (all data of one device are replaced)",
    "example": "example (one example of one device is replaced)",
}
_MOST_SORTED = 50_000_000
"""Gains (round, entry, device) up to which devices that transmit in some rounds only are compared
one by one."""


@dataclass(frozen=True)
class Exposure:
    """What the most exposed device transmits, at the caps of the gain: the worst round, and the
    whole run."""

    round: Event
    run: Event
    num_rounds: int
    """Rounds in which that device transmits at most."""


@dataclass(frozen=True)
class Cost:
    """An (epsilon, delta) statement; epsilon is an upper bound, infinite where there is none."""

    epsilon: float
    delta: float
    coarse: bool = False
    """Whether so much was composed that the accountant's grid is coarser than usual: an upper bound
    all the same."""

    def __str__(self) -> str:
        said = " (on a coarsened grid: an upper bound, looser than usual)" if self.coarse else ""
        return f"epsilon {format_up(self.epsilon)} at delta {self.delta:g}{said}"


def exposure_of(
    uplink: Uplink,
    gain: Array,
    scheduler: Scheduler,
    num_rounds: int,
    dim: int,
    neighbouring: str = "device",
) -> Exposure:
    """The privacy events of a plan.

    In a round the largest cap of every entry counts. Over the run, if devices transmit in some
    rounds only, the device that transmits most often counts; with gains that change over rounds, an
    imagined device whose loudest gain, second loudest gain and so on are the largest among all
    devices.

    Parameters
    ----------
    gain
        The cap of the gain, (1 or round, 1 or dim).
    scheduler
        Who transmits. Where it is random, its declared worst case counts.

    Raises
    ------
    UnknownPrivacy
        If nothing is proven for the uplink.
    """
    caps = np.broadcast_to(finite_cap(uplink, gain), (len(gain), dim))
    often = scheduler.most_rounds(num_rounds)
    worst_round = uplink.privacy_event(count_gains(caps.max(axis=0)), neighbouring)
    if len(caps) == 1:
        sent = [(value, count * often) for value, count in count_gains(caps)]
        return Exposure(worst_round, uplink.privacy_event(sent, neighbouring), often)
    if (
        not isinstance(scheduler, GivenDevices)
        or caps.size * scheduler.active.shape[1] > _MOST_SORTED
    ):
        return Exposure(
            worst_round, uplink.privacy_event(count_gains(caps), neighbouring), num_rounds
        )
    loudest = _loudest_of_each_rank(caps, scheduler.active[:num_rounds])
    return Exposure(worst_round, uplink.privacy_event(count_gains(loudest), neighbouring), often)


def _loudest_of_each_rank(caps: Array, active: Array) -> Array:
    """The largest gain of each rank over all devices, where a device's gains are sorted from loud
    to soft.

    No device's sorted gains exceed these anywhere, and a louder transmission reveals more: so they
    cost at least as much as any device's own."""
    found = np.zeros(caps.size)
    for talks in np.unique(active.T > 0, axis=0):
        sent = np.sort(caps[talks].ravel())[::-1]
        np.maximum(found[: len(sent)], sent, out=found[: len(sent)])
    return found


def has_budget(uplink: Uplink, limits: Limits) -> bool:
    """Whether a privacy budget limits the gain."""
    return limits.epsilon is not None and limits.privacy != "off" and not uplink.noise_is_exact


def privacy_limited_gain(
    uplink: Uplink, limits: Limits, num_devices: int, dim: int, num_transmitting: int
) -> float:
    """Largest constant gain within the budget; infinite without a budget.

    ``num_transmitting`` is the largest number of rounds in which one device transmits.
    """
    if not has_budget(uplink, limits):
        return float("inf")
    count, delta = (
        (dim, limits.delta)
        if limits.scope == "round"
        else (dim * num_transmitting, limits.run_delta)
    )
    unit = uplink.privacy_event([(1.0, count)], limits.neighbouring)
    return unit.allowed_gain(limits.epsilon or 0.0, delta, limits.criterion, num_devices)


def affordable_rounds(
    uplink: Uplink, limits: Limits, gain: Array, scheduler: Scheduler, num_rounds: int, dim: int
) -> int:
    """How many rounds stay within a budget of the run; all of them without one. A plan that chose
    its gain affords all its rounds; one whose gain was given may not."""
    if limits.scope != "run" or not has_budget(uplink, limits):
        return num_rounds

    def within(rounds: int) -> bool:
        if rounds == 0:
            return True
        part = gain if len(gain) == 1 else gain[:rounds]
        exposure = exposure_of(uplink, part, scheduler, rounds, dim, limits.neighbouring)
        return cost_of_run(exposure, limits).epsilon <= (limits.epsilon or 0.0) * (1 + 1e-9)

    if within(num_rounds):
        return num_rounds
    low, high = 0, num_rounds
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if within(middle) else (low, middle)
    return low


def cost_of_round(exposure: Exposure, limits: Limits, num_devices: int) -> Cost:
    """Cost of the worst round, by the criterion that was asked for."""
    return Cost(exposure.round.epsilon(limits.delta, limits.criterion, num_devices), limits.delta)


def cost_of_run(exposure: Exposure, limits: Limits) -> Cost:
    """Cost of the run, always by the criterion `tight`: the others do not compose."""
    epsilon, coarse = exposure.run.tight_epsilon(limits.run_delta)
    return Cost(epsilon, limits.run_delta, coarse)
