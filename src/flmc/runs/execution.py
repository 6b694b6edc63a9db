"""Run a plan, or go on with a recorded run."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from flmc.base import checks
from flmc.base.arrays import Array
from flmc.base.errors import Interrupted, InvalidSetting, RunFailed
from flmc.base.progress import Progress
from flmc.base.randomness import check_seed
from flmc.base.version import VERSION
from flmc.evaluation.metrics import Metrics, measure
from flmc.evaluation.stein import Evidence, examine
from flmc.models.model import Model
from flmc.planning.plans import Plan
from flmc.runs import records
from flmc.runs.ledger import Ledger
from flmc.runs.recorder import Recorder
from flmc.runs.results import Result, describe, metrics_document
from flmc.sampling.chains import Chains
from flmc.sampling.engine import Engine, Resources
from flmc.sampling.engines import choose_engine
from flmc.sampling.simulation import simulate
from flmc.uplink.schemes import Digital


def run(
    plan: Plan,
    model: Model,
    seed: int = 0,
    chains: int = 1,
    *,
    keep_draws: bool = True,
    engine: str = "auto",
    threads: int | None = None,
    experiments_at_once: int | None = None,
    progress: Progress | None = None,
    out: str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
    checkpoint_rounds: int | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> Result:
    """Simulate ``chains`` chains for every data set of the model.

    Parameters
    ----------
    plan, model
        What is run: the plan is what :func:`flmc.plan` made for this model.
    seed, chains
        Seed of all randomness, and chains of every data set.
    keep_draws
        Whether to keep theta of every kept round; if not, memory does not grow with the rounds.
    engine
        `numba` (quadratic models), `numpy` (any model) or `auto`: numba where it is installed and
        applies.
    threads, experiments_at_once
        Threads, and data sets handled together; they change speed and memory only. None: by itself.
    progress
        Called with the finished fraction now and then.
    out, settings
        A new directory, where the run is recorded while it goes, so that :func:`flmc.resume` can go
        on; and what is kept there for the command `flmc resume`.
    checkpoint_rounds
        Rounds between checkpoints; None: as many as pass in about five seconds.
    stop
        Asked now and then; where it says True, the run is saved (with ``out``) and ends.

    Raises
    ------
    InvalidSetting
        If plan and model do not fit, the engine cannot run them, or ``out`` is not empty.
    RunFailed
        If a chain leaves the range of numbers, or the run's privacy budget is spent.
    Interrupted
        If ``stop`` said True.

    Examples
    --------
    >>> model = flmc.LinearGaussian(flmc.data.draw_linear(seed=1, num_samples=40, num_devices=4))
    >>> plan = flmc.plan(model, flmc.Digital(), num_rounds=6, num_burn_in=2)
    >>> flmc.run(plan, model, seed=1, chains=3, engine="numpy").draws.shape
    (3, 4, 5)
    """
    _check(plan, model, threads=threads, experiments_at_once=experiments_at_once, checkpoint_rounds=checkpoint_rounds)
    seed, chains = check_seed(seed), checks.at_least("chains", chains, 1)
    job = _Job(plan, model, seed, chains, choose_engine(engine, plan, model), keep_draws)
    resources = Resources(threads, experiments_at_once, progress)
    if out is None:
        return job.run(None, stop, resources)
    description = {**describe(plan, seed, chains, job.engine.name, keep_draws), "identity": job.identity}
    kept = {"settings": None if settings is None else dict(settings), "checkpoint_rounds": checkpoint_rounds}
    with records.create(Path(out), {**description, **kept}):
        return job.run(job.recorder(Path(out), checkpoint_rounds), stop, resources)


def resume(
    directory: str | Path,
    plan: Plan,
    model: Model,
    *,
    threads: int | None = None,
    progress: Progress | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> Result:
    """Go on with a recorded run, to the result that it would have had without the interruption, bit
    by bit.

    Parameters
    ----------
    directory
        What :func:`flmc.run` made with ``out``; a run that is finished is refused.
    plan, model
        Those that the run began with; others, or another version of flmc, are refused.
    threads, progress, stop
        The same as for :func:`flmc.run`.
    """
    _check(plan, model, threads=threads)
    path = Path(directory)
    with records.reopen(path) as asked:
        if asked["plan_digest"] != plan.digest:
            raise InvalidSetting(
                f"the record in {str(path)!r} has another plan ({asked['plan_digest'][:12]}, now {plan.digest[:12]}):"
                f" it was made by flmc {asked['versions']['flmc']}, or from other settings or data"
            )
        engine = choose_engine(asked["engine"], plan, model)
        job = _Job(plan, model, asked["seed"], asked["num_chains"], engine, asked["keep_draws"])
        if asked["identity"] != job.identity:
            raise InvalidSetting(f"the record in {str(path)!r} was made with other data, or another link or channel")
        recorder = job.recorder(path, asked["checkpoint_rounds"])
        return job.run(recorder, stop, Resources(threads, progress=progress))


def _check(plan: Plan, model: Model, **counts: int | None) -> None:
    """Refuse what is not a plan or a model, counts below 1, and a plan that is for another
    model."""
    for name, value, kind in (("plan", plan, Plan), ("model", model, Model)):
        if not isinstance(value, kind):
            raise InvalidSetting(f"{name} must be a flmc.{kind.__name__}, got {type(value).__name__}")
    for name, count in counts.items():
        if count is not None:
            checks.at_least(name, count, 1)
    if (plan.num_devices, plan.dim) != (model.num_devices, model.dim):
        raise InvalidSetting(
            f"the plan is for {plan.num_devices} devices and dim {plan.dim},"
            f" the model has {model.num_devices} and {model.dim}"
        )


@dataclass(frozen=True)
class _Job:
    """All that decides the result of a run."""

    plan: Plan
    model: Model
    seed: int
    num_chains: int
    engine: Engine
    keep_draws: bool

    def recorder(self, directory: Path, every_rounds: int | None) -> Recorder:
        """The recorder of this run, in a directory whose record was created."""
        ledger = Ledger(self.plan, self.seed, self.model.num_experiments)
        return Recorder(
            directory, ledger, lambda chains: metrics_document(self.metrics(chains)), self.identity, every_rounds
        )

    @cached_property
    def identity(self) -> str:
        """Digest of all that decides the result: two runs with the same identity have the same
        result."""
        parts: list[Any] = [VERSION, self.plan.digest, self.seed, self.num_chains, self.engine.name, self.keep_draws]
        digest = hashlib.sha256(repr(parts).encode())
        for array in self._fingerprint():
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()

    def _fingerprint(self) -> Iterator[Array]:
        """What the data and a user's own link do at some places, because neither can be hashed
        itself."""
        model, uplink = self.model, self.plan.uplink
        rows = slice(0, min(model.num_experiments, 8))
        at = np.random.default_rng(0).standard_normal((rows.stop, 2, model.dim))
        yield model.gradient(at, rows)
        yield np.array([model.num_experiments])
        if model.posterior is not None:
            yield model.posterior.mean
        if isinstance(uplink, Digital):
            yield uplink.link.probability(np.linspace(-uplink.clip, uplink.clip, 101))

    def metrics(self, chains: Chains) -> Metrics | None:
        """Metrics of the rounds that were kept so far; None without a known posterior or a kept
        round."""
        kept = chains.round - self.plan.num_burn_in
        if self.model.posterior is None or kept < 1:
            return None
        moments = chains.moments.in_batches()
        # The counts of the moments are those of the finished run.
        counts = moments.counts * kept / (self.plan.num_rounds - self.plan.num_burn_in)
        so_far = replace(moments, counts=counts)
        return measure(so_far, self.model.posterior, self.plan.effective_step_size, self.num_chains)

    def run(self, recorder: Recorder | None, stop: Callable[[], bool], resources: Resources) -> Result:
        """Run what is left of the plan, and return the result, which is recorded if there is a
        recorder."""
        began = time.process_time()
        chains = simulate(
            self.plan,
            self.model,
            self.seed,
            self.num_chains,
            engine=self.engine,
            keep_draws=self.keep_draws,
            observer=recorder,
            stop=stop,
            last_round=self.plan.affordable_rounds,
            most_rounds=None if recorder is None else recorder.every_rounds,
            resources=resources,
        )
        if chains.round == self.plan.affordable_rounds < self.plan.num_rounds:
            raise RunFailed(
                f"stopped after round {chains.round} of {self.plan.num_rounds}: the next would overspend the run's"
                f" budget of epsilon {self.plan.limits.epsilon:g} at delta {self.plan.limits.run_delta:g};"
                " use a smaller gain, or none"
            )
        if chains.round < self.plan.num_rounds:
            where = "" if recorder is None else f"; go on with: {records.how_to_resume(recorder.directory)}"
            raise Interrupted(f"interrupted after round {chains.round} of {self.plan.num_rounds}{where}")
        if chains.num_undefined >= self.plan.num_active.sum() * chains.position.size:
            raise RunFailed("not one gradient was finite: nothing was sampled")
        result = Result(
            plan=self.plan,
            seed=self.seed,
            num_chains=self.num_chains,
            engine=self.engine.name,
            seconds=time.process_time() - began,
            metrics=self.metrics(chains),
            clipped_fraction=chains.clipped_fraction(self.plan),
            num_undefined=chains.num_undefined,
            moments=chains.moments.in_batches(),
            chains=chains.draws,
            evidence=self._examine(chains),
        )
        if recorder is not None:
            recorder.finish(result.to_document(), result.arrays)
        return result

    def _examine(self, chains: Chains) -> Evidence | None:
        """Stein's evidence from the kept draws, or from where the chains stand; None if the
        posterior is known."""
        if self.model.posterior is not None:
            return None
        if chains.draws is not None:
            return examine(self.model, chains.draws[0])
        return examine(self.model, self.engine.theta(chains, self.model)[0][:, None])
