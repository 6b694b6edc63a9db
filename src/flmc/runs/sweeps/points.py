"""The points of a sweep: the digest that tells two points apart, and the row of one point.

A point is a set of settings. It runs on one thread and depends on its settings alone, so that its
numbers are the same to the bit on every worker.

Points are compared by what their settings make, not by how they are written: a default written out
is the default, ``sigmoid`` with slope 0.05 is ``sigmoid:0.05``, and the SNR of an ideal uplink has
no effect."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np

from flmc.base.documents import to_document
from flmc.base.errors import FlmcError, InvalidSetting
from flmc.base.findings import Light, gravest
from flmc.base.version import VERSION
from flmc.data.federated import FederatedData
from flmc.evaluation.data_sets import median_interval, middles
from flmc.evaluation.metrics import Estimate
from flmc.models.model import Model
from flmc.planning.fairness import Equality
from flmc.planning.plans import Plan
from flmc.planning.privacy_cost import Cost
from flmc.runs.execution import run
from flmc.runs.fingerprints import Fingerprints
from flmc.runs.results import Result
from flmc.runs.scores import make_scorers
from flmc.runs.sweeps.table import DATA_SETS
from flmc.settings.assembly import Problem, assemble, assemble_with_held_out
from flmc.settings.construction import make_engine, make_model, make_uplink, named_code
from flmc.settings.schema import NOTHING, PLAN, SIMULATION, UPLINK, Settings, merge, names_of


@dataclass(frozen=True)
class Beside:
    """Options of a sweep that decide the row of a point together with the point's own settings: in
    which quantity the point is made equal to others, and which share of examples is held out."""

    equal: str | None = None
    """Name of the quantity in which the point is made equal to the points in ``methods``: step,
    privacy, energy or airtime; None: it is planned by itself."""
    methods: tuple[Settings, ...] = ()
    """Settings of the points that are made equal to each other, this point's own among them; empty
    if ``equal`` is None."""
    hold_out: float | None = None
    """Share of every device's examples that is held out of the data and predicted; None: no
    examples are held out."""

    def given(self) -> dict[str, Any]:
        """These options as plain values by name, to be sent to a worker together with the settings
        of a point. An option that is None is left out."""
        asked: dict[str, Any] = {}
        if self.equal is not None:
            asked["equal"], asked["methods"] = self.equal, [given_in(each) for each in self.methods]
        if self.hold_out is not None:
            asked["hold_out"] = self.hold_out
        return asked

    @classmethod
    def split(cls, given: Mapping[str, Any]) -> tuple[Settings, Beside]:
        """Settings of a point, and its options as a ``Beside``, from one mapping with the plain
        values of both, as a worker receives it."""
        own = dict(given)
        equal, hold_out = own.pop("equal", None), own.pop("hold_out", None)
        methods = tuple(merge({}, each) for each in own.pop("methods", ()))
        return merge({}, own), cls(equal, methods, hold_out)


def key_of(
    settings: Settings,
    beside: Beside | None = None,
    *,
    plan_only: bool = False,
    fingerprints: Fingerprints | None = None,
) -> str:
    """Digest, 24 hexadecimal digits, of everything that decides the row of a point, the version of
    flmc included; the file of the point is named by it. Points of one grid share ``fingerprints``,
    so that each data file is read once; None: files are read now."""
    fingerprints = fingerprints or Fingerprints()
    decides = {
        "flmc": VERSION,
        "plan_only": plan_only,
        **_decisive(settings, plan_only, fingerprints),
    }
    if beside is not None and beside.equal is not None:
        methods = [_decisive(each, plan_only, fingerprints) for each in beside.methods]
        decides |= {"equal": beside.equal, "methods": methods}
    if beside is not None and beside.hold_out is not None:
        decides["hold_out"] = beside.hold_out
    text = json.dumps(decides, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def _decisive(settings: Settings, plan_only: bool, fingerprints: Fingerprints) -> dict[str, Any]:
    """Everything in ``settings`` that decides the row of a point, as plain values: the settings
    that have an effect, the uplink that they make, and digests of the files and of the user's code
    that they name."""
    # All settings count, except those that the schema marks as without effect on a row of this kind
    # (planned only, or run).
    idle = names_of(NOTHING, SIMULATION) if plan_only else names_of(NOTHING)
    values = {**settings.model_dump(mode="json"), "chains": settings.num_chains}
    uplink = _uplink_of(settings)
    # The settings of the uplink are left out in favour of the uplink that they make, because
    # different texts may make the same one.
    if uplink is not None:
        idle |= names_of(UPLINK)
    return {
        # Settings that are None are left out, so that a setting that a later version adds does not
        # change the digests of finished points.
        "settings": {n: v for n, v in values.items() if n not in idle and v is not None},
        "uplink": uplink,
        "contents": fingerprints.of_settings(values),
    }


def data_key(settings: Settings) -> str:
    """Text of the settings that decide the model and data of a point. Points with equal texts have
    equal models, as long as no data file is changed."""
    others = names_of(UPLINK, PLAN, SIMULATION, NOTHING)
    return json.dumps(settings.model_dump(mode="json", exclude=others))


def given_in(settings: Settings) -> dict[str, Any]:
    """Settings that the user gave for a point, as plain values, from which
    :func:`flmc.settings.schema.merge` makes the point's settings again."""
    return settings.model_dump(mode="json", exclude_unset=True)


