"""The study behind `flmc reproduce --paper qflmc`: figures, verdicts on claims, search, and the
comparison beyond the paper."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from flmc.base.documents import ANSWER_VERSION
from flmc.base.errors import InvalidSetting
from flmc.base.tables import Grid, Row
from flmc.base.version import VERSION
from flmc.evaluation.exact_posterior import distance_of_exact_draws
from flmc.models.linear import LinearGaussian
from flmc.papers.qflmc import readings
from flmc.papers.qflmc.better_designs import BeyondRow, compare_beyond, power_gained_db
from flmc.papers.qflmc.claims import ClaimVerdict, Figures, judge
from flmc.papers.qflmc.design_search import ErrorTable, JudgedCombination, search
from flmc.papers.qflmc.experiment import (
    Curves,
    FigurePoint,
    Laboratory,
    measure,
    own_points_of,
    points_of,
)
from flmc.papers.qflmc.landmarks import Landmarks, landmarks_of
from flmc.papers.qflmc.readings import BaseCase
from flmc.papers.request import StudyRequest, read_own_curve, settings_in_words
from flmc.settings.construction import engine_named
from flmc.settings.schema import Settings

FIGURES = ("2", "3", "4", "beyond", "all")
"""Names of figures, or of groups of figures, that a user can ask for."""
FULL = 1000
"""Number of experiments of the full study; fewer are a preview."""
BEYOND_EXPERIMENTS = 10
BEYOND_CHAINS = 30
SEARCH_EXPERIMENTS = 100
SEARCH_POINTS = 16


@dataclass
class Study:
    """All results of reproducing the study: measured curves, verdicts on claims, landmarks, the
    comparison beyond the paper, and the search over interpretations."""

    figures: tuple[str, ...]
    """Numbers of the figures that were measured."""
    experiments: int
    """Number of data sets at each point."""
    seed: int
    trace: float
    """trace(Sigma), averaged over data sets: the MSE of exact posterior samples."""
    exact_distance: float
    """Expected squared W2 distance of as many independent posterior draws as a run keeps."""
    curves: Curves = field(default_factory=Curves)
    verdicts: dict[str, dict[str, ClaimVerdict]] = field(default_factory=dict)
    """Verdicts on the paper's claims, by reading of its text and then by claim."""
    landmarks: dict[str, Landmarks] = field(default_factory=dict)
    """Values found for the numbers that the paper's text states, by reading, then by name."""
    beyond: list[BeyondRow] = field(default_factory=list)
    """Rows of the comparison with calibrated schemes, which goes beyond the paper."""
    combinations: list[JudgedCombination] = field(default_factory=list)
    """The interpretations of the paper's text that were tried, those with most claims first; empty
    without that search."""
    changes: Mapping[str, str] = field(default_factory=dict)
    """Settings of the base case that were changed: then no claims are judged."""
    own_curves: tuple[str, ...] = ()
    """Names of a user's own curves."""
    own_settings: Mapping[str, str] = field(default_factory=dict)
    """Settings of a user's own curves in words, by name."""

    def grid(self) -> Grid:
        """A table with the verdict on every claim under every reading."""
        if not self.verdicts:
            why = "they are about the base case" if self.changes else "they need the figures 2 to 4"
            return Grid(("claim",), (), f"no claims were judged: {why}")
        first = next(iter(self.verdicts.values()))
        rows = tuple(
            (verdict.claim, *(verdicts[key].word for verdicts in self.verdicts.values()))
            for key, verdict in first.items()
        )
        title = f"claims of the paper, {self.experiments} experiments"
        return Grid(("claim", *self.verdicts), rows, title, tuple(self._summary()))

    def _summary(self) -> list[Row]:
        """Rows below the table of verdicts that say the outcome of the study in sentences."""
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
        """The reproduction's verdicts, landmarks and outcome of the search as plain values, for
        JSON."""
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
                reading: {name: list(values) for name, values in marks.items()}
                for reading, marks in self.landmarks.items()
            },
            "search": {
                "combinations": len(self.combinations),
                "most_claims": len(self.combinations[0].holds) if self.combinations else None,
            },
            "power_gained_db": power_gained_db(),
        }


