"""A grid of settings: plan and run every point, here or on a cluster, and keep what is finished.

A point is a set of settings; its result is a file named by their digest, so that a second start
runs only the points that are missing. A point that fails is a row with its error, and the others go
on. Every point runs on one thread and depends on its settings alone, so its numbers are the same to
the bit wherever it runs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flmc.settings.assembly import assemble
from flmc.base.progress import Progress
from flmc.settings.schema import Settings, merge
from flmc.base.tables import Grid, Row
from flmc.base.errors import FlmcError, InvalidSetting, MissingExtra, RunFailed
from flmc.runs.durable_files import read_json, write_atomically, write_json, write_table
from flmc.runs.execution import run
from flmc.runs.sweep_grid import SweepGrid
from flmc.base.version import VERSION

_GRID = "sweep.json"
"""File that names the grid which the table was made from."""


def key_of(settings: Settings) -> str:
    """Digest of the settings and the version of flmc: the name of the point's file."""
    text = json.dumps({"flmc": VERSION, **settings.model_dump(mode="json")}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def run_point(given: Mapping[str, Any]) -> dict[str, Any]:
    """The row of one point, planned and run on one thread: plain values without times; the column
    ``error`` says what went wrong, or is None."""
    try:
        settings = merge({}, given)
        problem = assemble(settings)
        plan = problem.plan(settings)
        result = run(
            plan,
            problem.model,
            settings.seed,
            settings.num_chains,
            keep_draws=False,
            engine=settings.engine,
            threads=1,
        )
    except FlmcError as error:
        return {"error": str(error)}
    except Exception as error:  # a user's model or link: the other points shall go on
        return {"error": f"{type(error).__name__}: {error}"}
    document = result.to_document()
    privacy = document["plan"]["privacy"] or {}
    row: dict[str, Any] = {
        "gain_used": plan.typical_gain,
        "binding": plan.binding,
        "temperature": plan.temperature,
        "step_size_used": plan.step_size,
        "effective_step_size": plan.effective_step_size,
        "rounds_needed": plan.rounds_needed,
        "epsilon_round": (privacy.get("round") or {}).get("epsilon"),
        "epsilon_run": (privacy.get("run") or {}).get("epsilon"),
        "clipped_fraction": result.clipped_fraction,
        "engine_used": result.engine,
    }
    for name, estimate in (document["metrics"] or {}).items():
        row[name], row[f"{name}_se"] = estimate["mean"], estimate["se"]
    return {**row, "plan_digest": plan.digest, "warnings": "; ".join(plan.warnings) or None, "error": None}


Task = tuple[str, dict[str, Any]]
Work = Callable[[Sequence[Task]], Iterator[tuple[str, dict[str, Any]]]]
"""What runs tasks somewhere and yields their keys and rows as they finish."""


def on_this_machine(workers: int) -> Work:
    """What runs tasks in ``workers`` processes of this machine, by joblib."""
    try:
        import joblib
    except ImportError as error:
        raise MissingExtra("a sweep on this machine needs joblib: pip install 'flmc[sweep]'") from error

    def work(tasks: Sequence[Task]) -> Iterator[tuple[str, dict[str, Any]]]:
        if workers == 1:
            yield from map(_run_task, tasks)
            return
        parallel = joblib.Parallel(n_jobs=workers, return_as="generator_unordered")
        yield from parallel(joblib.delayed(_run_task)(task) for task in tasks)

    return work


def _run_task(task: Task) -> tuple[str, dict[str, Any]]:
    key, given = task
    return key, run_point(given)


@contextmanager
def on_dask(address: str, workers: int) -> Iterator[Work]:
    """What runs tasks on the Dask cluster at ``address``, or with `local` in ``workers`` processes
    here; a task whose worker dies runs elsewhere."""
    try:
        from distributed import Client, LocalCluster, as_completed
    except ImportError as error:
        raise MissingExtra("a sweep on a Dask cluster needs the extra 'dask': pip install 'flmc[dask]'") from error
    cluster = None
    if address == "local":
        cluster = LocalCluster(  # type: ignore[no-untyped-call]
            n_workers=workers, threads_per_worker=1, dashboard_address=None, host="127.0.0.1", silence_logs=50
        )
    try:
        client = Client(cluster or address, timeout=5)  # type: ignore[no-untyped-call]
    except (OSError, TimeoutError, ValueError) as error:
        raise InvalidSetting(f"no Dask scheduler answers at {address!r}: {error}") from error
    with client:

        def work(tasks: Sequence[Task]) -> Iterator[tuple[str, dict[str, Any]]]:
            futures = {client.submit(_run_task, task, key=task[0], retries=5): task[0] for task in tasks}
            for future in as_completed(futures):  # type: ignore[no-untyped-call]
                if future.status == "finished":
                    yield future.result()
                elif future.status in ("cancelled", "lost"):
                    raise RunFailed(f"the Dask scheduler at {address!r} is gone; finished points are kept")
                else:
                    yield futures[future], {"error": f"the worker failed: {future.exception()}"}

        try:
            yield work
        finally:
            if cluster is not None:
                cluster.close()


@dataclass(frozen=True)
class Sweep:
    """All points of a grid with their rows, in the order of the grid."""

    grid: SweepGrid
    rows: list[dict[str, Any]]

    def table(self) -> Grid:
        """A table of the main columns, a row for each point, and what went wrong."""
        names = [*self.grid.axes, *_SHOWN]
        header = [name for name in names if any(row.get(name) is not None for row in self.rows)]
        cells = tuple(tuple(_cell(row.get(name)) for name in header) for row in self.rows[:_MOST_ROWS])
        notes = []
        if len(self.rows) > _MOST_ROWS:
            notes.append(Row("", f"... and {len(self.rows) - _MOST_ROWS} more"))
        warned = sum(bool(row.get("warnings")) for row in self.rows)
        if warned:
            text = f"{warned} of {len(self.rows)} plans have warnings: see the column `warnings` of the table"
            notes.append(Row("", text, severity="warning"))
        if self.num_failed:
            first = next(row for row in self.rows if row["error"] is not None)
            text = f"{self.num_failed} of {len(self.rows)} points failed, the first with: {first['error']}"
            notes.append(Row("", text, severity="bad"))
        return Grid(tuple(header), cells, notes=tuple(notes))

    @property
    def num_failed(self) -> int:
        """How many rows have an error."""
        return sum(row["error"] is not None for row in self.rows)


_SHOWN = (
    "gain_used",
    "binding",
    "temperature",
    "epsilon_run",
    "variance_ratio",
    "wasserstein2_squared",
    "effective_step_size",
    "rounds_needed",
)
"""Columns that are shown on a screen, beside the settings that vary."""
_MOST_ROWS = 40


def _cell(value: object) -> str:
    return "-" if value is None else f"{value:.5g}" if isinstance(value, float) else str(value)


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
        raise RunFailed(f"cannot write to {str(out)!r}: {error.strerror}; finished points are kept") from error
    return Sweep(grid, rows)


def differs(grid: SweepGrid, out: Path) -> bool:
    """Whether ``out`` holds the table of another grid."""
    try:
        return (out / _GRID).exists() and read_json(out / _GRID) != json.loads(json.dumps(_document(grid)))
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


def columns_of(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """All columns of some rows, in the order in which they first appear; the error last."""
    names = dict.fromkeys(name for row in rows for name in row)
    names.pop("error", None)
    return [*names, "error"]


def write_rows(out: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write ``table.csv``, and ``table.parquet`` where pyarrow is installed; equal rows, equal
    bytes."""
    names = columns_of(rows)
    filled = [{name: row.get(name) for name in names} for row in rows]
    write_table(out / "table.csv", [{k: "" if v is None else v for k, v in row.items()} for row in filled])
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        return
    table = pyarrow.table({name: _column([row[name] for row in filled]) for name in names})
    write_atomically(out / "table.parquet", lambda stream: pyarrow.parquet.write_table(table, stream))


def _column(values: list[Any]) -> list[Any]:
    """Values of one type for Parquet: a column that mixes numbers and words is text."""
    # Parquet's whole numbers have 64 bits; a larger one, a seed perhaps, becomes a float.
    values = [float(v) if isinstance(v, int) and abs(v) >= 2**63 else v for v in values]
    kinds = {type(v) for v in values if v is not None}
    if kinds <= {int, float} or (len(kinds) <= 1 and not kinds & {list, tuple, dict}):
        return [float(v) if kinds == {int, float} and v is not None else v for v in values]
    return [None if v is None else str(v) for v in values]
