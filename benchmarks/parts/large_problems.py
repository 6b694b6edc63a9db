"""Cost of a symbol against devices and entries, beside the machine's limits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from jobs.problem import Problem
from measuring.cases import Case, measure
from parts.limits import Limits

DIMS = (2, 5, 10, 20, 50, 100, 200, 500)
DEVICES = ((5, 5), (20, 5), (100, 5), (1000, 5), (2000, 20), (10_000, 5))
"""Devices and entries."""
_MOST, _FEWEST, _FEWEST_CHAINS = 1000, 8, 16
"""Experiments, or chains of one experiment."""
_WORK = 6e9
"""Operations of a case at most, unless there are too few experiments then."""
_NUMPY_SYMBOLS = 3e6
"""Symbols of the NumPy engine's runs at most: its cost is the same for every one of them."""
_QUICK = 3e8
"""Operations of a case in a quick run at most."""


def measure_large_problems(
    repeats: int, limits: Limits | None, quick: bool = False
) -> list[dict[str, Any]]:
    """One row for each problem; the cases of a series take turns."""
    rows = []
    for series, problems in _series(_QUICK if quick else _WORK):
        cases = {}
        for problem in problems:
            name = f"{series} {problem.devices} x {problem.dim}"
            cases[name] = Case("kernel", problem.arguments)
            if problem.chains == 1:
                few = _fewer(problem)
                cases[f"{name} numpy"] = Case("kernel", {**few.arguments, "engine": "numpy"})
        found = measure(cases, repeats)
        for problem in problems:
            name = f"{series} {problem.devices} x {problem.dim}"
            row = {"against": series, **_sizes(problem), **found[name].row}
            row |= _beside_limits(problem, found[name].seconds, limits)
            if f"{name} numpy" in found:
                numpy = found[f"{name} numpy"].seconds
                if numpy is not None:
                    row["numpy_ns_per_symbol"] = 1e9 * numpy / _fewer(problem).symbols
            rows.append(row)
    return rows


def _series(work: float) -> Iterator[tuple[str, list[Problem]]]:
    """Series by what they are against, with their problems."""
    standard = Problem(held=True)
    many = [_experiments(replace(standard, dim=dim), work) for dim in DIMS]
    yield "dim", [problem for problem in many if _operations(problem) <= 8 * work]
    one = [replace(standard, dim=dim, experiments=1) for dim in DIMS]
    one = [_chains(problem, work) for problem in one]
    yield "dim, chains", [problem for problem in one if _operations(problem) <= 8 * work]
    sizes = [replace(standard, devices=devices, dim=dim) for devices, dim in DEVICES]
    sizes = [_experiments(problem, work) for problem in sizes]
    yield "devices", [problem for problem in sizes if _operations(problem) <= 8 * work]


def _operations(problem: Problem) -> float:
    """Multiplications and additions of all gradients of a run."""
    return 2.0 * problem.symbols * problem.dim


def _experiments(problem: Problem, work: float) -> Problem:
    """As many experiments, whole blocks of 8, as the work allows."""
    count = int(work / _operations(replace(problem, experiments=1)))
    return replace(problem, experiments=max(_FEWEST, min(count, _MOST) // 8 * 8))


def _chains(problem: Problem, work: float) -> Problem:
    """As many chains of one experiment as the work allows."""
    count = int(work / _operations(replace(problem, chains=1)))
    return replace(problem, chains=max(_FEWEST_CHAINS, min(count, _MOST) // 8 * 8))


def _fewer(problem: Problem) -> Problem:
    """The same with so few experiments that the NumPy engine is bearable."""
    each = problem.symbols / problem.experiments
    return replace(
        problem, experiments=max(1, min(problem.experiments, int(_NUMPY_SYMBOLS / each)))
    )


def _sizes(problem: Problem) -> dict[str, int]:
    names = ("devices", "dim", "experiments", "chains", "rounds")
    return {name: getattr(problem, name) for name in names}


def _beside_limits(
    problem: Problem, seconds: float | None, limits: Limits | None
) -> dict[str, Any]:
    """Cost of a symbol, and what the limits allow."""
    each = 1e9 / problem.symbols
    row: dict[str, Any] = {}
    if seconds is not None:
        row["ns_per_symbol"] = seconds * each
    if limits is not None:
        row["compute_ns_per_symbol"] = limits.compute_seconds(problem) * each
        row["stream_ns_per_symbol"] = limits.stream_seconds(problem) * each
        row["must_stream"] = limits.must_stream(problem)
        row["limit_ns_per_symbol"] = limits.seconds(problem) * each
        if seconds is not None:
            row["times_the_limit"] = seconds / limits.seconds(problem)
    return row
