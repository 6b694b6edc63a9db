"""The study's experiment: 100 runs, each with a channel of its own, whose thetas in one round form
a cloud. The result of an experiment is the squared W2 distance of the cloud from the posterior,
largest over all kept rounds."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.base.randomness import Purpose, generator
from flmc.evaluation.exact_posterior import ExactPosterior
from flmc.models.distributions import Gaussian
from flmc.papers.wflmc.base_case import NUM_RUNS, BaseCase
from flmc.planning.limits import Limits
from flmc.planning.planner import plan
from flmc.planning.plans import Plan
from flmc.sampling.engine import Engine
from flmc.sampling.path_gains import draw_path_gains
from flmc.sampling.schedule import (
    DrawSchedule,
    Schedule,
    block_of,
    draw_schedule,
    schedule_of,
)
from flmc.sampling.simulation import simulate
from flmc.settings.construction import make_fading
from flmc.uplink.schedulers import PredecessorDevices
from flmc.uplink.schemes import Analog, Ideal
from flmc.uplink.uplink import Uplink

_FLOOR_EXPERIMENTS = 200
"""Number of simulated experiments of 100 runs over which the distance of an exact sampler is
averaged."""


@dataclass(frozen=True)
class Channels:
    """Path gains of every run, which are the same for all schemes and SNRs.

    Attributes
    ----------
    fading
        Path gains, (run, round, device).
    dim
        Number of entries of theta, which share the path gains.
    """

    fading: Array
    dim: int
    _active: dict[float, npt.NDArray[np.bool_]] = field(default_factory=dict)

    def active(self, snr_db: float) -> npt.NDArray[np.bool_]:
        """Whether each device transmits in each round at an SNR in dB, (run, round, device), as the
        study's rule decides from the path gains."""
        if snr_db not in self._active:
            runs, rounds, devices = self.fading.shape
            every = self.fading.reshape(-1, devices, 1)
            every = np.broadcast_to(every, (runs * rounds, devices, self.dim))
            # The rule requires a random generator as an argument but does not use it.
            chosen = PredecessorDevices(snr_db).draw(
                np.random.default_rng(0), range(len(every)), every
            )
            # The result is cached, because several curves have the same active devices.
            self._active[snr_db] = chosen.reshape(self.fading.shape) > 0
        return self._active[snr_db]


