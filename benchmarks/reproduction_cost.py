"""What a reproduction costs: both studies in full, CPU seconds and peak memory of child processes,
medians."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

PAPERS = ("qflmc", "wflmc")


class Cost(NamedTuple):
    """What one process took, all its threads together: CPU of the user and of the system in
    seconds, and the largest memory in MB."""

    user: float
    system: float
    memory: float


def reproduce_once(paper: str, *settings: str) -> Cost:
    """Reproduce one study in a child process.

    Parameters
    ----------
    paper
        Name of the study.
    *settings
        Further words of the command line.

    Raises
    ------
    RuntimeError
        If the command fails.
    """
    # Without byte code on disk every start would compile all modules.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    with tempfile.TemporaryDirectory() as place:
        words = ["reproduce", "--paper", paper, "--out", str(Path(place) / "out"), *settings]
        # Not waited for by itself: wait4 below says what this child alone has used.
        process = subprocess.Popen(
            [sys.executable, "-m", "flmc", *words],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"flmc {' '.join(words)} ended with {process.returncode}")
    # Linux counts in kilobytes, macOS in bytes.
    unit = 1e6 if sys.platform == "darwin" else 1e3
    return Cost(used.ru_utime, used.ru_stime, used.ru_maxrss / unit)


def measure_reproduction(repeats: int) -> list[dict[str, Any]]:
    """Cost of both studies in full, each after a run that compiles; the two take turns.

    Parameters
    ----------
    repeats
        Runs of each study that count.

    Returns
    -------
    list of dict
        For each study: its name, repeats, median CPU seconds in all, of the user and of the system,
        the smallest CPU seconds, and the median of the largest memory in MB.
    """
    for paper in PAPERS:
        reproduce_once(paper)
    found: dict[str, list[Cost]] = {paper: [] for paper in PAPERS}
    for _ in range(repeats):
        for paper in PAPERS:
            found[paper].append(reproduce_once(paper))
    return [
        {
            "paper": paper,
            "repeats": repeats,
            "cpu_seconds": statistics.median(cost.user + cost.system for cost in costs),
            "user_seconds": statistics.median(cost.user for cost in costs),
            "system_seconds": statistics.median(cost.system for cost in costs),
            "least_cpu_seconds": min(cost.user + cost.system for cost in costs),
            "peak_memory_mb": statistics.median(cost.memory for cost in costs),
        }
        for paper, costs in found.items()
    ]


def main() -> None:
    """Measure, print a table, and write it as JSON if asked to."""
    from rendering.markdown import every_column as table

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    rows = measure_reproduction(options.repeats)
    print(table(rows))
    if options.json is not None:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
