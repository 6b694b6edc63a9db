"""What a device transmits in a round: gradient, clip, symbols, channel inversion."""

from __future__ import annotations

import math

import numpy as np

from flmc.base.arrays import Array
from flmc.deploy.device.device_journal import DeviceJournal
from flmc.deploy.device.local_model import LocalGradient
from flmc.deploy.sealing import Seal
from flmc.privacy.safe_noise.entropy import Entropy
from flmc.privacy.safe_noise.uniform import draw_uniform
from flmc.sampling.roles import Transmission, device
from flmc.uplink.power import power_scale
from flmc.wire.federation import Federation
from flmc.wire.messages import Announcement

_FARTHEST = 1e100
"""Largest quotient of gain and path gain, or its inverse, that is computed with."""


def can_invert(announcement: Announcement, number: int) -> bool:
    """Whether a device's channel can be inverted in floating point.

    Parameters
    ----------
    announcement, number
        Gain and path gains of the round, and the number of the device.
    """
    with np.errstate(over="ignore", under="ignore"):
        wanted = announcement.gain / announcement.fading[number]
    return bool(((wanted > 1 / _FARTHEST) & (wanted < _FARTHEST)).all())


def transmit(
    gradient: Array,
    federation: Federation,
    announcement: Announcement,
    number: int,
    entropy: Entropy,
    largest_amplitude: float = float("inf"),
) -> Transmission:
    """Symbols and amplitudes of one device.

    The roles of a simulation make them (:func:`flmc.sampling.roles.device`), with random bits from
    the source of entropy. A device that would have to be louder than its own power limit to invert
    its channel is as loud as the limit: it arrives softer than planned.

    Parameters
    ----------
    gradient
        Gradient of the local cost, (dim).
    federation, announcement
        The plan, and gain and path gains of the round.
    number
        Number of the device.
    entropy
        Source of the bits; the operating system's in a deployment.
    largest_amplitude
        A limit of the device's own.

    Returns
    -------
    Transmission
        Symbols and amplitudes, (dim).
    """
    uplink, dim = federation.plan.uplink, federation.plan.dim
    gain = np.broadcast_to(announcement.gain, (dim,))
    fading = np.broadcast_to(announcement.fading[number], (1, dim))
    uniform = draw_uniform((1, dim), entropy) if uplink.random_bits else None
    sent = device(gradient[None], uniform, uplink, gain, fading)
    # The planned gain keeps the limit up to its last digit, which must not be scaled down.
    affordable = float(power_scale(uplink, gain, fading)) * (1 + 1e-12)
    amplitude = np.minimum(sent.amplitude[0] * min(1.0, affordable), largest_amplitude)
    return Transmission(sent.symbols[0], amplitude)


def slot_end(slot: float, asked: float, now: float) -> tuple[float, bool]:
    """When an answer leaves, and whether it took longer than a slot.

    It leaves a slot after the question; if it took longer, after more whole slots, so that its
    delay tells as little as possible.

    Parameters
    ----------
    slot
        Seconds of a slot.
    asked, now
        When the question was known, and when the answer is ready, on the monotonic clock.
    """
    slots = max(1, math.ceil((now - asked) / slot))
    return asked + slots * slot, slots > 1


def rehearse(gradient: LocalGradient, dim: int, seal: Seal, journal: DeviceJournal) -> None:
    """Do the work of an answer, of which nothing is kept or sent.

    Parameters
    ----------
    gradient, dim
        The gradient of the local cost, and its number of entries.
    seal, journal
        What seals answers, and what writes them to the disk.
    """
    gradient(np.zeros(dim))
    journal.rehearse(seal.close(bytes(12 * dim)))  # as long as an answer, about