class Laboratory:
    """Runs chains on the study's data with one seed, either with given gains or by a plan, and
    measures the distance from the posterior of the cloud that the runs' thetas form in a round. The
    model of the base case has one data set for each run."""

    def __init__(self, case: BaseCase, seed: int, engine: str | Engine = "auto") -> None:
        self.case, self.seed, self.engine = case, seed, engine
        posterior = case.model.posterior
        self._exact = ExactPosterior(Gaussian(posterior.mean[:1], posterior.covariance[:1]))

    @property
    def num_runs(self) -> int:
        """Number of runs of all experiments together."""
        return self.case.model.num_experiments

    def _plan(self, uplink: Uplink) -> Plan:
        """A plan for an uplink with the study's number of rounds and step size. Its gain of 1 is
        only a placeholder, because gains and active devices come from the schedule with which the
        plan is run."""
        settings = self.case.settings
        return plan(
            self.case.model,
            uplink,
            Limits(privacy="off", langevin="calibrated"),
            num_rounds=settings.rounds,
            num_burn_in=self.case.num_burn_in,
            step_size=self.case.step_size,
            burn_in_step_factor=1.0,
            draw_at="positions",
            gain=None if uplink.noise_is_exact else 1.0,
            forecast=False,
        )

    @cached_property
    def analog(self) -> Plan:
        """The plan of the study's own uplink: analog transmission over fading channels, with
        gradients clipped as in the base case."""
        settings = self.case.settings
        return self._plan(
            Analog(
                clip=settings.clip,
                clipping=settings.clipping,
                fading=make_fading(settings.fading),
                noise_power=settings.noise_power,
            )
        )

    @cached_property
    def channels(self) -> Channels:
        """Path gains of every run, drawn from the seed and cached, so that all curves share them.
        ``InvalidSetting`` for a fading whose entries have different path gains."""
        parts = []
        for run in range(self.num_runs):
            one = range(run, run + 1)
            blocks = []
            for block in range(-(-self.analog.num_rounds // len(block_of(self.analog, 0)))):
                rounds = block_of(self.analog, block)
                drawn = draw_path_gains(self.analog, self.seed, one, block, rounds)[0]
                blocks.append(np.broadcast_to(drawn, (len(rounds), *drawn.shape[1:])))
            whole = np.concatenate(blocks)
            if (whole != whole[..., :1]).any():
                raise InvalidSetting(
                    "the study's rule needs a fading that all entries share, got"
                    f" {self.case.settings.fading!r}"
                )
            parts.append(whole[..., 0])
        return Channels(np.stack(parts), self.analog.dim)

    def run(self, gain: Array, active: Array) -> Array:
        """Theta after every kept round, (run, kept, dim), of chains with the study's analog uplink:
        with the given gains at the receiver, (run or 1, round), and active devices, (run or 1,
        round, device), 1 or 0."""
        runs = (self.num_runs,)
        gains = np.broadcast_to(gain, runs + gain.shape[1:])
        talks = np.broadcast_to(active, runs + active.shape[1:])

        def schedule(plan: Plan, seed: int, experiments: range, block: int) -> Schedule:
            rounds = block_of(plan, block)
            place = (
                slice(experiments.start, experiments.stop),
                slice(rounds.start, rounds.stop),
            )
            transmits = talks[place]
            shape = (*transmits.shape, plan.dim)
            return Schedule(
                plan.step_sizes[place[1]],
                np.broadcast_to(gains[place][..., None], (*transmits.shape[:2], plan.dim)),
                # Path gains do not matter, because devices invert their channels and symbols always
                # arrive with the gain; so they are set to 1.
                np.broadcast_to(1.0, shape),
                transmits,
                transmits.sum(axis=2),
            )

        chains = simulate(
            self.analog,
            self.case.model,
            self.seed,
            engine=self.engine,
            keep_draws=True,
            schedule=schedule,
        )
        return _kept(chains.draws)

    def run_plan(self, planned: Plan, snr_db: float | None = None) -> Array:
        """Theta after every kept round, (run, kept, dim), of chains that are run by a plan: with
        the study's path gains, and with active devices by the study's rule for the SNR ``snr_db``
        in dB; or, if that is None, with the plan's own fading and scheduler."""
        model, seed = self.case.model, self.seed
        known = draw_schedule if snr_db is None else self._schedule_at(snr_db)
        chains = simulate(planned, model, seed, engine=self.engine, keep_draws=True, schedule=known)
        return _kept(chains.draws)

    def _schedule_at(self, snr_db: float) -> DrawSchedule:
        """A function that returns the schedule of a block of rounds: with the study's path gains,
        active devices by the study's rule for an SNR in dB, and gains that follow from these and
        the plan."""
        fading, active = self.channels.fading, self.channels.active(snr_db)

        def schedule(plan: Plan, seed: int, experiments: range, block: int) -> Schedule:
            rounds = block_of(plan, block)
            place = (slice(experiments.start, experiments.stop), slice(rounds.start, rounds.stop))
            met = fading[place][..., None]
            every = np.broadcast_to(met, (*met.shape[:-1], plan.dim))
            return schedule_of(plan, every, active[place].astype(np.float64), rounds)

        return schedule

    def run_ideal(self) -> Array:
        """Theta after every kept round, (run, kept, dim), of Langevin Monte Carlo without a
        channel: with the exact sum of gradients and exactly the noise of temperature 1."""
        return self.run_plan(self._plan(Ideal()))

    def worst_distances(self, thetas: Array) -> Array:
        """For every experiment of 100 runs, the squared W2 distance from the posterior, largest
        over kept rounds, (experiment). ``thetas`` are those of all runs, (run, kept, dim)."""
        experiments = thetas.reshape(-1, NUM_RUNS, *thetas.shape[1:])
        return np.array([self.worst_distance(each) for each in experiments])

    def worst_distance(self, thetas: Array) -> float:
        """Squared W2 distance from the posterior to the Gaussian with the mean and covariance of
        all runs' thetas in a round, largest over kept rounds; ``thetas`` is (run, kept, dim)."""
        deviations = thetas - self.case.model.posterior.mean[0]
        shift = deviations.mean(axis=0)
        second = np.einsum("nki,nkj->kij", deviations, deviations) / len(deviations)
        return float(self._exact.wasserstein2_squared(shift, second).max())

    @cached_property
    def floor(self) -> float:
        """Squared W2 distance, largest over kept rounds and averaged over experiments of 100 runs,
        for simulated chains whose law is exactly the posterior, and which are correlated from round
        to round like Langevin Monte Carlo with exact gradients. A sampler with this distance cannot
        be told from an exact one."""
        rng = generator(self.seed, Purpose.PLANNING, 1)
        posterior = self.case.model.posterior
        values, directions = np.linalg.eigh(posterior.covariance[0])
        memory = 1.0 - self.case.step_size / values
        shape = (_FLOOR_EXPERIMENTS * NUM_RUNS, len(values))
        # In every eigen-direction of the posterior covariance, with variance v, the chains are a
        # stationary autoregression of order one with the coefficient 1 - eta/v of Langevin Monte
        # Carlo, but without its discretisation error.
        state, thetas = rng.standard_normal(shape), []
        for _ in range(self.case.num_kept):
            thetas.append((np.sqrt(values) * state) @ directions.T + posterior.mean[0])
            fresh = rng.standard_normal(shape)
            state = memory * state + np.sqrt(1.0 - np.square(memory)) * fresh
        return float(self.worst_distances(np.stack(thetas, axis=1)).mean())

    @property
    def population(self) -> float:
        """Squared W2 distance from the posterior, largest over kept rounds, of Langevin Monte Carlo
        with exact gradients, without a channel, and with infinitely many runs. It is computed
        exactly: theta is normal in every round, and its mean and covariance follow a recursion."""
        posterior = self.case.model.posterior
        values, directions = np.linalg.eigh(posterior.covariance[0])
        memory = 1.0 - self.case.step_size / values
        prior = self.case.model.prior
        shift = directions.T @ (np.broadcast_to(prior.mean, values.shape) - posterior.mean[0])
        spread = directions.T @ np.diag(np.broadcast_to(np.square(prior.sd), values.shape))
        covariance, worst = spread @ directions, 0.0
        # In every eigen-direction a round multiplies the deviation from the posterior mean by
        # ``memory`` and adds noise of variance 2 eta, with the step size eta.
        for index in range(self.case.settings.rounds):
            shift = memory * shift
            covariance = memory[:, None] * covariance * memory + 2.0 * self.case.step_size * np.eye(
                len(values)
            )
            if index >= self.case.num_burn_in:
                turned = directions @ covariance @ directions.T
                moved = directions @ shift
                second = turned + np.outer(moved, moved)
                distance = self._exact.wasserstein2_squared(moved[None], second[None])
                worst = max(worst, float(distance[0]))
        return worst


def _kept(draws: Array | None) -> Array:
    """The array ``draws`` (run, 1, kept, dim) without its axis of chains, (run, kept, dim)."""
    if draws is None:
        raise RuntimeError("the draws were not kept")
    return np.asarray(draws[:, 0])
