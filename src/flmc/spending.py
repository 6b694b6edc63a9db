"""What a schedule of gains spends of a device's privacy, in a round and in a run; and the gain that a budget allows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flmc.checks import Array
from flmc.limits import Limits
from flmc.power import finite_cap
from flmc.privacy.account import allowed_gain, epsilon_of, tight_epsilon
from flmc.privacy.event import Event, count_gains, event_of
from flmc.table import format_up
from flmc.uplink import Ideal, Uplink

NEIGHBOURING = {
    "device": "device (all data of one device are replaced)",
    "example": "example (one example of one device is replaced)",
}
_MOST_SORTED = 50_000_000
"""Gains (round, entry, device) up to which devices that come and go are compared one by one."""


@dataclass(frozen=True)
class Exposure:
    """What the most exposed device transmits, at the caps of the gain: the worst round, and the whole run."""

    round: Event
    run: Event
    num_rounds: int
    """Rounds in which that device transmits."""


@dataclass(frozen=True)
class Cost:
    """An (epsilon, delta) statement; epsilon is an upper bound, infinite where there is none."""

    epsilon: float
    delta: float
    coarse: bool = False
    """Whether so much was composed that the accountant's grid is coarser than usual: an upper bound all the same."""

    def __str__(self) -> str:
        said = " (on a coarsened grid: an upper bound, looser than usual)" if self.coarse else ""
        return f"epsilon {format_up(self.epsilon)} at delta {self.delta:g}{said}"


def exposure_of(
    uplink: Uplink, gain: Array, active: Array | None, num_rounds: int, dim: int, neighbouring: str = "device"
) -> Exposure | None:
    """The privacy events of a plan; None for the ideal uplink, which has no privacy to speak of.

    ``gain`` is the cap, (1 or round, 1 or dim). In a round the largest cap of every entry counts. Over the run, if
    devices come and go, the device that transmits most often; with gains that change over rounds, a device whose
    loudest gain, second loudest and so on are the largest among all devices."""
    if isinstance(uplink, Ideal):
        return None
    caps = np.broadcast_to(finite_cap(uplink, gain), (len(gain), dim))
    often = num_rounds if active is None else int(active.sum(axis=0).max())
    worst_round = event_of(uplink, count_gains(caps.max(axis=0)), neighbouring)
    if len(caps) == 1:
        run = event_of(uplink, [(value, count * often) for value, count in count_gains(caps)], neighbouring)
    elif active is None or caps.size * active.shape[1] > _MOST_SORTED:
        run, often = event_of(uplink, count_gains(caps), neighbouring), num_rounds
    else:
        run = event_of(uplink, count_gains(_loudest_of_each_rank(caps, active)), neighbouring)
    return Exposure(worst_round, run, often)


def _loudest_of_each_rank(caps: Array, active: Array) -> Array:
    """Gains that no device's exceed, when both are sorted: more is known from a louder transmission."""
    found = np.zeros(caps.size)
    for talks in np.unique(active.T > 0, axis=0):
        sent = np.sort(caps[talks].ravel())[::-1]
        np.maximum(found[: len(sent)], sent, out=found[: len(sent)])
    return found


def privacy_limited_gain(uplink: Uplink, limits: Limits, num_devices: int, dim: int, num_transmitting: int) -> float:
    """Largest constant gain within the budget; infinite without a budget."""
    if limits.epsilon is None or limits.privacy == "off" or isinstance(uplink, Ideal):
        return float("inf")
    count, delta = (dim, limits.delta) if limits.scope == "round" else (dim * num_transmitting, limits.run_delta)
    unit = event_of(uplink, [(1.0, count)], limits.neighbouring)
    return allowed_gain(unit, limits.epsilon, delta, limits.criterion, num_devices)


def affordable_rounds(
    uplink: Uplink, limits: Limits, gain: Array, active: Array | None, num_rounds: int, dim: int
) -> int:
    """How many rounds stay within a budget of the run; all of them without one. A plan that chose its gain affords all
    its rounds; one whose gain was given may not."""
    if limits.scope != "run" or limits.epsilon is None or limits.privacy == "off" or isinstance(uplink, Ideal):
        return num_rounds

    def within(rounds: int) -> bool:
        if rounds == 0:
            return True
        part = gain if len(gain) == 1 else gain[:rounds]
        present = None if active is None else active[:rounds]
        exposure = exposure_of(uplink, part, present, rounds, dim, limits.neighbouring)
        return exposure is None or cost_of_run(exposure, limits).epsilon <= (limits.epsilon or 0.0) * (1 + 1e-9)

    if within(num_rounds):
        return num_rounds
    low, high = 0, num_rounds
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if within(middle) else (low, middle)
    return low


def cost_of_round(exposure: Exposure, limits: Limits, num_devices: int) -> Cost:
    """By the criterion that was asked for."""
    return Cost(epsilon_of(exposure.round, limits.delta, limits.criterion, num_devices), limits.delta)


def cost_of_run(exposure: Exposure, limits: Limits) -> Cost:
    """Always `tight`: the other criteria do not compose."""
    epsilon, coarse = tight_epsilon(exposure.run, limits.run_delta)
    return Cost(epsilon, limits.run_delta, coarse)
