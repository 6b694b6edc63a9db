"""The study behind `flmc reproduce --paper wflmc`: it measures every published curve at every SNR,
and curves of flmc's own plans in the same setting.

flmc's own plans are the digital scheme, for which the study has no curves, and the analog scheme
with another step size. Rounds, burn-in, channel, the rule that chooses the active devices, and the
privacy budget of the run are those of the study. The planner chooses gain and step size, with the
exact privacy accountant and for temperature 1, from the curvature of the data, from which the study
also computes its step size."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from flmc.base import checks
from flmc.base.arrays import Array
from flmc.base.documents import ANSWER_VERSION
from flmc.base.errors import InvalidSetting
from flmc.base.tables import Grid, Row
from flmc.base.version import VERSION
from flmc.papers.request import StudyRequest, read_own_curve, settings_in_words
from flmc.papers.wflmc.base_case import (
    CURVES,
    NUM_RUNS,
    SNR_DB,
    BaseCase,
    Published,
    make_base_case,
    read_published,
)
from flmc.papers.wflmc.experiment import Laboratory
from flmc.papers.wflmc.gain_allocation import Allocations, exact_budget, published_budget
from flmc.planning.plans import Plan
from flmc.settings.assembly import assemble
from flmc.settings.construction import engine_named
from flmc.settings.schema import Settings, merge

FEWEST_COMPARED = 5
"""Smallest number of experiments for a comparison with published values, which needs an estimate of
the standard deviation between experiments."""


@dataclass(frozen=True)
class CurvePoint:
    """Measurements of a curve at one SNR, over all experiments.

    Attributes
    ----------
    curve, snr_db
        Name of the curve, and SNR in dB.
    mean
        Squared W2 distance from the posterior, largest over kept rounds: geometric mean over
        experiments.
    log_sd
        Standard deviation over experiments of the logarithm of that distance; NaN for one
        experiment.
    pooled
        The same distance for the runs of all experiments taken as one large experiment, which is
        close to that of infinitely many runs.
    experiments
        Number of experiments of 100 runs.
    published
        The published distance; NaN where none was published.
    z
        Difference between the logarithm of the published distance and the mean logarithm of the
        experiments, divided by ``log_sd``; NaN without a published distance, or with fewer than 5
        experiments.
    """

    curve: str
    snr_db: float
    mean: float
    log_sd: float
    pooled: float
    experiments: int
    published: float = math.nan
    z: float = math.nan

    def to_dict(self) -> dict[str, Any]:
        """The point as a dictionary from column names to values, for a table."""
        return asdict(self)


@dataclass
class Study:
    """All results of reproducing the study: every curve at every SNR, and the values with which
    they are compared: ``floor`` and ``population`` are distances of an exact sampler and of
    Langevin Monte Carlo without a channel. ``experiments`` is the number of experiments of 100
    runs, ``seed`` that of all random numbers, and ``case`` holds the settings and data that all
    curves share. ``budgets`` are privacy budgets of a device, ``own_curves`` curves that the user
    added."""

    case: BaseCase
    seed: int
    experiments: int
    published: bool
    """Whether the published curves were found, so that measured values can be compared with
    them."""
    budgets: tuple[float, float]
    """Bound R on a device's privacy spending over a run: as published, and by the exact analysis of
    the Gaussian mechanism."""
    floor: float
    """Squared W2 distance from the posterior that 100 runs of an exact sampler have because they
    are finitely many: largest over kept rounds, averaged over simulated experiments. In every round
    the runs are independent draws of the posterior; from round to round a run is correlated like
    Langevin Monte Carlo."""
    population: float
    """Squared W2 distance from the posterior, largest over kept rounds, of infinitely many runs of
    Langevin Monte Carlo with exact gradients and without a channel."""
    own_curves: tuple[str, ...] = ()
    """Names of the curves that the user added."""
    points: list[CurvePoint] = field(default_factory=list)
    changed: bool = False
    """Whether the study was run with other settings than its published ones."""
    own_designs: Mapping[str, Design] = field(default_factory=dict)
    """The curves that the user added, by name."""

    @property
    def budget_db(self) -> float:
        """Ratio, in dB, of the bound R on a device's privacy spending by the exact analysis to the
        published one: the additional transmit power that the exact analysis allows."""
        return 10.0 * math.log10(self.budgets[1] / self.budgets[0])

    @property
    def snr_db(self) -> list[float]:
        """SNRs in dB of the measured points, each once, in the order of measurement."""
        return list(dict.fromkeys(point.snr_db for point in self.points))

    @property
    def curves(self) -> list[str]:
        """Names of the curves in the order in which they were measured."""
        return list(dict.fromkeys(point.curve for point in self.points))

    def at(self, curve: str, snr_db: float) -> CurvePoint:
        """The measured point of the curve with this name at an SNR in dB."""
        return next(p for p in self.points if p.curve == curve and p.snr_db == snr_db)

    @property
    def why_not_compared(self) -> str:
        """Clause with the reason why measured values are not compared with the published ones. It
        is meaningful only if they are not."""
        if self.changed:
            return "the base case was changed (--set)"
        if not self.published:
            return "that needs the published data and curves (--data-file)"
        return f"that needs {FEWEST_COMPARED} experiments at least, for their scatter"

    @property
    def largest_z(self) -> CurvePoint | None:
        """The point with the largest magnitude of ``z``: the difference between published and
        measured distance, in logarithms and in standard deviations between experiments. None if no
        point was compared."""
        compared = [point for point in self.points if not math.isnan(point.z)]
        return max(compared, key=lambda point: abs(point.z), default=None)

    def grid(self) -> Grid:
        """A table for the terminal: the squared W2 distance from the posterior of every curve
        (rows) at every SNR (columns), as in ``CurvePoint.mean``, and where a value was published, a
        row with its difference z: from the logarithm of the measured distance to that of the
        published one, in standard deviations between the experiments. Sentences below sum up the
        study."""
        rows = []
        for curve in self.curves:
            points = [self.at(curve, snr) for snr in self.snr_db]
            rows.append((curve, *(_two_digits(1e4 * point.mean) for point in points)))
            if not math.isnan(points[0].z):
                rows.append(("  z of print", *(f"{point.z:+.1f}" for point in points)))
        title = (
            f"squared W2 in 1e-4, largest over kept rounds, {self.experiments} experiments of"
            f" {NUM_RUNS} runs"
        )
        header = ("curve", *(f"{snr:g} dB" for snr in self.snr_db))
        return Grid(header, tuple(rows), title, tuple(self._summary()))

    def _summary(self) -> list[Row]:
        """Sentences that sum up the outcome of the study, as rows below the table of distances."""
        rows = [Row("", f"Data: {self.case.source}.")]
        worst = self.largest_z
        if worst is None:
            rows.append(Row("", f"Nothing is compared with print: {self.why_not_compared}."))
        else:
            rows.append(
                Row(
                    "",
                    "z of print: standard deviations from the mean of the experiments to the"
                    f" published value, in logarithms. The largest is {worst.z:+.2f},"
                    f" {worst.curve} at {worst.snr_db:g} dB.",
                )
            )
        rows.append(
            Row(
                "",
                f"{NUM_RUNS} runs of an exact sampler have {self.floor:.2g}; infinitely many runs"
                f" of noiseless Langevin Monte Carlo have {self.population:.3g}. The exact privacy"
                f" budget is {self.budget_db:.2f} dB above the published one.",
            )
        )
        return rows

    def to_document(self) -> dict[str, Any]:
        """All results of the study as plain values for JSON; unknown values are null."""
        return {
            "schema_version": ANSWER_VERSION,
            "experiments": self.experiments,
            "seed": self.seed,
            "version": VERSION,
            "data": self.case.source,
            "budget_published": self.budgets[0],
            "budget_exact": self.budgets[1],
            "budget_db": self.budget_db,
            "floor": self.floor,
            "population": self.population,
            "points": [
                {
                    name: None if isinstance(value, float) and math.isnan(value) else value
                    for name, value in point.to_dict().items()
                }
                for point in self.points
            ],
        }


def _two_digits(value: float) -> str:
    """A number as text, with two significant digits below 99.5 and as a whole number from there
    on."""
    return f"{value:.2g}" if value < 99.5 else f"{value:.0f}"


DIGITAL_SLOPES = (0.05, 0.2)
"""Slope parameters of the sigmoid link in flmc's digital curves: that of the quantised scheme's
paper, and one that suits the 30 devices of this study."""
_INHERITED = ("clip", "fading", "noise_power", "scope", "epsilon", "run_delta", "rounds", "burn_in")


@dataclass(frozen=True)
class Design:
    """A curve that the study did not publish: settings with which flmc plans and runs chains at
    every SNR of the study.

    Attributes
    ----------
    name
        Name of the curve.
    settings
        Settings of the plans, except for the SNR.
    own_rule
        Whether the scheduler in the settings chooses the active devices; False: the study's rule
        does.
    """

    name: str
    settings: Settings
    own_rule: bool = False

    @property
    def described(self) -> str:
        """The settings of this curve as text, including those that it inherits from the study, and
        the study's rule for the active devices if that is used."""
        rule = {} if self.own_rule else {"scheduling": "= the study's rule"}
        return settings_in_words(self.settings, {"snr_db": "", **rule})

    def has_channel_of(self, case: BaseCase) -> bool:
        """Whether this curve can be run with the path gains and active devices of the study: it
        must have the same fading, rounds, channel estimation and modulation, and no scheduler of
        its own."""
        names = ("fading", "rounds", "csi_error", "modulation")
        same = all(getattr(self.settings, name) == getattr(case.settings, name) for name in names)
        return same and not self.own_rule

    def plan(self, case: BaseCase, snr_db: float) -> Plan:
        """flmc's plan for the settings of this curve at an SNR in dB and the study's data;
        ``InvalidSetting``, with the name of the curve and the SNR, if no plan is possible."""
        changed: dict[str, object] = {"snr_db": snr_db}
        if not self.own_rule:
            changed["scheduling"] = f"wflmc:{snr_db}"
        settings = self.settings.model_copy(update=changed)
        try:
            return assemble(settings, case.model).plan(forecast=False)
        except InvalidSetting as error:
            raise InvalidSetting(f"curve {self.name!r} at {snr_db:g} dB: {error}") from error


