"""Comparison of several methods on one problem: same data, fading and channel noise, one seed.

A method is an uplink or plan that the caller names, or a baseline of :mod:`flmc.runs.baselines`.
:func:`compare` serves both ``flmc.compare`` and the command `flmc compare`."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from flmc.base import checks
from flmc.base.arrays import Array, one_blas_thread
from flmc.base.documents import ANSWER_VERSION
from flmc.base.errors import InvalidSetting, RunFailed
from flmc.base.progress import Progress, report_part
from flmc.base.randomness import check_seed
from flmc.base.tables import Grid, Row, format_number, format_short, format_up
from flmc.data.federated import FederatedData
from flmc.evaluation.data_sets import PAIRED_IN_WORDS, PairedDifference
from flmc.evaluation.metrics import Estimate
from flmc.models.linear import LinearGaussian
from flmc.models.model import Model
from flmc.planning.decision import Request
from flmc.planning.fairness import Equality, with_changes
from flmc.planning.limits import Limits
from flmc.planning.planner import plan as make_plan
from flmc.planning.plans import Plan
from flmc.planning.privacy_cost import Cost
from flmc.planning.search import Candidate
from flmc.planning.server_update import is_langevin
from flmc.runs.baselines import Baseline, baselines_of
from flmc.runs.execution import run
from flmc.runs.results import Result, notes_on_chains
from flmc.runs.scores import LABELS, Scorer, make_scorers, note_on_test_set
from flmc.sampling.engine import Engine
from flmc.sampling.numpy_engine import NumpyEngine
from flmc.sampling.simulation import simulate
from flmc.uplink.uplink import Uplink

NO_STATEMENT = "no statement"
"""Text that a table shows for epsilon where no privacy is proven."""
_OWN = "flmc"
"""Name in the tables of an uplink or plan that the caller gives without a name."""
_METRICS = ("variance_ratio", "wasserstein2_squared", "mean_error_squared", "mse")
"""Metrics of all chains together, which the table shows beside the scores of single chains."""
_EQUAL_STEPS = 1.2
"""Largest ratio of the effective steps of two uplinks up to which their samplers count as equally
fast; above it, the table warns that one is slower than the other."""


@dataclass(frozen=True)
class Method:
    """One method of a comparison, an uplink or a baseline: its plan, its privacy and its scores.
    ``samples`` says whether draws or a point estimate were scored, and ``each`` has the scores of
    single data sets."""

    name: str
    channel: str
    """The channel between devices and server, in words."""
    samples: bool
    """Whether the draws were scored; False: a point estimate, the mean of the kept rounds."""
    plan: Plan
    """The plan that was run; for the method in which every device samples alone, the plan of the
    first device."""
    cost: Cost | None
    """Privacy of the run of one chain; None: no statement, for the reason in ``no_statement``."""
    no_statement: str
    """Reason why no privacy statement is made for the method; empty where one is made."""
    data_dependent: bool
    """Whether step or gain were computed from the devices' private data, so that the privacy
    statement holds in a simulation only."""
    step_size: float
    """Effective step of a sampler or of descent; of a majority vote the move of an entry in a
    round; of local posteriors the median over devices."""
    scores: dict[str, Estimate]
    """Scores by name, each a mean over single chains (of local posteriors also over devices). An
    uplink or plan of the caller also has metrics of all its chains together."""
    result: Result | None = None
    """Result of the run, for the uplinks and plans that the caller named; None for a baseline."""
    each: Mapping[str, Array] = field(default_factory=dict, repr=False)
    """Scores of single data sets: arrays (experiment) by name of the score; empty if there is one
    data set only."""

    @property
    def num_rounds(self) -> int:
        """Number of rounds of one chain."""
        return self.plan.num_rounds

    @property
    def privacy(self) -> str:
        """Text with the epsilon of the run, or ``no statement``."""
        return NO_STATEMENT if self.cost is None else f"epsilon {format_up(self.cost.epsilon, 4)}"

    def to_document(self) -> dict[str, Any]:
        """The method in plain values, for JSON; NaN and infinity are null."""
        epsilon = None if self.cost is None else self.cost.epsilon
        return {
            "name": self.name,
            "channel": self.channel,
            "estimate": "draws" if self.samples else "mean of kept rounds",
            "epsilon": None if epsilon is None or math.isinf(epsilon) else epsilon,
            "delta": None if self.cost is None else self.cost.delta,
            "no_statement": self.no_statement,
            "data_dependent": self.data_dependent,
            "num_rounds": self.num_rounds,
            "step_size": self.step_size,
            "scores": {
                name: {"mean": _plain(value.mean), "se": _plain(value.se)}
                for name, value in self.scores.items()
            },
            "plan": self.plan.to_document(),
        }

    def in_words(self, score: str) -> str:
        """Text of a score with its standard error, and, where its values over data sets have heavy
        tails, with their median and quartiles; ``-`` if the method does not have the score."""
        metrics = None if self.result is None else self.result.metrics
        if metrics is not None and score in _METRICS:
            return metrics.in_words(score)
        return str(self.scores[score]) if score in self.scores else "-"


@dataclass(frozen=True)
class Comparison:
    """Outcome of several methods on one problem, with the same data, fading and channel noise.
    ``missing`` says why baselines could not be run, and ``shared`` in which quantity the uplinks
    were made equal."""

    plan: Plan
    """Plan of the first uplink, from which the baselines were made."""
    methods: tuple[Method, ...]
    """The uplinks in the order of the call, then the baselines; ``comparison[name]`` gives one."""
    missing: dict[str, str]
    """Baselines that could not be run: the reason for each, by name."""
    num_test: int
    """Number of held-out examples that every method predicted; 0: none were given."""
    num_chains: int
    """Number of chains that every method ran on every data set."""
    seed: int
    shared: Equality | None = None
    """Quantity in which the uplinks were made equal, with its value; None: each was planned by
    itself."""

    def __getitem__(self, name: str) -> Method:
        checks.one_of("a method", name, tuple(each.name for each in self.methods))
        return next(each for each in self.methods if each.name == name)

    @property
    def results(self) -> dict[str, Result]:
        """Results of the uplinks and plans that the caller named, by name."""
        return {each.name: each.result for each in self.methods if each.result is not None}

    def __str__(self) -> str:
        return "\n\n".join(map(str, self.grids()))

    def grids(self) -> tuple[Grid, ...]:
        """The tables for the screen: plans, scores, and paired differences for several data
        sets."""
        pairs = self.pairs()
        return (self.plans(), self.scores(), *(() if pairs is None else (pairs,)))

    @property
    def paired(self) -> dict[str, dict[str, PairedDifference]]:
        """Scores of each method less those of the first on the same data sets, by name of the
        method and then of the score; empty for one data set."""
        first, *others = self.methods
        differences = {
            one.name: {
                score: PairedDifference.of(one.each[score], first.each[score])
                for score in one.each
                if score in first.each
            }
            for one in others
        }
        return {name: scores for name, scores in differences.items() if scores}

    def pairs(self) -> Grid | None:
        """A table of the scores of each method less those of the first, on the same data sets; None
        for one data set."""
        if not self.paired:
            return None
        names = list(dict.fromkeys(name for each in self.paired.values() for name in each))
        header = ("method", *(LABELS[name] for name in names))
        rows = tuple(
            (name, *(str(each[score]) if score in each else "-" for score in names))
            for name, each in self.paired.items()
        )
        count = next(iter(next(iter(self.paired.values())).values())).data_sets
        title = f"less {self.methods[0].name}, on the same {count} data sets"
        return Grid(header, rows, title, (Row("errors", PAIRED_IN_WORDS),))

    def plans(self) -> Grid:
        """A table of the plans, with a row for each method: channel, gain, binding limit,
        temperature, step, effective draws, rounds, and epsilon of a round and of the run."""
        header = (
            "method",
            "channel",
            "gain",
            "binds",
            "T",
            "effective step",
            "effective draws",
            "rounds",
            "eps round",
            "eps run",
        )
        notes = []
        if self.shared is not None:
            notes.append(Row(f"equal {self.shared.name}", self.shared.quantity.definition))
            airtimes = {name: result.plan.airtime for name, result in self.results.items()}
            bounds = [name for name, each in airtimes.items() if each is not None and each.largest]
            if self.shared.name == "energy" and 0 < len(bounds) < len(airtimes):
                text = f"of {' and '.join(bounds)} the energy is an upper bound, not what it takes"
                notes.append(Row("", text, severity="warning"))
        # Only the steps of uplinks are compared: baselines choose their own, and are not expected
        # to be equally fast.
        steps = [result.plan.effective_step_size or 0.0 for result in self.results.values()]
        if steps and max(steps) > _EQUAL_STEPS * min(steps):
            text = (
                "the effective steps differ: a slower sampler looks more private and less"
                " accurate than it is"
            )
            notes.append(Row("", text, severity="warning"))
        rows = tuple(_plan_cells(each) for each in self.methods)
        return Grid(header, rows, notes=(*notes, *self._privacy_notes()))

    def scores(self) -> Grid:
        """A table of the outcome, with a row for each method: its scores, or mean and standard
        deviation of the first entries of theta where neither held-out examples nor an exact
        posterior allow scores."""
        # Baselines have only some of the scores of an uplink, so the table has a column for every
        # score that at least one method has.
        names = list(dict.fromkeys(name for each in self.methods for name in each.scores))
        if names:
            header = ("method", *(LABELS[name] for name in names))
            rows = tuple((each.name, *map(each.in_words, names)) for each in self.methods)
        else:
            header = ("method", "mean", "sd")
            rows = tuple((name, *_moment_cells(one)) for name, one in self.results.items())
        held_out = f"{self.num_test} held-out examples, " if self.num_test else ""
        title = f"{held_out}{self.num_chains} chain(s) of every method"
        return Grid(header, rows, title, self._score_notes())

    def _privacy_notes(self) -> list[Row]:
        """Notes below the table of plans: for which delta, neighbouring data and chains the
        epsilons hold, and why a method has none."""
        limits = self.plan.limits
        words = (
            f"eps run is of one chain at delta {limits.run_delta:g}, for one {limits.neighbours}"
        )
        notes = [Row("privacy", words)]
        notes += [
            Row(name, f"privacy: {result.coverage.in_words}")
            for name, result in self.results.items()
            if result.coverage is not None and result.num_chains > 1
        ]
        notes += [
            Row(each.name, f"no privacy statement: {each.no_statement}")
            for each in self.methods
            if each.no_statement
        ]
        if any(each.data_dependent and each.cost is not None for each in self.methods):
            words = "steps were computed from the devices' data, so every epsilon is for simulation"
            notes.append(Row("", words, severity="warning"))
        return notes

    def _score_notes(self) -> tuple[Row, ...]:
        """Notes below the table of scores: on point estimates, warnings of the runs, and baselines
        that could not be run."""
        points = [each.name for each in self.methods if not each.samples]
        kept, notes = self.plan.num_rounds - self.plan.num_burn_in, []
        if any("mean_error" in each.scores for each in self.methods):
            words = "squared distance of a chain's mean from the posterior's, over trace(Sigma)"
            notes.append(Row(LABELS["mean_error"], words))
        if self.num_test:
            accuracies = [each.scores.get("accuracy") for each in self.methods]
            known = [each.mean for each in accuracies if each is not None]
            notes.append(Row("held-out examples", note_on_test_set(self.num_test, known)))
        if points:
            words = f"{', '.join(points)}: mean of the last {kept} rounds"
            notes.append(Row("point estimates", words))
        for name, result in self.results.items():
            few = [] if result.metrics is None else notes_on_chains(result.metrics)
            notes += [Row(name, text, severity="warning") for text in [*result.warnings, *few]]
        notes += [
            Row(name, f"left out: {why}", severity="warning") for name, why in self.missing.items()
        ]
        return tuple(notes)

    def to_document(self) -> dict[str, Any]:
        """The whole comparison in plain values, for JSON."""
        return {
            "schema_version": ANSWER_VERSION,
            "plan": self.plan.to_document(),
            "neighbouring": self.plan.limits.neighbouring,
            "relation": self.plan.limits.relation,
            "num_test": self.num_test,
            "num_chains": self.num_chains,
            "seed": self.seed,
            "equal": None if self.shared is None else self.shared.to_document(),
            "methods": [each.to_document() for each in self.methods],
            "paired": {
                name: {score: each.to_document() for score, each in scores.items()}
                for name, scores in self.paired.items()
            },
            "missing": dict(self.missing),
        }


def _plan_cells(method: Method) -> tuple[str, ...]:
    """Texts of one method's row in the table of plans: name, channel, gain, binding limit,
    temperature, step, effective draws, rounds, and epsilon of a round and of the run."""
    p, stated = method.plan, method.cost is not None
    costs = [
        NO_STATEMENT if cost is None or not stated else format_up(cost.epsilon)
        for cost in (p.round_cost, method.cost)
    ]
    # Only a sampler has a temperature and effective draws; a point estimate has neither.
    known = not method.samples or p.effective_step_size is not None
    return (
        method.name,
        method.channel,
        format_number(p.typical_gain),
        p.binding,
        format_number(p.temperature) if method.samples else "-",
        format_number(method.step_size if known else None),
        format_short(p.effective_draws) if method.samples else "-",
        str(method.num_rounds),
        *costs,
    )


def _moment_cells(result: Result) -> tuple[str, str]:
    """Two texts: means and standard deviations of the first six entries of theta, of the first data
    set."""
    mean, sd = (
        np.array2string(value[:6], precision=3, suppress_small=True)
        for value in (result.mean[0], np.sqrt(result.variance[0]))
    )
    return mean, sd


def compare(
    uplinks: Mapping[str, Uplink | Plan] | Uplink | Plan,
    model: Model,
    limits: Limits | None = None,
    *,
    baselines: bool = False,
    equal: str | None = None,
    test: FederatedData | None = None,
    only: Collection[str] | None = None,
    seed: int = 0,
    chains: int = 50,
    keep_draws: bool = False,
    engine: str | Engine = "auto",
    progress: Progress | None = None,
    **settings: Any,
) -> Comparison:
    """Run several uplinks, and baselines if asked for, on one model with one seed.

    The baselines have the channel, rounds and budget of the first uplink: FedSGD over the channel
    as an analog uplink; a one-bit majority vote; DP-FedSGD with the epsilon of the run and no
    channel; Langevin sampling with exact gradients; and posteriors of single devices.

    Parameters
    ----------
    uplinks
        Uplinks, or plans made by :func:`flmc.plan` for this model, by name; a single one without a
        name is called `flmc`.
    model
        The model that all of them sample.
    limits
        Limits of the gain besides power; None: the defaults of :class:`flmc.Limits`. A plan has
        limits of its own.
    baselines
        Whether to run the baselines too. They are judged by ``test``, by the exact posterior of the
        model, or by both.
    equal
        Quantity in which the uplinks are made equal before they are run: ``step``, ``privacy``,
        ``energy`` or ``airtime``, defined in :data:`flmc.planning.fairness.QUANTITIES`. Baselines
        are made from the first uplink, and not made equal. None: each is planned by itself.
    test
        Held-out examples that every method predicts: for linear regression of one data set, and for
        models from log densities whose target has classes. Draws are then kept.
    only
        Names of the methods to run; None: all.
    seed
        Of all randomness: methods with the same channel see the same fading and channel noise.
    chains
        Chains of every method and data set, each a release of its own; scores are means over them.
    keep_draws
        Whether to keep theta of every kept round.
    engine
        Engine of all methods but the majority vote, which runs on `numpy`.
    progress
        Called with the finished fraction now and then.
    **settings
        Further arguments of :func:`flmc.plan`, the same for all uplinks.

    Returns
    -------
    Comparison
        Methods by name; ``print`` shows their plans and their scores as tables.

    Raises
    ------
    InvalidSetting
        If ``uplinks`` is empty or has the name of a baseline, a plan is impossible or for another
        model, ``limits`` or ``settings`` come with plans only, baselines cannot be judged, a name
        in ``only`` is not that of a method, or no method could be run; if ``equal`` is given for
        plans or a single uplink, or cannot be reached.
    RunFailed
        If the run of an uplink fails; a baseline that fails is in ``missing`` of the comparison.

    Examples
    --------
    >>> drawn = flmc.data.draw_linear(seed=1, num_samples=400, num_devices=4)
    >>> data = flmc.data.FederatedData(drawn.features, drawn.targets, drawn.device_sizes)
    >>> learn, test = data.hold_out(0.25)
    >>> model = flmc.LinearGaussian(learn.to_linear())
    >>> uplinks = {"digital": flmc.Digital(), "analog": flmc.Analog()}
    >>> rounds = {"num_rounds": 60, "num_burn_in": 30}
    >>> compared = flmc.compare(uplinks, model, baselines=True, test=test, chains=2, **rounds)
    >>> [method.name for method in compared.methods][:3]
    ['digital', 'analog', 'FedSGD']
    >>> compared["digital"].result.mean.shape, sorted(compared["FedSGD"].scores)
    ((1, 5), ['log_loss', 'mean_error', 'squared_error'])
    """
    shared = None
    if equal is None:
        plans = _plans(uplinks, model, limits, settings)
    else:
        shared, plans = _equal_plans(equal, uplinks, model, limits, settings)
    check_seed(seed)
    checks.at_least("chains", chains, 1)
    scorers = make_scorers(model, test)
    first = next(iter(plans.values()))
    others = {each.name: each for each in baselines_of(first, model)} if baselines else {}
    if baselines and not scorers:
        raise InvalidSetting(
            "baselines need something to be judged by: give held-out examples (test), or a model"
            " whose posterior is known"
        )
    twice = sorted(plans.keys() & others.keys())
    if twice:
        raise InvalidSetting(f"{twice[0]!r} is the name of a baseline: give the uplink another")
    names = (*plans, *others)
    for name in only or ():
        checks.one_of("a method", name, names)
    asked = [name for name in names if only is None or name in only]
    methods, missing = [], {}
    for index, name in enumerate(asked):
        part = report_part(progress, index, len(asked))
        if name in plans:
            keep = keep_draws or test is not None  # held-out predictions need the draws
            result = run(
                plans[name], model, seed, chains, keep_draws=keep, engine=engine, progress=part
            )
            methods.append(_method_of(name, result, scorers))
            continue
        try:
            methods.append(_run_baseline(others[name], scorers, seed, chains, engine))
        # An error of the caller's uplink or plan ends the comparison. An error of a baseline only
        # leaves this baseline out, with the message in ``missing``.
        except (InvalidSetting, RunFailed) as error:
            missing[name] = str(error)
        part(1.0)
    if not methods:
        raise InvalidSetting(f"no method could be run: {'; '.join(missing.values())}")
    num_test = 0 if test is None else test.num_samples
    return Comparison(first, tuple(methods), missing, num_test, chains, seed, shared)


def _equal_plans(
    equal: str,
    given: Mapping[str, Uplink | Plan] | Uplink | Plan,
    model: Model,
    limits: Limits | None,
    settings: Mapping[str, Any],
) -> tuple[Equality, dict[str, Plan]]:
    """Plans of the uplinks ``given``, by name, made equal in the quantity that ``equal`` names;
    with them, that quantity and the value that they share. ``InvalidSetting`` for a single uplink,
    for ready plans, which cannot be changed, and where a plan cannot reach the value."""
    if not isinstance(given, Mapping) or len(given) < 2:
        raise InvalidSetting(f"equal {equal!r} is for two uplinks or more, by name")
    fixed = [name for name, each in given.items() if isinstance(each, Plan)]
    if fixed:
        raise InvalidSetting(
            f"equal {equal!r} is for uplinks, which are planned here; {fixed[0]!r} is a plan"
        )
    plans = _plans(given, model, limits, settings)
    shared = Equality.among(equal, tuple(plans.values()))
    return shared, {
        name: _made_equal(shared, plan, model, settings) for name, plan in plans.items()
    }


def _made_equal(shared: Equality, own: Plan, model: Model, settings: Mapping[str, Any]) -> Plan:
    """A new plan in place of ``own``, which was made with ``settings``: its step, epsilon, energy
    or airtime has the value that ``shared`` holds for all methods."""
    names = [each.name for each in fields(Request)]
    asked: dict[str, Any] = {name: settings[name] for name in names if name in settings}
    if asked.get("num_rounds") == "auto":  # the rule that chose the rounds also chose the burn-in
        asked |= {"num_rounds": own.num_rounds, "num_burn_in": own.num_burn_in}
    held = Candidate(model, own.uplink, own.limits, Request(**asked))
    changes = shared.changes(held, own)
    made = own
    if changes:
        changed = with_changes(held, changes)
        arguments = {name: getattr(changed.request, name) for name in names}
        made = make_plan(model, changed.uplink, changed.limits, **arguments)
    shared.check(made)
    return replace(
        made,
        data_dependent=made.data_dependent or own.data_dependent or shared.from_data,
        findings=(*made.findings, *shared.findings(changes, own)),
    )


def _plans(
    given: Mapping[str, Uplink | Plan] | Uplink | Plan,
    model: Model,
    limits: Limits | None,
    settings: Mapping[str, Any],
) -> dict[str, Plan]:
    """Plans by name: the plans in ``given``, and plans made here for its uplinks.
    ``InvalidSetting`` if ``given`` is empty, a plan is for another model or overspends its privacy
    budget, or limits or settings come with plans only."""
    named = {_OWN: given} if isinstance(given, Uplink | Plan) else given
    if not isinstance(named, Mapping) or not named:  # type: ignore[redundant-expr]
        raise InvalidSetting(
            f"uplinks must be a dict with at least one uplink by its name, got {given!r}"
        )
    if (limits is not None or settings) and all(isinstance(each, Plan) for each in named.values()):
        words = ["limits"] * (limits is not None) + sorted(settings)
        raise InvalidSetting(f"{', '.join(words)}: a plan has its own, so none may be given")
    plans = {
        name: each if isinstance(each, Plan) else make_plan(model, each, limits, **settings)
        for name, each in named.items()
    }
    for plan in plans.values():
        if (plan.num_devices, plan.dim) != (model.num_devices, model.dim):
            raise InvalidSetting(
                f"the plan is for {plan.num_devices} devices and dim {plan.dim}, the model has"
                f" {model.num_devices} and {model.dim}"
            )
        if plan.affordable_rounds < plan.num_rounds:
            raise InvalidSetting(
                f"the plan's gain keeps its budget for {plan.affordable_rounds} of"
                f" {plan.num_rounds} rounds only: use a smaller gain, or none"
            )
    return plans


def _method_of(name: str, result: Result, scorers: tuple[Scorer, ...]) -> Method:
    """The entry of the comparison for an uplink or plan that was run. Held-out scores are computed
    from its draws; errors against the exact posterior are taken from ``result``."""
    plan = result.plan
    scores: dict[str, Estimate] = {}
    of_data_sets: dict[str, Array] = {}
    for scorer in scorers:
        if scorer.num_test:
            each = scorer.score(result.draws)
            scores |= {score: _estimate(values) for score, values in each.items()}
    if result.one_chain is not None:
        error = result.one_chain.mean_error
        scores["mean_error"] = Estimate(error.mean, error.se)
        of_data_sets |= {n: v for n, v in result.one_chain.each.items() if n == "mean_error"}
    if result.metrics is not None:
        estimates = result.metrics.estimates
        scores |= {metric: estimates[metric] for metric in _METRICS}
        of_data_sets |= result.metrics.each
    return Method(
        name=name,
        channel="none" if plan.uplink.noise_is_exact else plan.uplink.scheme,
        samples=True,
        plan=plan,
        cost=plan.run_cost,
        no_statement=plan.unknown_privacy or "",
        data_dependent=plan.data_dependent,
        step_size=plan.effective_step_size or plan.step_size,
        scores=scores,
        result=result,
        each=of_data_sets,
    )


def _run_baseline(
    baseline: Baseline, scorers: tuple[Scorer, ...], seed: int, chains: int, engine: str | Engine
) -> Method:
    """Run and score one baseline. Where every device samples alone, a chain's scores are averaged
    over the devices."""
    each: list[dict[str, Array]] = []
    plans: list[Plan] = []
    experiments = 1
    for plan, model in baseline.plans():
        runner = engine if is_langevin(plan.update) else NumpyEngine()
        groups = _draws(plan, model, seed, chains, runner)
        groups = groups if baseline.samples else groups.mean(axis=1, keepdims=True)
        each.append({n: v for scorer in scorers for n, v in scorer.score(groups).items()})
        plans.append(plan)
        experiments = model.num_experiments  # the same for the models of all devices
    first = plans[0]
    steps = [p.effective_step_size or p.step_size for p in plans]
    scores = {name: np.mean([one[name] for one in each], axis=0) for name in each[0]}
    of_data_sets: dict[str, Array] = {}
    if experiments > 1:
        of_data_sets = {n: v.reshape(experiments, -1).mean(axis=1) for n, v in scores.items()}
    return Method(
        name=baseline.name,
        channel=baseline.channel,
        samples=baseline.samples,
        plan=first,
        cost=first.run_cost if baseline.private else None,
        no_statement=(first.unknown_privacy or "") if baseline.private else baseline.no_statement,
        data_dependent=first.data_dependent,
        step_size=float(np.median(steps)),
        scores={name: _estimate(values) for name, values in scores.items()},
        each=of_data_sets,
    )


def _draws(plan: Plan, model: Model, seed: int, chains: int, engine: Engine | str) -> Array:
    """Run the plan and return all draws in the model's own coordinates, (experiment * chain, draw,
    dim)."""
    # The matrices of a LinearGaussian are small: with several BLAS threads the run would be slower,
    # and their number would change the last bits of the result.
    with one_blas_thread() if isinstance(model, LinearGaussian) else nullcontext():
        chains_run = simulate(plan, model, seed, chains, engine=engine, keep_draws=True)
    if chains_run.draws is None:  # draws is only None where they were not asked for
        raise RunFailed("the engine kept no draws")
    draws = chains_run.draws.reshape(-1, *chains_run.draws.shape[2:])
    return draws if model.coordinates is None else np.asarray(model.coordinates.to_model(draws))


def _estimate(values: Array) -> Estimate:
    """Mean of ``values`` (chain), one score for each chain, with its standard error; the error is
    NaN if there is one chain only."""
    return Estimate.over(values) if len(values) > 1 else Estimate(float(values[0]), math.nan)


def _plain(value: float) -> float | None:
    """``value`` as JSON can hold it: None, which JSON writes as null, if it is not finite."""
    return value if math.isfinite(value) else None
