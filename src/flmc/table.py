"""Plain text tables, for printing plans and results in a terminal or a log."""

from __future__ import annotations

import math
from collections.abc import Sequence


def format_pairs(title: str, rows: Sequence[tuple[str, str]]) -> str:
    """A title and aligned lines of name and value."""
    width = max((len(name) for name, _ in rows), default=0)
    return "\n".join([title, *(f"  {name.ljust(width)}  {value}" for name, value in rows)])


def format_grid(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Aligned columns under a header; the first column is left-aligned, the others right-aligned."""
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    lines = [
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in [header, *rows]
    ]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])


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
