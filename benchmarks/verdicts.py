"""Verdicts against the truth: `make verdicts` writes ``docs/verdicts.md``.

Two tables. The posteriors of posteriordb, dealt to eight devices at random and sorted by target,
digital and analog, planned with everything automatic and run, against reference draws. And random
regressions with plans of many kinds, good and bad, against exact posteriors."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from judging import Row

ROOT = Path(__file__).resolve().parents[1]
CHAINS = {"posteriors": 16, "regressions": 24}
"""Independent chains of each plan."""
NUM_REGRESSIONS = 200
_LIGHTS = ("good", "unknown", "warning", "infeasible")


def _prepare() -> None:
    """In a worker, before JAX is loaded: one thread each, and compiled code that is kept."""
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
    folder = Path(tempfile.gettempdir()) / "flmc-references" / "jax"
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(folder))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")


def posterior_rows(
    name: str,
    deal: str,
    schemes: Sequence[str] = ("digital", "analog"),
    chains: int = CHAINS["posteriors"],
) -> list[dict[str, Any]]:
    """One posterior, dealt in one way, over the named schemes; a refused plan is a row too."""
    import flmc
    from judging import SNR_DB, Distance, judge, planned
    from posteriors import posterior

    given = posterior(name)
    reference = given.reference()
    model = given.model(deal)

    def compare(draws: Any) -> Distance:
        columns = given.columns(model, draws)
        return Distance.measured(
            columns,
            reference.mean,
            reference.sd,
            reference.mean_error,
            reference.variance_error,
            reference.draws,
        )

    uplinks: dict[str, tuple[flmc.Uplink, dict[str, Any]]] = {
        "digital": (flmc.Digital(snr_db=SNR_DB), {"clip": "auto", "link": "auto"}),
        "analog": (flmc.Analog(snr_db=SNR_DB), {"clip": "auto"}),
    }
    rows = []
    for scheme in schemes:
        uplink, settings = uplinks[scheme]

        def make(uplink: Any = uplink, settings: Any = settings) -> Any:
            return planned(model, uplink, **settings)

        try:
            row = judge(name, deal, scheme, model, make, compare, chains)
        except flmc.errors.InvalidSetting as error:
            rows.append({"case": name, "deal": deal, "scheme": scheme, "refused": str(error)})
            continue
        rows.append(in_full(row))
    return rows


def regression_rows(seed: int, chains: int = CHAINS["regressions"]) -> list[dict[str, Any]]:
    """One random regression; no row where its plan is refused."""
    import flmc
    from judging import judge
    from random_regressions import draw

    case = draw(seed)
    name = f"{case.kind} {seed}"
    try:
        row = judge(name, case.deal, case.scheme, case.model, case.plan, case.compare, chains)
    except flmc.errors.InvalidSetting as error:
        return [{"case": name, "deal": case.deal, "scheme": case.scheme, "refused": str(error)}]
    return [in_full(row)]


def in_full(row: Row) -> dict[str, Any]:
    """A row as JSON, and whether the measurement shows what its plan warned of."""
    return {**asdict(row), "borne_out": row.distance.bears_out(row.plan_codes)}


def gather(
    jobs: Sequence[tuple[Callable[..., list[dict[str, Any]]], tuple[Any, ...]]], workers: int
) -> list[dict[str, Any]]:
    """Rows of all jobs in their order, made by some processes; each is told of on stderr."""
    rows, commit = [], _commit()
    with ProcessPoolExecutor(workers, get_context("spawn"), _prepare) as pool:
        waiting = [pool.submit(job, *arguments) for job, arguments in jobs]
        for each in waiting:
            for row in each.result():
                row["commit"] = commit
                print(in_a_line(row), file=sys.stderr, flush=True)
                rows.append(row)
    return rows


def in_a_line(row: dict[str, Any]) -> str:
    """A row for people who wait."""
    if "refused" in row:
        return f"{row['case']}: refused: {row['refused'][:120]}"
    d, p = row["distance"], row["predicted"]
    said = " ".join(f"{part} {row[part]}" for part in ("plan", "run", "server"))
    against = ",".join(row["plan_codes"] or row["run_codes"])
    return (
        f"{row['case'][:28]:28} {row['deal'][:34]:6} {row['scheme']:7} {said}"
        f" {'WRONG' if d['wrong'] else 'right'} mean {d['mean']:+.2f}±{d['mean_error']:.2f}"
        f" ({_number(p['shift'])}) var {d['variance']:.2f}±{d['variance_error']:.2f}"
        f" ({_number(p['smallest'])} to {_number(p['largest'])}) clipped {_number(p['clipped'])}"
        f" rounds {row['num_burn_in']}/{row['num_rounds']}"
        f" {row['planning_seconds']:.1f}/{row['seconds']:.1f} s [{against}]"
    )


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _whole(value: float | None) -> str:
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


def _confusion(rows: list[dict[str, Any]]) -> list[str]:
    """Verdict against measurement, for the plan, the run and the server."""
    lines = [
        "| who | " + " | ".join(f"{light}: right | wrong" for light in _LIGHTS) + " |"
        " false GOODs | unearned |",
        "|---|" + "---|" * (2 * len(_LIGHTS) + 2),
    ]
    for who in ("plan", "run", "server"):
        table = counts(rows, who)
        right = sum(n for key, n in table.items() if key.endswith("right"))
        good, bad = table.get("good right", 0), table.get("good wrong", 0)
        cells = [
            str(table.get(f"{light} {truth}", 0))
            for light in _LIGHTS for truth in ("right", "wrong")
        ]  # fmt: skip
        unearned = f"{right - good} of {right} ({100 * (right - good) / max(right, 1):.0f} %)"
        lines.append(f"| {who} | " + " | ".join(cells) + f" | {bad} of {good + bad} | {unearned} |")
    return lines


def _table(rows: list[dict[str, Any]]) -> list[str]:
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
        ratios = f"{_number(p['smallest'])} to {_number(p['largest'])}"
        lines.append(
            f"| {row['case']} | {row['deal']} | {row['scheme']} | {_said(row, 'plan')} |"
            f" {_said(row, 'run')} | {d['mean']:+.2f} ± {d['mean_error']:.2f} |"
            f" {_number(p['shift'])} | {d['variance']:.2f} ± {d['variance_error']:.2f} |"
            f" {d['direction']:.2f} | {ratios} | {d['draws']:.0f} | {_whole(p['draws'])} |"
            f" {clipped} | {row['num_rounds']} | {'wrong' if d['wrong'] else 'right'} |"
        )
    return lines


def _said(row: dict[str, Any], who: str) -> str:
    """A verdict with the codes behind it."""
    if row[who] == "good":
        return "GOOD"
    return f"{row[who]}: {', '.join(row[f'{who}_codes'])}"


def _summary(rows: list[dict[str, Any]]) -> str:
    """False GOODs of the plan with the bound that their number gives, and unearned warnings."""
    table = counts(rows, "plan")
    good, bad = table.get("good right", 0), table.get("good wrong", 0)
    right = sum(n for key, n in table.items() if key.endswith("right"))
    shown = sum(
        row["borne_out"]
        for row in rows
        if "refused" not in row and row["plan"] != "good" and not row["distance"]["wrong"]
    )
    total = sum(table.values())
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
    return _number(max(errors, default=None))


def page(parts: dict[str, list[dict[str, Any]]], seconds: float) -> str:
    """The page ``docs/verdicts.md``."""
    from flmc.views.reports import wrap_prose
    from judging import MOST_ROUNDS, SNR_DB

    # Rows that were made before may be of other commits.
    commits = " and ".join(dict.fromkeys(row["commit"] for rows in parts.values() for row in rows))
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    lines = [
        "# Verdicts against the truth",
        "",
        f"Made on {today} by `make verdicts`, with the sources of commit {commits}:"
        f" {seconds / 60:.0f} minutes of work on {os.cpu_count()} cores, {platform.system()},"
        f" Python {platform.python_version()}.",
        "",
        "A verdict that calls a plan GOOD must be earned. These tables hold the verdicts of plans,"
        " of runs and of a server without data against the truth. A chain is *wrong* if the mean"
        " of some parameter is off by more than 0.25 posterior standard deviations, or its variance"
        " by more than 25 %, in both cases plus three standard errors; a variance is judged on the"
        " scale of its logarithm as well, on which lost chains cannot hide behind the error that"
        " they make. A *false GOOD* is a wrong chain that was called GOOD; a warning is *unearned*"
        " if the chain is right. A chain counts as right where it is not shown to be wrong, so"
        " where errors are large both counts are kind to the planner's GOODs and hard on its"
        " warnings. A chain that is right may still have what was warned of: effective draws are"
        " those of one chain in the parameter that has fewest, and the worst direction is found"
        " with one half of chains and reference and measured with the other. Where that shows"
        " nothing of a variance that was warned of, it is measured in the direction of theta in"
        " which the plan predicts it, against a sampler with exact gradients and a tenth of the"
        " step.",
        "",
    ]
    if rows := parts.get("posteriors"):
        lines += [
            "## Posteriors of posteriordb",
            "",
            "Data and reference draws are those of posteriordb; two posteriors without reference"
            " draws (radon by county, wells) were sampled by NUTS of NumPyro. Models are written"
            " with `flmc.Model.from_log_density` in unconstrained coordinates, with features and"
            " target standardised; mesquite, sblrc, arK and diamonds, whose features are nearly"
            " collinear or predict nearly everything, and radon with its 90 entries are whitened"
            " by their Laplace approximation as well. Examples are dealt to eight devices, at"
            " random and sorted by target. Plans have automatic clip, link, step and rounds, no"
            f" privacy budget, and {SNR_DB:g} dB; where the automatic rounds exceed {MOST_ROUNDS},"
            f" that many are planned. {CHAINS['posteriors']} chains are run. Means and variances"
            " are those of the worst parameter, as posteriordb names them; predictions are those"
            " of the worst direction of theta, so at least as large. Radon was standardised only at"
            " first; its four chains were wrong and not called GOOD then, too.",
            "",
            _summary(rows),
            "",
            *_confusion(rows),
            "",
            *_table(rows),
            "",
        ]
    if rows := parts.get("regressions"):
        refused = sum("refused" in row for row in rows)
        lines += [
            "## Random regressions",
            "",
            f"{len(rows)} random regressions, linear and logistic, with 5 or 12 devices that are"
            " alike or not, 100 to 1000 examples, conditioning from 1 to about a hundred, both"
            " schemes, all links, clips by rule, too small and too large, examples clipped or not,"
            " 25 or 40 dB, rounds by rule or too few; seeds are fixed. The mix of cases was made"
            f" easier twice after 24 and 15 rows, so that more can be good. {refused} plans were"
            f" refused. {CHAINS['regressions']} chains of each are compared with the exact"
            " posterior.",
            "",
            _summary(rows),
            "",
            *_confusion(rows),
            "",
        ]
        for title, chosen in (
            ("False GOODs of the plan", false_goods(rows)),
            ("False GOODs of the run", false_goods(rows, "run")),
        ):
            if chosen:
                lines += [f"{title}:", "", *_table(chosen), ""]
    # Headings and tables stay as they are; every other line is a paragraph.
    return "\n".join(
        line if line.startswith(("#", "|")) or not line else wrap_prose(line) for line in lines
    )


def _commit() -> str:
    """Abbreviated commit of the tree, with a plus where sources were changed since."""

    def said(*words: str) -> str:
        return subprocess.run(words, cwd=ROOT, capture_output=True, text=True).stdout.strip()

    changed = said("git", "status", "--porcelain", "src")
    return (said("git", "rev-parse", "--short", "HEAD") or "unknown") + ("+" if changed else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=("posteriors", "regressions"))
    parser.add_argument("--names", nargs="*", default=[], help="beginnings of posteriors' names")
    parser.add_argument("--regressions", type=int, default=NUM_REGRESSIONS)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", type=Path, metavar="FILE", help="rows, too")
    parser.add_argument("--rows", type=Path, nargs="*", metavar="FILE", help="rows made before")
    parser.add_argument("--out", type=Path, metavar="FILE", help="the page")
    options = parser.parse_args()
    from posteriors import DEALS, POSTERIORS

    parts: dict[str, list[dict[str, Any]]] = {}
    for path in options.rows or ():
        parts |= json.loads(path.read_text())
    if options.rows is None and options.only != "regressions":
        names = [
            name for name in POSTERIORS
            if not options.names or name.startswith(tuple(options.names))
        ]  # fmt: skip
        # The largest first, so that no worker is left alone with it at the end.
        jobs = [(posterior_rows, (name, deal)) for name in reversed(names) for deal in DEALS]
        rows = gather(jobs, options.workers)
        parts["posteriors"] = sorted(rows, key=lambda row: names.index(row["case"]))
    if options.rows is None and options.only != "posteriors":
        seeds = range(options.regressions)
        parts["regressions"] = gather(
            [(regression_rows, (seed,)) for seed in seeds], options.workers
        )
    seconds = sum(row.get("seconds", 0.0) for rows in parts.values() for row in rows)
    if options.json is not None:
        options.json.write_text(json.dumps(parts, indent=1) + "\n")
    text = page(parts, seconds)
    if options.out is not None:
        options.out.write_text(text)
    for rows in parts.values():
        print(_summary(rows))
        for row in false_goods(rows):
            print("false GOOD:", in_a_line(row))


if __name__ == "__main__":
    main()
