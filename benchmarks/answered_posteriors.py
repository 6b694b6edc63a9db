"""Answers against the regressions of posteriordb: `make answered` writes ``docs/answered.md``.

Data and reference draws that nobody here wrote, dealt to eight devices at random or sorted by
target. Each plan has the aim of an answer and leaves clip, link, step and burn-in to the planner;
some chains are run, and each is answered by itself. Where the data are missing (beside the
repository, see ``posteriors.py``), nothing is written."""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import subprocess
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")

import numpy as np

import flmc
from flmc.base.arrays import Array
from flmc.evaluation.answer import Answer
from flmc.views.reports import wrap_prose
from posteriors import DEALS, FOLDER, POSTERIORS, Posterior, Reference, posterior

NOT_REGRESSIONS = ("low_dim_gauss_mix", "eight_schools", "radon_mn", "wells_data")
REGRESSIONS = tuple(name for name in POSTERIORS if not name.startswith(NOT_REGRESSIONS))
ROUNDS, CHAINS, DRAWS, LEVEL = 2000, 12, 2000, 0.9
OFF = flmc.Limits(privacy="off")
UPLINKS: dict[str, tuple[flmc.Uplink, dict[str, Any]]] = {
    "analog": (flmc.Analog(snr_db=40.0), {"clip": "auto"}),
    "digital": (flmc.Digital(snr_db=25.0), {"clip": "auto", "link": "auto"}),
}


@dataclass(frozen=True)
class Row:
    """How far the answers of one posterior's chains are from the reference."""

    name: str
    deal: str
    scheme: str
    predicted: float | None
    """Width of the worst direction that the plan predicts."""
    mean: float
    """Largest difference over entries between the answers' means, averaged over chains, and the
    reference's, in reference standard deviations."""
    error: float
    """Standard error of that difference."""
    each: float
    """Root mean square, over chains and entries, of the difference of one answer's mean."""
    narrowest: float
    widest: float
    """Smallest and largest ratio over entries of the answers' median standard deviation to the
    reference's."""
    held: float
    """Share of the reference's draws inside 90 % intervals, mean over chains and entries."""
    doubts: str
    """Codes of the doubts, with the share of the chains that have them."""
    refused: str = ""

    def line(self) -> str:
        """A line of the table."""
        name = self.name.split("-", 1)[1]
        if self.refused:
            return f"| {name} | {self.deal} | {self.scheme} | | | | | | refused: {self.refused} |"
        width = "" if self.predicted is None else f"{self.predicted:.2f}"
        # A chain that left the posterior: nothing is to be read off the digits.
        if not max(abs(self.mean), self.widest) < 1e6:
            nothing = "beyond numbers | | |"
            return (
                f"| {name} | {self.deal} | {self.scheme} | {width} | {nothing}"
                f" {100 * self.held:.0f} % | {self.doubts or 'none'} |"
            )
        return (
            f"| {name} | {self.deal} | {self.scheme} | {width} |"
            f" {self.mean:+.2f} ± {self.error:.2f} | {self.each:.2f} |"
            f" {self.narrowest:.2f} to {self.widest:.2f} | {100 * self.held:.0f} % |"
            f" {self.doubts or 'none'} |"
        )


def answered(name: str, deal: str, scheme: str, rounds: int = ROUNDS, chains: int = CHAINS) -> Row:
    """Plan, run and answer one posterior."""
    given = posterior(name)
    uplink, settings = UPLINKS[scheme]
    model = given.model(deal)
    try:
        plan = flmc.plan(
            model, uplink, OFF, num_rounds=rounds, num_burn_in="auto", aim="answer", **settings
        )
        answer = flmc.run(plan, model, seed=1, chains=chains).posterior(by_chain=True)
    except flmc.errors.InvalidSetting as error:
        nothing = (float("nan"),) * 6
        return Row(name, deal, scheme, None, *nothing, "", str(error))
    predicted = None if plan.answer is None else plan.answer.width
    return _compared(given, name, deal, scheme, predicted, answer, model)


