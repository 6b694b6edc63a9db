"""The experiment of the analog predecessor, which its authors published with a program."""

from __future__ import annotations

from typing import Any

from measuring.cases import Case, measure


def measure_peer(repeats: int, quick: bool = False) -> list[dict[str, Any]]:
    """CPU seconds after compilation: the whole experiment, and its sampling by each engine."""
    cases = {"whole experiment": Case("peer", {})} | {
        f"sampling alone, {engine}": Case("peer sampling", {"engine": engine})
        for engine in ("auto", "numpy", "jax")
    }
    return [{"what": name, **found.row} for name, found in measure(cases, repeats).items()]
