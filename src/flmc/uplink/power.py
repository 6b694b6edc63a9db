"""Power limit: the largest gain that every transmitting device can afford."""

from __future__ import annotations

import numpy as np

from flmc.base.arrays import Array
from flmc.base.randomness import Purpose, generator
from flmc.uplink.uplink import Uplink

_PLANNED_ROUNDS = 1024
_LOUDEST = 1e9
"""Standard deviations of the noise: stands for an infinite gain."""


def power_scale(uplink: Uplink, gain: Array, fading: Array, active: Array | None = None) -> Array:
    r"""Largest factor c by which gains (..., dim) may be multiplied, for each leading index.

    Channel inversion makes device k transmit :math:`c A_i s / h_{k,i}`, so :math:`\frac1m\sum_i (c
    A_i\,\text{peak}/h_{k,i})^2 \le P_0` for every active device gives :math:`c =
    \frac{\sqrt{P_0}}{\text{peak}} \min_k \bigl(\frac1m\sum_i (A_i/h_{k,i})^2\bigr)^{-1/2}`."""
    affordable = np.mean(np.square(gain[..., None, :] / fading), axis=-1) ** -0.5
    if active is not None:
        affordable = np.where(active > 0, affordable, np.inf)
    return np.asarray(np.sqrt(uplink.power_limit) / uplink.peak * affordable.min(axis=-1))


def power_limited_gain(uplink: Uplink, fading: Array, active: Array | None = None) -> Array:
    r"""Largest common gain of all entries: :math:`A \le \frac{\sqrt{P_0}}{\text{peak}} \min_k
    \bigl(\frac1m\sum_i h_{k,i}^{-2}\bigr)^{-1/2}`."""
    return power_scale(uplink, np.ones(fading.shape[-1]), fading, active)


def finite_cap(uplink: Uplink, cap: Array) -> Array:
    """The cap of a gain with a large number in place of infinity: what is transmitted, accounted
    and recorded where nothing but power limits the gain."""
    return np.where(np.isinf(cap), _LOUDEST * np.sqrt(uplink.noise_power), cap)


def realised_gain(uplink: Uplink, cap: Array, fading: Array, active: Array | None = None) -> Array:
    """What a round really uses, (..., dim): the cap, scaled down as far as power demands; an
    infinite cap means all that power allows."""
    finite = finite_cap(uplink, cap)
    return np.asarray(
        finite * np.minimum(1.0, power_scale(uplink, finite, fading, active))[..., None]
    )


def draw_planned_fading(uplink: Uplink, num_rounds: int, num_devices: int, dim: int) -> Array:
    """Channel gains (round, device, dim) that a plan counts on: exact for a constant channel; else
    drawn from the channel's law with a fixed seed. The law is public, so this reveals nothing of
    the data."""
    rng = generator(0, Purpose.PLANNING)
    if uplink.fading.constant:
        return np.broadcast_to(
            uplink.fading.draw_checked(rng, range(1), num_devices, dim),
            (num_rounds, num_devices, dim),
        )
    drawn = uplink.fading.draw_checked(rng, range(_PLANNED_ROUNDS), num_devices, dim)
    return drawn[np.arange(max(num_rounds, _PLANNED_ROUNDS)) % _PLANNED_ROUNDS]


def planned_power_limit(
    uplink: Uplink, num_devices: int, dim: int, active: Array | None = None
) -> float:
    """The power limit that nine rounds in ten attain; with a constant channel and the same devices,
    all do.

    Not the mean: with channel inversion the weakest device decides, and a few deep fades would
    decide everything."""
    num_rounds = 1 if active is None else len(active)
    fading = draw_planned_fading(uplink, num_rounds, num_devices, dim)
    who = None if active is None else active[np.arange(len(fading)) % num_rounds]
    return float(np.quantile(power_limited_gain(uplink, fading, who), 0.1, method="lower"))


def planned_gain(
    uplink: Uplink, cap: Array, active: Array | None, kept: range, num_devices: int, dim: int
) -> Array:
    """What kept rounds are expected to use of a cap, (1 or round, dim).

    Parameters
    ----------
    cap
        Cap of the gain, (1 or round, 1 or dim).
    active
        Who is expected to transmit, (round, device); None: all, always.
    kept
        The rounds that are kept.
    """
    varies = active is not None or len(cap) > 1
    fading = draw_planned_fading(uplink, len(kept) if varies else 1, num_devices, dim)
    rounds = kept.start + np.arange(len(fading)) % len(kept)
    who = None if active is None else active[rounds]
    caps = np.broadcast_to(cap if len(cap) == 1 else cap[rounds], (len(fading), dim))
    return realised_gain(uplink, caps, fading, who)
