"""What a value offers to whoever shows it: rows and grids, in words and numbers, and their plain
text.

A plan, a result, a ledger offers its rows once. ``print``, the command line, HTML pages and the
studio draw those rows, each in its own way; none of them computes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

Severity = Literal["plain", "good", "warning", "bad"]
"""How much a row matters: ``warning`` speaks against a result, ``bad`` makes it useless."""


class Row(NamedTuple):
    """One fact: what it is, its value as people read it, the unit, and how much it matters."""

    label: str
    value: str
    unit: str = ""
    severity: Severity = "plain"

    @property
    def text(self) -> str:
        """Value and unit."""
        return f"{self.value} {self.unit}" if self.unit else self.value


@dataclass(frozen=True)
class Listing:
    """Facts under a title."""

    title: str
    rows: tuple[Row, ...]

    def __str__(self) -> str:
        width = max((len(row.label) for row in self.rows), default=0)
        return "\n".join(
            [self.title, *(f"  {row.label.ljust(width)}  {row.text}" for row in self.rows)]
        )


@dataclass(frozen=True)
class Grid:
    """Cells under a header, with notes below; the first column names the row."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    title: str = ""
    notes: tuple[Row, ...] = ()

    def __str__(self) -> str:
        text = format_grid(self.header, self.rows)
        notes = [f"{row.label}: {row.text}" if row.label else row.text for row in self.notes]
        return "\n".join([*([self.title] if self.title else []), text, *notes])


def warning_rows(texts: Sequence[str]) -> tuple[Row, ...]:
    """A row for each sentence that speaks against a result."""
    return tuple(Row("warning", text, severity="warning") for text in texts)


def format_grid(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Aligned columns under a header; the first column is left-aligned, the others right-aligned.
    A cell of the header may have several lines."""
    cells = [cell.split("\n") for cell in header]
    height = max(len(cell) for cell in cells)
    # Short cells stand at the bottom, just above their column.
    heads = list(zip(*([""] * (height - len(cell)) + cell for cell in cells), strict=True))
    widths = [max(len(row[i]) for row in [*heads, *rows]) for i in range(len(header))]
    lines = [
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in [*heads, *rows]
    ]
    return "\n".join([*lines[:height], "-" * len(lines[0]), *lines[height:]])


def format_up(value: float) -> str:
    """Five significant digits, rounded up: a bound stays a bound in print."""
    if math.isinf(value) or value == 0:
        return format_number(value)
    unit = 10.0 ** (math.floor(math.log10(abs(value))) - 4)
    return f"{math.ceil(value / unit - 1e-9) * unit:.5g}"


def format_number(value: float | None) -> str:
    """Five significant digits; words for what has no number."""
    if value is None:
        return "unknown"
    return "unbounded" if math.isinf(value) else f"{value:.5g}"


def format_short(value: float | None) -> str:
    """Three significant digits, for the narrow columns of a grid."""
    if value is None:
        return "-"
    return "inf" if math.isinf(value) else str(value) if isinstance(value, int) else f"{value:.3g}"


def format_percent(share: float) -> str:
    """A share between 0 and 1 in per cent, with two digits."""
    return f"{100 * share:.2g} %" if share == 0 or share >= 1e-6 else "less than 0.0001 %"
