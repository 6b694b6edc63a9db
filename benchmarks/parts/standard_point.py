"""The standard point of a sweep, 1000 experiments of 300 rounds, by everything that can run it."""

from __future__ import annotations

from typing import Any

from jobs.problem import Problem
from measuring.cases import Case, Measured, measure

_FEW = 2
"""Experiments of the plain loop; its time is scaled."""
_SLOW = ("NumPy engine", "JAX engine", "plain Python loop")
"""Rows that take a second and more: their turns would cool the caches of the others."""


def measure_standard_point(repeats: int, quick: bool = False) -> list[dict[str, Any]]:
    """One row for each scheme and way to run it."""
    rows = []
    for scheme in ("digital", "analog"):
        problem = Problem(scheme=scheme, experiments=96 if quick else 1000)
        cases = _cases(problem)
        fast = {name: case for name, case in cases.items() if name not in _SLOW}
        slow = {name: case for name, case in cases.items() if name in _SLOW}
        found = measure(fast, repeats) | measure(slow, repeats)
        rows += _rows(problem, found)
    return rows


def _cases(problem: Problem) -> dict[str, Case]:
    same = problem.arguments
    return {
        "random numbers alone": Case("random numbers", same),
        "C reference": Case("C", same),
        "shared C reference": Case("shared C", same),
        "kernel alone": Case("kernel", same),
        "flmc.run": Case("run", same),
        "flmc.run, first of a model": Case("fresh run", same),
        "NumPy engine": Case("kernel", {**same, "engine": "numpy"}),
        "JAX engine": Case("kernel", {**same, "engine": "jax"}),
        "plain Python loop": Case("plain loop", {**same, "experiments": _FEW}),
    }


def _rows(problem: Problem, found: dict[str, Measured]) -> list[dict[str, Any]]:
    kernel, run = found["kernel alone"].seconds, found["flmc.run"].seconds
    rows = []
    for name, each in found.items():
        row: dict[str, Any] = {"scheme": problem.scheme, "what": name, **each.row}
        if name == "plain Python loop" and each.seconds is not None:
            row["seconds"] = each.seconds * problem.experiments / _FEW
        rows.append(row)
    if kernel is not None and run is not None:
        around = {"scheme": problem.scheme, "what": "around the kernel", "seconds": run - kernel}
        rows.insert([row["what"] for row in rows].index("flmc.run") + 1, around)
    for row in rows:
        if kernel and row["seconds"] is not None:
            row["times_the_kernel"] = row["seconds"] / kernel
        if row["seconds"] is not None:
            row["ns_per_symbol"] = 1e9 * row["seconds"] / problem.symbols
    return rows
