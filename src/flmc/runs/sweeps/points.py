"""The points of a sweep: the digest that tells two points apart, and the row of one point.

A point is a set of settings. It runs on one thread and depends on its settings alone, so that its
numbers are the same to the bit on every worker.

Points are compared by what their settings make, not by how they are written: a default written out
is the default, ``sigmoid`` with slope 0.05 is ``sigmoid:0.05``, and the SNR of an ideal uplink has
no effect."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any, get_args

from flmc.base.documents import to_document
from flmc.base.errors import FlmcError
from flmc.base.findings import Light, gravest
from flmc.base.version import VERSION
from flmc.models.model import Model
from flmc.planning.plans import Plan
from flmc.planning.privacy_cost import Cost
from flmc.runs.execution import run
from flmc.runs.fingerprints import Fingerprints
from flmc.runs.results import Result
from flmc.settings.assembly import assemble
from flmc.settings.construction import make_engine, make_model, make_uplink, named_code
from flmc.settings.schema import NOTHING, PLAN, SIMULATION, UPLINK, Settings, merge, names_of


def key_of(
    settings: Settings, *, plan_only: bool = False, fingerprints: Fingerprints | None = None
) -> str:
    """Digest, 24 hexadecimal digits, of everything that decides the row of a point, with the
    version of flmc; the point's file is named by it. ``fingerprints`` are shared by the points of a
    grid, so that a file is read once; None: files are read now."""
    # Every setting counts unless the schema says, beside it, that it has no effect here.
    idle = names_of(NOTHING, SIMULATION) if plan_only else names_of(NOTHING)
    values = {**settings.model_dump(mode="json"), "chains": settings.num_chains}
    uplink = _uplink_of(settings)
    # Uplinks are compared by the object that settings make, not by the text of the settings.
    if uplink is not None:
        idle |= names_of(UPLINK)
    decides = {
        "flmc": VERSION,
        "plan_only": plan_only,
        "settings": {name: value for name, value in values.items() if name not in idle},
        "uplink": uplink,
        "contents": (fingerprints or Fingerprints()).of_settings(values),
    }
    text = json.dumps(decides, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def data_key(settings: Settings) -> str:
    """The settings that decide the model of a point, as text: equal texts mean equal models, as
    long as no file is changed."""
    others = names_of(UPLINK, PLAN, SIMULATION, NOTHING)
    return json.dumps(settings.model_dump(mode="json", exclude=others))


def given_in(settings: Settings) -> dict[str, Any]:
    """Settings that the user gave for a point, as plain values, from which
    :func:`flmc.settings.schema.merge` makes the point's settings again."""
    return settings.model_dump(mode="json", exclude_unset=True)


def _uplink_of(settings: Settings) -> Any:
    """The uplink that settings make, as plain values. None where it is not known before the run, or
    cannot be made; then the row of the point says so."""
    # A user's own code is imported by the worker only.
    if named_code(settings.model_dump()):
        return None
    try:
        return to_document(make_uplink(settings))
    except FlmcError:
        return None


def run_point(given: Mapping[str, Any]) -> dict[str, Any]:
    """The row of one point, planned and run on one thread, from its settings that differ from the
    defaults: plain values without times; ``error`` is None or the message of a failure."""
    return _row_of(given, _run_columns)


def plan_point(given: Mapping[str, Any]) -> dict[str, Any]:
    """The row of one point that is planned only: the plan's columns of :func:`run_point`, without
    the privacy of the run where the budget is for a round, because computing it takes longest."""
    return _row_of(given, _plan_only_columns)


def _row_of(
    given: Mapping[str, Any], columns: Callable[[Settings], dict[str, Any]]
) -> dict[str, Any]:
    """The row of a point: its ``columns`` and ``error`` None, or, if it failed, the message in
    ``error`` alone."""
    try:
        return {**columns(merge({}, given)), "error": None}
    except FlmcError as error:
        return {"error": str(error)}
    # a user's model or link may raise anything, and the other points shall go on
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


def _run_columns(settings: Settings) -> dict[str, Any]:
    """Planned and measured columns of a point that is planned and run, by name."""
    problem = assemble(settings)
    plan = problem.plan()
    result = run(
        plan,
        problem.model,
        settings.seed,
        settings.num_chains,
        keep_draws=False,
        engine=make_engine(settings),
        threads=1,  # one thread, because points run side by side, each in its own process
    )
    return {
        **_plan_columns(plan, with_run=True),
        **_measured_columns(result),
        **_finding_columns(plan),
    }


def _plan_only_columns(settings: Settings) -> dict[str, Any]:
    """Columns of a point that is planned but not run, by name."""
    plan = assemble(settings, _shared_model(settings)).plan()
    return {**_plan_columns(plan, with_run=settings.scope == "run"), **_finding_columns(plan)}


_latest: dict[str, Model] = {}
"""The model that this process built last, by its :func:`data_key`; only one, because data are
large."""


def forget_model() -> None:
    """Forget the model that this process built last, so that the next one is built anew."""
    _latest.clear()


def _shared_model(settings: Settings) -> Model:
    """The model of a point; the model that was built last is used again if the data are the
    same."""
    if settings.model != "linear":  # a user's own model may differ when it is made again
        return make_model(settings)
    key = data_key(settings)
    if key not in _latest:
        model = make_model(settings)
        _latest.clear()
        _latest[key] = model
    return _latest[key]


def _plan_columns(plan: Plan, *, with_run: bool) -> dict[str, Any]:
    """Columns with the plan's decisions, privacy and prediction, by name; ``with_run``: with
    privacy and price of the whole run, which take longest to compute."""
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
    """Epsilon of a privacy cost and the delta at which it is stated, both None without a cost; an
    unbounded epsilon is None, as in JSON."""
    return (None, None) if cost is None else (to_document(cost.epsilon), cost.delta)


def _finding_columns(plan: Plan) -> dict[str, Any]:
    """Columns with the digest of a plan and the findings against it, by name."""
    lights = get_args(Light)
    worst = sorted(gravest(plan.findings), key=lambda each: lights.index(each.light))
    verdict = plan.verdict  # None for a plan from a file that no one has judged
    return {
        "plan_digest": plan.digest,
        "verdict": None if verdict is None else verdict.state,
        **{
            f"verdict_{name}": None if verdict is None else verdict.light(name).state
            for name in lights
        },
        "headline": worst[0].code if worst else None,
        "findings": "; ".join(each.code for each in plan.findings) or None,
        "warnings": "; ".join(plan.warnings) or None,
    }


def _measured_columns(result: Result) -> dict[str, Any]:
    """Columns with the measurements of a run, and values to compare them with, by name."""
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