def flmc_designs(case: BaseCase, changes: dict[str, str]) -> list[Design]:
    """The curves that flmc adds to the study: the digital scheme, with the slope parameters in
    ``DIGITAL_SLOPES`` or with the link or slope parameter in ``changes``; and the analog scheme
    with the step size that flmc chooses."""
    link: dict[str, Any] = {
        name: changes[name] for name in ("link", "slope_parameter") if name in changes
    }
    base = {name: getattr(case.settings, name) for name in _INHERITED}
    if link:
        chosen = merge({**base, "scheme": "digital"}, link)
        digital = [Design(f"digital, {chosen.link}", chosen)]
    else:
        digital = [
            Design(f"digital, a = {a:g}", merge({**base, "slope_parameter": a}, {}))
            for a in DIGITAL_SLOPES
        ]
    analog = {**base, "scheme": "analog", "clipping": case.settings.clipping}
    return [*digital, Design("analog, own step", merge(analog, {}))]


def read_design(name: str, path: Path, case: BaseCase) -> Design:
    """The curve ``name`` that a user adds, with the settings in the TOML file at ``path``. Settings
    that the file does not have come from the study: privacy budget, channel, rounds, the rule that
    chooses the active devices, and for an analog curve the kind of clipping."""
    base = {each: getattr(case.settings, each) for each in _INHERITED}
    settings = read_own_curve(name, path, base, own_axis="snr_db")
    if settings.scheme == "analog" and "clipping" not in settings.model_fields_set:
        settings = settings.model_copy(update={"clipping": case.settings.clipping})
    return Design(name, settings, own_rule="scheduling" in settings.model_fields_set)


