"""Rows of verdicts against the truth: how processes make them, kept as lines of JSON, and the
tables that `make references` and `make verdicts` make of them."""

from __future__ import annotations

import datetime
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from judging import Row

ROOT = Path(__file__).resolve().parents[1]
_LIGHTS = ("good", "unknown", "warning", "infeasible")

Job = tuple[Callable[..., list[dict[str, Any]]], tuple[Any, ...]]
"""A function that makes rows, and its arguments."""


def _prepare() -> None:
    """In a worker, before JAX is loaded: one thread each, and compiled code that is kept."""
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
    folder = Path(tempfile.gettempdir()) / "flmc-references" / "jax"
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(folder))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")


def in_full(row: Row) -> dict[str, Any]:
    """A row as JSON, and whether the measurement shows what its plan warned of."""
    return {**asdict(row), "borne_out": row.distance.bears_out(row.plan_codes)}


def gather(jobs: Sequence[Job], workers: int, kept: Path | None = None) -> list[dict[str, Any]]:
    """Rows of all jobs in their order, made by some processes; each is told of on stderr.

    ``kept`` is a file to which every finished job is added, as one line of JSON. Those that it has
    already are not made again; without workers there are no others."""
    commit = commit_of_tree()
    made: dict[str, list[dict[str, Any]]] = {}
    if kept is not None and kept.exists():
        lines = map(json.loads, kept.read_text().splitlines())
        made = {line["job"]: line["rows"] for line in lines}
    names = [" ".join(map(str, (job.__name__, *arguments))) for job, arguments in jobs]
    if workers == 0:
        return [row for name in names for row in made.get(name, ())]
    with ProcessPoolExecutor(workers, get_context("spawn"), _prepare) as pool:
        waiting = {
            pool.submit(job, *arguments): name
            for name, (job, arguments) in zip(names, jobs, strict=True)
            if name not in made
        }
        for done in as_completed(waiting):
            name = waiting[done]
            made[name] = [{**row, "commit": commit} for row in done.result()]
            if kept is not None:
                with kept.open("a") as file:
                    file.write(json.dumps({"job": name, "rows": made[name]}) + "\n")
            for row in made[name]:
                print(in_a_line(row), file=sys.stderr, flush=True)
    return [row for name in names for row in made[name]]


def in_a_line(row: dict[str, Any]) -> str:
    """A row for people who wait."""
    if "refused" in row:
        return f"{row['case']}: refused: {row['refused'][:120]}"
    if "plan" not in row:
        return f"{row['case']}: {row}"
    d, p = row["distance"], row["predicted"]
    said = " ".join(f"{part} {row[part]}" for part in ("plan", "run", "server"))
    against = ",".join(row["plan_codes"] or row["run_codes"])
    return (
        f"{row['case'][:28]:28} {row['deal'][:34]:6} {row['scheme']:7} {said}"
        f" {'WRONG' if d['wrong'] else 'right'} mean {d['mean']:+.2f}±{d['mean_error']:.2f}"
        f" ({number(p['shift'])}) var {d['variance']:.2f}±{d['variance_error']:.2f}"
        f" ({number(p['smallest'])} to {number(p['largest'])}) clipped {number(p['clipped'])}"
        f" rounds {row['num_burn_in']}/{row['num_rounds']}"
        f" {row['planning_seconds']:.1f}/{row['seconds']:.1f} s [{against}]"
    )


def number(value: float | None) -> str:
    """A number with two digits; a dash where there is none."""
    return "-" if value is None else f"{value:.2f}"


def whole(value: float | None) -> str:
    """A whole number; a dash where there is none."""
    return "-" if value is None else f"{value:.0f}"


def counts(rows: Iterable[dict[str, Any]], who: str) -> dict[str, int]:
    """Rows by verdict and truth: ``good right``, ``good wrong``, and so on."""
    return Counter(
        f"{row[who]} {'wrong' if row['distance']['wrong'] else 'right'}"
        for row in rows
        if "refused" not in row
    )


def false_goods(rows: Iterable[dict[str, Any]], who: str = "plan") -> list[dict[str, Any]]:
    """Rows that were called good, and are wrong."""
    return [
        row for row in rows
        if "refused" not in row and row[who] == "good" and row["distance"]["wrong"]
    ]  # fmt: skip


def confusion(rows: list[dict[str, Any]]) -> list[str]:
    """Verdict against measurement, for the plan, the run and the server."""
    lines = [
        "| who | " + " | ".join(f"{light}: right | wrong" for light in _LIGHTS) + " |"
        " false GOODs | unearned |",
        "|---|" + "---|" * (2 * len(_LIGHTS) + 2),
    ]
    for who in ("plan", "run", "server"):
        count = counts(rows, who)
        right = sum(n for key, n in count.items() if key.endswith("right"))
        good, bad = count.get("good right", 0), count.get("good wrong", 0)
        cells = [
            str(count.get(f"{light} {truth}", 0))
            for light in _LIGHTS for truth in ("right", "wrong")
        ]  # fmt: skip
        unearned = f"{right - good} of {right} ({100 * (right - good) / max(right, 1):.0f} %)"
        lines.append(f"| {who} | " + " | ".join(cells) + f" | {bad} of {good + bad} | {unearned} |")
    return lines


