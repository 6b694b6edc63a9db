"""What a run takes of the channel: channel uses, and the energy that a device transmits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from flmc.base.arrays import Array, one_of_equals
from flmc.uplink.planned_channels import draw_planned_channels, standing_for
from flmc.uplink.power import planned_gain
from flmc.uplink.uplink import Uplink

if TYPE_CHECKING:
    from flmc.planning.plans.value import Plan


@dataclass(frozen=True)
class Airtime:
    r"""Channel uses of a run, and the energy that a device transmits in it on average.

    The energy of a round is :math:`\sum_i (A_i s_i/h_{k,i})^2` for a device that transmits, in
    units of the noise power: an SNR that is added up. Bits have :math:`s^2 = 1`, so that it is
    exact over the channels that plans draw; of analog symbols it is what the clip allows at most.

    Attributes
    ----------
    channel_uses
        Symbols of one device in all rounds: one for each entry, or for two if they are complex.
    energy
        Mean over devices of the energy of a run, over the noise power.
    largest
        Whether that is an upper bound, not a mean.
    devices
        Devices that transmit in a round, on average over rounds that are not skipped.
    skipped
        Share of rounds in which nobody transmits.
    """

    channel_uses: int
    energy: float
    largest: bool
    devices: float
    skipped: float

    def to_document(self) -> dict[str, float | int | bool]:
        """The numbers, for JSON."""
        return {
            "channel_uses": self.channel_uses,
            "energy": self.energy,
            "energy_is_bound": self.largest,
            "devices": self.devices,
            "skipped": self.skipped,
        }


def airtime_of(plan: Plan) -> Airtime | None:
    """Channel uses and energy of a plan's run; None for an uplink without a channel.

    Parameters
    ----------
    plan
        The plan.
    """
    uplink = plan.uplink
    if uplink.noise_is_exact:
        return None
    uses = plan.num_rounds * uplink.symbols_per_round(plan.dim)
    drawn = plan.expected.rounds
    return Airtime(
        uses,
        plan.num_rounds * _energy_of_a_round(plan),
        not uplink.random_bits,
        float(plan.num_active.mean()),
        0.0 if drawn is None else drawn.skipped,
    )


def _energy_of_a_round(plan: Plan) -> float:
    """Mean energy of a device in a round over the noise power, silent devices included."""
    if plan.expected.rounds is not None:
        rounds, gain = plan.expected.rounds, plan.expected.gain
        energy = _energies(plan.uplink, gain, rounds.fading) * rounds.active
        return float(energy.sum() / (rounds.num_drawn * plan.num_devices))
    every = range(plan.num_rounds)
    active, varies = plan.planned_active, plan.planned_active is not None or len(plan.gain) > 1
    channel = plan.uplink.channel
    gains = planned_gain(plan.uplink, plan.gain, active, every, plan.num_devices, plan.dim)
    asked = every if varies else standing_for(channel, every)
    total = count = 0.0
    for part, fading in draw_planned_channels(
        channel, asked, plan.num_rounds, plan.num_devices, plan.dim
    ).parts():
        energy = _energies(plan.uplink, gains[part], fading)
        if active is not None:
            energy = energy * active[part % plan.num_rounds]
        total, count = total + float(energy.sum()), count + energy.size
    return total / count


def _energies(uplink: Uplink, gain: Array, fading: Array) -> Array:
    """Energy of each device in each round over the noise power, (round, device)."""
    power = np.square(uplink.peak * gain[:, None, :] / one_of_equals(fading))
    total = power.max(axis=-1) if uplink.shares_power else power.sum(axis=-1)
    return np.broadcast_to(total / uplink.noise_power, fading.shape[:2])
