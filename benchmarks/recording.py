"""What recording costs: a standard run with and without a record."""

from __future__ import annotations

import shutil
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import flmc
from jobs.problem import Problem
from measuring.timing import interleaved


def measure_recording(repeats: int) -> list[dict[str, Any]]:
    """One row for each engine, with draws kept and not kept."""
    problem = Problem()
    model, plan = problem.model, problem.plan
    assert plan.run_cost  # computed once, so that neither job pays for it
    rows = []
    with tempfile.TemporaryDirectory() as place:
        out = Path(place) / "run"

        def recorded(engine: str, keep: bool) -> None:
            shutil.rmtree(out, ignore_errors=True)
            flmc.run(plan, model, keep_draws=keep, engine=engine, out=out)

        for engine, keep in (("numpy", False), ("numpy", True), ("auto", False), ("auto", True)):
            plain = partial(flmc.run, plan, model, keep_draws=keep, engine=engine)
            found = interleaved(
                {"plain": plain, "recorded": partial(recorded, engine, keep)}, repeats
            )
            rows.append(
                {
                    "engine": engine,
                    "draws": "kept" if keep else "not kept",
                    "plain_seconds": found["plain"],
                    "recorded_seconds": found["recorded"],
                    "overhead_percent": 100 * (found["recorded"] / found["plain"] - 1),
                }
            )
    return rows
