"""The table of a sweep, as people see it and as files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flmc.base.tables import Grid, Row
from flmc.runs.durable_files import write_atomically, write_table
from flmc.runs.sweeps.grid import SweepGrid

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


@dataclass(frozen=True)
class Sweep:
    """All points of a grid with their rows, in the order of the grid."""

    grid: SweepGrid
    rows: list[dict[str, Any]]

    def table(self) -> Grid:
        """A table of the main columns, a row for each point, and what went wrong."""
        names = [*self.grid.axes, *_SHOWN]
        header = [name for name in names if any(row.get(name) is not None for row in self.rows)]
        cells = tuple(
            tuple(_cell(row.get(name)) for name in header) for row in self.rows[:_MOST_ROWS]
        )
        notes = []
        if len(self.rows) > _MOST_ROWS:
            notes.append(Row("", f"... and {len(self.rows) - _MOST_ROWS} more"))
        warned = sum(bool(row.get("warnings")) for row in self.rows)
        if warned:
            text = (
                f"{warned} of {len(self.rows)} plans have warnings: see the column `warnings` of"
                " the table"
            )
            notes.append(Row("", text, severity="warning"))
        if self.num_failed:
            first = next(row for row in self.rows if row["error"] is not None)
            text = (
                f"{self.num_failed} of {len(self.rows)} points failed, the first with:"
                f" {first['error']}"
            )
            notes.append(Row("", text, severity="bad"))
        return Grid(tuple(header), cells, notes=tuple(notes))

    @property
    def num_failed(self) -> int:
        """How many rows have an error."""
        return sum(row["error"] is not None for row in self.rows)


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
    write_table(
        out / "table.csv", [{k: "" if v is None else v for k, v in row.items()} for row in filled]
    )
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        return
    table = pyarrow.table({name: _column([row[name] for row in filled]) for name in names})
    write_atomically(
        out / "table.parquet", lambda stream: pyarrow.parquet.write_table(table, stream)
    )


def _column(values: list[Any]) -> list[Any]:
    """Values of one type for Parquet: a column that mixes numbers and words is text."""
    # Parquet's whole numbers have 64 bits; a larger one, a seed perhaps, becomes a float.
    values = [float(v) if isinstance(v, int) and abs(v) >= 2**63 else v for v in values]
    kinds = {type(v) for v in values if v is not None}
    if kinds <= {int, float} or (len(kinds) <= 1 and not kinds & {list, tuple, dict}):
        return [float(v) if kinds == {int, float} and v is not None else v for v in values]
    return [None if v is None else str(v) for v in values]
