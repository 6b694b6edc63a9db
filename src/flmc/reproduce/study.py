"""`flmc reproduce`: measure, judge, search, compare, and write it all down."""

from __future__ import annotations

import math
import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from flmc import checks
from flmc.data import draw_linear_statistics
from flmc.engines import ENGINES
from flmc.errors import InvalidSetting
from flmc.files import write_table
from flmc.linear import LinearGaussian
from flmc.reproduce import readings
from flmc.reproduce.beyond import BeyondRow, compare_beyond, power_gained_db
from flmc.reproduce.claims import CLAIMS, Figures, Verdict, judge
from flmc.reproduce.measure import Curves, Laboratory, measure, points_of
from flmc.reproduce.search import CHOICES, ErrorTable, Found, search
from flmc.reproduce.words import BEYOND_IN_WORDS, FIGURES_IN_WORDS, INTERVALS, REASON, SEARCH_IN_WORDS
from flmc.reproduce.write import Block, write_html, write_markdown
from flmc.version import VERSION

FIGURES = ("2", "3", "4", "beyond", "all")
FULL = 1000
BEYOND_EXPERIMENTS = 10
BEYOND_CHAINS = 30
SEARCH_EXPERIMENTS = 100
SEARCH_POINTS = 16

Stage = Callable[[str], Callable[[float], None]]
"""Names a stage and returns what reports its progress."""
Draw = Callable[["Study", Path], list[tuple[str, str]]]
"""Draws the pictures of a study into a directory; returns their PNG names and captions."""


@dataclass
class Study:
    """All results of a reproduction."""

    figures: tuple[str, ...]
    experiments: int
    seed: int
    trace: float
    curves: Curves = field(default_factory=Curves)
    verdicts: dict[str, dict[str, Verdict]] = field(default_factory=dict)
    """By reading, then by claim."""
    beyond: list[BeyondRow] = field(default_factory=list)
    found: list[Found] = field(default_factory=list)

    def to_document(self) -> dict[str, Any]:
        """Verdicts and what was found, for JSON."""
        return {
            "experiments": self.experiments,
            "seed": self.seed,
            "version": VERSION,
            "claims": {
                reading: {name: {"holds": v.holds, "value": v.value} for name, v in verdicts.items()}
                for reading, verdicts in self.verdicts.items()
            },
            "search": {
                "combinations": len(self.found),
                "most_claims": len(self.found[0].holds) if self.found else None,
            },
            "power_gained_db": power_gained_db(),
        }


def conduct(
    figure: str, experiments: int, seed: int, stage: Stage, *, data: str = "sufficient", engine: str = "auto"
) -> Study:
    """Measure what was asked for; the search only with all figures and at least 100 experiments."""
    if figure not in FIGURES:
        raise InvalidSetting(f"figure must be one of {', '.join(FIGURES)}; got {figure!r}")
    if experiments < 2:
        raise InvalidSetting(f"experiments must be at least 2, for standard errors, got {experiments}")
    wanted = ("2", "3", "4") if figure == "all" else (figure,) if figure != "beyond" else ()
    checks.one_of("engine", engine, ENGINES)

    def draw(count: int) -> LinearGaussian:
        return LinearGaussian(draw_linear_statistics(seed, num_experiments=count, kind=data))

    model = draw(experiments)
    trace = float(np.trace(model.posterior.covariance, axis1=1, axis2=2).mean())
    study = Study(wanted, experiments, seed, trace)
    if wanted:
        points = [point for number in wanted for point in points_of(number)]
        study.curves = measure(points, Laboratory(model, seed, engine), stage("figures"))
        study.verdicts = {reading.name: judge(_figures(study.curves, reading.name)) for reading in readings.READINGS}
    if figure in ("beyond", "all"):
        whole = experiments >= FULL
        few = draw(BEYOND_EXPERIMENTS if whole else 2)
        chains, every = (BEYOND_CHAINS, 1) if whole else (8, 2)
        study.beyond = compare_beyond(few, seed, chains, engine=engine, every=every, progress=stage("beyond"))
    if figure == "all" and experiments >= SEARCH_EXPERIMENTS:
        table = ErrorTable(draw(SEARCH_EXPERIMENTS), seed, SEARCH_POINTS, engine)
        table.fill(stage("errors for the search"))
        study.found = search(table, stage("search"))
    return study


def _figures(curves: Curves, reading: str) -> Figures:
    figures: dict[str, dict[str, Any]] = {}
    for figure, name, curve in curves.errors:
        if name == reading:
            figures.setdefault(figure, {})[curve] = curves.curve(figure, reading, curve)
    return figures


def write(study: Study, out: Path, command: str, draw: Draw) -> None:
    """CSV, PNG and PDF, report.md and report.html."""
    out.mkdir(parents=True, exist_ok=True)
    if study.curves.rows:
        write_table(out / "points.csv", [row.to_dict() for row in study.curves.rows])
        write_table(out / "claims.csv", _claim_rows(study))
    if study.beyond:
        write_table(out / "beyond.csv", [row.to_dict() for row in study.beyond])
    if study.found:
        write_table(out / "search.csv", [_found_row(found) for found in study.found])
    blocks = report(study, command, draw(study, out))
    write_markdown(out / "report.md", blocks)
    write_html(out / "report.html", blocks)


