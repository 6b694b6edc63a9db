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
        Stored positions before the first of the rounds and after each of them, (data set, chain,
        round + 1, dim): theta, or its deviations from ``origin``, in the precision in which a run
        stored them.
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
    origin
        Theta from which positions are deviations, (data set, dim); None: positions are theta.
    """

    positions: Array
    step_sizes: Array
    channel_noise: Array
    symbol_noise: Array
    num_kept: int
    bounded: bool
    origin: Array | None = None

    @classmethod
    def of_run(
        cls, plan: Plan, seed: int, positions: Array, origin: Array | None = None
    ) -> Transcript:
        """Transcript of a run from its stored ``positions`` after consecutive rounds, (data set,
        chain, round, dim), of which the last is the plan's last: those of all kept rounds, or of
        the burn-in, too. They are deviations from ``origin`` (data set, dim), or theta (None).
        ``InvalidSetting`` if the server's estimates do not follow from them."""
        channel, symbols = _noise(plan, check_answerable(plan), seed, len(positions))
        uplink = plan.uplink
        bounded = plan.scheduler.everyone and uplink.estimated is None and not uplink.batched
        return cls._of_path(plan, positions, channel, symbols, bounded)._replace(origin=origin)

    @classmethod
    def of_rounds(cls, plan: Plan, theta: Array, num_active: Array, gain: Array) -> Transcript:
        """Transcript of chains that a federation ran: from ``theta`` after consecutive rounds,
        (chain, round, dim), of which the last is the plan's last, and two records of every round,
        in which all chains must agree: the number of devices that answered, (round), and the gain
        with which their symbols arrived, (round, 1 or dim). The variance of the estimates' noise
        counts as unbounded, because a real channel may be noisier than planned. ``InvalidSetting``
        if the server's estimates do not follow from these."""
        slope, (rounds, count) = check_answerable(plan), (plan.num_rounds, num_active)
        if count.shape != (rounds,) or len(gain) != rounds:
            raise InvalidSetting(
                f"an answer needs gain and answers of all {rounds} rounds, got {len(count)}"
            )
        of_one = bit_noise(plan.uplink, plan.num_devices, plan.scheduler)
        # With reports, the gain has a column for the report behind those of theta: it is cut off.
        dim = theta.shape[-1]
        gain = np.broadcast_to(gain[:, :dim], (rounds, dim))
        noise = _noise_of(plan, slope, of_one, count[None], gain[None])
        return cls._of_path(plan, theta[None], *noise, bounded=False)

    @classmethod
    def _of_path(
        cls,
        plan: Plan,
        positions: Array,
        channel: Array,
        symbols: Array,
        bounded: bool,
    ) -> Transcript:
        """Transcript from the ``positions`` after consecutive rounds, (data set, chain, round,
        dim), of which the last is the plan's last, with the variances of the channel's noise, (data
        set or 1, round, dim), and of the random symbols, (data set or 1, round, 1), in all rounds
        of the plan."""
        num_kept, places = plan.num_rounds - plan.num_burn_in, positions.shape[2]
        if places < num_kept:
            raise InvalidSetting(
                f"an answer needs the draws of all {num_kept} kept rounds, got {places}:"
                " run with thin=1"
            )
        rounds = slice(plan.num_rounds - places + 1, plan.num_rounds)
        steps = plan.step_sizes[rounds] * (plan.slope or 1.0)
        # Without stored burn-in, the first kept position is that before the first usable estimate,
        # so there is one estimate fewer than kept positions.
        kept = min(num_kept, places - 1)
        return cls(positions, steps, channel[:, rounds], symbols[:, rounds], kept, bounded)

    def theta(self, sets: slice) -> Array:
        """Theta of the data sets ``sets`` before the first of the rounds and after each of them,
        (data set, chain, round + 1, dim)."""
        positions = self.positions[sets]
        return positions if self.origin is None else positions + self.origin[sets, None, None]

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
        origin = None if self.origin is None else np.repeat(self.origin, chains, axis=0)
        return self._replace(
            positions=positions, channel_noise=channel, symbol_noise=symbols, origin=origin
        )


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
