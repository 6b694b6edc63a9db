"""The study behind `flmc reproduce --paper wflmc`: every curve at every SNR, replicated, and plans
of flmc's own in its setting."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from flmc.base import checks
from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.papers.request import StudyRequest, read_own_curve
from flmc.papers.wflmc.allocation import Allocations, exact_budget, published_budget
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
from flmc.papers.wflmc.results import FEWEST_COMPARED, Point, Study
from flmc.planning.plans import Plan
from flmc.sampling.engines import ENGINES
from flmc.settings.assembly import assemble
from flmc.settings.schema import Settings, merge

# Plans of flmc's own in the study's setting: the digital scheme, which nobody has published there,
# and analog with a step that suits its noise.
#
# Rounds, burn-in, channel, rule of who transmits and budget of the run are the study's. The planner
# chooses gain and step, with the exact accountant and noise of the right size, from the curvature
# of the data, as the study's step is.


DIGITAL_SLOPES = (0.05, 0.2)
"""Slopes of the sigmoid link: that of the quantised scheme's paper, and one that suits this study's
30 devices."""
_INHERITED = ("clip", "fading", "noise_power", "scope", "epsilon", "run_delta", "rounds", "burn_in")


@dataclass(frozen=True)
class Design:
    """Settings that are planned and run at every SNR of the study.

    Attributes
    ----------
    name
        Of the curve.
    settings
        What is planned, but for the SNR.
    own_rule
        Whether the settings say who transmits; else it is the study's rule.
    """

    name: str
    settings: Settings
    own_rule: bool = False

    @property
    def described(self) -> str:
        """The settings in words, those of the study that it has included."""
        given = self.settings.model_dump(exclude_unset=True, mode="json")
        words = [f"{name} = {value}" for name, value in given.items()]
        rule = "" if self.own_rule else "; who transmits: the study's rule"
        return ", ".join(words) + rule

    def has_channel_of(self, case: BaseCase) -> bool:
        """Whether its channels and its active devices are those of the study.

        Parameters
        ----------
        case
            The base case.
        """
        names = ("fading", "rounds", "csi_error", "modulation")
        same = all(getattr(self.settings, name) == getattr(case.settings, name) for name in names)
        return same and not self.own_rule

    def plan(self, case: BaseCase, snr_db: float) -> Plan:
        """The plan at an SNR.

        Parameters
        ----------
        case
            The base case.
        snr_db
            Largest SNR.
        """
        changed: dict[str, object] = {"snr_db": snr_db}
        if not self.own_rule:
            changed["scheduling"] = f"wflmc:{snr_db}"
        settings = self.settings.model_copy(update=changed)
        try:
            return assemble(settings, case.model).plan(forecast=False)
        except InvalidSetting as error:
            raise InvalidSetting(f"curve {self.name!r} at {snr_db:g} dB: {error}") from error


def flmc_designs(case: BaseCase, changes: dict[str, str]) -> list[Design]:
    """The digital scheme at two slopes, or with the link that was asked for, and analog.

    Parameters
    ----------
    case
        The base case.
    changes
        Settings that were changed, of which ``link`` and ``slope_parameter`` count.
    """
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
    """A user's own curve, from a file of settings.

    Parameters
    ----------
    name
        Of the curve.
    path
        TOML file with settings; the study's budget, channel and rounds hold where it says nothing,
        its clipping by norm if the scheme is analog, and its rule of who transmits.
    case
        The base case.
    """
    base = {each: getattr(case.settings, each) for each in _INHERITED}
    settings = read_own_curve(name, path, base, own_axis="snr_db")
    if settings.scheme == "analog" and "clipping" not in settings.model_fields_set:
        settings = settings.model_copy(update={"clipping": case.settings.clipping})
    return Design(name, settings, own_rule="scheduling" in settings.model_fields_set)


FULL = 20
"""Experiments of 100 runs in the full study."""
MOST_ADAPTIVE = 10
"""Experiments of the adaptive allocation at most: each is 100 convex programs at every SNR."""


def conduct(request: StudyRequest) -> Study:
    """Measure every curve, and compare it with print where that is there.

    Parameters
    ----------
    request
        What was asked; ``experiments`` are experiments of 100 runs.
    """
    experiments = FULL if request.experiments is None else request.experiments
    checks.at_least("experiments", experiments, 1)
    checks.one_of("engine", request.engine, ENGINES)
    case = make_base_case(request.changes, request.data_file, request.seed, NUM_RUNS * experiments)
    published = None
    if request.data_file is not None and not request.changes:
        published = read_published(request.data_file)
    own = [read_design(name, path, case) for name, path in request.curves.items()]
    designs = _planned([*flmc_designs(case, dict(request.changes)), *own], case)
    laboratory = Laboratory(case, request.seed, request.engine)
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
        own_settings={each.name: each.described for each in own},
    )
    measured = _Measured(study, laboratory, published)
    _measure_noiseless(measured, request)
    _measure_allocations(measured, request)
    _measure_designs(measured, designs, request)
    return study


def _planned(designs: Sequence[Design], case: BaseCase) -> list[tuple[Design, list[Plan]]]:
    """All designs with their plans at all SNR, before anything is simulated."""
    plans: list[tuple[Design, list[Plan]]] = []
    for design in designs:
        if design.name in (*CURVES, "static, exact budget", *(each.name for each, _ in plans)):
            raise InvalidSetting(
                f"a curve {design.name!r} is there already; give yours another name"
            )
        plans.append((design, [design.plan(case, snr) for snr in SNR_DB]))
    return plans


@dataclass
class _Measured:
    """Adds points to a study."""

    study: Study
    laboratory: Laboratory
    published: Published | None

    def add(self, curve: str, snr_db: Sequence[float], thetas: Array) -> None:
        """Add a curve at one SNR, or at several where it is the same, from the thetas of all
        runs."""
        distances = self.laboratory.worst_distances(thetas)
        pooled = self.laboratory.worst_distance(thetas)
        logs = np.log(distances)
        sd = float(logs.std(ddof=1)) if len(logs) > 1 else math.nan
        for snr in snr_db:
            printed = (self.published or {}).get(curve, {}).get(snr, math.nan)
            compared = sd > 0 and len(logs) >= FEWEST_COMPARED
            z = (math.log(printed) - float(logs.mean())) / sd if compared else math.nan
            self.study.points.append(
                Point(
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


def _measure_noiseless(measured: _Measured, request: StudyRequest) -> None:
    """The baselines without a channel, the same at every SNR."""
    report = request.stage("without a channel")
    laboratory, study = measured.laboratory, measured.study
    measured.add("noiseless without DP", SNR_DB, laboratory.run_ideal())
    report(0.5)
    exact = Allocations.noiseless(study.case)
    gain = np.sqrt(exact.adaptive(study.budgets[0]))
    measured.add("noiseless with DP", SNR_DB, laboratory.run(gain, exact.active))
    report(1.0)


def _measure_allocations(measured: _Measured, request: StudyRequest) -> None:
    """The study's three allocations over fading channels, and the static one with the exact
    budget."""
    report = request.stage("analog over fading channels")
    laboratory, study = measured.laboratory, measured.study
    published, exact = study.budgets
    few = NUM_RUNS * min(study.experiments, MOST_ADAPTIVE)
    rows: list[tuple[str, float, Array]] = []
    for index, snr in enumerate(SNR_DB):
        active = laboratory.channels.active(snr).astype(np.float64)
        allowed = Allocations.of(study.case, snr, laboratory.channels.fading, active)
        first = Allocations(study.case, allowed.largest[:few], active[:few])
        # Runs beyond those of the adaptive allocation repeat its last ones, and are dropped.
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
    measured: _Measured, designs: Sequence[tuple[Design, list[Plan]]], request: StudyRequest
) -> None:
    """Plans of flmc's own, and a user's own curves."""
    report = request.stage("digital, and plans of flmc's own")
    laboratory = measured.laboratory
    for index, (design, plans) in enumerate(designs):
        shares = design.has_channel_of(laboratory.case)
        for place, (snr, planned) in enumerate(zip(SNR_DB, plans, strict=True)):
            thetas = laboratory.run_plan(planned, snr if shares else None)
            measured.add(design.name, (snr,), thetas)
            report((index + (place + 1) / len(SNR_DB)) / len(designs))
