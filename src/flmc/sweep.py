"""A grid of settings: plan and run every point, here or on a cluster, and keep what is finished.

A point is a set of settings; its result is a file named by their digest, so that a second start does only what is
missing. A point that fails is a row with its error, and the rest goes on. Every point runs on one thread and depends on
nothing but its settings, so that the numbers are the same to the bit wherever it runs."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from flmc import checks
from flmc.assemble import assemble
from flmc.chains import Progress
from flmc.config import Settings, merge, unknown_setting
from flmc.errors import FlmcError, InvalidSetting, MissingExtra, RunFailed
from flmc.files import read_json, write_atomically, write_json, write_table
from flmc.run import run
from flmc.version import VERSION

_RANGE = {"start", "stop", "count", "spacing"}
_MOST_POINTS = 1_000_000
_GRID = "sweep.json"
"""What the table is of."""


@dataclass(frozen=True)
class Grid:
    """What all points share, and what varies: ``axes`` by name, each with its values; the last varies fastest."""

    base: dict[str, Any]
    axes: dict[str, list[Any]]

    @property
    def points(self) -> list[Settings]:
        """All settings, checked."""
        count = math.prod(len(values) for values in self.axes.values())
        if count > _MOST_POINTS:
            raise InvalidSetting(f"a sweep must have at most {_MOST_POINTS} points, got {count}")
        return [
            merge(self.base, dict(zip(self.axes, values, strict=True)))
            for values in itertools.product(*self.axes.values())
        ]


def read_grid(document: Mapping[str, Any], options: Mapping[str, Any]) -> Grid:
    """From TOML: settings as in any file, and a table ``[sweep]`` of those that vary, each a list or a range
    ``{start, stop, count, spacing = "linear" | "log"}``. An option beats the file, and may not name what varies."""
    base = dict(document)
    varying = base.pop("sweep", None)
    _refuse_idle({*base, *options, *(varying if isinstance(varying, Mapping) else ())})
    if not isinstance(varying, Mapping) or not varying:
        raise InvalidSetting("a sweep needs a table [sweep] with at least one setting, a list or a range; got none")
    for name in varying:
        if name not in Settings.model_fields:
            raise InvalidSetting(f"in [sweep]: {unknown_setting(name)}")
        if name in base or name in options:
            raise InvalidSetting(f"{name} must be given once: it is in [sweep] and outside")
    return Grid({**base, **options}, {name: _values(name, value) for name, value in varying.items()})


def _refuse_idle(names: set[str]) -> None:
    """Settings that change nothing in a sweep would only make points twice."""
    for name in ("threads", "checkpoint_rounds"):
        if name in names:
            raise InvalidSetting(
                f"{name} must not be given for a sweep, where every point runs on one thread unrecorded"
            )


def _values(name: str, given: Any) -> list[Any]:
    if isinstance(given, list) and given:
        if any(isinstance(value, bool) for value in given):
            raise InvalidSetting(f"{name} in [sweep] must hold numbers or words, got {given!r}")
        return given
    if isinstance(given, Mapping) and {"start", "stop", "count"} <= set(given) <= _RANGE:
        start, stop = (checks.number(f"{name}.{end}", given[end]) for end in ("start", "stop"))
        count = checks.at_least(f"{name}.count", given["count"], 1)
        spacing = checks.one_of(f"{name}.spacing", given.get("spacing", "linear"), ("linear", "log"))
        if count > _MOST_POINTS:
            raise InvalidSetting(f"{name}.count must be at most {_MOST_POINTS}, got {count}")
        if spacing == "log" and not min(start, stop) > 0:
            raise InvalidSetting(f"{name} with log spacing must have positive ends, got {start:g} and {stop:g}")
        values = np.geomspace(start, stop, count) if spacing == "log" else np.linspace(start, stop, count)
        near = np.round(values)
        return [
            int(n) if abs(v - n) <= 1e-9 * max(1.0, abs(n)) else float(v) for v, n in zip(values, near, strict=True)
        ]
    raise InvalidSetting(
        f"{name} in [sweep] must be a list that is not empty, or a range {{start, stop, count, spacing}}, got {given!r}"
    )


def key_of(settings: Settings) -> str:
    """Digest of the settings and the version: the name of the point's file."""
    text = json.dumps({"flmc": VERSION, **settings.model_dump(mode="json")}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def run_point(given: Mapping[str, Any]) -> dict[str, Any]:
    """Plan and run one point on one thread: plain values, without times. What goes wrong is in the column ``error``."""
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
"""Runs tasks somewhere and yields their keys and rows as they finish."""


def on_this_machine(workers: int) -> Work:
    """Processes of this machine, by joblib."""
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
    """A Dask cluster at ``address``, or with `local` one on this machine. A task whose worker dies runs elsewhere."""
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
    """All points with their rows, in the order of the grid."""

    grid: Grid
    rows: list[dict[str, Any]]

    @property
    def num_failed(self) -> int:
        """Rows with an error."""
        return sum(row["error"] is not None for row in self.rows)


def sweep(grid: Grid, out: Path, work: Work, progress: Progress | None = None) -> Sweep:
    """Run what is missing in ``out/points``, then write ``table.csv``, with pyarrow ``table.parquet``, and in
    ``sweep.json`` what they are of."""
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


def differs(grid: Grid, out: Path) -> bool:
    """Whether ``out`` holds the table of another grid."""
    try:
        return (out / _GRID).exists() and read_json(out / _GRID) != json.loads(json.dumps(_document(grid)))
    except RunFailed:
        return True


def _document(grid: Grid) -> dict[str, Any]:
    return {"settings": grid.base, "sweep": grid.axes}


def _read_point(path: Path) -> dict[str, Any] | None:
    """A finished point; one that failed, or whose file is damaged, is tried again."""
    if not path.exists():
        return None
    try:
        row = read_json(path)
    except RunFailed:
        return None
    return row if row.get("error") is None else None


def columns_of(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """All columns, in the order in which they first appear; the error last."""
    names = dict.fromkeys(name for row in rows for name in row)
    names.pop("error", None)
    return [*names, "error"]


def write_rows(out: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """``table.csv``, and ``table.parquet`` where pyarrow is installed; the same rows make the same bytes."""
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
    """Values of one type: a column that mixes numbers and words is text."""
    values = [float(v) if isinstance(v, int) and abs(v) >= 2**63 else v for v in values]
    kinds = {type(v) for v in values if v is not None}
    if kinds <= {int, float} or (len(kinds) <= 1 and not kinds & {list, tuple, dict}):
        return [float(v) if kinds == {int, float} and v is not None else v for v in values]
    return [None if v is None else str(v) for v in values]