def table(rows: list[dict[str, Any]]) -> list[str]:
    """Every row: what was said, predicted and measured."""
    lines = [
        "| posterior | deal | scheme | plan | run | mean off, sd | predicted | variance ratio |"
        " worst direction | predicted | draws | predicted | clipped | rounds | truth |",
        "|" + "---|" * 15,
    ]
    for row in rows:
        if "refused" in row:
            continue
        d, p = row["distance"], row["predicted"]
        clipped = "-" if p["clipped"] is None else f"{100 * p['clipped']:.1f} %"
        ratios = f"{number(p['smallest'])} to {number(p['largest'])}"
        lines.append(
            f"| {row['case']} | {row['deal']} | {row['scheme']} | {said(row, 'plan')} |"
            f" {said(row, 'run')} | {d['mean']:+.2f} ± {d['mean_error']:.2f} |"
            f" {number(p['shift'])} | {d['variance']:.2f} ± {d['variance_error']:.2f} |"
            f" {d['direction']:.2f} | {ratios} | {d['draws']:.0f} | {whole(p['draws'])} |"
            f" {clipped} | {row['num_rounds']} | {'wrong' if d['wrong'] else 'right'} |"
        )
    return lines


def said(row: dict[str, Any], who: str) -> str:
    """A verdict with the codes behind it."""
    if row[who] == "good":
        return "GOOD"
    return f"{row[who]}: {', '.join(row[f'{who}_codes'])}"


def summary(rows: list[dict[str, Any]]) -> str:
    """False GOODs of the plan with the bound that their number gives, and unearned warnings."""
    count = counts(rows, "plan")
    good, bad = count.get("good right", 0), count.get("good wrong", 0)
    right = sum(n for key, n in count.items() if key.endswith("right"))
    shown = sum(
        row["borne_out"]
        for row in rows
        if "refused" not in row and row["plan"] != "good" and not row["distance"]["wrong"]
    )
    total = sum(count.values())
    said = f"Of {total} plans {good + bad} were called GOOD, and {bad} of these are wrong"
    if not bad and good:
        said += f" (at 95 % the rate is below 3/{good} = {3 / good:.2g})"
    return (
        f"{said}; {total - right} plans are wrong in all. Of the {right} that are right,"
        f" {right - good} were not called GOOD ({100 * (right - good) / max(right, 1):.0f} %). In"
        f" {shown} of them the measurement shows what was warned of:"
        " fewer than 20 effective draws of a chain, or a variance in the worst direction below 0.85"
        f" or above 1.25 of the posterior's. Nothing is shown in {right - good - shown}"
        f" ({100 * (right - good - shown) / max(right, 1):.0f} %)."
        f" Standard errors of plans called GOOD are at most {_largest(rows, 'mean_error')} sd of a"
        f" mean and {_largest(rows, 'variance_error')} of a variance ratio, lost chains aside."
    )


def _largest(rows: list[dict[str, Any]], name: str) -> str:
    """Largest standard error of rows that are called GOOD and are not wrong: what could hide."""
    errors = [
        row["distance"][name] for row in rows
        if "refused" not in row and row["plan"] == "good" and not row["distance"]["wrong"]
    ]  # fmt: skip
    return number(max(errors, default=None))


def made_on(command: str, rows: Sequence[dict[str, Any]]) -> str:
    """The sentence that says when and where the rows of a page were made."""
    # Rows that were made before may be of other commits.
    commits = " and ".join(dict.fromkeys(row["commit"] for row in rows))
    seconds = sum(row.get("seconds", 0.0) for row in rows)
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    return (
        f"Made on {today} by `{command}`, with the sources of commit {commits}:"
        f" {seconds / 60:.0f} minutes of work on {os.cpu_count()} cores, {platform.system()},"
        f" Python {platform.python_version()}."
    )


def in_paragraphs(lines: Iterable[str]) -> str:
    """A page of these lines. Headings and tables stay as they are; every other line is a
    paragraph."""
    from flmc.views.reports import wrap_prose

    return "\n".join(
        line if line.startswith(("#", "|")) or not line else wrap_prose(line) for line in lines
    )


def commit_of_tree() -> str:
    """Abbreviated commit of the tree, with a plus where sources were changed since."""

    def said(*words: str) -> str:
        return subprocess.run(words, cwd=ROOT, capture_output=True, text=True).stdout.strip()

    changed = said("git", "status", "--porcelain", "src")
    return (said("git", "rev-parse", "--short", "HEAD") or "unknown") + ("+" if changed else "")
