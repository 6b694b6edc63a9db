"""The radio of a plan: SNR at the transmitter and at the receiver, channel uses and energy, and the
effect of inexact channel estimates."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np

from flmc.base.arrays import Array, one_of_equals, without_copies
from flmc.planning.limits import GainLimits
from flmc.privacy.uncertain_gain_event import UncertainGainEvent
from flmc.uplink.csi import arrival_of
from flmc.uplink.planned_channels import draw_planned_channels, standing_for
from flmc.uplink.power import planned_gain
from flmc.uplink.uplink import Uplink

if TYPE_CHECKING:
    from flmc.planning.plans.plan_value import Plan


@dataclass(frozen=True)
class Radio:
    r"""SNR of one device at full power, at the transmitter and at the receiver.

    The SNR at the receiver is :math:`10\log_{10}(P_0 h^2/N_0)`, with the power limit :math:`P_0`,
    the path gain h and the noise power :math:`N_0`.
    """

    snr_db: float
    """Largest SNR at the transmitter, power limit over noise power, in decibels."""
    path_gain: float
    """Root mean square of the path gains h, over rounds, devices and entries."""
    varies: bool
    """Whether path gains differ over rounds, devices or entries."""

    @property
    def path_gain_db(self) -> float:
        """Root mean square path gain, as a power ratio in decibels."""
        return 20.0 * math.log10(self.path_gain)

    @property
    def received_snr_db(self) -> float:
        """SNR at the receiver of one device at full power, in decibels."""
        return self.snr_db + self.path_gain_db

    @property
    def meaning(self) -> str:
        """Text to print after the path gain: ", root mean square" where path gains differ over
        rounds, devices or entries, else empty."""
        return ", root mean square" if self.varies else ""

    def to_document(self) -> dict[str, float | bool | None]:
        """SNR and path gain in plain values, for JSON; an infinite SNR is null."""
        finite = math.isfinite(self.snr_db)
        return {
            "snr_db": self.snr_db if finite else None,
            "path_gain": self.path_gain,
            "path_gain_db": self.path_gain_db,
            "received_snr_db": self.received_snr_db if finite else None,
            "varies": self.varies,
        }


def radio_of(uplink: Uplink, num_rounds: int, num_devices: int, dim: int) -> Radio:
    """SNR and root mean square path gain of an uplink; where the channel is random, path gains are
    those of drawn rounds."""
    drawn = without_copies(
        draw_planned_channels(
            uplink.known_fading, range(num_rounds), num_rounds, num_devices, dim
        ).drawn
    )
    mean_square = float(np.mean(np.square(drawn)))
    # A constant path gain is stated as it was given: the root of its mean square may differ in the
    # last bit.
    varies = bool(drawn.max() > drawn.min())
    return Radio(uplink.snr_db, math.sqrt(mean_square) if varies else float(drawn.max()), varies)


def margins_db(limits: GainLimits, gain: float) -> dict[str, float]:
    """Ratio of every limit of the gain to ``gain``, in decibels of power, by the limit's name:
    negative where ``gain`` exceeds the limit, infinite where there is no limit."""
    return {
        name: 20.0 * math.log10(limit / gain) if 0 < limit < math.inf else math.inf
        for name, limit in vars(limits).items()
    }


@dataclass(frozen=True)
class Airtime:
    r"""Channel uses of a run, and the energy that a device transmits in it on average.

    The energy of a round is :math:`\sum_i (A_i s_i/h_{k,i})^2` for a device k that transmits the
    symbols :math:`s_i` with the gain :math:`A_i` over the path gain :math:`h_{k,i}`, in units of
    the noise power: the sum of the entries' SNR. Bits have :math:`s_i^2 = 1`, so that the energy is
    exact over the channels that a plan draws; for analog symbols it is the largest that the clip
    allows.
    """

    channel_uses: int
    """Channel uses of one device in all rounds: one for each entry of theta, or for two entries if
    symbols are complex."""
    energy: float
    """Energy that a device transmits in the whole run, in units of the noise power, averaged over
    devices."""
    largest: bool
    """Whether ``energy`` is an upper bound, because symbols differ in energy (analog ones), or the
    energy itself."""
    devices: float
    """Number of devices that transmit in a round, on average over rounds that are not skipped."""
    skipped: float
    """Share of rounds that are skipped because nobody transmits."""

    def to_document(self) -> dict[str, float | int | bool]:
        """All numbers about channel uses and energy by name, for JSON."""
        return {
            "channel_uses": self.channel_uses,
            "energy": self.energy,
            "energy_is_bound": self.largest,
            "devices": self.devices,
            "skipped": self.skipped,
        }


def airtime_of(plan: Plan) -> Airtime | None:
    """Channel uses and energy of a plan's run; None for an uplink without a channel."""
    uplink = plan.uplink
    if uplink.noise_is_exact:
        return None
    uses = plan.num_rounds * uplink.symbols_per_round(plan.dim)
    drawn = plan.expected.rounds
    return Airtime(
        uses,
        plan.num_rounds * _energy_of_a_round(plan),
        not uplink.symbol_format.constant_energy,
        float(plan.num_active.mean()),
        0.0 if drawn is None else drawn.skipped,
    )


