"""Power limit: the largest gain that every transmitting device can afford."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from flmc.base import arrays
from flmc.base.arrays import Array, IntArray
from flmc.uplink.channel import power_from_snr
from flmc.uplink.planned_channels import draw_planned_channels, standing_for
from flmc.uplink.uplink import Uplink

_LOUDEST = 1e9
"""Gain, in standard deviations of the noise, that takes the place of an infinite cap (the largest
allowed gain of a round), where nothing but transmit power limits the gain."""


def power_scale(uplink: Uplink, gain: Array, fading: Array, active: Array | None = None) -> Array:
    r"""Largest factor c by which gains may be multiplied within every active device's power limit.

    Channel inversion makes device k transmit :math:`c A_i s / h_{k,i}`, so :math:`\frac1m\sum_i (c
    A_i\,\text{peak}/h_{k,i})^2 \le P_0` for every active device gives :math:`c =
    \frac{\sqrt{P_0}}{\text{peak}} \min_k \bigl(\frac1m\sum_i (A_i/h_{k,i})^2\bigr)^{-1/2}`. Where
    the norm of analog symbols is clipped, the largest of the summands takes the place of their sum;
    with ``csi_error``, the largest summand times m, because every entry obeys the limit by itself.
    There is one factor for each leading index of the path gains, (..., device, dim).
    """
    # The quotient of gain and path gain is computed once for all entries that share both, and once
    # for devices with equal path gains.
    known, dim = arrays.without_copied_entries(arrays.one_of_equals(fading)), fading.shape[-1]
    power = np.square(arrays.without_copied_entries(gain)[..., None, :] / known)
    # The power limit bounds the mean power over the entries of a round. Where only the norm of the
    # symbols is bounded, the entry with the largest gain over path gain may take all the power of
    # the round.
    if uplink.shares_power:
        affordable = (power.max(axis=-1) / dim) ** -0.5
    elif uplink.csi_error:
        # Every entry obeys the limit by itself: where inexact channel estimates make gains
        # uncertain, privacy rests on a bound of each transmit amplitude.
        affordable = power.max(axis=-1) ** -0.5
    else:
        affordable = arrays.mean_over_entries(power, dim) ** -0.5
    if active is not None:
        # A silent device spends no power, so that it limits nobody.
        affordable = np.where(active > 0, affordable, np.inf)
    # The limit is computed for the largest symbol, so that it holds whatever the gradients are. The
    # device with the weakest channel decides, because all must arrive with the same gain.
    return np.asarray(np.sqrt(uplink.power_limit) / uplink.peak * affordable.min(axis=-1))


def power_limited_gain(uplink: Uplink, fading: Array, active: Array | None = None) -> Array:
    r"""Largest gain, common to all entries, that every active device's power allows, one for each
    leading index of the path gains (..., device, dim).

    Without clipped norms and ``csi_error``, for which :func:`power_scale` has other limits, it is
    :math:`A = \frac{\sqrt{P_0}}{\text{peak}} \min_k \bigl(\frac1m\sum_i
    h_{k,i}^{-2}\bigr)^{-1/2}`."""
    return power_scale(uplink, np.broadcast_to(1.0, fading.shape[-1:]), fading, active)


def finite_cap(uplink: Uplink, cap: Array) -> Array:
    r"""Largest allowed gain ``cap``, with :math:`10^9` times the noise's standard deviation in
    place of infinity.

    A cap is infinite where nothing but power limits the gain; transmissions, accounting and records
    then use the same finite cap."""
    return np.where(np.isinf(cap), _LOUDEST * np.sqrt(uplink.noise_power), cap)


def realised_gain(uplink: Uplink, cap: Array, fading: Array, active: Array | None = None) -> Array:
    """Gain that a round really uses, (..., dim), for each leading index of the path gains (...,
    device, dim): the largest allowed gain ``cap`` (..., dim), scaled down as far as the power limit
    demands. With an infinite cap power alone decides."""
    # An infinite cap times the factor 0 that power would leave of it is not a number; a finite one
    # is scaled down to the power limit.
    own = finite_cap(uplink, arrays.without_copied_entries(cap))
    scale = power_scale(uplink, own, fading, active)[..., None]
    return np.broadcast_to(own * np.minimum(1.0, scale), (*scale.shape[:-1], cap.shape[-1]))


class DrawnRounds(NamedTuple):
    """Drawn rounds over which a device's mean power is taken, for the limit ``average_snr_db``.

    Attributes
    ----------
    fading, active
        Path gains, (drawn, device, dim), and who transmits, (drawn, device) with 1 or 0.
    numbers
        Number n of each round, (drawn), counted from 0 over all drawn runs: it is the round n mod
        ``length`` of the run n // ``length``.
    length
        Number of rounds of a run, including rounds in which nobody transmits, which the arrays
        leave out.
    """

    fading: Array
    active: Array
    numbers: IntArray
    length: int


def largest_mean_power(uplink: Uplink, cap: Array, rounds: DrawnRounds) -> float:
    """Largest mean transmit power of a device over a run, among all devices and all drawn runs. The
    gain of a round is at most ``cap``, (1 or round of a run, 1 or dim), and is scaled down to the
    power limit of the round."""
    part = cap if len(cap) == 1 else cap[rounds.numbers % rounds.length]
    caps = np.broadcast_to(part, (len(rounds.fading), rounds.fading.shape[-1]))
    gains = realised_gain(uplink, caps, rounds.fading, rounds.active)
    power = np.square(uplink.peak * gains[:, None, :] / rounds.fading)
    each = power.max(axis=-1) / power.shape[-1] if uplink.shares_power else power.mean(axis=-1)
    runs = rounds.numbers // rounds.length
    # np.add.at, because several rounds belong to one run: "total[runs] +=" would keep only one.
    total = np.zeros((int(runs.max()) + 1, rounds.active.shape[1]))
    np.add.at(total, runs, each * rounds.active)
    return float(total.max() / rounds.length)


def average_limited_gain(uplink: Uplink, rounds: DrawnRounds) -> float:
    """Largest gain that may be allowed in every round so that no device's mean power over a run
    exceeds the limit ``average_snr_db``; infinite if the power limit of single rounds ensures that
    already."""
    allowed = power_from_snr(uplink.average_snr_db or 0.0, uplink.noise_power)

    def spent(cap: float) -> float:
        return largest_mean_power(uplink, np.full((1, 1), cap), rounds)

    if spent(np.inf) <= allowed:
        return float("inf")
    # Bisection in logarithms of the cap; the lower end is returned, because it keeps the limit.
    each = power_limited_gain(uplink, rounds.fading, rounds.active)
    high = float(each[np.isfinite(each)].max())
    low = high * 1e-30
    # 80 halvings of 30 decades leave less than the spacing of doubles.
    for _ in range(80):
        middle = float(np.sqrt(low * high))
        low, high = (middle, high) if spent(middle) <= allowed else (low, middle)
    return low


def draw_rounds_for_power(
    uplink: Uplink, num_devices: int, dim: int, active: Array | None, num_rounds: int
) -> DrawnRounds:
    """Drawn rounds from which a plan judges the limit ``average_snr_db`` of a device's mean power
    over a run, for a policy that ignores the channel. ``active`` says who transmits, (round,
    device) with 1 or 0; None: all devices.

    Rounds that are independent draws count as one long run. Else a device may keep its path gain
    for a whole run, so that runs are told apart by ``DrawnRounds.numbers``.
    """
    law, rounds = uplink.known_fading, range(num_rounds)
    asked = rounds if active is not None else standing_for(law, rounds)
    parts = list(draw_planned_channels(law, asked, num_rounds, num_devices, dim).parts())
    fading = np.concatenate([each for _, each in parts])
    numbers = np.concatenate([each for each, _ in parts])
    # Only whole runs are used, so that each round of the schedule counts equally often.
    if active is not None:
        whole = max(1, len(numbers) // num_rounds) * num_rounds
        fading, numbers = fading[:whole], numbers[:whole]
    who = np.ones((len(numbers), num_devices)) if active is None else active[numbers % num_rounds]
    length = len(numbers) if law.independent else num_rounds
    return DrawnRounds(fading, np.asarray(who), numbers, length)


def planned_power_limit(
    uplink: Uplink,
    num_devices: int,
    dim: int,
    active: Array | None = None,
    *,
    num_rounds: int = 1,
) -> float:
    """Largest gain that the power limit allows in nine rounds of ten.

    ``active`` says who is expected to transmit, (round, device) with 1 or 0; None: all devices. If
    the channel is constant and the same devices always transmit, every round attains it. Else it is
    the 10 % quantile over drawn rounds, because a few deep fades would decide the smallest gain.
    """
    rounds = range(num_rounds if active is None else len(active))
    asked = rounds if active is not None else standing_for(uplink.known_fading, rounds)
    channels = draw_planned_channels(uplink.known_fading, asked, len(rounds), num_devices, dim)
    gains = [
        power_limited_gain(uplink, fading, None if active is None else active[part % len(rounds)])
        for part, fading in channels.parts()
    ]
    # The drawn gain at or below the 10 % quantile, so that at least nine tenths of the drawn rounds
    # attain it.
    drawn = np.concatenate(gains)
    return float(drawn[0] if len(drawn) == 1 else np.quantile(drawn, 0.1, method="lower"))


def planned_gain(
    uplink: Uplink, cap: Array, active: Array | None, kept: range, num_devices: int, dim: int
) -> Array:
    """Gains that the rounds after burn-in, ``kept``, are expected to use, (drawn, dim), where at
    most ``cap``, (1 or round, 1 or dim), is allowed. For a constant channel they are exact; else
    they are gains of drawn rounds in the order of the kept rounds, several for each of these if the
    run is short."""
    varies = active is not None or len(cap) > 1
    asked = kept if varies else standing_for(uplink.known_fading, kept)
    gains = []
    for part, fading in draw_planned_channels(
        uplink.known_fading, asked, kept.stop, num_devices, dim
    ).parts():
        # Where more rounds were drawn than are kept, each kept round meets the channels of several
        # drawn ones.
        rounds = kept.start + part % len(kept)
        caps = np.broadcast_to(cap if len(cap) == 1 else cap[rounds], (len(part), dim))
        realised = realised_gain(uplink, caps, fading, None if active is None else active[rounds])
        # Where all entries have the same largest allowed gain, they have the same gain, and one
        # column of it is enough.
        gains.append(realised[:, : cap.shape[1]])
    together = np.concatenate(gains)
    return np.broadcast_to(together, (len(together), dim))
