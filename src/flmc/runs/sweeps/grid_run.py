"""A sweep: plan and run every point of a grid of settings, and keep what is finished.

A point's result is a file named by the digest of what decides it, so that a second start computes
only the points that are missing, and points that are the same are computed once. A point that fails
is a row with its error, and the others go on."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from flmc.base.documents import ANSWER_VERSION
from flmc.base.errors import InvalidSetting, RunFailed
from flmc.base.progress import Progress
from flmc.base.version import VERSION
from flmc.runs.files.durable_files import read_json, shared, write_json
from flmc.runs.files.regular_files import check_regular
from flmc.runs.sweeps.grid import SweepGrid
from flmc.runs.sweeps.points import data_key, given_in, key_of
from flmc.runs.sweeps.table import Sweep, write_rows
from flmc.runs.sweeps.workers import Work

_GRID = "sweep.json"
"""File that names the grid which the table was made from."""


def run_grid(
    grid: SweepGrid,
    out: Path | None,
    work: Work,
    progress: Progress | None = None,
    *,
    plan_only: bool = False,
) -> Sweep:
    """Compute the rows of all points of a grid, as far as they are not there yet.

    Parameters
    ----------
    grid
        The points.
    out
        Directory of the sweep: points are kept in ``points``, and in the end all rows and the grid
        are written to ``table.csv``, ``table.parquet`` (with pyarrow) and ``sweep.json``. None:
        nothing is written.
    work
        What computes points somewhere.
    progress
        Called with the finished fraction now and then.
    plan_only
        Whether ``work`` plans only.

    Raises
    ------
    RunFailed
        If the disk refuses.
    """
    points = grid.points
    keys = [key_of(point, plan_only=plan_only) for point in points]
    try:
        store = _Store(None if out is None else out / "points")
        with store.in_use():
            done = {key: store.read(key) for key in dict.fromkeys(keys)}
            missing = {k: p for k, p in zip(keys, points, strict=True) if done[k] is None}
            order = list(missing)
            if plan_only:  # points with the same data one after the other: these are drawn once
                order.sort(key=lambda key: data_key(missing[key]))
            tasks = [(key, given_in(missing[key])) for key in order]
            for count, (key, row) in enumerate(work(tasks)):
                store.write(key, row)
                done[key] = row
                if progress is not None:
                    progress((count + 1) / len(tasks))
        found = [done[key] or {"error": "the point was lost"} for key in keys]
        rows = [
            {**{name: getattr(point, name) for name in grid.axes}, **row}
            for point, row in zip(points, found, strict=True)
        ]
        if out is not None:
            write_rows(out, rows)
            write_json(out / _GRID, _document(grid, plan_only))
    except OSError as error:
        raise RunFailed(
            f"cannot write to {str(out)!r}: {error.strerror}; finished points are kept"
        ) from error
    return Sweep(grid.axes, rows, num_distinct=len(done), plan_only=plan_only, base=grid.base)


def differs(grid: SweepGrid, out: Path, *, plan_only: bool = False) -> bool:
    """Whether a directory holds the table of another grid.

    Parameters
    ----------
    grid, out, plan_only
        The same as for :func:`run_grid`.
    """
    try:
        if not (out / _GRID).exists():
            return False
        # A file of an earlier version has no version, and was not of plans only.
        there = {"schema_version": ANSWER_VERSION, "plan_only": False, **read_json(out / _GRID)}
        return bool(there != json.loads(json.dumps(_document(grid, plan_only))))
    except RunFailed:
        return True


def _document(grid: SweepGrid, plan_only: bool) -> dict[str, Any]:
    """The grid in plain values."""
    return {
        "schema_version": ANSWER_VERSION,
        "settings": grid.base,
        "sweep": grid.axes,
        "plan_only": plan_only,
    }


class _Store:
    """Finished points in the files of a directory, or nowhere.

    Parameters
    ----------
    directory
        Where the files are; None: nothing is kept.
    """

    def __init__(self, directory: Path | None) -> None:
        self.directory = directory
        if directory is not None:
            if directory.is_symlink():
                raise InvalidSetting(f"{str(directory)!r} is a symbolic link: name another place")
            directory.mkdir(parents=True, exist_ok=True)
            check_regular(directory)

    def in_use(self) -> AbstractContextManager[None]:
        """While this lasts, nobody else takes our temporary files for those of a killed sweep."""
        if self.directory is None:
            return nullcontext()
        names = (f"{self.directory.name}/.*.json.*", ".table.*", f".{_GRID}.*")
        return shared(self.directory.parent, *names)

    def read(self, key: str) -> dict[str, Any] | None:
        """The row of a finished point; None if it is missing, has failed, or its file is
        damaged."""
        if self.directory is None or not (self.directory / f"{key}.json").exists():
            return None
        try:
            row = read_json(self.directory / f"{key}.json", signed=True)
        except RunFailed:
            return None
        version = row.pop("schema_version", ANSWER_VERSION)
        if version != ANSWER_VERSION:
            raise InvalidSetting(
                f"the sweep in {str(self.directory.parent)!r} has points of schema_version"
                f" {version!r}, and this flmc ({VERSION}) reads {ANSWER_VERSION}: use the flmc that"
                " made it, or a newer one, or another directory"
            )
        return row if row.get("error") is None else None

    def write(self, key: str, row: dict[str, Any]) -> None:
        """Keep the row of a point."""
        if self.directory is not None:
            document = {"schema_version": ANSWER_VERSION, **row}
            write_json(self.directory / f"{key}.json", document)
