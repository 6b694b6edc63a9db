"""Cost of a symbol against experiments, chains and rounds: how little work is still efficient."""

from __future__ import annotations

from typing import Any

from jobs.problem import Problem
from measuring.cases import Case, Measured, measure

EXPERIMENTS = (1, 3, 8, 10, 100, 1000, 10_000, 100_000)
CHAINS = (1, 3, 8, 10, 100, 1000, 10_000)
ROUNDS = (100, 1000, 10_000, 100_000)
_LANES = 8
_OVERHEAD, _SLACK = 1e-3, 1.5
"""Seconds that a call may cost whatever it does, and the factor of the bound."""
_CHAIN_OF_ROUNDS = 8
"""Experiments of the cases against rounds: one block of lanes."""
_QUICK = 1000
"""Experiments, chains or rounds in a quick run at most."""


def measure_few_and_many(repeats: int, quick: bool = False) -> list[dict[str, Any]]:
    """One row for each size; the cases of a series take turns."""
    most = _QUICK if quick else max(*EXPERIMENTS, *ROUNDS)
    series = {
        "experiments": [Problem(experiments=n) for n in EXPERIMENTS if n <= most],
        "chains": [Problem(experiments=1, chains=n) for n in CHAINS if n <= most],
        "rounds": [Problem(experiments=_CHAIN_OF_ROUNDS, rounds=n) for n in ROUNDS if n <= most],
    }
    measured: list[tuple[str, Problem, Measured]] = []
    for against, problems in series.items():
        cases = {
            f"{getattr(problem, against)} {against}": Case("kernel", problem.arguments)
            for problem in problems
        }
        found = measure(cases, repeats).values()
        measured += [(against, *each) for each in zip(problems, found, strict=True)]
    cost = min(
        each.seconds / problem.symbols for _, problem, each in measured if each.seconds is not None
    )
    return [_row(*each, cost) for each in measured]


def _row(against: str, problem: Problem, found: Measured, cost: float) -> dict[str, Any]:
    """A size beside its bound."""
    row: dict[str, Any] = {"against": against, "value": getattr(problem, against), **found.row}
    if found.seconds is not None:
        row["ns_per_symbol"] = 1e9 * found.seconds / problem.symbols
        row["bound_seconds"] = _bound(problem, cost)
        row["times_the_bound"] = found.seconds / row["bound_seconds"]
    return row


def _bound(problem: Problem, cost: float) -> float:
    """Seconds that a run should take at most: 1.5 (1 ms + full lanes at the asymptotic cost of a
    symbol, which is the smallest that was measured)."""
    chains = problem.experiments * problem.chains
    lanes = -(-chains // _LANES) * _LANES
    return _SLACK * (_OVERHEAD + lanes * problem.symbols / chains * cost)
