"""Power limit: the largest gain that every transmitting device can afford."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from flmc.base.arrays import Array
from flmc.uplink.channel import power_from_snr
from flmc.uplink.planned_channels import draw_planned_channels, standing_for
from flmc.uplink.uplink import Uplink

_LOUDEST = 1e9
"""Gain that stands for an infinite one, in standard deviations of the noise."""


def power_scale(uplink: Uplink, gain: Array, fading: Array, active: Array | None = None) -> Array:
    r"""Largest factor c by which gains may be multiplied within every active device's power limit.

    Channel inversion makes device k transmit :math:`c A_i s / h_{k,i}`, so :math:`\frac1m\sum_i (c
    A_i\,\text{peak}/h_{k,i})^2 \le P_0` for every active device gives :math:`c =
    \frac{\sqrt{P_0}}{\text{peak}} \min_k \bigl(\frac1m\sum_i (A_i/h_{k,i})^2\bigr)^{-1/2}`. Where
    the norm of analog symbols is clipped, the largest of the summands takes the place of their sum.

    Parameters
    ----------
    uplink
        Gives the power limit :math:`P_0` and the peak of a symbol.
    gain
        Gains :math:`A_i`, (..., dim).
    fading
        Path gains :math:`h_{k,i}`, (..., device, dim).
    active
        Who transmits, (..., device) with 1 or 0; None: all devices.

    Returns
    -------
    Array
        One factor for each leading index.
    """
    power = np.square(gain[..., None, :] / fading)
    # The mean over entries, not their sum: P_0 limits the mean power of a round's symbols. Where
    # their norm is bounded, all of it may be in the entry that costs most.
    if uplink.shares_power:
        affordable = (power.max(axis=-1) / power.shape[-1]) ** -0.5
    elif uplink.csi_error:
        # Every entry by itself: the privacy of uncertain gains rests on a bound of each amplitude.
        affordable = power.max(axis=-1) ** -0.5
    else:
        affordable = np.mean(power, axis=-1) ** -0.5
    if active is not None:
        # A silent device spends no power, so that it limits nobody.
        affordable = np.where(active > 0, affordable, np.inf)
    # The largest symbol counts, so that the limit holds whatever the gradients are; and the weakest
    # device decides, because all must arrive with the same gain.
    return np.asarray(np.sqrt(uplink.power_limit) / uplink.peak * affordable.min(axis=-1))


def power_limited_gain(uplink: Uplink, fading: Array, active: Array | None = None) -> Array:
    r"""Largest gain, common to all entries, that every active device's power allows.

    It is :math:`A = \frac{\sqrt{P_0}}{\text{peak}} \min_k \bigl(\frac1m\sum_i
    h_{k,i}^{-2}\bigr)^{-1/2}`.

    Parameters
    ----------
    uplink
        Gives the power limit :math:`P_0` and the peak of a symbol.
    fading
        Path gains :math:`h_{k,i}`, (..., device, dim).
    active
        Who transmits, (..., device) with 1 or 0; None: all devices.

    Returns
    -------
    Array
        One gain for each leading index.
    """
    return power_scale(uplink, np.ones(fading.shape[-1]), fading, active)


def finite_cap(uplink: Uplink, cap: Array) -> Array:
    r"""Cap of the gain with a large finite number in place of infinity.

    It is what is transmitted, accounted and recorded where nothing but power limits the gain.

    Parameters
    ----------
    uplink
        Gives the noise power.
    cap
        Cap of the gain, in any shape; infinite: no limit but power.

    Returns
    -------
    Array
        The cap, with :math:`10^9\sqrt{N_0}` for what is infinite, in the same shape.
    """
    return np.where(np.isinf(cap), _LOUDEST * np.sqrt(uplink.noise_power), cap)


def realised_gain(uplink: Uplink, cap: Array, fading: Array, active: Array | None = None) -> Array:
    """Gain that a round really uses: the cap, scaled down as far as power demands.

    Parameters
    ----------
    uplink
        Gives the power limit, the peak of a symbol and the noise power.
    cap
        Cap of the gain, (..., dim); infinite: all that power allows.
    fading
        Path gains, (..., device, dim).
    active
        Who transmits, (..., device) with 1 or 0; None: all devices.

    Returns
    -------
    Array
        Gains, (..., dim).
    """
    # An infinite cap times the factor 0 that power would leave of it is not a number; a finite one
    # is scaled down to the power limit.
    finite = finite_cap(uplink, cap)
    return np.asarray(
        finite * np.minimum(1.0, power_scale(uplink, finite, fading, active))[..., None]
    )


def mean_power(uplink: Uplink, fading: Array) -> Array:
    r"""Mean power of a device's symbols in a round at gain 1, at most, (..., device).

    It is :math:`\frac1m\sum_i (\text{peak}/h_{k,i})^2`; the largest summand in place of the sum
    where the norm of analog symbols is clipped.

    Parameters
    ----------
    uplink
        Gives the peak of a symbol.
    fading
        Path gains, (..., device, dim).
    """
    power = np.square(uplink.peak / fading)
    if uplink.shares_power:
        return np.asarray(power.max(axis=-1) / power.shape[-1])
    return np.asarray(power.mean(axis=-1))


def average_limited_gain(
    uplink: Uplink, channels: Iterable[tuple[Array, Array | None]], num_rounds: int
) -> float:
    """Largest cap of the gain at which no device's mean power over rounds exceeds the long-term
    limit, where each round is within its own limit; infinite if every cap is.

    Parameters
    ----------
    uplink
        Gives both limits.
    channels
        Path gains (round, device, dim) of some rounds and who transmits in them, (round, device)
        with 1 or 0 or None for all.
    num_rounds
        Rounds that the mean is over, with those in which nobody transmits.
    """
    parts = []
    for fading, active in channels:
        each = mean_power(uplink, fading)
        largest = power_limited_gain(uplink, fading, active)
        largest = np.where(np.isinf(largest), 0.0, largest)  # nobody transmits
        parts.append((largest, each if active is None else each * active))
    allowed = power_from_snr(uplink.average_snr_db or 0.0, uplink.noise_power)

    def spent(cap: float) -> float:
        total = sum(np.square(np.minimum(cap, most)) @ each for most, each in parts)
        return float(np.max(total) / num_rounds)

    if spent(np.inf) <= allowed:
        return float("inf")
    # Bisection in logarithms, from below: what is returned is allowed.
    high = max(float(most.max()) for most, _ in parts)
    low = high * 1e-30
    for _ in range(100):
        middle = float(np.sqrt(low * high))
        low, high = (middle, high) if spent(middle) <= allowed else (low, middle)
    return low


def planned_average_limit(
    uplink: Uplink, num_devices: int, dim: int, active: Array | None = None, *, num_rounds: int
) -> float:
    """Largest cap of the gain within the long-term power limit, over the channels that plans draw.

    Parameters
    ----------
    uplink
        Gives the fading and both limits.
    num_devices, dim
        Number of devices and of entries.
    active
        Who is expected to transmit, (round, device) with 1 or 0; None: all devices in all rounds.
    num_rounds
        Rounds of the run.
    """
    rounds = range(num_rounds)
    asked = rounds if active is not None else standing_for(uplink.channel, rounds)
    channels = draw_planned_channels(uplink.channel, asked, num_rounds, num_devices, dim)
    parts = [
        (fading, None if active is None else active[part % num_rounds])
        for part, fading in channels.parts()
    ]
    return average_limited_gain(uplink, parts, sum(len(fading) for fading, _ in parts))


def planned_power_limit(
    uplink: Uplink,
    num_devices: int,
    dim: int,
    active: Array | None = None,
    *,
    num_rounds: int = 1,
) -> float:
    """Power-limited gain that nine rounds in ten attain.

    With a constant channel and the same devices all rounds attain it. It is not the mean: with
    channel inversion the weakest device decides, and a few deep fades would decide everything.

    Parameters
    ----------
    uplink
        Gives the fading, the power limit and the peak of a symbol.
    num_devices, dim
        Number of devices and of entries.
    active
        Who is expected to transmit, (round, device) with 1 or 0; None: all devices in all rounds.
    num_rounds
        Rounds of the run; as many as ``active`` has, where that is given.

    Returns
    -------
    float
        The gain.
    """
    rounds = range(num_rounds if active is None else len(active))
    asked = rounds if active is not None else standing_for(uplink.channel, rounds)
    channels = draw_planned_channels(uplink.channel, asked, len(rounds), num_devices, dim)
    gains = [
        power_limited_gain(uplink, fading, None if active is None else active[part % len(rounds)])
        for part, fading in channels.parts()
    ]
    # The drawn gain at or below the quantile: at least nine tenths of the drawn rounds attain it.
    return float(np.quantile(np.concatenate(gains), 0.1, method="lower"))


def planned_gain(
    uplink: Uplink, cap: Array, active: Array | None, kept: range, num_devices: int, dim: int
) -> Array:
    """Gains that kept rounds are expected to use, given the cap.

    Parameters
    ----------
    uplink
        Gives the fading, the power limit and the peak of a symbol.
    cap
        Cap of the gain, (1 or round, 1 or dim).
    active
        Who is expected to transmit, (round, device) with 1 or 0; None: all devices in all rounds.
    kept
        The rounds that are kept, up to the last of the run.
    num_devices, dim
        Number of devices and of entries.

    Returns
    -------
    Array
        Gains, (1 or round, dim). Unless the channel is constant they are those of drawn channels,
        which go through the kept rounds in order, perhaps again and again.
    """
    varies = active is not None or len(cap) > 1
    asked = kept if varies else standing_for(uplink.channel, kept)
    gains = []
    for part, fading in draw_planned_channels(
        uplink.channel, asked, kept.stop, num_devices, dim
    ).parts():
        # There may be more drawn channels than kept rounds: then each kept round meets several
        # channels.
        rounds = kept.start + part % len(kept)
        caps = np.broadcast_to(cap if len(cap) == 1 else cap[rounds], (len(part), dim))
        realised = realised_gain(uplink, caps, fading, None if active is None else active[rounds])
        # A cap that is common to all entries is scaled for all alike.
        gains.append(realised[:, : cap.shape[1]])
    together = np.concatenate(gains)
    return np.broadcast_to(together, (len(together), dim))
