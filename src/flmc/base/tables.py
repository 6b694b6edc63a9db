"""Rows and grids: the form in which plans, results and records of runs offer their facts to be
shown, and the plain text of it.

``print``, the command line, HTML pages and the studio draw the same rows and grids, each in its own
way; none of them computes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

Severity = Literal["plain", "good", "unknown", "warning", "bad"]
"""How much a row matters: ``plain`` has no mark, ``good`` is as it should be, ``unknown`` could not
be judged, ``warning`` speaks against a plan or result, ``bad`` makes it useless."""


class Row(NamedTuple):
    """One fact: what it is, its value as people read it, the unit, and how much it matters.

    Attributes
    ----------
    label
        What the fact is about.
    value
        The value in words or digits.
    unit
        Unit of the value; empty for none.
    severity
        How much the fact matters.
    """

    label: str
    value: str
    unit: str = ""
    severity: Severity = "plain"

    @property
    def text(self) -> str:
        """Value and unit of the fact in one string."""
        return f"{self.value} {self.unit}" if self.unit else self.value


@dataclass(frozen=True)
class Listing:
    """Rows of facts under a title.

    Attributes
    ----------
    title
        What the facts are about.
    rows
        The facts, in the order in which they are shown.
    headline
        The fact that matters most, shown in a line of its own above the title; None for none.
    """

    title: str
    rows: tuple[Row, ...]
    headline: Row | None = None

    def __str__(self) -> str:
        width = max((len(row.label) for row in self.rows), default=0)
        head = [] if self.headline is None else [f"{self.headline.label}: {self.headline.text}"]
        rows = (f"  {row.label.ljust(width)}  {row.text}" for row in self.rows)
        return "\n".join([*head, self.title, *rows])


@dataclass(frozen=True)
class Grid:
    """Table of text cells under a header, with notes below; the first column names the rows.

    Attributes
    ----------
    header
        Titles of the columns.
    rows
        Cells of every row, as many as there are columns.
    title
        Title of the whole; empty for none.
    notes
        Facts that are shown below the cells.
    """

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    title: str = ""
    notes: tuple[Row, ...] = ()

    def __str__(self) -> str:
        text = format_grid(self.header, self.rows)
        notes = [f"{row.label}: {row.text}" if row.label else row.text for row in self.notes]
        return "\n".join([*([self.title] if self.title else []), text, *notes])


def format_grid(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Text of a table, without a newline at the end: a header, whose cells may have several lines,
    a rule, and the rows. The first column is left-aligned, the others right-aligned."""
    cells = [cell.split("\n") for cell in header]
    height = max(len(cell) for cell in cells)
    # A header cell with fewer lines than others is moved down, next to its column.
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


def format_up(value: float, digits: int = 5) -> str:
    """A number as text with ``digits`` significant digits, rounded up, so that an upper bound is
    still one as printed."""
    if math.isinf(value) or value == 0:
        return format_number(value)
    # ``unit`` is one unit of the last significant digit. A value that exceeds a multiple of it only
    # by rounding must not be raised by a whole unit, hence the factor 1 - 1e-9 below.
    unit = 10.0 ** (math.floor(math.log10(abs(value))) - digits + 1)
    return f"{math.ceil(value * (1 - math.copysign(1e-9, value)) / unit) * unit:.{digits}g}"


def format_number(value: float | None) -> str:
    """A number as text with five significant digits; None becomes ``unknown``, infinity
    ``unbounded``."""
    if value is None:
        return "unknown"
    return "unbounded" if math.isinf(value) else f"{value:.5g}"


def format_short(value: float | None) -> str:
    """A number as text with three significant digits, for the narrow columns of a table; None
    becomes a dash, and an int keeps all its digits."""
    if value is None:
        return "-"
    return "inf" if math.isinf(value) else str(value) if isinstance(value, int) else f"{value:.3g}"


def format_percent(share: float) -> str:
    """A share (0 to 1) as text in per cent, with two significant digits below 10, else as a whole
    number; ``less than 0.0001 %`` for a positive one below 1e-6."""
    if 0 < share < 1e-6:
        return "less than 0.0001 %"
    return f"{100 * share:.0f} %" if share >= 0.1 else f"{100 * share:.2g} %"
