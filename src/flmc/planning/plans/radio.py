"""SNR at both ends of the radio path, the limit at the transmitter and what arrives of it; and how
far the limits of the gain are above it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from flmc.base.arrays import without_copies
from flmc.planning.limits import GainLimits
from flmc.uplink.planned_channels import draw_planned_channels
from flmc.uplink.uplink import Uplink


@dataclass(frozen=True)
class Radio:
    r"""SNR of one device at full power, at the transmitter and at the receiver.

    The SNR at the receiver is :math:`10\log_{10}(P_0 h^2/N_0)` with the path gain h.

    Attributes
    ----------
    snr_db
        Largest SNR at the transmitter, power limit over noise power.
    path_gain
        Root mean square of the path gains.
    varies
        Whether path gains differ over rounds, devices or entries.
    """

    snr_db: float
    path_gain: float
    varies: bool

    @property
    def path_gain_db(self) -> float:
        """Path gain in decibels."""
        return 20.0 * math.log10(self.path_gain)

    @property
    def received_snr_db(self) -> float:
        """SNR at the receiver."""
        return self.snr_db + self.path_gain_db

    @property
    def meaning(self) -> str:
        """Words for a path gain that stands for several."""
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
    """SNR and path gain of an uplink, over the rounds that plans draw if the channel is random.

    Parameters
    ----------
    uplink
        Gives the fading and the SNR.
    num_rounds, num_devices, dim
        Number of rounds, of devices and of entries.
    """
    drawn = without_copies(
        draw_planned_channels(uplink.channel, range(num_rounds), num_rounds, num_devices, dim).drawn
    )
    mean_square = float(np.mean(np.square(drawn)))
    varies = bool(drawn.max() > drawn.min())
    return Radio(uplink.snr_db, math.sqrt(mean_square) if varies else float(drawn.max()), varies)


def margins_db(limits: GainLimits, gain: float) -> dict[str, float]:
    """How far every limit of the gain is above it, in decibels of power, by the limit's name.

    Parameters
    ----------
    limits, gain
        The largest gain by each constraint, and the gain.

    Returns
    -------
    dict of str to float
        Negative where the gain exceeds the limit, infinite where there is none.
    """
    return {
        name: 20.0 * math.log10(limit / gain) if 0 < limit < math.inf else math.inf
        for name, limit in vars(limits).items()
    }
