"""The study behind `flmc reproduce --paper qflmc`: it measures the paper's figures, judges its
claims, searches over interpretations of its text, and compares its schemes with better ones."""

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
from flmc.papers.qflmc.best_designs import DELTA, best_cells
from flmc.papers.qflmc.best_section import Best
from flmc.papers.qflmc.best_trials import try_all
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
from flmc.papers.qflmc.information import thresholds
from flmc.papers.qflmc.landmarks import Landmarks, landmarks_of
from flmc.papers.qflmc.readings import BaseCase
from flmc.papers.request import StudyRequest, read_own_curve
from flmc.settings.construction import engine_named
from flmc.settings.schema import Settings

FIGURES = ("2", "3", "4", "beyond", "best", "all")
"""Values of a user's choice of figures: a figure of the paper, the comparison ``beyond`` the paper,
that of both schemes at their ``best``, or ``all``."""
FULL = 1000
"""Number of experiments (data sets) of the full study; a study with fewer is called a preview."""
BEYOND_EXPERIMENTS = 10
BEYOND_CHAINS = 30
FEWEST_TRIED = 20
"""Smallest number of data sets on which the best designs of both schemes are run; it is the number
of experiments of the study if that is larger."""
SEARCH_EXPERIMENTS = 100
SEARCH_POINTS = 16


@dataclass
class Study:
    """All results of reproducing the study: measured curves, verdicts on the paper's claims,
    measured values of the numbers that its text states (``landmarks``), the comparisons with better
    schemes (``beyond``) and of both schemes at their best (``best``), and the search over
    interpretations of its text (``combinations``).

    The ``experiments`` data sets and all chains are drawn with ``seed``; ``trace`` and
    ``exact_distance`` are the errors of exact posterior draws, for comparison. ``changes`` are
    settings that the user changed, ``own_curves`` curves that the user added."""

    figures: tuple[str, ...]
    """Numbers of the paper's figures that were measured."""
    experiments: int
    """Number of data sets at each point of a figure."""
    seed: int
    trace: float
    """Trace of the posterior covariance, averaged over data sets: the mean squared error of exact
    posterior draws."""
    exact_distance: float
    """Expected squared W2 distance from the posterior to a Gaussian that is fitted to independent
    posterior draws, as many as the kept rounds of a run."""
    curves: Curves = field(default_factory=Curves)
    verdicts: dict[str, dict[str, ClaimVerdict]] = field(default_factory=dict)
    """Verdicts on the paper's claims, by name of the reading (an interpretation of its text), then
    by name of the claim."""
    landmarks: dict[str, Landmarks] = field(default_factory=dict)
    """Measured values of the numbers that the paper's text states, by name of the reading (an
    interpretation of the text), then by name of the number."""
    beyond: list[BeyondRow] = field(default_factory=list)
    """Measurements of the paper's schemes and of schemes whose gain flmc calibrates for temperature
    1, at equal effective step size; the comparison is not in the paper. Empty if it was not
    asked for."""
    best: Best = field(default_factory=Best)
    """The comparison of both schemes, each with its best design at equal privacy of the run; empty
    if it was not asked for."""
    combinations: list[JudgedCombination] = field(default_factory=list)
    """Interpretations of the paper's text that were tried in the search, sorted by the number of
    the paper's claims that hold, largest first; empty if there was no search."""
    changes: Mapping[str, str] = field(default_factory=dict)
    """Values, by name, of the settings in which the study differs from the paper's base case. If
    there are any, no claims are judged."""
    own_curves: tuple[str, ...] = ()
    """Names of the curves that the user added."""
    own_settings: Mapping[str, Settings] = field(default_factory=dict)
    """Settings of each curve that the user added, by name of the curve. SNR and epsilon, which the
    figures vary, have the values that hold in figures that do not vary them."""

    def grid(self) -> Grid:
        """A table for the terminal: the verdict on every claim of the paper (rows) under every
        reading of its text (columns), followed by sentences that sum up the study."""
        if not self.verdicts:
            if self.best.cells:
                judged = tuple((v.claim, v.word) for v in self.best.verdicts().values())
                notes = (Row("", self.best.sentence()),)
                title = "claims of the paper at equal privacy of the run"
                return Grid(("claim", "each scheme at its best"), judged, title, notes)
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
        """Sentences that sum up the outcome of the study, as rows below the table of verdicts."""
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
        if self.best.cells:
            rows.append(Row("", self.best.sentence()))
        return rows

    def to_document(self) -> dict[str, Any]:
        """Verdicts on the paper's claims, measured values of the numbers in its text, and the
        outcome of the search over interpretations, as plain values for JSON."""
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
            "best": self.best.to_document(),
        }


