"""The transcript of a run: all that its server saw, as an answer needs it.

A server knows theta before and after every round, and so the estimate of the gradient that moved
it; steps, gains and the number of devices that transmitted are public. Nothing here looks at data
of devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.base.randomness import ROUNDS_PER_BLOCK
from flmc.planning.answer_law import MOST_WIDE, NO_ANSWER
from flmc.planning.plans import Plan
from flmc.planning.server_update import is_langevin
from flmc.sampling.schedule import draw_schedule
from flmc.uplink.csi import bit_noise


class Transcript(NamedTuple):
    """What the server of each data set saw, in the sampler's coordinates.

    Attributes
    ----------
    positions
        Theta before the first of the rounds and after each of them, (data set, chain, round + 1,
        dim).
    step_sizes
        Step size times slope of the link in each round, (round).
    channel_noise
        Variance of the channel's noise in the estimate of the gradient, (data set or 1, round,
        dim); infinite in a round in which nobody transmitted.
    symbol_noise
        Largest variance of the devices' random symbols in the estimate, (data set or 1, round, 1).
    num_kept
        Number of rounds after the burn-in whose estimates are known, the last ones of the
        transcript: one less than the plan's kept rounds where the position before the first of
        these is not stored.
    bounded
        Whether an estimate has no other noise than that of channel and symbols, so that both
        together bound its variance. False where only some devices transmit in a round, devices use
        a part of their examples or wrong estimates of the channel, or a real channel was used.
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
        during the burn-in, with the same axes (None: not stored). ``InvalidSetting`` if the
        server's estimates do not follow from these."""
        channel, symbols = _noise(plan, check_answerable(plan), seed, len(draws))
        uplink = plan.uplink
        bounded = plan.scheduler.everyone and uplink.estimated is None and not uplink.batched
        return cls._of_path(plan, draws, burn_in, channel, symbols, bounded)

    @classmethod
    def of_rounds(
        cls, plan: Plan, draws: Array, burn_in: Array | None, num_active: Array, gain: Array
    ) -> Transcript:
        """Transcript of chains that a federation ran: from their kept positions, (chain, round,
        dim), their positions during the burn-in, (chain, round, dim) or None, and two records of
        every round, in which all chains must agree: the number of devices that answered, (round),
        and the gain with which their symbols arrived, (round, 1 or dim). The variance of the
        estimates' noise counts as unbounded, because a real channel may be noisier than planned.
        ``InvalidSetting`` if the server's estimates do not follow from these."""
        slope, (rounds, count) = check_answerable(plan), (plan.num_rounds, num_active)
        if count.shape != (rounds,) or len(gain) != rounds:
            raise InvalidSetting(
                f"an answer needs gain and answers of all {rounds} rounds, got {len(count)}"
            )
        of_one = bit_noise(plan.uplink, plan.num_devices, plan.scheduler)
        # With reports, the gain has a column for the report behind those of theta: it is cut off.
        dim = draws.shape[-1]
        gain = np.broadcast_to(gain[:, :dim], (rounds, dim))
        noise = _noise_of(plan, slope, of_one, count[None], gain[None])
        before = None if burn_in is None else burn_in[None]
        return cls._of_path(plan, draws[None], before, *noise, bounded=False)

    @classmethod
    def _of_path(
        cls,
        plan: Plan,
        draws: Array,
        burn_in: Array | None,
        channel: Array,
        symbols: Array,
        bounded: bool,
    ) -> Transcript:
        """Transcript from the kept draws and the positions during the burn-in (None: not stored),
        (data set, chain, round, dim) each, with the variances of the channel's noise, (data set or
        1, round, dim), and of the random symbols, (data set or 1, round, 1), in all rounds of the
        plan."""
        num_kept = plan.num_rounds - plan.num_burn_in
        if draws.shape[2] != num_kept:
            raise InvalidSetting(
                f"an answer needs the draws of all {num_kept} kept rounds, got {draws.shape[2]}:"
                " run with thin=1"
            )
        path = draws if burn_in is None else np.concatenate([burn_in, draws], axis=2)
        rounds = slice(plan.num_rounds - path.shape[2] + 1, plan.num_rounds)
        steps = plan.step_sizes[rounds] * (plan.slope or 1.0)
        # Without stored burn-in, the first kept draw is the position before the first usable
        # estimate, so there is one estimate fewer than kept draws.
        kept = num_kept if plan.num_burn_in and burn_in is not None else num_kept - 1
        return cls(path, steps, channel[:, rounds], symbols[:, rounds], kept, bounded)

    @property
    def by_chain(self) -> Transcript:
        """A transcript with every chain of this one as a data set of its own: the chains of the
        first data set, then those of the next."""
        sets, chains, places, dim = self.positions.shape
        channel, symbols = (
            each if len(each) == 1 else np.repeat(each, chains, axis=0)
            for each in (self.channel_noise, self.symbol_noise)
        )
        positions = self.positions.reshape(sets * chains, 1, places, dim)
        return self._replace(positions=positions, channel_noise=channel, symbol_noise=symbols)