def _uplink_of(settings: Settings) -> Any:
    """The uplink that settings make, as plain values. None if the settings name code of the user's
    own, or if the uplink cannot be made; the row of the point then has the error."""
    # Code of the user's own is imported by the worker only, not by the process that computes
    # digests.
    if named_code(settings.model_dump()):
        return None
    try:
        return to_document(make_uplink(settings))
    except FlmcError:
        return None


def run_point(given: Mapping[str, Any]) -> dict[str, Any]:
    """The row of one point, planned and run on one thread. ``given`` has the point's settings that
    differ from the defaults, and options of the sweep. The row has plain values by column, without
    measured times, and ``error``, which is None or the message of a failure."""
    return _row_of(given, _run_columns)


def plan_point(given: Mapping[str, Any]) -> dict[str, Any]:
    """The row of one point that is planned and not run: the columns of :func:`run_point` that
    describe the plan. Epsilon of the run, which takes longest to compute, is there only if the
    privacy budget is for the run."""
    return _row_of(given, _plan_only_columns)


def _row_of(
    given: Mapping[str, Any], columns: Callable[[Settings, Beside], dict[str, Any]]
) -> dict[str, Any]:
    """The row of a point, from the function ``columns`` of the point's settings and options: its
    columns by name, with None for NaN and infinity, and ``error``, None. If the point failed, the
    row has only ``error``, with the message."""
    try:
        row = columns(*Beside.split(given))
        return {**{name: _finite(value) for name, value in row.items()}, "error": None}
    except FlmcError as error:
        return {"error": str(error)}
    # A user's model or link may raise any error, and the other points are to go on.
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


