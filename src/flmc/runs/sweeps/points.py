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
from flmc.runs.results import Result
from flmc.settings.assembly import assemble, make_limits, planner_arguments
from flmc.settings.construction import make_model, make_uplink, named_code
from flmc.settings.contents import contents_of
from flmc.settings.schema import Settings, merge

_RESOLVED = frozenset(
    {
        *("scheme", "snr_db", "average_snr_db", "noise_power", "fading", "csi_error"),
        *("link", "slope_parameter", "clip", "clipping", "modulation", "example_shrink"),
        *("epsilon", "delta", "run_delta", "scope", "privacy", "neighbouring", "allocation"),
        *("langevin", "rounds", "burn_in", "burn_in_step_factor", "step_size", "gain", "start"),
        *("scheduling", "public_smoothness", "public_convexity"),
    }
)
"""Settings whose whole effect is in the uplink, the limits and the arguments of the planner, which
stand for them in the digest. Every other setting is in it as it is: a new one, too."""
_IDLE = frozenset({"threads", "checkpoint_rounds", "chains"})
"""Settings left out of the digest: two without effect, and ``chains``, which enters as the number
of chains that it results in."""


def key_of(settings: Settings, *, plan_only: bool = False) -> str:
    """Digest, 24 hexadecimal digits, of everything that decides the row of a point, with the
    version of flmc; the point's file is named by it."""
    decides = {"flmc": VERSION, "plan_only": plan_only, **_deciding(settings)}
    if plan_only:  # nothing is simulated
        decides = {name: part for name, part in decides.items() if name not in ("chains", "engine")}
    text = json.dumps(decides, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def data_key(settings: Settings) -> str:
    """Everything that may decide the model of a point, with the contents of its files, as text:
    equal texts mean equal models."""
    values = settings.model_dump(mode="json", exclude=set(_RESOLVED | _IDLE))
    return json.dumps([values, contents_of(settings)], sort_keys=True)


def given_in(settings: Settings) -> dict[str, Any]:
    """Settings that differ from their defaults, as plain values, from which
    :func:`flmc.settings.schema.merge` makes the point again."""
    return settings.model_dump(mode="json", exclude_defaults=True)


def _deciding(settings: Settings) -> dict[str, Any]:
    """Everything that decides the row of a point, in plain values."""
    given = given_in(settings)
    common = {"chains": settings.num_chains, "engine": settings.engine}
    written = {
        "settings": {name: v for name, v in given.items() if name not in _IDLE},
        "contents": contents_of(settings),
        **common,
    }
    # The behaviour of a user's own object is not in its attributes alone, and only the worker
    # imports it: such points are compared as they are written.
    if settings.model != "linear" or named_code(given):
        return written
    try:
        point = merge({}, given)
        made = {"uplink": make_uplink(point), "limits": make_limits(point)}
        planner = planner_arguments(point)
    except FlmcError:  # the point will fail, and its row say why
        return written
    return {
        **{name: to_document(each) for name, each in made.items()},
        "planner": {name: to_document(each) for name, each in planner.items()},
        "data": data_key(point),
        **common,
    }


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
    except Exception as error:  # a user's model or link: the other points shall go on
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
        engine=settings.engine,
        threads=1,  # points run side by side, one in each process
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
"""The model that this process built last, by its :func:`data_key`; one, because data are large."""


def _shared_model(settings: Settings) -> Model:
    """The model of a point: the last one again if its data are the same."""
    if settings.model != "linear":  # a user's own model may not be the same when made again
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
    verdict = plan.verdict  # None for a plan from a file that nobody judged
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
