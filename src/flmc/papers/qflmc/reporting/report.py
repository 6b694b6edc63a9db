"""The report of a reproduction: tables, pictures, and what they say, as Markdown and HTML."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from flmc.base.version import VERSION
from flmc.papers.qflmc.reporting.figures import draw_study
from flmc.papers.qflmc.reporting.sections import (
    beyond_section,
    claims_section,
    contradiction_section,
    failing,
    landmarks_section,
    search_section,
)
from flmc.papers.qflmc.reporting.summary import summary
from flmc.papers.qflmc.reporting.words import FIGURES_IN_WORDS, PAPER
from flmc.papers.qflmc.search import Found
from flmc.papers.qflmc.study import FULL, Study
from flmc.runs.files.durable_files import write_table
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
    if study.verdicts:
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
        "fails": "; ".join(failing(found)),
    }


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
    preview = (
        ""
        if study.experiments >= FULL
        else f" This is a preview: the full study has {FULL} experiments."
    )
    versions = f"flmc {VERSION}, NumPy {np.__version__}, Python {platform.python_version()}"
    made = (
        f"Made by `{command}` with seed {study.seed} and {study.experiments} experiments,"
        f" {versions}.{preview}"
    )
    blocks: list[Block] = [
        ("title", "Reproduction of the paper's figures and claims"),
        ("text", PAPER),
        ("text", made),
    ]
    if study.changes:
        changed = ", ".join(f"{name} = {value}" for name, value in study.changes.items())
        blocks.append(
            (
                "text",
                f"The base case was changed: {changed}. The claims are about the paper's base"
                " case, so none is judged here.",
            )
        )
    if study.verdicts:
        blocks += summary(study)
        blocks += claims_section(study)
        blocks += [*landmarks_section(study), *contradiction_section()]
    blocks += [("heading", "Figures"), ("text", FIGURES_IN_WORDS)]
    blocks += [("picture", picture) for picture in pictures]
    if study.beyond:
        blocks += beyond_section(study)
    if study.found:
        blocks += search_section(study)
    return blocks
