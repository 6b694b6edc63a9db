"""A grid of settings: plan and run every point, and keep what is finished.

A point's result is a file named by the digest of its settings, so that a second start runs only the
points that are missing. A point that fails is a row with its error, and the others go on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from flmc.base.errors import RunFailed
from flmc.base.progress import Progress
from flmc.runs.durable_files import read_json, write_json
from flmc.runs.sweeps.grid import SweepGrid
from flmc.runs.sweeps.points import key_of
from flmc.runs.sweeps.table import Sweep, write_rows
from flmc.runs.sweeps.workers import Work

_GRID = "sweep.json"
"""File that names the grid which the table was made from."""


def sweep(grid: SweepGrid, out: Path, work: Work, progress: Progress | None = None) -> Sweep:
    """Run the points that are missing in ``out/points`` by ``work``, then write the rows of all
    points and the grid into ``out``: ``table.csv``, ``table.parquet`` (with pyarrow),
    ``sweep.json``."""
    points = grid.points
    keys = [key_of(point) for point in points]
    store = out / "points"
    try:
        store.mkdir(parents=True, exist_ok=True)
        done = {key: _read_point(store / f"{key}.json") for key in dict.fromkeys(keys)}
        missing = {
            key: point.model_dump(mode="json", exclude_defaults=True)
            for key, point in zip(keys, points, strict=True)
            if done[key] is None
        }
        for count, (key, row) in enumerate(work(list(missing.items()))):
            write_json(store / f"{key}.json", row)
            done[key] = row
            if progress is not None:
                progress((count + 1) / len(missing))
        found = [done[key] or {"error": "the point was lost"} for key in keys]
        rows = [
            {**{name: getattr(point, name) for name in grid.axes}, **row}
            for point, row in zip(points, found, strict=True)
        ]
        write_rows(out, rows)
        write_json(out / _GRID, _document(grid))
    except OSError as error:
        raise RunFailed(
            f"cannot write to {str(out)!r}: {error.strerror}; finished points are kept"
        ) from error
    return Sweep(grid, rows)


def differs(grid: SweepGrid, out: Path) -> bool:
    """Whether ``out`` holds the table of another grid."""
    try:
        return (out / _GRID).exists() and read_json(out / _GRID) != json.loads(
            json.dumps(_document(grid))
        )
    except RunFailed:
        return True


def _document(grid: SweepGrid) -> dict[str, Any]:
    return {"settings": grid.base, "sweep": grid.axes}


def _read_point(path: Path) -> dict[str, Any] | None:
    """The row of a finished point; None if it is missing, has failed, or its file is damaged."""
    if not path.exists():
        return None
    try:
        row = read_json(path)
    except RunFailed:
        return None
    return row if row.get("error") is None else None
