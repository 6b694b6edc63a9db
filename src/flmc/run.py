"""Run a plan and compare the draws with the posterior; compare uplinks on one problem."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from flmc import checks
from flmc.chains import Chains, Progress
from flmc.checks import Array
from flmc.engines import simulate
from flmc.errors import InvalidSetting
from flmc.limits import Limits
from flmc.metrics import Metrics, measure
from flmc.model import Model
from flmc.moments import Moments
from flmc.plan import Plan
from flmc.planning import plan
from flmc.randomness import check_seed
from flmc.record import save_record
from flmc.table import format_grid, format_number, format_pairs
from flmc.uplink import Uplink
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
        arrays = {"mean": self.mean, "covariance": self.covariance}
        if self.chains is not None:
            arrays["draws"] = self.chains
        return save_record(Path(directory), self.to_document(), arrays)

    def to_document(self) -> dict[str, Any]:
        """Everything but the arrays, ready for JSON; what is not a number is null."""
        metrics = (
            None
            if self.metrics is None
            else {
                name: {"mean": estimate.mean, "se": None if math.isnan(estimate.se) else estimate.se}
                for name, estimate in self.metrics.estimates.items()
            }
        )
        return {
            "plan": self.plan.to_document(),
            "metrics": metrics,
            "num_chains": self.num_chains,
            "clipped_fraction": self.clipped_fraction,
            "num_undefined": self.num_undefined,
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
            return format_pairs(title, rows + self._notes())
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
        return format_pairs(title, rows + self._notes())

    def _notes(self) -> list[tuple[str, str]]:
        if not self.num_undefined:
            return []
        return [("warning", f"{self.num_undefined} gradient entries were not finite; NaN counts as 0")]


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
) -> Result:
    """Simulate ``chains`` chains for every data set of the model.

    ``engine`` is `numba` (quadratic models), `numpy` (any model) or `auto`: numba where it is installed and applies.
    ``threads`` and ``experiments_at_once`` change speed and memory only. With ``keep_draws=False`` memory does not grow
    with the number of rounds. ``progress`` is called with the finished fraction now and then.
    """
    for name, value, kind in (("plan", plan, Plan), ("model", model, Model)):
        if not isinstance(value, kind):
            raise InvalidSetting(f"{name} must be a flmc.{kind.__name__}, got {type(value).__name__}")
    seed, chains = check_seed(seed), checks.at_least("chains", chains, 1)
    for name, count in (("experiments_at_once", experiments_at_once), ("threads", threads)):
        if count is not None:
            checks.at_least(name, count, 1)
    if (plan.num_devices, plan.dim) != (model.num_devices, model.dim):
        raise InvalidSetting(
            f"the plan is for {plan.num_devices} devices and dim {plan.dim},"
            f" the model has {model.num_devices} and {model.dim}"
        )
    began = time.process_time()
    used, state = simulate(
        plan,
        model,
        seed,
        chains,
        engine=engine,
        keep_draws=keep_draws,
        threads=threads,
        experiments_at_once=experiments_at_once,
        progress=progress,
    )
    return _result(plan, model, seed, used, state, time.process_time() - began)


def _result(plan: Plan, model: Model, seed: int, engine: str, state: Chains, seconds: float) -> Result:
    num_chains, moments = state.position.shape[1], state.moments.in_batches()
    metrics = None
    if model.posterior is not None:
        metrics = measure(moments, model.posterior, plan.effective_step_size, num_chains)
    return Result(
        plan=plan,
        seed=seed,
        num_chains=num_chains,
        engine=engine,
        seconds=seconds,
        metrics=metrics,
        clipped_fraction=state.clipped_fraction(plan),
        num_undefined=state.num_undefined,
        moments=moments,
        chains=state.draws,
    )


@dataclass(frozen=True)
class Comparison:
    """Results by name, on the same data, fading and channel noise."""

    results: dict[str, Result]

    def __getitem__(self, name: str) -> Result:
        return self.results[name]

    def __str__(self) -> str:
        known = all(result.metrics is not None for result in self.results.values())
        measured = ["variance ratio", "W2 squared", "mean error squared", "MSE"] if known else ["mean", "sd"]
        header = ["uplink", "gain", "binds", "T", "eps round", "eps run", *measured]
        return format_grid(header, [_row(name, result, known) for name, result in self.results.items()])


def _row(name: str, result: Result, known: bool) -> list[str]:
    p, m = result.plan, result.metrics
    costs = ["none" if cost is None else format_number(cost.epsilon) for cost in (p.round_cost, p.run_cost)]
    if known and m is not None:
        measured = [str(e) for e in (m.variance_ratio, m.wasserstein2_squared, m.mean_error_squared, m.mse)]
    else:
        values = (result.mean[0][:6], np.sqrt(np.diagonal(result.covariance[0]))[:6])
        measured = [np.array2string(value, precision=3, suppress_small=True) for value in values]
    return [name, format_number(p.typical_gain), p.binding, format_number(p.temperature), *costs, *measured]


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
    if not uplinks:
        raise InvalidSetting("compare needs at least one uplink, got none")
    plans = {name: plan(model, uplink, limits, **settings) for name, uplink in uplinks.items()}
    return Comparison({name: run(each, model, seed, chains, keep_draws=keep_draws) for name, each in plans.items()})