def conduct(request: StudyRequest) -> Study:
    """Measure the requested figures, and judge the paper's claims.

    The comparison beyond the paper has more experiments and points in the full study; the search
    over interpretations needs all figures and at least 100 experiments. With a changed base case
    only the figures are measured, because the claims are about the paper's base case.
    ``InvalidSetting`` for a request that is not possible."""
    figure, seed, data = request.figure, request.seed, request.data
    engine = engine_named(request.engine)
    experiments = FULL if request.experiments is None else request.experiments
    if figure not in FIGURES:
        raise InvalidSetting(f"figure must be one of {', '.join(FIGURES)}; got {figure!r}")
    if experiments < 2:
        raise InvalidSetting(
            f"experiments must be at least 2, for standard errors, got {experiments}"
        )
    wanted = ("2", "3", "4") if figure == "all" else (figure,) if figure != "beyond" else ()

    if request.changes and not wanted:
        raise InvalidSetting("--set is for the figures 2, 3 and 4; figure 'beyond' has its own")
    base = BaseCase.changed(request.changes)
    own = {
        name: read_own_curve(name, path, _inherited(base)) for name, path in request.curves.items()
    }

    def draw(count: int) -> LinearGaussian:
        return base.draw(count, seed, data)

    model = draw(experiments)
    trace = float(np.trace(model.posterior.covariance, axis1=1, axis2=2).mean())
    exact = distance_of_exact_draws(model.posterior, base.num_kept)
    study = Study(
        wanted,
        experiments,
        seed,
        trace,
        exact,
        changes=request.changes,
        own_curves=tuple(request.curves),
        own_settings={name: settings_in_words(each) for name, each in own.items()},
    )
    if wanted:
        points = [point for number in wanted for point in points_of(number, base)]
        _refuse_names(own, points)
        points += [
            p for n in wanted for name, each in own.items() for p in own_points_of(n, name, each)
        ]
        laboratory = Laboratory(model, seed, engine, base)
        study.curves = measure(points, laboratory, request.stage("figures"))
        for reading in () if request.changes else readings.READINGS:
            curves = _figures(study.curves, reading.name, own)
            study.verdicts[reading.name] = judge(curves)
            study.landmarks[reading.name] = landmarks_of(reading, curves, laboratory)
    if request.changes:
        return study
    if figure in ("beyond", "all"):
        whole = experiments >= FULL
        few = draw(BEYOND_EXPERIMENTS if whole else 2)
        chains, every = (BEYOND_CHAINS, 1) if whole else (8, 2)
        study.beyond = compare_beyond(
            few, seed, chains, engine=engine, every=every, progress=request.stage("beyond")
        )
    if figure == "all" and experiments >= SEARCH_EXPERIMENTS:
        table = ErrorTable(draw(SEARCH_EXPERIMENTS), seed, SEARCH_POINTS, engine)
        study.combinations = search(table, request.stage("search"))
    return study


def _inherited(base: BaseCase) -> dict[str, Any]:
    """The settings of the base case that a user's own curve has unless its file says otherwise. The
    privacy budget is per round, as in the paper."""
    names = ("clip", "fading", "noise_power", "rounds", "burn_in", "start", "delta")
    return {name: getattr(base.settings, name) for name in names}


def _refuse_names(own: Mapping[str, Settings], points: list[FigurePoint]) -> None:
    """Raise ``InvalidSetting`` if a user's own curve has the name of one of the paper's curves."""
    taken = {point.curve for point in points}
    for name in own:
        if name in taken:
            raise InvalidSetting(f"a curve {name!r} is there already; give yours another name")


def _figures(curves: Curves, reading: str, own: Collection[str]) -> Figures:
    """The paper's curves under one reading, by figure and name; the curves ``own``, which a user
    added, are left out."""
    figures: dict[str, dict[str, Any]] = {}
    for figure, name, curve in curves.errors:
        if name == reading and curve not in own:
            figures.setdefault(figure, {})[curve] = curves.curve(figure, reading, curve)
    return figures
