"""The study behind `flmc reproduce --paper wflmc`: every curve at every SNR, replicated."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from flmc.base import checks
from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.papers.request import StudyRequest
from flmc.papers.wflmc.allocation import Allocations, exact_budget, published_budget
from flmc.papers.wflmc.base_case import NUM_RUNS, SNR_DB, BaseCase, make_base_case
from flmc.papers.wflmc.experiment import Laboratory
from flmc.papers.wflmc.own_designs import Design, flmc_designs, read_design
from flmc.papers.wflmc.published import CURVES, Published, read_published
from flmc.papers.wflmc.results import FEWEST_COMPARED, Point, Study
from flmc.planning.plans import Plan
from flmc.sampling.engines import ENGINES

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