def _finite(value: Any) -> Any:
    """``value``, or None for a number that is not finite, so that a column is empty where its value
    is unknown."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _run_columns(settings: Settings, beside: Beside) -> dict[str, Any]:
    """Planned and measured columns of a point that is planned and run, by name."""
    problem, test = _assembled(settings, beside)
    problem, equal = _made_equal(problem, settings, beside)
    plan, model = problem.plan(), problem.model
    if test is not None:
        make_scorers(model, test)  # called before the run, because it refuses what cannot be scored
    # Draws are kept only where they are needed: to judge a run whose posterior is not known, and to
    # predict held-out examples.
    keep = model.posterior is None or test is not None
    kept = plan.num_rounds - plan.num_burn_in
    numbers = kept * settings.num_chains * model.num_experiments * model.dim
    thin = max(settings.thin, min(math.ceil(numbers / _MOST_NUMBERS), kept // _FEWEST_DRAWS))
    result = run(
        plan,
        model,
        settings.seed,
        settings.num_chains,
        keep_draws=keep,
        thin=thin if keep else 1,
        engine=make_engine(settings),
        threads=1,  # points run side by side, each in its own process
    )
    return {
        **_plan_columns(plan, with_run=True),
        **equal,
        **_measured_columns(result),
        **(_draw_columns(result) if model.posterior is None else {}),
        **_score_columns(result, model, test),
        **_finding_columns(plan),
    }


_MOST_NUMBERS = 2e7
"""Largest number of values (entries of theta over all draws and chains) that a point keeps, 160 MB;
longer runs keep every second, third, ... round."""
_FEWEST_DRAWS = 20
"""Smallest number of draws of a chain that thinning may leave, for R-hat and effective draws."""


def _plan_only_columns(settings: Settings, beside: Beside) -> dict[str, Any]:
    """Columns of a point that is planned but not run, by name."""
    problem, _ = _assembled(settings, beside, shared=True)
    problem, equal = _made_equal(problem, settings, beside)
    plan = problem.plan()
    with_run = problem.settings.scope == "run"
    return {**_plan_columns(plan, with_run=with_run), **equal, **_finding_columns(plan)}


def _assembled(
    settings: Settings, beside: Beside, *, shared: bool = False
) -> tuple[Problem, FederatedData | None]:
    """The problem of a point (model, uplink, limits and settings), and its held-out examples (None:
    no examples are held out). With ``shared``, the model of the previous point is used again if
    that point had the same data."""
    if beside.hold_out is not None:
        return assemble_with_held_out(settings, beside.hold_out, settings.seed)
    return assemble(settings, _shared_model(settings) if shared else None), None


def _made_equal(
    problem: Problem, settings: Settings, beside: Beside
) -> tuple[Problem, dict[str, Any]]:
    """The problem of a point, changed so that its plan agrees with the points in ``beside.methods``
    in the quantity ``beside.equal``, and columns with the shared value and the settings that were
    changed. The problem itself and no columns if ``equal`` is None."""
    if beside.equal is None:
        return problem, {}
    own = problem.plan(forecast=False)
    plans = []
    for method in beside.methods:
        same = data_key(method) == data_key(settings)
        try:
            other = assemble(method, problem.model) if same else _assembled(method, beside)[0]
            plans.append(other.plan(forecast=False))
        except InvalidSetting:  # the row of ``method`` itself states the error
            continue
    shared = Equality.among(beside.equal, plans)
    made = problem.made_equal(shared, own)
    before, after = (each.model_dump() for each in (problem.settings, made.settings))
    changed = [f"{name} = {after[name]}" for name in after if after[name] != before[name]]
    return made, {"equal_to": shared.value, "equal_by": ", ".join(changed) or None}


_latest: dict[str, Model] = {}
"""The model that this process built last, with its :func:`data_key` as key. It holds one model at
most, because data are large."""


def forget_model() -> None:
    """Forget the model that this process built last, so that the next one is built anew."""
    _latest.clear()


def _shared_model(settings: Settings) -> Model:
    """The model of a point. A linear model is that of the previous point, if that point had the
    same data; any other model is built anew."""
    if settings.model != "linear":  # a user's own model may differ when it is made again
        return make_model(settings)
    key = data_key(settings)
    if key not in _latest:
        model = make_model(settings)
        _latest.clear()
        _latest[key] = model
    return _latest[key]


def _plan_columns(plan: Plan, *, with_run: bool) -> dict[str, Any]:
    """Columns with the gain, the step, the limits, the privacy and the prediction of a plan, by
    name; only with ``with_run`` privacy and price of the whole run, which take longest to
    compute."""
    once, run_ = _stated(plan.round_cost), _stated(plan.run_cost if with_run else None)
    row = {
        "gain_used": plan.typical_gain,
        "binding": plan.binding,
        "temperature": plan.temperature,
        **_temperatures_of_runs(plan),
        "step_size_used": plan.step_size,
        "burn_in_used": plan.num_burn_in,
        "effective_step_size": plan.effective_step_size,
        "rounds_needed": plan.rounds_needed,
        "rounds_to_arrive": _rounds_to_arrive(plan),
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
    row["energy_is_bound"] = None if airtime is None else airtime.largest
    row["effective_draws"] = plan.effective_draws
    row["price"] = plan.release().price if with_run else None
    row["privacy_stated_by"] = plan.uplink.privacy_stated_by
    row["data_dependent"] = plan.data_dependent
    # A prediction is of stationary chains, and would mislead beside measurements of chains that
    # never become stationary.
    law = None if plan.never_arrives else plan.prediction
    row["predicted_variance_ratio"] = None if law is None else law.variance_ratio
    row["predicted_mean_shift"] = None if law is None else law.mean_shift
    return row


def _rounds_to_arrive(plan: Plan) -> int | None:
    """Number of rounds of burn-in by which a plan was judged, either stated in the finding that its
    burn-in is too short, or found by following chains from several starts. None if the plan was
    judged by the general rule for burn-in and has no such finding."""
    for each in plan.findings:
        if each.code == "burn-in" and "needed" in each.numbers:
            return int(each.numbers["needed"])
    return None if plan.prediction is None else plan.prediction.rounds_to_arrive


def _temperatures_of_runs(plan: Plan) -> dict[str, float | None]:
    """Columns for a plan on a random channel, where temperatures differ from run to run: the median
    of the runs' temperatures, and the ends of the range of nine runs in ten. All are None if the
    runs have one temperature, or if the aim is an answer, on which temperature has no effect."""
    runs = plan.over_runs if plan.judged and plan.aim == "chain" else None
    return {
        "temperature_of_runs": None if runs is None else runs.median,
        "temperature_of_runs_low": None if runs is None else runs.low,
        "temperature_of_runs_high": None if runs is None else runs.high,
    }


def _stated(cost: Cost | None) -> tuple[float | None, float | None]:
    """Epsilon of a privacy cost, and the delta at which it is stated; (None, None) without a cost.
    An epsilon without a finite bound is None, as in JSON."""
    return (None, None) if cost is None else (to_document(cost.epsilon), cost.delta)


def _finding_columns(plan: Plan) -> dict[str, Any]:
    """Columns about a plan, by name: its digest, the states of its verdict and of the three lights,
    and the findings against it."""
    lights = get_args(Light)
    worst = sorted(gravest(plan.findings), key=lambda each: lights.index(each.light))
    verdict = plan.verdict  # None for a plan from a file without findings and lights
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
    """Columns with the measurements of a run, by name, and with values for comparison, such as the
    trace of the posterior covariance."""
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
    each = {} if result.metrics is None else dict(result.metrics.each)
    if each and result.one_chain is not None:
        each |= {f"one_chain_{name}": values for name, values in result.one_chain.each.items()}
    if each:
        of_all = middles(each)
        for name, middle in of_all.items():
            row[f"{name}_median"] = middle.median
            row[f"{name}_q25"], row[f"{name}_q75"] = middle.low, middle.high
            # None for few data sets: even from the smallest to the largest value is no 95 %
            # interval.
            ends = median_interval(np.asarray(each[name])) or (None, None)
            row[f"{name}_median_low"], row[f"{name}_median_high"] = ends
        row["heavy_tails"] = "; ".join(name for name in each if of_all[name].heavy) or None
        row[DATA_SETS] = {name: to_document(values) for name, values in each.items()}
    coverage = document["coverage"] or {}
    for name in ("chains_covered", "epsilon_all_chains"):
        row[name] = coverage.get(name)
    verdict = result.verdict
    row["verdict_of_run"] = None if verdict is None else verdict.state
    row["findings_of_run"] = "; ".join(each.code for each in result.findings) or None
    return {**row, "notes": "; ".join(document["notes"]) or None}


def _draw_columns(result: Result) -> dict[str, Any]:
    """Columns about the draws of a model whose posterior is not known, by name: agreement (R-hat)
    and effective draws of the chains, and Stein ratio and shift of the mean, from gradients at the
    draws."""
    mixing, evidence = result.diagnostics, result.evidence
    agreement = {} if mixing is None else mixing.to_document()
    row = {name: agreement.get(name) for name in ("r_hat", "ess_bulk", "ess_tail")}
    stein = {} if evidence is None else evidence.to_document()
    for name in ("stein_ratio", "mean_shift"):
        row[name], row[f"{name}_se"] = stein.get(name), stein.get(f"{name}_se")
    if stein.get("why_unknown"):
        row["notes"] = f"Stein's evidence: {stein['why_unknown']}"
    return row


def _score_columns(result: Result, model: Model, test: FederatedData | None) -> dict[str, Any]:
    """Columns with the scores of a run's predictions for held-out examples, by name, means over
    chains; none without held-out examples."""
    if test is None:
        return {}
    row: dict[str, Any] = {"held_out": test.num_samples}
    for scorer in make_scorers(model, test):
        if scorer.num_test:
            for name, values in scorer.score(result.draws).items():
                mean, se = Estimate.over(values) if len(values) > 1 else (values[0], math.nan)
                row[name], row[f"{name}_se"] = float(mean), se
    return row
