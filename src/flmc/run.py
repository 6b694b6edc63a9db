"""Run a plan and compare the draws with the posterior; compare uplinks on one problem."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from flmc import checks, record
from flmc.chains import Chains, How, Progress, centre_of
from flmc.checks import Array
from flmc.engines import choose, simulate
from flmc.errors import Interrupted, InvalidSetting, RunFailed
from flmc.evidence import Evidence, examine
from flmc.limits import Limits
from flmc.metrics import Metrics, measure
from flmc.model import Model
from flmc.moments import Moments
from flmc.plan import Plan
from flmc.planning import plan
from flmc.randomness import check_seed
from flmc.table import format_grid, format_number, format_pairs
from flmc.uplink import Digital, Uplink
from flmc.version import VERSION


@dataclass(frozen=True)
class Result:
    """A finished run."""

    plan: Plan
    seed: int
    num_chains: int
    engine: str
    seconds: float
    """CPU seconds of this process."""
    metrics: Metrics | None
    """None for a model whose posterior is not known."""
    clipped_fraction: float
    num_undefined: int
    """Gradient entries that were not finite; a device treats NaN as 0."""
    moments: Moments
    chains: Array | None
    """Kept draws, (experiment, chain, draw, dim), if asked for."""
    evidence: Evidence | None = None
    """What gradients at the draws tell, for a model whose posterior is not known."""

    @property
    def draws(self) -> Array:
        """Kept draws with axes (experiment or chain, draw, dim): data sets and their chains in one axis."""
        if self.chains is None:
            raise InvalidSetting("this run kept no draws: run it with keep_draws=True")
        return self.chains.reshape(-1, *self.chains.shape[2:])

    @property
    def mean(self) -> Array:
        """Pooled mean of the draws, (experiment, dim)."""
        return self.moments.mean

    @property
    def covariance(self) -> Array:
        """Pooled covariance of the draws, (experiment, dim, dim)."""
        return self.moments.covariance

    def save(self, directory: str | Path) -> Path:
        """Keep plan, metrics, mean, covariance and draws (if kept) in a new directory."""
        path = Path(directory)
        with record.create(
            path, _description(self.plan, self.seed, self.num_chains, self.engine, self.chains is not None)
        ):
            record.Keeper(path, self.plan, lambda _: None, "").finish(self.to_document(), self.arrays)
        return path

    @property
    def arrays(self) -> dict[str, Array]:
        """What a record keeps in ``draws.npz``."""
        found = {"mean": self.mean, "covariance": self.covariance}
        return found if self.chains is None else {**found, "draws": self.chains}

    def to_document(self) -> dict[str, Any]:
        """Everything but the arrays, ready for JSON; what is not a number is null."""
        return {
            "plan": self.plan.to_document(),
            "metrics": _metrics_document(self.metrics),
            "num_chains": self.num_chains,
            "clipped_fraction": self.clipped_fraction,
            "num_undefined": self.num_undefined,
            "evidence": None if self.evidence is None else self.evidence.to_document(),
            "posterior_trace": None if self.metrics is None else self.metrics.posterior_trace,
            "independent_draws": None if self.metrics is None else self.metrics.independent_draws,
            "wasserstein2_floor": None if self.metrics is None else self.metrics.wasserstein2_floor,
            "version": VERSION,
            "engine": self.engine,
            "seconds": self.seconds,
            "seed": self.seed,
        }

    def __str__(self) -> str:
        title = f"{self.plan.uplink.scheme} uplink, data sets: {len(self.mean)}, chains each: {self.num_chains}"
        if self.metrics is None:
            sd = np.sqrt(np.diagonal(self.covariance[0]))
            rows = [("mean", np.array2string(self.mean[0], precision=4)), ("sd", np.array2string(sd, precision=4))]
            rows += [] if self.evidence is None else self.evidence.rows
            rows.append(("clipped entries", f"{100 * self.clipped_fraction:.2g} %"))
            return format_pairs(title, rows + [("warning", text) for text in self.warnings])
        m = self.metrics
        directions = f"{m.variance_ratio_smallest.mean:.4g} to {m.variance_ratio_largest.mean:.4g} over directions"
        floor = f"floor for {m.independent_draws:.0f} independent draws: {m.wasserstein2_floor:.2g}"
        share = 100 * m.mean_error_squared.mean / m.posterior_trace
        rows = [
            ("variance ratio", f"{m.variance_ratio} (1 is right; {directions})"),
            ("squared mean error", f"{m.mean_error_squared} ({share:.2g} % of trace(Sigma))"),
            ("squared W2 distance", f"{m.wasserstein2_squared} ({m.num_draws} draws; {floor})"),
            ("MSE", f"{m.mse} (exact samples: trace(Sigma) = {m.posterior_trace:.4g})"),
            ("clipped entries", f"{100 * self.clipped_fraction:.2g} %"),
        ]
        return format_pairs(title, rows + [("warning", text) for text in self.warnings])

    @property
    def warnings(self) -> list[str]:
        """What speaks against the draws: of the plan, of the gradients at the draws, of gradients that are none."""
        found = [*self.plan.warnings, *([] if self.evidence is None else self.evidence.warnings)]
        if self.num_undefined:
            found.append(f"{self.num_undefined} gradient entries were not finite; NaN counts as 0")
        return found


def _metrics_document(metrics: Metrics | None) -> dict[str, Any] | None:
    """By name, each with mean and standard error; what is not a number is null."""
    if metrics is None:
        return None
    return {
        name: {"mean": estimate.mean, "se": None if math.isnan(estimate.se) else estimate.se}
        for name, estimate in metrics.estimates.items()
    }


def _description(plan: Plan, seed: int, num_chains: int, engine: str, keep_draws: bool) -> dict[str, Any]:
    """What a record says of a run before it begins."""
    return {
        "plan": plan.to_document(with_run=False),
        "plan_digest": plan.digest,
        "seed": seed,
        "num_chains": num_chains,
        "engine": engine,
        "keep_draws": keep_draws,
    }


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

    ``engine`` is `numba` (quadratic models), `numpy` (any model) or `auto`: numba where it is installed and applies.
    ``threads`` and ``experiments_at_once`` change speed and memory only. With ``keep_draws=False`` memory does not grow
    with the number of rounds. ``progress`` is called with the finished fraction now and then.

    With ``out``, a new directory, the run is recorded while it goes: a checkpoint every few seconds, or every
    ``checkpoint_rounds``, from which :func:`resume` goes on. ``settings`` are kept with it for `flmc resume`. Where
    ``stop()`` becomes true the run is saved and ends with :class:`~flmc.errors.Interrupted`.
    """
    _check(plan, model, threads=threads, experiments_at_once=experiments_at_once, checkpoint_rounds=checkpoint_rounds)
    seed, chains = check_seed(seed), checks.at_least("chains", chains, 1)
    job = _Job(plan, model, seed, chains, choose(engine, plan, model).name, keep_draws)
    how = How(threads, experiments_at_once, progress)
    if out is None:
        return job.run(None, stop, how)
    description = {**_description(plan, seed, chains, job.engine, keep_draws), "identity": job.identity}
    kept = {"settings": None if settings is None else dict(settings), "checkpoint_rounds": checkpoint_rounds}
    with record.create(Path(out), {**description, **kept}):
        return job.run(job.keeper(Path(out), checkpoint_rounds), stop, how)