def _energy_of_a_round(plan: Plan) -> float:
    """Energy that one device transmits in a round, over the noise power, as the mean over devices
    and rounds; silent devices count with 0."""
    if plan.expected.rounds is not None:
        rounds, gain = plan.expected.rounds, plan.expected.gain
        energy = _energies(plan.uplink, gain, rounds.fading) * rounds.active
        return float(energy.sum() / (rounds.num_drawn * plan.num_devices))
    every = range(plan.num_rounds)
    active, varies = plan.planned_active, plan.planned_active is not None or len(plan.gain) > 1
    law = plan.uplink.known_fading
    gains = planned_gain(plan.uplink, plan.gain, active, every, plan.num_devices, plan.dim)
    asked = every if varies else standing_for(law, every)
    # Energies are summed over one part of the rounds after another, because the path gains of all
    # rounds, devices and entries may not fit into memory.
    total = count = 0.0
    for part, fading in draw_planned_channels(
        law, asked, plan.num_rounds, plan.num_devices, plan.dim
    ).parts():
        energy = _energies(plan.uplink, gains[part], fading)
        if active is not None:
            energy = energy * active[part % plan.num_rounds]
        total, count = total + float(energy.sum()), count + energy.size
    return total / count


def _energies(uplink: Uplink, gain: Array, fading: Array) -> Array:
    """Energy that each device transmits in each round, over the noise power, (round, device), with
    gains (round, dim) and path gains (round, device, dim)."""
    # Where the norm is clipped, ``peak`` squared bounds the energy of all symbols of a round
    # together, before the factor (A/h)^2. The entry with the largest A/h could carry all of it, so
    # the bound is the largest entry, not the sum over entries.
    power = np.square(uplink.peak * gain[:, None, :] / one_of_equals(fading))
    total = power.max(axis=-1) if uplink.shares_power else power.sum(axis=-1)
    return np.broadcast_to(total / uplink.noise_power, fading.shape[:2])


@dataclass(frozen=True)
class EstimateEffect:
    """Effect of inexact channel estimates. A device inverts its estimate of the path gain, not the
    path gain itself, so its symbols arrive with the planned gain times a random factor."""

    error: float
    """Relative error e of the channel estimates (``csi_error``)."""
    mean: float
    """Mean, over devices, of the factor of the gain with which a symbol arrives; it scales the
    sampler's drift."""
    mean_smallest: float
    """Mean factor of the gain with which symbols of one device arrive, for the device that has the
    smallest."""
    mean_largest: float
    """Mean factor of the gain with which symbols of one device arrive, for the device that has the
    largest. Where devices differ in it, the samples miss the posterior mean."""
    spread: float
    """Standard deviation of the factor of the gain with which a symbol arrives, over devices,
    rounds and errors of the estimates: it adds noise."""
    stated_gain: float | None
    """Largest gain for which privacy is stated: above the plan's largest cap, because symbols may
    arrive louder than planned; None without a privacy statement."""
    exceeded: float | None
    """Probability that a symbol arrives with more than ``stated_gain`` in the run, which is part of
    delta; None without a privacy statement."""

    def to_document(self) -> dict[str, float | None]:
        """All numbers about the effect of inexact channel estimates by name, for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        unlike = self.mean_largest - self.mean_smallest > 0.01
        devices = f" ({self.mean_smallest:.3g} to {self.mean_largest:.3g} by device)"
        text = (
            f"error {self.error:g}: symbols arrive with {self.mean:.3g} of the gain on average"
            f"{devices if unlike else ''}, and scatter by {self.spread:.2g} of it"
        )
        if self.stated_gain is None or self.exceeded is None:
            return text
        return (
            f"{text}. Privacy is stated at a gain of {self.stated_gain:.3g}, which is exceeded in"
            f" the run with probability {self.exceeded:.1e} (within delta): a device in a deep fade"
            " inverts a wrong estimate at full power, so that a lower SNR lowers it more than a"
            " smaller gain"
        )


def estimate_effect(plan: Plan) -> EstimateEffect | None:
    """Effect of inexact channel estimates on a plan; None where estimates are exact."""
    arrival = arrival_of(plan.uplink, plan.num_devices, plan.scheduler)
    if arrival is None:
        return None
    mean = float(arrival.mean.mean())
    stated = exceeded = None
    run = None if plan.exposure is None else plan.exposure.run
    if isinstance(run, UncertainGainEvent):
        stated = max(gain for gain, _ in run.loud.transmissions)
        exceeded = min(1.0, run.probability)
    return EstimateEffect(
        plan.uplink.csi_error,
        mean,
        float(arrival.mean.min()),
        float(arrival.mean.max()),
        math.sqrt(max(float(arrival.mean_square.mean()) - mean**2, 0.0)),
        stated,
        exceeded,
    )