FULL = 20
"""Number of experiments of 100 runs in the full study."""
MOST_ADAPTIVE = 10
"""Largest number of experiments with adaptive gains, because each of them requires the solution of
100 convex programs at every SNR."""


def conduct(request: StudyRequest) -> Study:
    """Measure every curve in experiments of 100 runs, and compare it with the published values if
    they are in the directory of the request's data file and no setting is changed."""
    experiments = FULL if request.experiments is None else request.experiments
    checks.at_least("experiments", experiments, 1)
    engine = engine_named(request.engine)
    case = make_base_case(request.changes, request.data_file, request.seed, NUM_RUNS * experiments)
    published = None
    if request.data_file is not None and not request.changes:
        published = read_published(request.data_file)
    own = [read_design(name, path, case) for name, path in request.curves.items()]
    designs = _planned([*flmc_designs(case, dict(request.changes)), *own], case)
    laboratory = Laboratory(case, request.seed, engine)
    settings = case.settings
    budgets = tuple(
        budget(settings.epsilon, settings.run_delta) for budget in (published_budget, exact_budget)
    )
    study = Study(
        case,
        request.seed,
        experiments,
        published is not None,
        (budgets[0], budgets[1]),
        laboratory.floor,
        laboratory.population,
        tuple(request.curves),
        changed=bool(request.changes),
        own_designs={each.name: each for each in own},
    )
    measured = _Measurements(study, laboratory, published)
    _measure_noiseless(measured, request)
    _measure_allocations(measured, request)
    _measure_designs(measured, designs, request)
    return study


