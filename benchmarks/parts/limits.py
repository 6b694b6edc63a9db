"""The machine's two limits, and what they mean for a problem."""

from __future__ import annotations

from typing import Any, NamedTuple

from jobs.problem import Problem
from measuring.cases import Case, measure

_REAL = 4
"""Bytes of a number in single precision."""


class Limits(NamedTuple):
    """What one core can do at most, by CPU time.

    Attributes
    ----------
    flops
        Operations a second in fused multiplications and additions, single precision.
    bandwidth
        Bytes a second of a streaming read.
    cache
        Bytes of the last cache that a core has for itself, on average.
    """

    flops: float
    bandwidth: float
    cache: float

    def compute_seconds(self, problem: Problem) -> float:
        """Seconds that the multiplications of all gradients need: 2 K m^2 operations for each
        chain and round."""
        each = 2.0 * problem.devices * problem.dim**2
        return each * problem.experiments * problem.chains * problem.rounds / self.flops

    def data_bytes(self, problem: Problem) -> float:
        """Bytes of one data set: K m (m + 1) numbers."""
        return float(_REAL * problem.devices * problem.dim * (problem.dim + 1))

    def stream_seconds(self, problem: Problem) -> float:
        """Seconds that it takes to read all data sets once in every round, which all chains of a
        data set share."""
        all_sets = self.data_bytes(problem) * problem.experiments
        return all_sets * problem.rounds / self.bandwidth

    def must_stream(self, problem: Problem) -> bool:
        """Whether a data set is larger than a core's share of the last cache; smaller ones may stay
        there for all their rounds."""
        return self.data_bytes(problem) > self.cache

    def seconds(self, problem: Problem) -> float:
        """The larger of both limits, the second where data must be streamed."""
        compute = self.compute_seconds(problem)
        return max(compute, self.stream_seconds(problem)) if self.must_stream(problem) else compute


def measure_limits(repeats: int, quick: bool = False) -> list[dict[str, Any]]:
    """Best of the repeats, because these are limits: one row for each way to measure them."""
    cases = {
        "FMA, vectors of 8": Case("multiplications", {}),
        "FMA, widest vectors": Case("multiplications", {"widest": True}),
        "read by one thread": Case("memory", {"every_thread": False}),
        "read by all threads": Case("memory", {}),
    }
    rows = []
    for name, found in measure(cases, 2 if quick else repeats).items():
        row: dict[str, Any] = {"limit": name, **found.row}
        if found.times:
            best = min(found.times)
            for amount in ("flops", "bytes"):
                if amount in found.facts:
                    row["billions_per_second"] = found.facts[amount] / best / 1e9
                    row["unit"] = "GFLOP/s" if amount == "flops" else "GB/s"
        rows.append(row)
    return rows


def best_limits(rows: list[dict[str, Any]], machine: dict[str, Any]) -> Limits | None:
    """The limits from the rows of their part; None where no compiler was there."""
    best = {
        unit: max(
            (row["billions_per_second"] for row in rows if row.get("unit") == unit), default=0.0
        )
        for unit in ("GFLOP/s", "GB/s")
    }
    if not all(best.values()):
        return None
    cache = machine["last_cache_megabytes"] * (1 << 20) / (machine["processors"] or 1)
    return Limits(1e9 * best["GFLOP/s"], 1e9 * best["GB/s"], cache)
