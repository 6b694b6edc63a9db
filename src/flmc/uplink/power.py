"""Power limit: the largest gain that every transmitting device can afford."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from flmc.base.arrays import Array
from flmc.base.randomness import Purpose, generator
from flmc.uplink.fading import Fading
from flmc.uplink.uplink import Uplink

_PLANNED_ROUNDS = 1024
"""Rounds of a random channel that a plan averages over, at least."""
_LOUDEST = 1e9
"""Gain that stands for an infinite one, in standard deviations of the noise."""


def power_scale(uplink: Uplink, gain: Array, fading: Array, active: Array | None = None) -> Array:
    r"""Largest factor c by which gains may be multiplied within every active device's power limit.

    Channel inversion makes device k transmit :math:`c A_i s / h_{k,i}`, so :math:`\frac1m\sum_i (c
    A_i\,\text{peak}/h_{k,i})^2 \le P_0` for every active device gives :math:`c =
    \frac{\sqrt{P_0}}{\text{peak}} \min_k \bigl(\frac1m\sum_i (A_i/h_{k,i})^2\bigr)^{-1/2}`.

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
    # The mean over entries, not their sum: P_0 limits the mean power of a round's symbols.
    affordable = np.mean(np.square(gain[..., None, :] / fading), axis=-1) ** -0.5
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


def draw_planned_fading(
    uplink: Uplink, rounds: range, num_rounds: int, num_devices: int, dim: int
) -> Array:
    """Path gains that a plan counts on for some rounds of a run.

    For a constant channel they are exact; else they are drawn from the channel's law with a fixed
    seed. The law is public, so this reveals nothing of the data.

    Parameters
    ----------
    uplink
        Gives the fading.
    rounds
        The rounds that are asked for, counted from 0.
    num_rounds
        Rounds of the run.
    num_devices, dim
        Number of devices and of entries.

    Returns
    -------
    Array
        Path gains, (drawn, device, dim). They go through ``rounds`` in order: once if the channel
        is constant, else again and again, if the run is short or its rounds are independent.
    """
    # A fixed seed: two plans with the same settings are equal, whatever the seed of the run.
    rng = generator(0, Purpose.PLANNING)
    fading, sizes = uplink.fading, (num_devices, dim)
    if fading.constant:
        return np.broadcast_to(
            fading.draw_checked(rng, range(1), *sizes), (len(rounds), num_devices, dim)
        )
    if not fading.independent:
        # As the run itself is drawn: all its rounds at once, of which only some are asked for.
        part = slice(rounds.start, rounds.stop)
        whole = [
            fading.draw_checked(rng, range(num_rounds), *sizes)[part]
            for _ in range(-(-_PLANNED_ROUNDS // num_rounds))
        ]
        return whole[0] if len(whole) == 1 else np.concatenate(whole)
    first = rounds[:_PLANNED_ROUNDS]
    try:
        drawn = _draw_independent(fading, first, num_devices, dim)
    except TypeError:  # a law that holds an array cannot be a key
        drawn = _draw_independent.__wrapped__(fading, first, num_devices, dim)
    # A longer plan uses the drawn rounds again: more of them would cost time and memory.
    return drawn[np.arange(max(len(rounds), _PLANNED_ROUNDS)) % _PLANNED_ROUNDS]


@lru_cache(maxsize=4)
def _draw_independent(fading: Fading, rounds: range, num_devices: int, dim: int) -> Array:
    """Path gains of independent rounds, again and again until there are enough; kept, because
    searches ask for the same ones many times."""
    rng = generator(0, Purpose.PLANNING)
    passes = -(-_PLANNED_ROUNDS // len(rounds))
    drawn = np.concatenate(
        [fading.draw_checked(rng, rounds, num_devices, dim) for _ in range(passes)]
    )
    drawn.flags.writeable = False
    return drawn


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
    asked = rounds if active is not None else _standing_for(uplink, rounds)
    fading = draw_planned_fading(uplink, asked, len(rounds), num_devices, dim)
    who = None if active is None else active[np.arange(len(fading)) % len(rounds)]
    gains = [
        power_limited_gain(uplink, fading[part], None if who is None else who[part])
        for part in _parts(len(fading))
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
    asked = kept if varies else _standing_for(uplink, kept)
    fading = draw_planned_fading(uplink, asked, kept.stop, num_devices, dim)
    # There may be more drawn channels than kept rounds: then each kept round meets several
    # channels.
    rounds = kept.start + np.arange(len(fading)) % len(kept)
    who = None if active is None else active[rounds]
    caps = np.broadcast_to(cap if len(cap) == 1 else cap[rounds], (len(fading), dim))
    gains = [
        realised_gain(uplink, caps[part], fading[part], None if who is None else who[part])
        for part in _parts(len(fading))
    ]
    return np.concatenate(gains)


def _standing_for(uplink: Uplink, rounds: range) -> range:
    """The first rounds, as many as stand for all of them where nothing but the channel changes: one
    of a constant channel, some of independent draws, else all."""
    fading = uplink.fading
    if fading.constant:
        return rounds[:1]
    return rounds[:_PLANNED_ROUNDS] if fading.independent else rounds


def _parts(num_rounds: int) -> Iterator[slice]:
    """Slices of all rounds, so that what is computed of a long run at a time fits into memory."""
    for first in range(0, num_rounds, _PLANNED_ROUNDS):
        yield slice(first, first + _PLANNED_ROUNDS)