def _planned(designs: Sequence[Design], case: BaseCase) -> list[tuple[Design, list[Plan]]]:
    """Each curve of ``designs`` with its plans at all SNRs. All plans are made before any chain is
    run, so that an impossible curve fails early: ``InvalidSetting``, also for a name that is
    already in use."""
    plans: list[tuple[Design, list[Plan]]] = []
    for design in designs:
        if design.name in (*CURVES, "static, exact budget", *(each.name for each, _ in plans)):
            raise InvalidSetting(
                f"a curve {design.name!r} is there already; give yours another name"
            )
        plans.append((design, [design.plan(case, snr) for snr in SNR_DB]))
    return plans


@dataclass
class _Measurements:
    """Computes distances from the posterior from the thetas of runs, and adds them to ``study`` as
    points of its curves, with the values in ``published`` (None: nothing to compare with)."""

    study: Study
    laboratory: Laboratory
    published: Published | None

    def add(self, curve: str, snr_db: Sequence[float], thetas: Array) -> None:
        """Add points to a curve at the given SNRs in dB, all with the same distance, which is
        computed from the thetas of all runs in kept rounds, (run, kept, dim). There are several
        SNRs if the curve does not depend on the SNR."""
        distances = self.laboratory.worst_distances(thetas)
        pooled = self.laboratory.worst_distance(thetas)
        logs = np.log(distances)
        sd = float(logs.std(ddof=1)) if len(logs) > 1 else math.nan
        for snr in snr_db:
            printed = (self.published or {}).get(curve, {}).get(snr, math.nan)
            compared = sd > 0 and len(logs) >= FEWEST_COMPARED
            z = (math.log(printed) - float(logs.mean())) / sd if compared else math.nan
            self.study.points.append(
                CurvePoint(
                    curve,
                    snr,
                    float(np.exp(logs.mean())),
                    sd,
                    pooled,
                    len(distances),
                    printed,
                    z,
                )
            )


def _measure_noiseless(measured: _Measurements, request: StudyRequest) -> None:
    """Measure the study's two curves without fading and power limit, with and without privacy,
    which do not depend on the SNR, and add their points to the study."""
    report = request.stage("without a channel")
    laboratory, study = measured.laboratory, measured.study
    measured.add("noiseless without DP", SNR_DB, laboratory.run_ideal())
    report(0.5)
    exact = Allocations.noiseless(study.case)
    gain = np.sqrt(exact.adaptive(study.budgets[0]))
    measured.add("noiseless with DP", SNR_DB, laboratory.run(gain, exact.active))
    report(1.0)


def _measure_allocations(measured: _Measurements, request: StudyRequest) -> None:
    """Measure the study's curves over fading channels (without privacy, static and adaptive gains),
    and static gains with the privacy budget of the exact analysis, at every SNR, and add their
    points to the study."""
    report = request.stage("analog over fading channels")
    laboratory, study = measured.laboratory, measured.study
    published, exact = study.budgets
    few = NUM_RUNS * min(study.experiments, MOST_ADAPTIVE)
    rows: list[tuple[str, float, Array]] = []
    for index, snr in enumerate(SNR_DB):
        active = laboratory.channels.active(snr).astype(np.float64)
        allowed = Allocations.of(study.case, snr, laboratory.channels.fading, active)
        first = Allocations(study.case, allowed.largest[:few], active[:few])
        # Adaptive gains are computed for the first ``few`` runs only. ``laboratory.run`` needs
        # gains for all runs, so those of the last computed run are repeated for the others, whose
        # results are dropped below.
        adaptive = np.pad(
            first.adaptive(published), ((0, laboratory.num_runs - few), (0, 0)), mode="edge"
        )
        for curve, squared, kept in (
            ("without DP", allowed.largest, laboratory.num_runs),
            ("static", allowed.static(published), laboratory.num_runs),
            ("adaptive", adaptive, few),
            ("static, exact budget", allowed.static(exact), laboratory.num_runs),
        ):
            rows.append((curve, snr, laboratory.run(np.sqrt(squared), active)[:kept]))
        report((index + 1) / len(SNR_DB))
    for curve in dict.fromkeys(row[0] for row in rows):
        for name, snr, thetas in rows:
            if name == curve:
                measured.add(curve, (snr,), thetas)


def _measure_designs(
    measured: _Measurements, designs: Sequence[tuple[Design, list[Plan]]], request: StudyRequest
) -> None:
    """Run the plans of the curves that flmc and the user add, at every SNR, and add their points to
    the study."""
    report = request.stage("digital, and plans of flmc's own")
    laboratory = measured.laboratory
    for index, (design, plans) in enumerate(designs):
        shares = design.has_channel_of(laboratory.case)
        for place, (snr, planned) in enumerate(zip(SNR_DB, plans, strict=True)):
            thetas = laboratory.run_plan(planned, snr if shares else None)
            measured.add(design.name, (snr,), thetas)
            report((index + (place + 1) / len(SNR_DB)) / len(designs))
