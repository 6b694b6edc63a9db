"""Power limit: the largest gain that every transmitting device can afford."""

from __future__ import annotations

import numpy as np

from flmc.checks import Array
from flmc.randomness import Purpose, generator
from flmc.uplink import Uplink

_PLANNED_ROUNDS = 1024


def power_scale(uplink: Uplink, gain: Array, fading: Array, active: Array | None = None) -> Array:
    r"""Largest factor c by which gains (..., dim) may be multiplied, for each leading index.

    Channel inversion makes device k transmit :math:`c A_i s / h_{k,i}`, so :math:`\frac1m\sum_i (c
    A_i\,\text{peak}/h_{k,i})^2 \le P_0` for every active device gives :math:`c = \frac{\sqrt{P_0}}{\text{peak}} \min_k
    \bigl(\frac1m\sum_i (A_i/h_{k,i})^2\bigr)^{-1/2}`."""
    affordable = np.mean(np.square(gain[..., None, :] / fading), axis=-1) ** -0.5
    if active is not None:
        affordable = np.where(active > 0, affordable, np.inf)
    return np.asarray(np.sqrt(uplink.power_limit) / uplink.peak * affordable.min(axis=-1))


def power_limited_gain(uplink: Uplink, fading: Array, active: Array | None = None) -> Array:
    r"""Largest common gain of all entries: :math:`A \le \frac{\sqrt{P_0}}{\text{peak}} \min_k \bigl(\frac1m\sum_i
    h_{k,i}^{-2}\bigr)^{-1/2}`."""
    return power_scale(uplink, np.ones(fading.shape[-1]), fading, active)


def planned_power_limit(uplink: Uplink, num_devices: int, dim: int, active: Array | None = None) -> float:
    """The power limit a plan counts on: exact for a constant channel; else the median over rounds drawn from the
    channel's law with a fixed seed. The law of the channel is public, so this reveals nothing of the data.
    """
    rng = generator(0, Purpose.PLANNING)
    num_rounds = 1 if uplink.fading.constant else _PLANNED_ROUNDS
    fading = uplink.fading.draw_checked(rng, num_rounds, num_devices, dim)
    if active is None:
        return float(np.median(power_limited_gain(uplink, fading)))
    rounds = np.arange(max(num_rounds, len(active)))
    return float(np.median(power_limited_gain(uplink, fading[rounds % num_rounds], active[rounds % len(active)])))