def conduct(request: StudyRequest) -> Study:
    """Measure the requested figures, and judge the paper's claims.

    The comparison with calibrated schemes is made for the figures ``beyond`` and ``all``, that of
    both schemes with their best designs for ``best`` and ``all``; both are smaller in a preview
    (fewer than ``FULL`` experiments). The search over interpretations of the text is made for
    ``all`` with at least ``SEARCH_EXPERIMENTS`` experiments. If the request changes the base case,
    only the figures are measured, because the claims are about the paper's settings. Raises
    ``InvalidSetting`` for an impossible request."""
    figure, seed, data = request.figure, request.seed, request.data
    engine = engine_named(request.engine)
    experiments = FULL if request.experiments is None else request.experiments
    if figure not in FIGURES:
        raise InvalidSetting(f"figure must be one of {', '.join(FIGURES)}; got {figure!r}")
    if experiments < 2:
        raise InvalidSetting(
            f"experiments must be at least 2, for standard errors, got {experiments}"
        )
    wanted = ("2", "3", "4") if figure == "all" else (figure,) if figure in ("2", "3", "4") else ()

    if request.changes and not wanted:
        raise InvalidSetting(f"--set is for the figures 2, 3 and 4; figure {figure!r} has its own")
    base = BaseCase.changed(request.changes)
    own = {
        name: read_own_curve(name, path, _inherited(base)) for name, path in request.curves.items()
    }

    for name, each in own.items() if wanted == ("2",) else ():
        if "snr_db" in each.model_fields_set:
            raise InvalidSetting(
                f"snr_db of the curve {name!r} is the x axis of figure 2; leave it out of"
                f" {str(request.curves[name])!r}, got {each.snr_db:g}"
            )

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
        own_settings=own,
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
    if figure in ("best", "all"):
        whole = experiments >= FULL
        study.best.thresholds = thresholds(DELTA, whole)
        study.best.cells = best_cells(whole, request.stage("best designs"))
        study.best.trials = try_all(
            max(FEWEST_TRIED, experiments),
            seed,
            whole=whole,
            engine=engine,
            progress=request.stage("trials"),
        )
    if figure == "all" and experiments >= SEARCH_EXPERIMENTS:
        table = ErrorTable(draw(SEARCH_EXPERIMENTS), seed, SEARCH_POINTS, engine)
        study.combinations = search(table, request.stage("search"))
    return study


def _inherited(base: BaseCase) -> dict[str, Any]:
    """Settings of the base case, by name, that hold for a curve that the user adds, unless its file
    sets them. ``delta`` is that of the privacy budget of one round, as in the paper."""
    names = ("clip", "fading", "noise_power", "rounds", "burn_in", "start", "delta")
    return {name: getattr(base.settings, name) for name in names}


def _refuse_names(own: Mapping[str, Settings], points: list[FigurePoint]) -> None:
    """Raise ``InvalidSetting`` if a curve that the user adds (``own``) has the name of a curve of
    the paper (one of ``points``)."""
    taken = {point.curve for point in points}
    for name in own:
        if name in taken:
            raise InvalidSetting(f"a curve {name!r} is there already; give yours another name")


def _figures(curves: Curves, reading: str, own: Collection[str]) -> Figures:
    """The paper's curves under one reading of its text, by number of the figure, then by name of
    the curve. The curves named in ``own``, which the user added, are left out."""
    figures: dict[str, dict[str, Any]] = {}
    for figure, name, curve in curves.errors:
        if name == reading and curve not in own:
            figures.setdefault(figure, {})[curve] = curves.curve(figure, reading, curve)
    return figures
