"""Two commits against each other, case by case: `make bench-compare BASE=commit`.

The base is checked out into a temporary worktree. For each case two child processes, one with
either's sources and compiled code, take turns; the benchmarks' own code is that of now. Cases use
the public interface only, so that old commits run them."""

from __future__ import annotations

import argparse
import math
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from measuring.cases import Case, Worker

ROOT = Path(__file__).parents[1]

STANDARD = {"experiments": 1000}
CASES = {
    "kernel, digital": Case("kernel", STANDARD),
    "kernel, analog": Case("kernel", {**STANDARD, "scheme": "analog"}),
    "kernel, numpy": Case("kernel", {"experiments": 100, "engine": "numpy"}),
    "kernel, 1 chain": Case("kernel", {"experiments": 1}),
    "kernel, 1000 chains": Case("kernel", {"experiments": 1, "chains": 1000}),
    "kernel, dim 20": Case("kernel", {"experiments": 400, "dim": 20}),
    "kernel, dim 50": Case("kernel", {"experiments": 100, "dim": 50}),
    "kernel, dim 200": Case("kernel", {"experiments": 8, "dim": 200}),
    "kernel, 1000 devices": Case("kernel", {"experiments": 100, "devices": 1000}),
    "kernel, 10 000 rounds": Case("kernel", {"experiments": 8, "rounds": 10_000}),
    "run, digital": Case("run", STANDARD),
    "run, analog": Case("run", {**STANDARD, "scheme": "analog"}),
    "run, first of a model": Case("fresh run", STANDARD),
    "answer, digital": Case("answer", STANDARD),
    "answer, analog": Case("answer", {**STANDARD, "scheme": "analog"}),
    "plan": Case("plan", {"experiments": 1}),
    "start from the cache": Case("cached start", {}),
}
"""What is compared unless cases are named; compilation is part of the warm-up."""


@contextmanager
def checked_out(commit: str) -> Iterator[Path]:
    """A worktree of a commit, which is removed afterwards."""
    with tempfile.TemporaryDirectory() as place:
        tree = Path(place) / "base"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(tree), commit], check=True)
        try:
            yield tree
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)


def interval(ratios: Sequence[float]) -> tuple[float, float]:
    """Order statistics between which the median of the ratios lies, with about 95 % probability:
    of 7 the smallest and the largest, of 15 the 4th and the 12th."""
    count, ordered = len(ratios), sorted(ratios)
    # Probability that at most `left` of the ratios are on one side of the median.
    left, below = 0, 0.5**count
    while below + math.comb(count, left + 1) * 0.5**count <= 0.025 and left + 1 < count // 2:
        left += 1
        below += math.comb(count, left) * 0.5**count
    return ordered[left], ordered[-1 - left]


def compare(case: Case, trees: tuple[Path, Path], caches: tuple[Path, Path], repeats: int) -> str:
    """A line of the table: seconds of the base and of now, their ratio and its interval."""
    workers = [
        Worker(case, tree / "src", {"NUMBA_CACHE_DIR": str(cache)})
        for tree, cache in zip(trees, caches, strict=True)
    ]
    with workers[0] as base, workers[1] as now:
        for worker in workers:
            worker.turn(count=False)
        for turn in range(repeats):
            # Who comes first alternates too.
            for worker in workers if turn % 2 == 0 else reversed(workers):
                worker.turn()
        old, new = base.measured, now.measured
    if old.seconds is None or new.seconds is None:
        return f"base: {old.absent or 'runs'}; now: {new.absent or 'runs'}"
    ratios = [after / before for before, after in zip(old.times, new.times, strict=True)]
    low, high = interval(ratios)
    middle = statistics.median(ratios)
    memory = f"{old.peak_megabytes or 0:6.0f} {new.peak_megabytes or 0:6.0f}"
    times = f"{1e3 * old.seconds:10.3f} {1e3 * new.seconds:10.3f}"
    return f"{times} {middle:7.3f}  [{low:.3f}, {high:.3f}] {memory}"


def main() -> None:
    """Print the table; the exit code is 0 whatever came out."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base", default="HEAD", help="a commit")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--cases", default="", help="names, or beginnings of them, with semicolons")
    options = parser.parse_args()
    asked = [part.strip() for part in options.cases.split(";") if part.strip()]
    names = [name for name in CASES if not asked or any(name.startswith(each) for each in asked)]
    if not names:
        print(f"no such case; there are: {'; '.join(CASES)}")
        return
    try:
        with tempfile.TemporaryDirectory() as place, checked_out(options.base) as tree:
            caches = (Path(place) / "base", Path(place) / "now")
            print(f"now against {options.base}, CPU ms of all threads, {options.repeats} turns;")
            print("ratio now/base below 1 is faster; the last two are peaks of memory in MB\n")
            width = max(map(len, names))
            print(f"{'':{width}} {'base':>10} {'now':>10} {'ratio':>7}")
            for name in names:
                line = compare(CASES[name], (tree, ROOT), caches, options.repeats)
                print(f"{name:{width}} {line}", flush=True)
    except subprocess.CalledProcessError as error:
        print(f"cannot check out {options.base}: {error}", file=sys.stderr)


if __name__ == "__main__":
    main()