def _claim_rows(study: Study) -> list[dict[str, Any]]:
    return [
        {"reading": reading, "claim": v.claim, "statistic": v.statistic, "value": v.value, "verdict": v.word}
        for reading, verdicts in study.verdicts.items()
        for v in verdicts.values()
    ]


def _found_row(found: Found) -> dict[str, Any]:
    return {
        **vars(found.combination),
        "changes": found.changes,
        "claims": len(found.holds),
        "fails": "; ".join(_failing(found)),
    }


def _failing(found: Found) -> list[str]:
    return [name for name in CLAIMS if name not in found.holds]


def report(study: Study, command: str, pictures: Sequence[tuple[str, str]]) -> list[Block]:
    """The whole report as blocks."""
    blocks: list[Block] = [("title", "Reproduction of the paper's figures and claims")]
    preview = "" if study.experiments >= FULL else f" This is a preview: the full study has {FULL} experiments."
    versions = f"flmc {VERSION}, NumPy {np.__version__}, Python {platform.python_version()}"
    blocks.append(
        (
            "text",
            f"Made by `{command}` with seed {study.seed} and {study.experiments} experiments, {versions}.{preview}",
        )
    )
    if study.verdicts:
        blocks += _claims_section(study)
    blocks += [("heading", "Figures"), ("text", FIGURES_IN_WORDS)]
    blocks += [("picture", picture) for picture in pictures]
    if study.beyond:
        blocks += _beyond_section(study)
    if study.found:
        blocks += _search_section(study)
    return blocks


def _claims_section(study: Study) -> list[Block]:
    names = [reading.name for reading in readings.READINGS]
    words = "; ".join(f"`{reading.name}`: {reading.words}" for reading in readings.READINGS)
    header = ["claim", "decided by", *names]
    rows = []
    for key, first in next(iter(study.verdicts.values())).items():
        verdicts = [study.verdicts[name][key] for name in names]
        rows.append([first.claim, first.statistic, *(f"{v.word}: {v.value}" for v in verdicts)])
    held = {name: [v.claim for v in study.verdicts[name].values() if v.holds] for name in names}
    every = study.verdicts[names[0]]
    nowhere = [v.claim for key, v in every.items() if all(study.verdicts[name][key].holds is False for name in names)]
    lines = [f"Under `{name}` {len(held[name])} of {len(study.verdicts[name])} claims hold." for name in names]
    if nowhere:
        lines.append("Under none of the readings: " + "; ".join(nowhere) + ".")
    return [
        ("heading", "Claims"),
        ("text", f"The text leaves room, so every figure is drawn under three readings. {words}."),
        ("text", INTERVALS),
        ("table", (header, rows)),
        ("text", " ".join(lines)),
        ("text", _reason()),
    ]


def _reason() -> str:
    """Why digital cannot win at the printed steps, from the formulas alone."""
    step, slope, devices = 8.28e-3, 0.025, 20
    floor = step * devices / (2 * slope)
    literal = step * (devices + 2 / step) / (2 * slope)
    return REASON.format(floor=floor, literal=literal)


def _beyond_section(study: Study) -> list[Block]:
    header = [
        "sweep",
        "x",
        "scheme",
        "gain",
        "T",
        "rounds",
        "variance ratio",
        "W2 squared",
        "mean error squared",
        "eps round",
        "eps run",
    ]
    rows = [
        [
            "SNR, dB" if r.sweep == "snr_db" else "epsilon",
            f"{r.x:g}",
            r.scheme,
            f"{r.gain:.4g}",
            f"{r.temperature:.3g}",
            str(r.rounds),
            f"{r.variance_ratio:.3g} ± {r.variance_ratio_se:.1g}",
            f"{r.wasserstein2_squared:.3g} ± {r.wasserstein2_squared_se:.1g}",
            f"{r.mean_error_squared:.2g} ± {r.mean_error_squared_se:.1g}",
            "unbounded" if math.isinf(r.epsilon_round) else f"{r.epsilon_round:.3g}",
            f"{r.epsilon_run:.4g}",
        ]
        for r in study.beyond
    ]
    return [
        ("heading", "Beyond the paper"),
        ("text", BEYOND_IN_WORDS.format(decibels=power_gained_db())),
        ("table", (header, rows)),
    ]


def _search_section(study: Study) -> list[Block]:
    best = len(study.found[0].holds)
    most = [found for found in study.found if len(found.holds) == best]
    total = len(CLAIMS)
    if best == total:
        verdict = f"Under {len(most)} of {len(study.found)} combinations all {total} claims hold."
    else:
        place = f"under {len(most)} of {len(study.found)}"
        verdict = f"Under no combination do all {total} claims hold; the most is {best}, {place}."
    header = [*(name.replace("_", " ") for name in CHOICES), "claims", "fails"]
    rows = [
        [*map(str, vars(found.combination).values()), str(len(found.holds)), "; ".join(_failing(found))]
        for found in study.found[:15]
    ]
    named = {name.replace("_", " "): ", ".join(map(str, values)) for name, values in CHOICES.items()}
    choices = "; ".join(f"{name}: {values}" for name, values in named.items())
    how = SEARCH_IN_WORDS.format(choices=choices, experiments=SEARCH_EXPERIMENTS, points=SEARCH_POINTS)
    return [
        ("heading", "Search over what the text leaves open"),
        ("text", how),
        ("text", verdict),
        ("text", "The nearest, fewest changes first; all are in search.csv."),
        ("table", (header, rows)),
    ]