def _compared(
    given: Posterior,
    name: str,
    deal: str,
    scheme: str,
    predicted: float | None,
    answer: Answer,
    model: flmc.Model,
) -> Row:
    """The row of answers of several chains, against the reference in its own parameters."""
    reference = given.reference()
    with np.errstate(over="ignore"):  # an answer without a curvature and without a prior
        columns: Array = given.columns(model, answer.draws(DRAWS))  # type: ignore[arg-type]
    with np.errstate(invalid="ignore"):
        return _row(name, deal, scheme, predicted, answer, columns, reference)


def _row(
    name: str,
    deal: str,
    scheme: str,
    predicted: float | None,
    answer: Answer,
    columns: Array,
    reference: Reference,
) -> Row:
    """The row of answers whose draws are ``columns`` (chain, draw, entry)."""
    off = (columns.mean(axis=1) - reference.mean) / reference.sd
    mean, error = off.mean(axis=0), off.std(axis=0, ddof=1) / np.sqrt(len(off))
    worst = int(np.abs(mean).argmax())
    ratio = np.median(columns.std(axis=1), axis=0) / reference.sd
    ends = np.quantile(columns, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=1)
    draws = reference.draws[:, None]
    held = ((draws > ends[0]) & (draws < ends[1])).mean()
    codes = Counter(
        code
        for e in range(len(off))
        for code in {f.code for f in answer.findings_of(e) if f.light == "sampling"}
    )
    doubts = ", ".join(f"{code} {100 * count / len(off):.0f} %" for code, count in codes.items())
    return Row(
        name, deal, scheme, predicted, float(mean[worst]), float(error[worst]),
        float(np.sqrt(np.square(off).mean())), float(ratio.min()), float(ratio.max()),
        float(held), doubts,
    )  # fmt: skip


def page(rows: list[Row], seconds: float) -> str:
    """The page with all rows."""
    root = Path(__file__).resolve().parents[1]
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=root,
        check=False,
    ).stdout.strip()  # fmt: skip
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    return "\n".join(
        [
            "# Answers against posteriordb",
            "",
            f"Made on {today} by `make answered`, with the sources of commit {commit}:"
            f" {seconds / 60:.0f} minutes of processor time, {platform.system()}, Python"
            f" {platform.python_version()}.",
            "",
            "Every regression of posteriordb with reference draws, dealt to eight devices at random"
            f" (iid) or sorted by target; {ROUNDS} rounds with the aim of an answer, no privacy,"
            " analog at 40 dB and digital at 25 dB, all else left to the planner."
            f" {CHAINS} chains are run, and each is answered by itself. *Width* is the plan's"
            " prediction for the worst direction. *Mean* is the difference between the average of"
            " the answers' means and the reference's in the worst entry, in reference standard"
            " deviations with its standard error: a bias. *Each* is the root mean square difference"
            " of one answer's mean, which its width accounts for. *Sd* are the smallest and the"
            " largest ratio over entries of the answers' standard deviation to the reference's."
            " *Holds* is the share of the reference's draws inside 90 % intervals. Doubts are those"
            " that answers state, with the share of the chains.",
            "",
            "| posterior | dealt | scheme | width | mean | each | sd | holds | doubts |",
            "|---|---|---|---|---|---|---|---|---|",
            *(row.line() for row in rows),
            "",
        ]
    )


def main() -> None:
    """Answer the posteriors that were asked for; print their lines, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="posteriors whose name contains this")
    parser.add_argument("--out", type=Path, help="page to write")
    arguments = parser.parse_args()
    if not FOLDER.is_dir():
        print(f"the data of posteriordb are not in {FOLDER}: nothing to do")
        return
    began, rows = time.process_time(), []
    for name in REGRESSIONS:
        if arguments.only not in name:
            continue
        for deal in DEALS:
            for scheme in UPLINKS:
                rows.append(answered(name, deal, scheme))
                print(rows[-1].line(), f"{time.process_time() - began:.0f} s", flush=True)
    if arguments.out:
        text = page(rows, time.process_time() - began)
        # Headings and tables stay as they are; every other line is a paragraph.
        kept = (
            each if each.startswith(("#", "|")) or not each else wrap_prose(each)
            for each in text.split("\n")
        )
        arguments.out.write_text("\n".join(kept))


if __name__ == "__main__":
    main()
