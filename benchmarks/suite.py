"""Everything that is said about speed, measured: `make bench`.

Every case runs in a process of its own; those of a table take turns. CPU time of all threads,
medians of the repeats, and the peak of each process's memory. `tables.py` makes the page from the
JSON."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from measuring.cases import Case, Worker
from measuring.machine import describe
from parts.few_and_many import measure_few_and_many
from parts.large_problems import measure_large_problems
from parts.limits import best_limits, measure_limits
from parts.peer import measure_peer
from parts.plain_numba import measure_plain_numba
from parts.standard_point import measure_standard_point
from parts.starts import measure_starts

Document = dict[str, Any]
Part = Callable[[int, bool, Document], Any]


def _simple(function: Callable[[int, bool], Any]) -> Part:
    """A part that needs nothing of those before it."""
    return lambda repeats, quick, document: function(repeats, quick)


def _large(repeats: int, quick: bool, document: Document) -> Any:
    limits = best_limits(document.get("limits", []), document["machine"])
    return measure_large_problems(repeats, limits, quick)


def _whole(module: str, function: str, needs: str = "") -> Part:
    """A part whose module times its own jobs, all in one child, whose peak of memory a row has
    that names none of its own."""

    def part(repeats: int, quick: bool, document: Document) -> Any:
        case = Case(
            "part", {"module": module, "function": function, "repeats": repeats, "needs": needs}
        )
        with Worker(case) as worker:
            worker.turn()
            found = worker.measured
        if found.absent:
            return [{"what": module, "absent": found.absent}]
        rows: list[Document] = found.facts["rows"]
        for row in rows:
            if not any(key.startswith("peak") for key in row):
                row["peak_megabytes"] = found.peak_megabytes
        return rows

    return part


PARTS: dict[str, Part] = {
    "limits": _simple(measure_limits),
    "standard": _simple(measure_standard_point),
    "large": _large,
    "few": _simple(measure_few_and_many),
    "planning": _whole("planning_cost", "measure_planning"),
    "reproduction": _whole("reproduction_cost", "measure_reproduction"),
    "plain": _simple(measure_plain_numba),
    "starts": _simple(measure_starts),
    "peer": _simple(measure_peer),
    "jax": _whole("jax_engine", "measure_jax", needs="jax"),
    "recording": _whole("recording", "measure_recording"),
    "federation": _whole("federation_cost", "measure_federation", needs="aiomqtt"),
}
"""Parts by name, in the order in which they are measured."""


def main() -> None:
    """Measure the parts that are asked for, and write the JSON after each of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", default=",".join(PARTS), help="some of them, with commas")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--quick", action="store_true", help="small cases only")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the rows go")
    parser.add_argument("--add", action="store_true", help="keep other parts of that file")
    options = parser.parse_args()
    asked = options.parts.split(",")
    unknown = sorted(set(asked) - set(PARTS))
    if unknown:
        parser.error(f"no part {', '.join(unknown)}; there are {', '.join(PARTS)}")
    document: Document = {}
    if options.add and options.json is not None and options.json.exists():
        document = json.loads(options.json.read_text())
    document |= {"machine": describe(), "repeats": options.repeats, "quick": options.quick}
    for name in asked:
        began = time.monotonic()
        print(f"{name}:", file=sys.stderr, flush=True)
        document[name] = PARTS[name](options.repeats, options.quick, document)
        print(f"  {time.monotonic() - began:.0f} s in all", file=sys.stderr, flush=True)
        if options.json is not None:
            options.json.parent.mkdir(parents=True, exist_ok=True)
            options.json.write_text(json.dumps(document, indent=1) + "\n")
    if options.json is None:
        print(json.dumps(document, indent=1))


if __name__ == "__main__":
    main()