def check_answerable(plan: Plan) -> float:
    """The slope of the plan's link, for a plan after whose run the server can compute an answer.
    ``InvalidSetting`` for one where it cannot: the link has no slope, the server's update is not
    Langevin's, devices have local parameters, or theta has more than 20 000 entries."""
    if plan.slope is None:
        raise InvalidSetting(
            f"an answer needs a link with a slope, and {type(plan.uplink.link).__name__} has"
            " none: the mean of its bits does not tell the gradient"
        )
    if not is_langevin(plan.update):
        raise InvalidSetting(
            f"an answer needs Langevin's update, and {type(plan.update).__name__} is another: its"
            " steps do not tell the estimates; use the draws of the chain"
        )
    if plan.num_local:
        raise InvalidSetting(f"an answer is not known to hold: {NO_ANSWER}; use the chain's draws")
    if plan.dim > MOST_WIDE:
        raise InvalidSetting(
            f"an answer is computed for at most {MOST_WIDE} entries, got {plan.dim}: use"
            " the draws of the chain"
        )
    return plan.slope


def _noise(plan: Plan, slope: float, seed: int, num_experiments: int) -> tuple[Array, Array]:
    """Variances of noise in the server's estimate of the gradient, for all rounds of the plan: that
    of the channel's noise, (experiment or 1, round, dim), and the largest one of the devices'
    random symbols, (experiment or 1, round, 1). ``slope`` is that of the link."""
    of_one, noise = bit_noise(plan.uplink, plan.num_devices, plan.scheduler), []
    for block in range(-(-plan.num_rounds // ROUNDS_PER_BLOCK)):
        schedule = draw_schedule(plan, seed, range(num_experiments), block)
        noise.append(_noise_of(plan, slope, of_one, schedule.num_active, schedule.gain))
    channel, symbols = zip(*noise, strict=True)
    return _joined(channel), _joined(symbols)


def _noise_of(
    plan: Plan, slope: float, of_one: float, num_active: Array, gain: Array
) -> tuple[Array, Array]:
    """Variances of noise in the server's estimate of the gradient: that of the channel's noise,
    (experiment, round, dim), and the largest one of the devices' random symbols, (experiment,
    round, 1). They depend on the numbers of active devices (experiment, round) and the gains
    (experiment, round, dim); ``of_one`` is the largest variance of one device's symbol, ``slope``
    that of the link."""
    count = num_active[..., None]
    with np.errstate(divide="ignore", invalid="ignore"):
        factor = np.square(plan.num_devices / count / slope)
        channel = factor * plan.uplink.noise_power / np.square(gain)
        symbols = factor * of_one * count
    return np.where(count > 0, channel, np.inf), np.where(count > 0, symbols, 0.0)


def _joined(blocks: Sequence[Array]) -> Array:
    """One array (experiment, round, ...) from arrays of consecutive rounds, (experiment or 1,
    round, ...) each."""
    lead = max(len(each) for each in blocks)
    return np.concatenate([np.broadcast_to(b, (lead, *b.shape[1:])) for b in blocks], axis=1)
