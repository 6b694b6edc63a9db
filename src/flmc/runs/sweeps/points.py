"""One point of a sweep: its row, planned and run, or planned only.

A point is a set of settings. It runs on one thread and depends on its settings alone, so its
numbers are the same to the bit wherever it runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from flmc.base.documents import to_document
from flmc.base.errors import FlmcError
from flmc.base.findings import gravest
from flmc.models.model import Model
from flmc.planning.costs.privacy_cost import Cost
from flmc.planning.plans import Plan
from flmc.runs.execution import run
from flmc.runs.results import Result
from flmc.runs.sweeps.identity import data_key
from flmc.settings.assembly import assemble
from flmc.settings.making.models import make_model
from flmc.settings.schema import Settings, merge


def run_point(given: Mapping[str, Any]) -> dict[str, Any]:
    """The row of one point, planned and run on one thread: plain values without times; the column
    ``error`` says what went wrong, or is None.

    Parameters
    ----------
    given
        Settings of the point that are not at their defaults.
    """
    return _row_of(given, _run_columns)


def plan_point(given: Mapping[str, Any]) -> dict[str, Any]:
    """The row of one point that is planned only: the plan's columns of :func:`run_point`. The
    privacy of the whole run is left out where the budget is not for it.

    Parameters
    ----------
    given
        Settings of the point that are not at their defaults.
    """
    return _row_of(given, _plan_only_columns)


def _row_of(
    given: Mapping[str, Any], columns: Callable[[Settings], dict[str, Any]]
) -> dict[str, Any]:
    """The columns of a point and no error, or its error alone."""
    try:
        return {**columns(merge({}, given)), "error": None}
    except FlmcError as error:
        return {"error": str(error)}
    except Exception as error:  # a user's model or link: the other points shall go on
        return {"error": f"{type(error).__name__}: {error}"}


def _run_columns(settings: Settings) -> dict[str, Any]:
    problem = assemble(settings)
    plan = problem.plan()
    result = run(
        plan,
        problem.model,
        settings.seed,
        settings.num_chains,
        keep_draws=False,
        engine=settings.engine,
        threads=1,
    )
    return {**_planned(plan, with_run=True), **_measured(result), **_said(plan)}


def _plan_only_columns(settings: Settings) -> dict[str, Any]:
    plan = assemble(settings, _shared_model(settings)).plan()
    return {**_planned(plan, with_run=settings.scope == "run"), **_said(plan)}


_latest: dict[str, Model] = {}
"""The model that was built last, by what decides it."""


def _shared_model(settings: Settings) -> Model:
    """The model of a point: the one before, if its data are the same."""
    if settings.model != "linear":  # a user's own model may not be the same when made again
        return make_model(settings)
    key = data_key(settings)
    if key not in _latest:
        model = make_model(settings)
        _latest.clear()
        _latest[key] = model
    return _latest[key]


def _planned(plan: Plan, *, with_run: bool) -> dict[str, Any]:
    """Columns of the plan: what it decides, what it costs, and what it predicts."""
    once, run_ = _stated(plan.round_cost), _stated(plan.run_cost if with_run else None)
    row = {
        "gain_used": plan.typical_gain,
        "binding": plan.binding,
        "temperature": plan.temperature,
        "step_size_used": plan.step_size,
        "effective_step_size": plan.effective_step_size,
        "rounds_needed": plan.rounds_needed,
        "epsilon_round": once[0],
        "delta_round": once[1],
        "epsilon_run": run_[0],
        "delta_run": run_[1],
    }
    for name, limit in vars(plan.gain_limits).items():
        row[f"limit_{name}"] = to_document(limit)
    for name, margin in plan.margins_db.items():
        row[f"margin_{name}_db"] = to_document(margin)
    airtime = plan.airtime
    row["channel_uses"] = None if airtime is None else airtime.channel_uses
    row["energy"] = None if airtime is None else airtime.energy
    row["effective_draws"] = plan.effective_draws
    row["price"] = plan.release().price if with_run else None
    row["data_dependent"] = plan.data_dependent
    law = plan.prediction
    row["predicted_variance_ratio"] = None if law is None else law.variance_ratio
    row["predicted_mean_shift"] = None if law is None else law.mean_shift
    return row


def _stated(cost: Cost | None) -> tuple[float | None, float | None]:
    """Epsilon and the delta that it is stated at; an unbounded epsilon is None, as in JSON."""
    return (None, None) if cost is None else (to_document(cost.epsilon), cost.delta)


def _said(plan: Plan) -> dict[str, Any]:
    """Columns of what speaks against the plan, and its digest."""
    worst = gravest(plan.findings)
    return {
        "plan_digest": plan.digest,
        "headline": worst[0].code if worst else None,
        "findings": "; ".join(each.code for each in plan.findings) or None,
        "warnings": "; ".join(plan.warnings) or None,
    }


def _measured(result: Result) -> dict[str, Any]:
    """Columns of what was measured, with what it is to be compared with."""
    document = result.to_document()
    row: dict[str, Any] = {
        "clipped_fraction": result.clipped_fraction,
        "engine_used": result.engine,
        "chains": result.num_chains,
    }
    for name, estimate in (document["metrics"] or {}).items():
        row[name], row[f"{name}_se"] = estimate["mean"], estimate["se"]
    for name in ("posterior_trace", "wasserstein2_floor", "independent_draws", "shift_from"):
        row[name] = document[name]
    for name, spread in (document["one_chain"] or {}).items():
        row[f"one_chain_{name}"] = None if spread is None else spread["mean"]
        row[f"one_chain_{name}_sd"] = None if spread is None else spread["sd"]
    coverage = document["coverage"] or {}
    for name in ("chains_covered", "epsilon_all_chains"):
        row[name] = coverage.get(name)
    return {**row, "notes": "; ".join(document["notes"]) or None}
