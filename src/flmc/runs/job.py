"""One run as a value: everything that decides its result (plan, model, seed, chains, engine), and
its execution."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from flmc.base.arrays import Array, one_blas_thread
from flmc.base.errors import Interrupted, InvalidSetting, RunFailed
from flmc.base.findings import Finding
from flmc.base.version import VERSION
from flmc.evaluation.answer import Answer, find_answer
from flmc.evaluation.diagnostics import thinned
from flmc.evaluation.exact_posterior import ExactPosterior
from flmc.evaluation.metrics import Metrics, measure
from flmc.evaluation.one_chain import OneChain, measure_one_chain
from flmc.evaluation.shown_answer import FindAnswer
from flmc.evaluation.stein import Evidence, examine
from flmc.evaluation.tails import thin_for_tails
from flmc.models.distributions import Normal
from flmc.models.linear import LinearGaussian
from flmc.models.log_density import LogDensityModel
from flmc.models.model import Model
from flmc.planning.judgement import check_model
from flmc.planning.plans import Plan
from flmc.runs import records
from flmc.runs.fingerprints import Fingerprints
from flmc.runs.ledger import Ledger
from flmc.runs.recorder import Recorder
from flmc.runs.results import Result, metrics_document, shape_in_doubt
from flmc.runs.snapshots import SnapshotObserver, Watch
from flmc.sampling.chains import Chains
from flmc.sampling.engine import Engine, Resources
from flmc.sampling.moments import Moments
from flmc.sampling.path import ChainPath
from flmc.sampling.schedule import Activity, draw_activity
from flmc.sampling.simulation import RoundObserver, simulate


def _blas_threads(one: bool) -> AbstractContextManager[None]:
    """Context in which BLAS uses one thread if ``one`` is true, and as many as the caller set if it
    is false. One thread suits the small matrices of flmc's own linear model, more suit the large
    ones that a user's model may have."""
    return one_blas_thread() if one else nullcontext()


def _measure_one_chain(
    moments: Moments, exact: ExactPosterior, one_thread: bool
) -> OneChain | None:
    """Quality of single chains against the exact posterior; with ``one_thread`` on one BLAS thread,
    so that the numbers are the same to the bit whenever they are computed."""
    with _blas_threads(one_thread):
        return measure_one_chain(moments, exact)


def _measured_before(quality: OneChain | None) -> OneChain | None:
    """Return ``quality``, the quality of single chains that was computed earlier. This is a
    function of the module, not a lambda, because a result that refers to it must be picklable."""
    return quality


def _answer_from(plan: Plan, seed: int, model: Model, path: ChainPath, **words: Any) -> Answer:
    """The answer of a finished run, computed from the stored positions in ``path``, which are read
    only at this call; ``words`` are keyword arguments of
    :func:`~flmc.evaluation.answer.find_answer`. ``InvalidSetting`` if positions were thinned
    out."""
    if path.thin > 1:
        kept = plan.num_rounds - plan.num_burn_in
        raise InvalidSetting(
            f"an answer needs the draws of all {kept} kept rounds, got {kept // path.thin}: run"
            " with thin=1"
        )
    return find_answer(plan, seed, model, path.after_rounds, path.origin, **words)


