"""The transcript of a run: all that its server saw, as an answer needs it.

A server knows theta before and after every round, and so the estimate of the gradient that moved
it; steps, gains and the number of devices that transmitted are public. Nothing here looks at data
of devices."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.base.randomness import ROUNDS_PER_BLOCK
from flmc.planning.plans import Plan
from flmc.sampling.chains import MOST_ANSWERED
from flmc.sampling.schedule import draw_schedule
from flmc.uplink.csi import bit_noise


class Transcript(NamedTuple):
    """What the server of each data set saw, in the sampler's coordinates.

    Attributes
    ----------
    positions
        Theta after successive rounds, (data set, chain, round + 1, dim).
    step_sizes
        Step times slope of the rounds between these positions, (round).
    channel_noise
        Variance that the channel's noise has in an estimate of the gradient, (data set or 1, round,
        dim); infinite in a round in which nobody transmitted.
    symbol_noise
        Largest variance of the devices' random symbols in it, (data set or 1, round, 1).
    num_kept
        Number of rounds at the end that the plan keeps, before which chains have arrived.
    bounded
        Whether there is no noise beside these two, as there is where a part of the devices
        transmits, or estimates of the channel are wrong.
    """

    positions: Array
    step_sizes: Array
    channel_noise: Array
    symbol_noise: Array
    num_kept: int
    bounded: bool

    @classmethod
    def of_run(cls, plan: Plan, seed: int, draws: Array, burn_in: Array | None) -> Transcript:
        """Transcript of a run from its kept draws, (data set, chain, round, dim), and its positions
        during the burn-in (None: not stored). ``InvalidSetting`` if these do not tell what the
        server saw."""
        num_kept = plan.num_rounds - plan.num_burn_in
        if plan.slope is None:
            raise InvalidSetting(
                f"an answer needs a link with a slope, and {type(plan.uplink.link).__name__} has"
                " none: the mean of its bits does not tell the gradient"
            )
        if plan.dim > MOST_ANSWERED:
            raise InvalidSetting(
                f"an answer is computed for at most {MOST_ANSWERED} entries, got {plan.dim}: use"
                " the draws of the chain"
            )
        if draws.shape[2] != num_kept:
            raise InvalidSetting(
                f"an answer needs the draws of all {num_kept} kept rounds, got {draws.shape[2]}:"
                " run with thin=1"
            )
        path = draws if burn_in is None else np.concatenate([burn_in, draws], axis=2)
        rounds = slice(plan.num_rounds - path.shape[2] + 1, plan.num_rounds)
        channel, symbols = _noise(plan, plan.slope, seed, len(draws))
        steps = plan.step_sizes[rounds] * plan.slope
        # The first kept position is before the first kept estimate.
        kept = num_kept if burn_in is not None else num_kept - 1
        everyone = plan.scheduler.everyone and plan.uplink.estimated is None
        return cls(path, steps, channel[:, rounds], symbols[:, rounds], kept, everyone)


def _noise(plan: Plan, slope: float, seed: int, num_experiments: int) -> tuple[Array, Array]:
    """Variances of the channel's noise, (experiment or 1, round, dim), and largest variances of the
    random symbols, (experiment or 1, round, 1), in estimates of the gradient of all rounds."""
    uplink, channel, symbols = plan.uplink, [], []
    of_one = bit_noise(uplink, plan.num_devices, plan.scheduler)
    for block in range(-(-plan.num_rounds // ROUNDS_PER_BLOCK)):
        schedule = draw_schedule(plan, seed, range(num_experiments), block)
        count = schedule.num_active[..., None]
        with np.errstate(divide="ignore", invalid="ignore"):
            factor = np.square(plan.num_devices / count / slope)
            noise = factor * uplink.noise_power / np.square(schedule.gain)
        channel.append(np.where(count > 0, noise, np.inf))
        symbols.append(np.where(count > 0, factor * of_one * count, 0.0))
    return _joined(channel), _joined(symbols)


def _joined(blocks: list[Array]) -> Array:
    """Arrays of consecutive blocks of rounds, (experiment or 1, round, ...), joined along the axis
    of rounds."""
    lead = max(len(each) for each in blocks)
    return np.concatenate([np.broadcast_to(b, (lead, *b.shape[1:])) for b in blocks], axis=1)
