"""Terminal output of the two forms in which results are shown: listings (rows of label and value)
and grids (tables)."""

from __future__ import annotations

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from flmc.base.tables import Grid, Listing, Row, Severity, format_grid

_STYLES: dict[Severity, str] = {
    "plain": "",
    "good": "green",
    "unknown": "magenta",
    "warning": "yellow",
    "bad": "bold red",
}


def show(*things: Listing | Grid | str) -> None:
    """Print listings, grids and lines to standard output, with an empty line between them, in forms
    that fit the width of the terminal."""
    console = Console()
    for index, thing in enumerate(things):
        if index:
            console.print()
        if console.width < _NARROW and not isinstance(thing, str):
            console.print(render_narrow(thing))
        elif isinstance(thing, Grid) and (
            len(thing.header) > _WIDE or _width(thing) > console.width
        ):
            console.print(str(thing), soft_wrap=True, highlight=False, markup=False)
        else:
            console.print(render(thing))


_WIDE = 8
"""Largest number of columns of a grid (a table) that rich prints. A grid with more columns, or one
wider than the terminal, is printed as plain text, because rich would cut off its cells; a terminal
wraps the long lines of plain text, and a file keeps them whole."""
_NARROW = 60
"""Number of characters in a terminal's line below which values are printed under their names, not
beside them."""


def _width(grid: Grid) -> int:
    """Number of characters in a line that a grid needs so that no cell is cut off."""
    lines = format_grid(grid.header, grid.rows).splitlines()
    return max(len(line) for line in lines) + 2  # two more characters, for the margins of the table


def render(thing: Listing | Grid | str) -> RenderableType:
    """The object that rich prints for a listing, a grid or a line."""
    if isinstance(thing, str):
        return Text(thing)
    return render_listing(thing) if isinstance(thing, Listing) else render_grid(thing)


def render_listing(listing: Listing) -> RenderableType:
    """The object that rich prints for a listing: its headline and title, then a line for each row
    with label and value side by side, in the colour of the row's severity."""
    # Texts are Text objects, because in a plain string rich would take a word in square brackets,
    # such as the name of an entry of theta, for markup.
    title = Text(listing.title, style="italic") if listing.title else None
    table = Table(
        show_header=False, box=None, padding=(0, 2, 0, 0), title=title, title_justify="left"
    )
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for row in listing.rows:
        table.add_row(Text(row.label), Text(row.text, style=_STYLES[row.severity]))
    return table if listing.headline is None else Group(_note(listing.headline), table)


def render_narrow(thing: Listing | Grid) -> RenderableType:
    """The object that rich prints for a listing or a grid on a narrow terminal: every value is on a
    line of its own under its name, so that no number is cut off."""
    lines: list[RenderableType] = [Text(thing.title, style="italic")] if thing.title else []
    if isinstance(thing, Listing):
        if thing.headline is not None:
            lines.insert(0, _note(thing.headline))
        for row in thing.rows:
            lines += [Text(row.label, style="bold")] if row.label else []
            lines.append(Padding(Text(row.text, style=_STYLES[row.severity]), (0, 0, 0, 2)))
        return Group(*lines)
    names = [" ".join(name.split()) for name in thing.header]
    for cells in thing.rows:
        lines.append(Text(f"{names[0]} {cells[0]}".strip(), style="bold"))
        lines += [Text(f"  {name} {cell}") for name, cell in zip(names[1:], cells[1:], strict=True)]
    return Group(*lines, *(_note(row) for row in thing.notes))


def render_grid(grid: Grid) -> RenderableType:
    """The object that rich prints for a grid: a table with a header, and the grid's notes below
    it."""
    title = Text(grid.title, style="italic") if grid.title else None
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for index, name in enumerate(grid.header):
        table.add_column(Text(name), justify="left" if index == 0 else "right", no_wrap=index > 0)
    for cells in grid.rows:
        table.add_row(*map(Text, cells))
    return Group(table, *(_note(row) for row in grid.notes))


def _note(row: Row) -> Text:
    """Text for rich with the label and value of ``row``, which is a listing's headline or a note
    below a grid, in the colour of the row's severity."""
    text = f"{row.label}: {row.text}" if row.label else row.text
    return Text(text, style=_STYLES[row.severity])
