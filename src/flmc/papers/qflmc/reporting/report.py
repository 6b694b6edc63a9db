"""The report of a reproduction: tables, pictures, and what they say, as Markdown and HTML."""

from __future__ import annotations

import math
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from flmc.base.version import VERSION
from flmc.papers.qflmc import readings
from flmc.papers.qflmc.beyond import power_gained_db
from flmc.papers.qflmc.claims import CLAIMS
from flmc.papers.qflmc.combinations import CHOICES
from flmc.papers.qflmc.reporting.figures import draw_study
from flmc.papers.qflmc.reporting.words import (
    BEYOND_IN_WORDS,
    FIGURES_IN_WORDS,
    INTERVALS,
    REASON,
    SEARCH_IN_WORDS,
)
from flmc.papers.qflmc.search import Found
from flmc.papers.qflmc.study import FULL, SEARCH_EXPERIMENTS, SEARCH_POINTS, Study
from flmc.runs.durable_files import write_table
from flmc.views.reports import Block, write_html, write_markdown


def write(study: Study, out: Path, command: str) -> None:
    """Write everything about a study into a directory: CSV, PNG and PDF, report.md and report.html.

    Parameters
    ----------
    study
        All results.
    out
        The directory; it is made if need be.
    command
        The command that made the study, for the report.
    """
    out.mkdir(parents=True, exist_ok=True)
    if study.curves.rows:
        write_table(out / "points.csv", [row.to_dict() for row in study.curves.rows])
        write_table(out / "claims.csv", _claim_rows(study))
    if study.beyond:
        write_table(out / "beyond.csv", [row.to_dict() for row in study.beyond])
    if study.found:
        write_table(out / "search.csv", [_found_row(found) for found in study.found])
    blocks = report(study, command, draw_study(study, out))
    write_markdown(out / "report.md", blocks)
    write_html(out / "report.html", blocks)


def _claim_rows(study: Study) -> list[dict[str, Any]]:
    """A row of the CSV for every claim under every reading."""
    return [
        {
            "reading": reading,
            "claim": v.claim,
            "statistic": v.statistic,
            "value": v.value,
            "verdict": v.word,
        }
        for reading, verdicts in study.verdicts.items()
        for v in verdicts.values()
    ]


def _found_row(found: Found) -> dict[str, Any]:
    """A row of the CSV for one combination of the search."""
    return {
        **vars(found.combination),
        "changes": found.changes,
        "claims": len(found.holds),
        "fails": "; ".join(_failing(found)),
    }


def _failing(found: Found) -> list[str]:
    """Names of the claims that do not hold under a combination."""
    return [name for name in CLAIMS if name not in found.holds]


def report(study: Study, command: str, pictures: Sequence[tuple[str, str]]) -> list[Block]:
    """The whole report as blocks.

    Parameters
    ----------
    study
        All results.
    command
        The command that made the study.
    pictures
        File name and caption of every picture.
    """
    blocks: list[Block] = [("title", "Reproduction of the paper's figures and claims")]
    preview = (
        ""
        if study.experiments >= FULL
        else f" This is a preview: the full study has {FULL} experiments."
    )
    versions = f"flmc {VERSION}, NumPy {np.__version__}, Python {platform.python_version()}"
    blocks.append(
        (
            "text",
            f"Made by `{command}` with seed {study.seed} and {study.experiments} experiments,"
            f" {versions}.{preview}",
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
    """The section on the claims: a table of verdicts, and what they amount to."""
    names = [reading.name for reading in readings.READINGS]
    words = "; ".join(f"`{reading.name}`: {reading.words}" for reading in readings.READINGS)
    header = ["claim", "decided by", *names]
    rows = []
    for key, first in next(iter(study.verdicts.values())).items():
        verdicts = [study.verdicts[name][key] for name in names]
        rows.append([first.claim, first.statistic, *(f"{v.word}: {v.value}" for v in verdicts)])
    held = {name: [v.claim for v in study.verdicts[name].values() if v.holds] for name in names}
    every = study.verdicts[names[0]]
    nowhere = [
        v.claim
        for key, v in every.items()
        if all(study.verdicts[name][key].holds is False for name in names)
    ]
    lines = [
        f"Under `{name}` {len(held[name])} of {len(study.verdicts[name])} claims hold."
        for name in names
    ]
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
    # The printed digital step; kappa = a/2 of the sigmoid with a = 0.05; K. With V_q = K and the
    # noise N_0/A^2 = 2/eta of the printed Langevin limit, T = eta (V_q + N_0/A^2)/(2 kappa).
    step, slope, devices = 8.28e-3, 0.025, 20
    floor = step * devices / (2 * slope)
    literal = step * (devices + 2 / step) / (2 * slope)
    return REASON.format(floor=floor, literal=literal)


def _beyond_section(study: Study) -> list[Block]:
    """The section on what a better design gains."""
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
    """The section on the search: how many combinations satisfy how many claims."""
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
        [
            *map(str, vars(found.combination).values()),
            str(len(found.holds)),
            "; ".join(_failing(found)),
        ]
        for found in study.found[:15]
    ]
    named = {
        name.replace("_", " "): ", ".join(map(str, values)) for name, values in CHOICES.items()
    }
    choices = "; ".join(f"{name}: {values}" for name, values in named.items())
    how = SEARCH_IN_WORDS.format(
        choices=choices, experiments=SEARCH_EXPERIMENTS, points=SEARCH_POINTS
    )
    return [
        ("heading", "Search over what the text leaves open"),
        ("text", how),
        ("text", verdict),
        ("text", "The nearest, fewest changes first; all are in search.csv."),
        ("table", (header, rows)),
    ]
