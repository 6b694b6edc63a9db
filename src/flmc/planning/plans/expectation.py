"""Gains, and devices that transmit, as a plan expects them in its rounds; rounds are drawn where
the channel is random."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.planning.temperature import langevin_gain
from flmc.uplink.csi import response
from flmc.uplink.planned_channels import PlannedRounds, draw_planned_rounds
from flmc.uplink.power import planned_gain, realised_gain
from flmc.uplink.scheduler import Scheduler
from flmc.uplink.uplink import Uplink

if TYPE_CHECKING:
    from flmc.planning.plans.plan_value import Plan


@dataclass(frozen=True)
class Expectation:
    """Gains and transmitting devices of kept rounds, over drawn channels if these are random.

    Attributes
    ----------
    gain
        Gains, (1 or round, dim).
    num_active
        Devices in the same rounds, (1 or round, 1).
    rounds
        The drawn rounds themselves, where the channel decides who transmits; else None.
    """

    gain: Array
    num_active: Array
    rounds: PlannedRounds | None = None


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
    # Planned gains of a random channel repeat the kept rounds; so must these.
    return Expectation(gain, active[np.arange(len(gain)) % len(active)])


def slope_of(uplink: Uplink, num_devices: int, policy: Scheduler) -> float | None:
    """Factor by which the expected received symbol scales a small gradient; None for a link without
    a slope."""
    try:
        return response(uplink, num_devices, policy)
    except InvalidSetting:
        return None


def planned_active(plan: Plan) -> Array | None:
    """Devices expected to transmit, (round, device) with 1 or 0; None: all, always. Where the
    channel decides, the rounds are draws."""
    if plan.scheduler.by_channel:
        return None if plan.expected.rounds is None else plan.expected.rounds.active
    return plan.scheduler.draw_planned(plan.num_rounds, plan.num_devices)


def calibrated_cap(plan: Plan, cap: Array, num_active: Array) -> Array:
    """Cap of the gain in rounds whose number of devices (..., 1) the channel decides; without any
    device the cap is that of one.

    It is the plan's cap, or what leaves the sampler enough noise with so many devices, whichever is
    less. Both are public.
    """
    if plan.binding == "given":  # a gain that was given is used as it is
        return np.broadcast_to(cap, np.broadcast_shapes(cap.shape, num_active.shape))
    devices = np.maximum(num_active, 1.0)
    mode = plan.limits.langevin
    limit = langevin_gain(
        mode, plan.uplink, plan.step_size, plan.num_devices, devices, plan.scheduler
    )
    return np.asarray(np.minimum(cap, limit))


def activity_in_words(plan: Plan) -> str:
    """Number of transmitting devices in words, with its uncertainty where channels are drawn."""
    few, most = int(plan.num_active.min()), int(plan.num_active.max())
    count = str(few) if few == most else f"{few} to {most}"
    text = f"{count} of {plan.num_devices}"
    rounds = plan.expected.rounds
    if rounds is None:
        return text
    # The standard error of a share of n independent rounds.
    error = math.sqrt(max(rounds.busiest * (1 - rounds.busiest), 0.0) / rounds.num_drawn)
    return (
        f"{text}, {plan.num_active.mean():.3g} on average; {100 * rounds.skipped:.2g} % of rounds"
        f" have nobody and are skipped. A device transmits in {100 * rounds.busiest:.3g} % of"
        f" rounds at most ({rounds.num_drawn} drawn channels, ± {100 * error:.1g} %). Before the"
        " run it is charged for all of them; the ledger counts those in which it did"
    )
