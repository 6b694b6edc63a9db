"""The benchmarks: their page is made from their JSON, and their C reference computes what the
engine does. Nothing here looks at a time."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support import full, full_only

ROOT = Path(__file__).parents[2]
BENCHMARKS = ROOT / "benchmarks"

AGREE = """
import json, sys
from dataclasses import replace
import numpy as np
from flmc.sampling.simulation import simulate
from jobs.c_loop import Reference
from jobs.problem import Problem
from measuring.job import Absent

problem = Problem(scheme=sys.argv[1], experiments=int(sys.argv[2]))
try:
    found = Reference(problem).run()
except Absent as reason:
    sys.exit(print(json.dumps({"absent": str(reason)})))
plan = replace(problem.plan, draw_at="positions")  # what the loop in C adds up
chains = simulate(plan, problem.model, 0, engine=sys.argv[3])
kept = problem.plan.num_rounds - problem.plan.num_burn_in
rows, columns = np.tril_indices(problem.dim)
exact = np.linalg.inv(problem.model.posterior.covariance)
weights = exact[:, rows, columns] * np.where(rows == columns, 1, 2) / problem.dim / kept
products = chains.moments.products[:, 0, rows, columns]
print(json.dumps({
    # The Stein ratio of every experiment, from all products of two entries.
    "reference": (weights * found.products).sum(axis=1).tolist(),
    "engine": (weights * products).sum(axis=1).tolist(),
    "means": [(each.mean(axis=0) / kept).tolist() for each in
              (found.sums, chains.moments.sums[:, 0])],
    "spread": (found.sums.std(axis=0) / kept / len(found.sums) ** 0.5).tolist(),
    "clipped": found.num_clipped,
    "clipped by engine": [simulate(plan, problem.model, seed, engine=sys.argv[3])
                          .num_clipped for seed in range(20)],
}))
"""


def call(*words: str) -> str:
    """What a script of the benchmarks prints."""
    done = subprocess.run(
        [sys.executable, *words], cwd=BENCHMARKS, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_page_is_what_the_json_gives() -> None:
    call("tables.py", "--check")


@full_only
def test_a_page_that_differs_is_noticed(tmp_path: Path) -> None:
    """And made anew, with a picture beside it."""
    page = tmp_path / "scale.md"
    text = (ROOT / "docs" / "scale.md").read_text()
    page.write_text(text.replace("### The standard point", "### Another point"))
    check = [sys.executable, "tables.py", "--check", "--page", str(page)]
    assert subprocess.run(check, cwd=BENCHMARKS, capture_output=True).returncode == 1
    call("tables.py", "--page", str(page))
    assert page.read_text() == text
    assert (tmp_path / "scale" / "cost.png").stat().st_size > 10_000


@full_only
@pytest.mark.parametrize("scheme", ["digital", "analog"])
def test_the_c_reference_agrees_with_the_engine(scheme: str) -> None:
    """Means, second moments and the share of clipped entries, within 5 standard errors."""
    found = json.loads(call("-c", AGREE, scheme, str(full(1000, 200)), "auto"))
    if "absent" in found:
        pytest.skip(found["absent"])
    ratios = [found["reference"], found["engine"]]
    means = [sum(each) / len(each) for each in ratios]
    errors = [_variance(each) / len(each) for each in ratios]
    assert abs(means[0] - means[1]) < 5 * sum(errors) ** 0.5
    for first, second, spread in zip(*found["means"], found["spread"], strict=True):
        assert abs(first - second) < 5 * 2**0.5 * spread
    # Clipped entries come in clusters, because a chain moves little in a round, so their variance
    # is that of the engine with 20 seeds.
    clipped = found["clipped by engine"]
    mean = sum(clipped) / len(clipped)
    assert abs(found["clipped"] - mean) < 5 * (1.05 * _variance(clipped)) ** 0.5


def _variance(values: list[float]) -> float:
    mean = sum(values) / len(values)
    return sum((value - mean) ** 2 for value in values) / (len(values) - 1)


@full_only
def test_a_part_of_the_suite(tmp_path: Path) -> None:
    """Its JSON names the machine and neither a host nor a path, and has a row for every case, or
    why it was left out."""
    out = tmp_path / "rows.json"
    call("suite.py", "--parts", "limits", "--repeats", "1", "--quick", "--json", str(out))
    document: dict[str, Any] = json.loads(out.read_text())
    assert {"date", "processor", "versions", "commit"} <= set(document["machine"])
    assert len(document["limits"]) == 4
    for row in document["limits"]:
        assert row.get("absent") or row["billions_per_second"] > 0
    committed = (ROOT / "docs" / "scale" / "benchmark.json").read_text()
    assert "/home" not in committed
    assert "/tmp" not in committed


def test_the_interval_holds_the_median() -> None:
    """Of 7 ratios the smallest and the largest, of 15 the 4th and the 12th: by the binomial law
    they hold the median with at least 95 % probability, and the next inner ones do not."""
    code = (
        "import json; from compare import interval;"
        "print(json.dumps([interval(range(n)) for n in (1, 2, 6, 7, 15, 25)]))"
    )
    expected = [[0, 0], [0, 1], [0, 5], [0, 6], [3, 11], [7, 17]]
    assert json.loads(call("-c", code)) == expected


def test_comparing_commits_ends_well_whatever_came_out() -> None:
    said = call("compare.py", "--cases", "no such case")
    assert "there are: kernel, digital" in said
