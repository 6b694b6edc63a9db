"""The study behind `flmc reproduce`: measure the figures, judge the claims, search, and compare."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from flmc.base import checks
from flmc.base.documents import ANSWER_VERSION
from flmc.base.errors import InvalidSetting
from flmc.base.tables import Grid, Row
from flmc.base.version import VERSION
from flmc.data.synthetic import draw_linear_statistics
from flmc.evaluation.quality.against_posterior import distance_of_exact_draws
from flmc.models.linear import LinearGaussian
from flmc.papers.qflmc import readings
from flmc.papers.qflmc.beyond import KEPT, BeyondRow, compare_beyond, power_gained_db
from flmc.papers.qflmc.claims import Figures, Verdict, judge
from flmc.papers.qflmc.landmarks import Landmarks, landmarks_of
from flmc.papers.qflmc.points import Curves, Laboratory, measure, points_of
from flmc.papers.qflmc.search import ErrorTable, Found, search
from flmc.sampling.engines import ENGINES

FIGURES = ("2", "3", "4", "beyond", "all")
"""Names of figures that may be asked for."""
FULL = 1000
"""Experiments of the full study; fewer are a preview."""
BEYOND_EXPERIMENTS = 10
BEYOND_CHAINS = 30
SEARCH_EXPERIMENTS = 100
SEARCH_POINTS = 16

Stage = Callable[[str], Callable[[float], None]]
"""Names a stage and returns what reports its progress."""


@dataclass
class Study:
    """All results of a reproduction."""

    figures: tuple[str, ...]
    """Numbers of the figures that were measured."""
    experiments: int
    """Data sets per point."""
    seed: int
    trace: float
    """trace(Sigma), averaged over data sets: the MSE of exact posterior samples."""
    exact_distance: float
    """Expected squared W2 distance of as many independent posterior draws as a run keeps."""
    curves: Curves = field(default_factory=Curves)
    verdicts: dict[str, dict[str, Verdict]] = field(default_factory=dict)
    """Verdicts by reading, then by claim."""
    landmarks: dict[str, Landmarks] = field(default_factory=dict)
    """Numbers that the paper's text names, by reading."""
    beyond: list[BeyondRow] = field(default_factory=list)
    """The comparison of schemes beyond the paper."""
    found: list[Found] = field(default_factory=list)
    """What the search found, best first."""

    def grid(self) -> Grid:
        """A table with the verdict on every claim under every reading."""
        if not self.verdicts:
            return Grid(("claim",), (), "no claims were judged: they need the figures 2, 3 and 4")
        first = next(iter(self.verdicts.values()))
        rows = tuple(
            (verdict.claim, *(verdicts[key].word for verdicts in self.verdicts.values()))
            for key, verdict in first.items()
        )
        title = f"claims of the paper, {self.experiments} experiments"
        return Grid(("claim", *self.verdicts), rows, title, tuple(self._summary()))

    def _summary(self) -> list[Row]:
        """What came out, in sentences."""
        rows = [
            Row(
                "",
                "A claim is a sentence of the paper about its own figures; where it fails, these"
                " experiments do not confirm it. A reading is one way to take the paper's text,"
                " which leaves room:",
            )
        ]
        for reading in readings.READINGS:
            verdicts = self.verdicts[reading.name].values()
            held = sum(verdict.holds is True for verdict in verdicts)
            words = f"{reading.words}. {held} of {len(verdicts)} claims hold."
            rows.append(Row(reading.name, words))
        first = next(iter(self.verdicts.values()))
        for kind, holds in (("every", True), ("no", False)):
            same = [
                verdict.claim
                for key, verdict in first.items()
                if all(verdicts[key].holds is holds for verdicts in self.verdicts.values())
            ]
            if same:
                rows.append(Row("", f"Under {kind} reading: {'; '.join(same)}."))
        return rows

    def to_document(self) -> dict[str, Any]:
        """Verdicts and what the search found as plain values, for JSON."""
        return {
            "schema_version": ANSWER_VERSION,
            "experiments": self.experiments,
            "seed": self.seed,
            "version": VERSION,
            "claims": {
                reading: {
                    name: {"holds": v.holds, "value": v.value} for name, v in verdicts.items()
                }
                for reading, verdicts in self.verdicts.items()
            },
            "conjectures": [r.name for r in readings.READINGS if r.conjecture],
            "numbers": {
                reading: {name: list(values) for name, values in found.items()}
                for reading, found in self.landmarks.items()
            },
            "search": {
                "combinations": len(self.found),
                "most_claims": len(self.found[0].holds) if self.found else None,
            },
            "power_gained_db": power_gained_db(),
        }


def conduct(
    figure: str,
    experiments: int,
    seed: int,
    stage: Stage,
    *,
    data: str = "sufficient",
    engine: str = "auto",
) -> Study:
    """Measure what was asked for, and judge the claims.

    The comparison beyond the paper has more experiments and points in the full study; the search is
    done with all figures and at least 100 experiments only.

    Parameters
    ----------
    figure
        2, 3, 4, beyond or all.
    experiments
        Data sets per point, at least 2.
    seed
        Of all randomness.
    stage
        Names a stage and returns what reports its progress.
    data
        How data are drawn: `sufficient` statistics, or `examples`.
    engine
        What simulates.

    Returns
    -------
    Study
        All results.

    Raises
    ------
    InvalidSetting
        If there is no such figure or engine, or there are too few experiments for standard errors.
    """
    if figure not in FIGURES:
        raise InvalidSetting(f"figure must be one of {', '.join(FIGURES)}; got {figure!r}")
    if experiments < 2:
        raise InvalidSetting(
            f"experiments must be at least 2, for standard errors, got {experiments}"
        )
    wanted = ("2", "3", "4") if figure == "all" else (figure,) if figure != "beyond" else ()
    checks.one_of("engine", engine, ENGINES)

    def draw(count: int) -> LinearGaussian:
        return LinearGaussian(draw_linear_statistics(seed, num_experiments=count, kind=data))

    model = draw(experiments)
    trace = float(np.trace(model.posterior.covariance, axis1=1, axis2=2).mean())
    study = Study(wanted, experiments, seed, trace, distance_of_exact_draws(model.posterior, KEPT))
    if wanted:
        points = [point for number in wanted for point in points_of(number)]
        laboratory = Laboratory(model, seed, engine)
        study.curves = measure(points, laboratory, stage("figures"))
        for reading in readings.READINGS:
            curves = _figures(study.curves, reading.name)
            study.verdicts[reading.name] = judge(curves)
            study.landmarks[reading.name] = landmarks_of(reading, curves, laboratory)
    if figure in ("beyond", "all"):
        whole = experiments >= FULL
        few = draw(BEYOND_EXPERIMENTS if whole else 2)
        chains, every = (BEYOND_CHAINS, 1) if whole else (8, 2)
        study.beyond = compare_beyond(
            few, seed, chains, engine=engine, every=every, progress=stage("beyond")
        )
    if figure == "all" and experiments >= SEARCH_EXPERIMENTS:
        table = ErrorTable(draw(SEARCH_EXPERIMENTS), seed, SEARCH_POINTS, engine)
        table.fill(stage("errors for the search"))
        study.found = search(table, stage("search"))
    return study


def _figures(curves: Curves, reading: str) -> Figures:
    """The curves of all figures under one reading."""
    figures: dict[str, dict[str, Any]] = {}
    for figure, name, curve in curves.errors:
        if name == reading:
            figures.setdefault(figure, {})[curve] = curves.curve(figure, reading, curve)
    return figures