def resume(
    directory: str | Path,
    plan: Plan,
    model: Model,
    *,
    threads: int | None = None,
    progress: Progress | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> Result:
    """Go on with a recorded run, to the result that it would have had without the interruption, bit by bit. The plan
    and the model must be those it began with."""
    _check(plan, model, threads=threads)
    path = Path(directory)
    with record.reopen(path) as asked:
        if asked["plan_digest"] != plan.digest:
            raise InvalidSetting(
                f"the record in {str(path)!r} has another plan ({asked['plan_digest'][:12]}, now {plan.digest[:12]}):"
                f" it was made by flmc {asked['versions']['flmc']}, or from other settings or data"
            )
        job = _Job(plan, model, asked["seed"], asked["num_chains"], asked["engine"], asked["keep_draws"])
        if asked["identity"] != job.identity:
            raise InvalidSetting(f"the record in {str(path)!r} was made with other data, or another link or channel")
        return job.run(job.keeper(path, asked["checkpoint_rounds"]), stop, How(threads, progress=progress))


def _check(plan: Plan, model: Model, **counts: int | None) -> None:
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
    engine: str
    keep_draws: bool

    def keeper(self, directory: Path, every_rounds: int | None) -> record.Keeper:
        """What records this run."""
        return record.Keeper(
            directory, self.plan, lambda chains: _metrics_document(self.metrics(chains)), self.identity, every_rounds
        )

    @cached_property
    def identity(self) -> str:
        """Digest of all that decides the result: two runs with the same one have the same result."""
        parts: list[Any] = [VERSION, self.plan.digest, self.seed, self.num_chains, self.engine, self.keep_draws]
        digest = hashlib.sha256(repr(parts).encode())
        for array in self._fingerprint():
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()

    def _fingerprint(self) -> Iterator[Array]:
        """What the data and a user's own link do at some places."""
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
        """Of the rounds that were kept so far."""
        kept = chains.round - self.plan.num_burn_in
        if self.model.posterior is None or kept < 1:
            return None
        moments = chains.moments.in_batches()
        counts = moments.counts * kept / (self.plan.num_rounds - self.plan.num_burn_in)
        so_far = replace(moments, counts=counts)
        return measure(so_far, self.model.posterior, self.plan.effective_step_size, self.num_chains)

    def run(self, keeper: record.Keeper | None, stop: Callable[[], bool], how: How) -> Result:
        """To the end."""
        began = time.process_time()
        _, chains = simulate(
            self.plan,
            self.model,
            self.seed,
            self.num_chains,
            engine=self.engine,
            keep_draws=self.keep_draws,
            keeper=keeper,
            stop=stop,
            last_round=self.plan.affordable_rounds,
            most_rounds=None if keeper is None else keeper.every_rounds,
            how=how,
        )
        if chains.round == self.plan.affordable_rounds < self.plan.num_rounds:
            raise RunFailed(
                f"stopped after round {chains.round} of {self.plan.num_rounds}: the next would overspend the run's"
                f" budget of epsilon {self.plan.limits.epsilon:g} at delta {self.plan.limits.run_delta:g};"
                " use a smaller gain, or none"
            )
        if chains.round < self.plan.num_rounds:
            where = "" if keeper is None else f"; go on with: {record.how_to_resume(keeper.directory)}"
            raise Interrupted(f"interrupted after round {chains.round} of {self.plan.num_rounds}{where}")
        if chains.num_undefined >= self.plan.num_active.sum() * chains.position.size:
            raise RunFailed("not one gradient was finite: nothing was sampled")
        result = Result(
            plan=self.plan,
            seed=self.seed,
            num_chains=self.num_chains,
            engine=self.engine,
            seconds=time.process_time() - began,
            metrics=self.metrics(chains),
            clipped_fraction=chains.clipped_fraction(self.plan),
            num_undefined=chains.num_undefined,
            moments=chains.moments.in_batches(),
            chains=chains.draws,
            evidence=self._examine(chains),
        )
        if keeper is not None:
            keeper.finish(result.to_document(), result.arrays)
        return result

    def _examine(self, chains: Chains) -> Evidence | None:
        if self.model.posterior is not None:
            return None
        if chains.draws is not None:
            return examine(self.model, chains.draws[0])
        last = chains.position[0].astype(np.float64)
        last += centre_of(self.model)[0] if self.engine == "numba" else 0.0
        return examine(self.model, last[:, None])


@dataclass(frozen=True)
class Comparison:
    """Results by name, on the same data, fading and channel noise."""

    results: dict[str, Result]

    def __getitem__(self, name: str) -> Result:
        return self.results[name]

    def __str__(self) -> str:
        known = all(result.metrics is not None for result in self.results.values())
        measured = ["variance ratio", "W2 squared", "mean error squared", "MSE"] if known else ["mean", "sd"]
        header = ["uplink", "gain", "binds", "T", "effective step", "eps round", "eps run", *measured]
        grid = format_grid(header, [_row(name, result, known) for name, result in self.results.items()])
        steps = [result.plan.effective_step_size or 0.0 for result in self.results.values()]
        if max(steps) > 1.2 * min(steps):
            grid += "\nthe effective steps differ: a slower sampler looks more private and less accurate than it is"
        warned = [f"{name}: {text}" for name, result in self.results.items() for text in result.warnings]
        return "\n".join([grid, *warned])


def _row(name: str, result: Result, known: bool) -> list[str]:
    p, m = result.plan, result.metrics
    costs = ["none" if cost is None else format_number(cost.epsilon) for cost in (p.round_cost, p.run_cost)]
    if known and m is not None:
        measured = [str(e) for e in (m.variance_ratio, m.wasserstein2_squared, m.mean_error_squared, m.mse)]
    else:
        values = (result.mean[0][:6], np.sqrt(np.diagonal(result.covariance[0]))[:6])
        measured = [np.array2string(value, precision=3, suppress_small=True) for value in values]
    plan = [format_number(p.typical_gain), p.binding, format_number(p.temperature)]
    return [name, *plan, format_number(p.effective_step_size), *costs, *measured]


def compare(
    uplinks: Mapping[str, Uplink],
    model: Model,
    limits: Limits | None = None,
    *,
    seed: int = 0,
    chains: int = 50,
    keep_draws: bool = False,
    **settings: Any,
) -> Comparison:
    """Plan and run several uplinks on one model with one seed; ``settings`` go to :func:`~flmc.planning.plan`."""
    if not isinstance(uplinks, Mapping) or not uplinks:  # type: ignore[redundant-expr]
        raise InvalidSetting(f"uplinks must be a dict with at least one uplink by its name, got {uplinks!r}")
    plans = {name: plan(model, uplink, limits, **settings) for name, uplink in uplinks.items()}
    return Comparison({name: run(each, model, seed, chains, keep_draws=keep_draws) for name, each in plans.items()})
