"""The run of a sweep's grid: every point (one combination of settings) is planned and run, and the
rows of finished points are kept on disk.

A point's row is a file named by the digest of its settings, so that equal points are computed once
and a second start computes only the missing ones. A point that fails becomes a row with its error,
and the others go on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import Any

from flmc.base.documents import ANSWER_VERSION
from flmc.base.errors import InvalidSetting, RunFailed
from flmc.base.progress import Progress
from flmc.base.version import VERSION
from flmc.runs.files.durable_files import read_json, shared, write_json
from flmc.runs.files.regular_files import check_regular
from flmc.runs.fingerprints import Fingerprints
from flmc.runs.provenance import digest_of
from flmc.runs.sweeps.grid import SweepGrid
from flmc.runs.sweeps.pairs import paired_rows
from flmc.runs.sweeps.points import Beside, data_key, forget_model, given_in, key_of
from flmc.runs.sweeps.reservations import reservations_of
from flmc.runs.sweeps.table import PROVENANCE, Sweep
from flmc.runs.sweeps.workers import Work
from flmc.settings.resolved import shared as shared_settings
from flmc.settings.schema import OF_COMPARISONS, Settings

_PROVENANCE = "provenance"
"""Name of the directory whose files say which software and processors computed the points: one file
for each distinct provenance, named by its digest."""
_GRID = "sweep.json"
"""Name of the file, beside the tables of a sweep, that describes its grid."""


def run_grid(
    grid: SweepGrid,
    out: Path | None,
    work: Work,
    progress: Progress | None = None,
    *,
    plan_only: bool = False,
) -> Sweep:
    """Compute the missing rows of a sweep's grid with the function ``work``, and return the table
    with the rows of all points.

    Finished points are kept in ``out/points``. At the end all rows are written to ``table.csv`` and
    ``table.parquet``, the values of single data sets to ``data_sets.parquet`` (both with pyarrow
    only), paired differences to ``paired.csv``, and the grid to ``sweep.json``; without ``out``
    nothing is written. ``plan_only`` says that ``work`` plans the points and runs none.
    ``RunFailed`` if ``out`` cannot be written."""
    points = grid.points
    if plan_only:
        forget_model()  # the kept model's data may have changed since the last sweep
    fingerprints = Fingerprints()
    besides = [_beside(grid, points, index) for index in range(len(points))]
    asked = list(zip(points, besides, strict=True))
    keys = [key_of(*each, plan_only=plan_only, fingerprints=fingerprints) for each in asked]
    try:
        store = _Store(None if out is None else out / "points")
        with store.in_use():
            done = {key: store.read(key) for key in dict.fromkeys(keys)}
            missing = {k: each for k, each in zip(keys, asked, strict=True) if done[k] is None}
            order = list(missing)
            # In this order points with equal data follow each other, and a worker, which keeps the
            # model that it built last, need not build the same model again.
            if plan_only:
                order.sort(key=lambda key: data_key(missing[key][0]))
            tasks = [
                (key, {**given_in(point), **beside.given()})
                for key, (point, beside) in ((key, missing[key]) for key in order)
            ]
            kept = len(done) - len(tasks)
            for count, (key, row) in enumerate(work(tasks)):
                done[key] = store.write(key, row)
                if progress is not None:
                    progress((kept + count + 1) / len(done))
        of_points = [done[key] or {"error": "the point was lost"} for key in keys]
        rows = []
        for point, row in zip(points, of_points, strict=True):
            varied = {name: getattr(point, name) for name in grid.axes}
            # The varying settings are the first columns of a row. They are entered a second time at
            # the end, because the plan may have a column of the same name, and the value that the
            # user asked for must win.
            rows.append({**varied, **row, **varied})
        paired = paired_rows(grid, rows)
        done_sweep = Sweep(
            grid.axes,
            rows,
            num_distinct=len(done),
            plan_only=plan_only,
            base=grid.base,
            paired=paired,
            equal=grid.equal,
            methods=grid.methods,
            provenance=store.provenance,
        )
        if out is not None:
            done_sweep.write(out)
            facts = {**_facts(grid, store, points), "privacy": reservations_of(rows)}
            write_json(out / _GRID, {**_document(grid, plan_only), **facts})
    except OSError as error:
        raise RunFailed(
            f"cannot write to {str(out)!r}: {error.strerror}; finished points are kept"
        ) from error
    return done_sweep


def _beside(grid: SweepGrid, points: list[Settings], index: int) -> Beside:
    """Options of the sweep that decide the row of the point ``index`` together with its own
    settings: the quantity in which it is made equal, the points that it is made equal to, and the
    share of held-out examples."""
    methods = () if grid.equal is None else [points[each] for each in grid.compared_with(index)]
    return Beside(grid.equal, tuple(methods), grid.hold_out)


def differs(grid: SweepGrid, out: Path, *, plan_only: bool = False) -> bool:
    """Whether the directory ``out`` holds the table of another sweep (another grid, or another
    ``plan_only``), or a damaged table."""
    try:
        if not (out / _GRID).exists():
            return False
        # Files of early versions lack the keys ``schema_version`` and ``plan_only``; the points of
        # their sweeps were always run.
        there = {"schema_version": ANSWER_VERSION, "plan_only": False, **read_json(out / _GRID)}
        asked = json.loads(json.dumps(_document(grid, plan_only)))
        return bool({name: there.get(name) for name in asked} != asked)
    except RunFailed:
        return True


def _document(grid: SweepGrid, plan_only: bool) -> dict[str, Any]:
    """The grid of a sweep in plain values, for JSON, with ``plan_only``: whether its points are
    planned and not run."""
    return {
        "schema_version": ANSWER_VERSION,
        "settings": grid.base,
        "sweep": grid.axes,
        "plan_only": plan_only,
        **{name: getattr(grid, name) for name in OF_COMPARISONS},
    }


def _facts(grid: SweepGrid, store: _Store, points: Sequence[Settings]) -> dict[str, Any]:
    """Facts on which the results of a sweep rest, in plain values: all settings that have an effect
    and do not vary, defaults included; SHA-256 digests of data files and of the user's own code;
    and the software and processors that computed the points."""
    fingerprints = Fingerprints()
    contents: dict[str, str] = {}
    for point in points:
        contents |= fingerprints.of_settings(point.model_dump(mode="json"))
    return {
        "resolved": shared_settings(points, grid.axes),
        "contents": contents,
        "provenance": store.provenance,
    }


class _Store:
    """Store of the rows of finished points, each in a JSON file of a directory; with None as
    directory it keeps no rows."""

    def __init__(self, directory: Path | None) -> None:
        self.directory = directory
        self.provenance: dict[str, dict[str, Any]] = {}
        """Software and processors that computed the points that were read or written, by digest of
        the provenance."""
        if directory is not None:
            if directory.is_symlink():
                raise InvalidSetting(f"{str(directory)!r} is a symbolic link: name another place")
            directory.mkdir(parents=True, exist_ok=True)
            check_regular(directory)

    def in_use(self) -> AbstractContextManager[None]:
        """Context with a shared lock on the directory of the sweep, so that no other sweep takes
        the temporary files of this one for leftovers and removes them. Without a directory it does
        nothing."""
        if self.directory is None:
            return nullcontext()
        directories = (f"{self.directory.name}/.*.json.*", f"{_PROVENANCE}/.*.json.*")
        names = (*directories, ".table.*", ".data_sets.*", ".paired.*", f".{_GRID}.*")
        return shared(self.directory.parent, *names)

    def read(self, key: str) -> dict[str, Any] | None:
        """The row of the finished point ``key``; None if it is missing, has failed, or its file is
        damaged. ``InvalidSetting`` for a row of another format version."""
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
        made_by = row.pop(PROVENANCE, None)
        if row.get("error") is not None:
            return None
        self._read_provenance(made_by)
        return row

    def _read_provenance(self, digest: str | None) -> None:
        """Add to ``provenance`` the software and the processor that computed a point, from the file
        that is named by their digest; nothing is added if the digest is None, or the file missing
        or damaged."""
        if digest is None or digest in self.provenance or self.directory is None:
            return
        path = self.directory.parent / _PROVENANCE / f"{digest}.json"
        if path.exists():
            with suppress(RunFailed):
                self.provenance[digest] = read_json(path, signed=True)

    def write(self, key: str, row: dict[str, Any]) -> dict[str, Any]:
        """Write the row of a finished point to the file that its key names, and return the row
        without its provenance (software and processor), which is written once to a file that points
        share."""
        row = dict(row)
        made_by = row.pop(PROVENANCE, None)
        digest = None if made_by is None else digest_of(made_by)
        if digest is not None and digest not in self.provenance:
            self.provenance[digest] = made_by
            if self.directory is not None:
                place = self.directory.parent / _PROVENANCE
                place.mkdir(exist_ok=True)
                write_json(place / f"{digest}.json", made_by)
        if self.directory is not None:
            document = {"schema_version": ANSWER_VERSION, **row, PROVENANCE: digest}
            write_json(self.directory / f"{key}.json", document)
        return row
