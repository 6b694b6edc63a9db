"""What the engine's own instruction language buys: the rounds of a problem by the engine's machine
code beside the best plain Numba that we could write (``jobs/plain_numba.py``)."""

from __future__ import annotations

from typing import Any

from jobs.problem import Problem
from measuring.cases import Case, measure

_SIZES: tuple[tuple[int, int, int, int], ...] = (
    (1, 1, 5, 300),
    (1000, 1, 5, 300),
    (1, 1000, 5, 300),
    (200, 1, 20, 300),
    (1, 400, 20, 300),
    (1, 1, 50, 300),
    (96, 1, 50, 300),
    (1, 208, 50, 300),
    (1, 1, 500, 100),
    (8, 1, 500, 100),
    (1, 16, 500, 100),
)
"""Data sets, chains of each, entries of theta, rounds: few and many chains, with data of their own
or shared."""
_QUICK = 5
"""Entries in a quick run at most."""
_NAMES = ("engine rounds", "plain numba")


def measure_plain_numba(repeats: int, quick: bool = False) -> list[dict[str, Any]]:
    """One row for each size and scheme; the two cases of a row take turns."""
    rows = []
    for experiments, chains, dim, rounds in _SIZES:
        if quick and dim > _QUICK:
            continue
        for scheme in ("digital", "analog"):
            problem = Problem(
                scheme=scheme, experiments=experiments, chains=chains, dim=dim, rounds=rounds,
                held=True,
            )  # fmt: skip
            cases = {name: Case(name, problem.arguments) for name in _NAMES}
            measured = measure(cases, repeats)
            engine, plain = (measured[name] for name in _NAMES)
            row: dict[str, Any] = {
                "scheme": scheme, "dim": dim, "experiments": experiments, "chains": chains,
                "kind": plain.facts.get("kind"),
                "plain_first_seconds": plain.facts.get("first_seconds"),
            }  # fmt: skip
            if engine.seconds is None or plain.seconds is None:
                row["absent"] = engine.absent or plain.absent
            else:
                row["engine_ns_per_symbol"] = 1e9 * engine.seconds / problem.symbols
                row["plain_ns_per_symbol"] = 1e9 * plain.seconds / problem.symbols
                row["times"] = plain.seconds / engine.seconds
            rows.append(row)
    return rows
