"""What recording costs: a standard run with and without a record, CPU seconds, medians of
interleaved repeats."""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from functools import partial
from pathlib import Path

from engines import interleaved, model_of, table

import flmc


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--experiments", type=int, default=1000)
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    model = model_of(options.experiments)
    plan = flmc.plan(model, flmc.Digital(), forecast=False)
    print(plan.run_cost)  # computed once, so that neither job pays for it
    rows = []
    with tempfile.TemporaryDirectory() as place:
        out = Path(place) / "run"

        def recorded(engine: str, keep: bool) -> None:
            shutil.rmtree(out, ignore_errors=True)
            flmc.run(plan, model, keep_draws=keep, engine=engine, out=out)

        for engine, keep in (("numpy", False), ("numpy", True), ("numba", False), ("numba", True)):
            plain = partial(flmc.run, plan, model, keep_draws=keep, engine=engine)
            found = interleaved(
                {"plain": plain, "recorded": partial(recorded, engine, keep)}, options.repeats
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
    print(table(rows))
    if options.json is not None:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