@dataclass(frozen=True)
class Job:
    """Everything that decides the result of a run: plan, model, seed, number of chains, engine, and
    which draws are kept."""

    plan: Plan
    model: Model
    seed: int
    num_chains: int
    engine: Engine
    keep_draws: bool
    thin: int = 1
    """Number of kept rounds for each draw that is stored: with 10, every tenth."""

    def recorder(self, directory: Path, every_rounds: int | None) -> Recorder:
        """The recorder that writes this run to ``directory``, where a record was created;
        ``every_rounds`` is the number of rounds between checkpoints."""
        ledger = Ledger(self.plan, self.seed, self.model.num_experiments)
        return Recorder(
            directory,
            ledger,
            lambda chains: metrics_document(self.metrics(chains)),
            self.identity,
            every_rounds,
        )

    @cached_property
    def identity(self) -> str:
        """SHA-256 of everything that decides the result, by which a resumed run is recognised.
        Data, prior and link cannot be hashed themselves: values computed from them at a few fixed
        thetas stand for them."""
        parts: list[Any] = [
            VERSION,
            self.plan.digest,
            self.seed,
            self.num_chains,
            self.engine.name,
            self.keep_draws,
        ]
        if self.thin > 1:
            parts.append(self.thin)
        # Digests of the user's code are added only where there is such code, so that runs with
        # flmc's own code keep the digest that older records have.
        if self.code:
            parts.append(sorted(self.code.items()))
        digest = hashlib.sha256(repr(parts).encode())
        for array in self._fingerprint():
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()

    @cached_property
    def code(self) -> dict[str, str]:
        """SHA-256 digests, by module name, of a user's own modules that define the uplink, its
        link, fading or noise, the scheduler, the server's update, the model or the engine.
        ``InvalidSetting`` for a class without readable source."""
        uplink = self.plan.uplink
        parts = (uplink, uplink.link, uplink.known_fading, uplink.fading, uplink.noise_law)
        used = (*parts, self.plan.scheduler, self.plan.update, self.model, self.engine)
        return Fingerprints().of_objects(*used)

    def _fingerprint(self) -> Iterator[Array]:
        """Gradients, starting points and bit probabilities at fixed thetas. They stand for the
        data, the prior and a user's own link in the run's digest, because these cannot be hashed
        themselves."""
        # Gradients at two thetas, of at most eight data sets, suffice to notice other data, and
        # take almost no time.
        model, uplink = self.model, self.plan.uplink
        rows = slice(0, min(model.num_experiments, 8))
        at = np.random.default_rng(0).standard_normal((rows.stop, 2, model.dim))
        yield model.gradient(at, rows)
        yield np.array([model.num_experiments])
        if model.posterior is not None:
            yield model.posterior.mean
        # Chains start from draws of the prior, so one draw is part of the fingerprint. A normal
        # prior needs no draw, because it changes the gradients above. The exception are models from
        # log densities, whose chains may start from a law that is not their prior.
        if type(model.prior) is not Normal or isinstance(model, LogDensityModel):
            yield model.prior.draw(np.random.default_rng(0), model.dim)
        if uplink.link is not None:
            yield uplink.link.probability(np.linspace(-uplink.clip, uplink.clip, 101))

    def metrics(self, chains: Chains) -> Metrics | None:
        """Metrics, against the exact posterior, of the rounds that were kept so far; None if the
        posterior is not known, no round was kept yet, or theta has too many entries for a
        covariance of the draws."""
        kept = chains.round - self.plan.num_burn_in
        if self.model.posterior is None or kept < 1 or not chains.moments.has_covariance:
            return None
        moments = chains.moments.in_batches()
        # ``moments.counts`` has numbers of draws as of a finished run, so they are scaled down to
        # the rounds that are kept so far.
        counts = moments.counts * kept / (self.plan.num_rounds - self.plan.num_burn_in)
        so_far = replace(moments, counts=counts)
        return measure(
            so_far,
            self._exact,
            self.plan.effective_step_size,
            self.num_chains,
            midpoints=self.plan.midpoints,
        )

    @cached_property
    def _exact(self) -> ExactPosterior:
        """The model's exact posterior, with which the draws are compared."""
        assert self.model.posterior is not None
        return ExactPosterior(self.model.posterior)

    def _one_chain(self, chains: Chains) -> Callable[[], OneChain | None]:
        """A function that returns the quality of single chains of a finished run against the exact
        posterior; it returns None if the posterior is not known or theta has too many entries for a
        covariance of the draws.

        The quality is computed when that function is called. Only where the result will keep
        nothing but sums over batches of chains is it computed at once, while the sums of single
        chains exist."""
        if self.model.posterior is None or not chains.moments.has_covariance:
            return partial(_measured_before, None)
        one_thread = isinstance(self.model, LinearGaussian)
        measure_it = partial(_measure_one_chain, chains.moments, self._exact, one_thread)
        if chains.moments.in_batches() is chains.moments:
            return measure_it
        return partial(_measured_before, measure_it())

    def run(
        self,
        recorder: Recorder | None,
        stop: Callable[[], bool],
        resources: Resources,
        watch: Watch | None = None,
    ) -> Result:
        """Run the remaining rounds of the plan, and return the result; a recorder writes the
        record, and ``watch`` is called with snapshots. ``Interrupted`` if ``stop`` returns True,
        ``RunFailed`` if the next round would overspend the run's privacy budget."""
        with _blas_threads(isinstance(self.model, LinearGaussian)):
            return self._run(recorder, stop, resources, watch)

    def _observer(self, recorder: Recorder | None, watch: Watch | None) -> RoundObserver | None:
        """The observer that is called before and after each group of consecutive rounds, to write
        the record, to call ``watch`` with a snapshot, or both; None where neither is asked for."""
        if watch is None:
            return recorder
        return SnapshotObserver(watch, self.plan.num_rounds, self.metrics, recorder)

    def _run(
        self,
        recorder: Recorder | None,
        stop: Callable[[], bool],
        resources: Resources,
        watch: Watch | None,
    ) -> Result:
        """Check the scheduler and the model, run the remaining rounds, and return the result, on as
        many BLAS threads as are set at the call."""
        began = time.process_time()
        # The scheduler and the model are checked before round 1: a run that is refused must not
        # have spent any privacy.
        activity = self.activity
        checked = self._check_model()
        chains = simulate(
            self.plan,
            self.model,
            self.seed,
            self.num_chains,
            engine=self.engine,
            keep_draws=self.keep_draws or self._judges_tails,
            thin=self._thin,
            directory=None if recorder is None else recorder.directory,
            observer=self._observer(recorder, watch),
            stop=stop,
            last_round=self.plan.affordable_rounds,
            most_rounds=None if recorder is None else recorder.every_rounds,
            resources=resources,
        )
        if chains.round == self.plan.affordable_rounds < self.plan.num_rounds:
            raise RunFailed(
                f"stopped after round {chains.round} of {self.plan.num_rounds}: the next would"
                f" overspend the run's budget of epsilon {self.plan.limits.epsilon:g} at delta"
                f" {self.plan.limits.run_delta:g}; use a smaller gain, or none"
            )
        if chains.round < self.plan.num_rounds:
            where = (
                ""
                if recorder is None
                else f"; go on with: {records.how_to_resume(recorder.directory)}"
            )
            raise Interrupted(
                f"interrupted after round {chains.round} of {self.plan.num_rounds}{where}"
            )
        seconds = time.process_time() - began
        result = self.result_of(chains, activity.num_active, seconds, checked)
        if recorder is not None:
            recorder.finish(result.to_document(), result.arrays)
        return result

    def result_of(
        self, chains: Chains, active: Array, seconds: float, checked: tuple[Finding, ...] = ()
    ) -> Result:
        """The result of chains that have run all rounds. ``active`` has the numbers of transmitting
        devices, (experiment or 1, round), ``seconds`` the CPU time, and ``checked`` the findings of
        the check of the model before the run. ``RunFailed`` if no gradient was finite."""
        # The product is the number of all gradient entries of the run, finite or not: transmissions
        # in all rounds times entries of theta in all chains.
        if chains.num_undefined >= active.mean(axis=0).sum() * chains.position.size:
            raise RunFailed("not one gradient was finite: nothing was sampled")
        path = chains.path if self.keep_draws else None
        return Result(
            plan=self.plan,
            seed=self.seed,
            num_chains=self.num_chains,
            engine=self.engine.name,
            seconds=seconds,
            metrics=self.metrics(chains),
            clipped_fraction=chains.clipped_fraction(active[:, self.plan.num_burn_in :]),
            num_undefined=chains.num_undefined,
            moments=chains.moments.in_batches().mapped(self.model.coordinates),
            path=None if path is None else path.mapped(self.model.coordinates),
            evidence=self._examine(chains),
            model_findings=checked,
            predictions=self._predict(path),
            measure_one_chain=self._one_chain(chains),
            tail_draws=self._tail_draws(chains),
            find_answer=self._answer(path),
            layout=self.model.layout,
            pointwise=self.model.pointwise,
            blocking=self.engine.blocking(self.plan, self.model, self.num_chains),
        )

    def _answer(self, path: ChainPath | None) -> FindAnswer | None:
        """A function that computes the answer of a finished run, that is what the server knows of
        theta; None if no draws were kept (``path`` is None)."""
        if path is None:
            return None
        return partial(_answer_from, self.plan, self.seed, self.model, path)

    @cached_property
    def activity(self) -> Activity:
        """How many devices transmit in every round, and how often a single device does.
        ``RunFailed`` if the scheduler lets a device transmit more often than its ``most_rounds``
        declares, because the plan's privacy was computed from that number."""
        activity = draw_activity(self.plan, self.seed, self.model.num_experiments)
        sizes = (self.plan.num_rounds, self.plan.num_devices)
        broken = self.plan.scheduler.why_broken(activity.most_rounds, *sizes)
        if broken is not None:
            raise RunFailed(broken)
        return activity

    def _check_model(self) -> tuple[Finding, ...]:
        """Findings of a short pilot (exact gradients, before the run) on a model whose posterior is
        not known, or one warning if the model's function raises an error there; empty for a model
        whose posterior is known."""
        if self.model.posterior is not None:
            return ()
        try:
            return check_model(self.model, self.plan)
        # The function of a user's model may raise any error. It becomes a warning only: if the
        # model cannot be run, the run itself fails with a message.
        except Exception as error:
            text = f"the model could not be checked: {type(error).__name__}: {error}"
            return (Finding("model-not-checked", "warning", text),)

    def _examine(self, chains: Chains) -> Evidence | None:
        """Stein ratios and shifts of the first data set, from gradients at its draws or, if no
        draws were kept, at the last position of each chain; None if the posterior is known."""
        if self.model.posterior is not None:
            return None
        if chains.path is not None:
            return examine(self.model, chains.path.some_draws(slice(0, 1))[0])
        return examine(self.model, self.engine.theta(chains, self.model)[0][:, None])

    def _predict(self, path: ChainPath | None) -> Array | None:
        """Predictions of the model at some kept draws of the first data set, (chain, draw,
        prediction); None for a model without predictions, or without kept draws."""
        if path is None:
            return None
        theta = thinned(path.some_draws(slice(0, 1)))
        predicted = self.model.predict(theta.reshape(1, -1, self.plan.dim), slice(0, 1))
        return None if predicted is None else predicted.reshape(*theta.shape[:2], -1)

    @property
    def _judges_tails(self) -> bool:
        """Whether some draws are stored, even in a run that is to keep none, to judge their tails:
        if noise that is not normal puts the shape of the draws in doubt, and the posterior is
        known."""
        doubted = shape_in_doubt(self.plan)
        return doubted and self.model.posterior is not None

    @property
    def _thin(self) -> int:
        """Number of kept rounds for each draw that is stored while the run goes on. It is chosen
        here if draws are stored only to judge their tails."""
        if self.keep_draws or not self._judges_tails:
            return self.thin
        numbers = self.model.num_experiments * self.num_chains * self.plan.dim
        return thin_for_tails(
            self.plan.num_rounds - self.plan.num_burn_in, self.num_chains, numbers
        )

    def _tail_draws(self, chains: Chains) -> Array | None:
        """About 10,000 draws of the first data set, (1, chain, draw, dim), by which the tails are
        judged; None where the tails are not in doubt, or the posterior is not known."""
        if chains.path is None or not chains.keeps_draws or not self._judges_tails:
            return None
        drawn, coordinates = chains.path.some_draws(slice(0, 1)), self.model.coordinates
        drawn = thinned(drawn)[None].copy()
        return drawn if coordinates is None else coordinates.to_model(drawn)
