"""Cost of a symbol against devices, entries, experiments, chains and rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

Row = Mapping[str, Any]

# Okabe and Ito's colours, which people of any colour vision tell apart; markers and dashes differ
# too.
BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#6B6B6B"


def draw(document: Row, path: Path) -> None:
    """Draw the five panels that the document has rows for.

    Parameters
    ----------
    document
        The JSON of the suite.
    path
        Where the PNG goes.
    """
    figure = Figure(figsize=(10.5, 6.2), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(2, 3, sharey=True)
    large, few = document.get("large", []), document.get("few", [])
    _panel(axes[0, 0], "devices (5 entries)", _of(large, "devices", dim=5), "devices")
    _panel(axes[0, 1], "entries (20 devices)", _of(large, "dim"), "dim")
    chains = _of(large, "dim, chains")
    if chains:
        _line(
            axes[0, 1],
            chains,
            "dim",
            "ns_per_symbol",
            GREEN,
            "s--",
            "the same, chains of one data set",
        )
    for place, name, words in (
        (axes[1, 0], "experiments", "data sets (one chain)"),
        (axes[1, 1], "chains", "chains (one data set)"),
        (axes[1, 2], "rounds", "rounds (8 data sets)"),
    ):
        _panel(place, words, _of(few, name), "value")
        _asymptote(place, _of(few, name))
    for row in axes:
        row[0].set_ylabel("ns of CPU per symbol")
    _legend(axes[0, 2], axes)
    figure.suptitle("What a transmitted symbol costs", fontsize=13, fontweight="bold")
    # No time stamp in the file: the same JSON gives the same bytes with the same Matplotlib.
    figure.savefig(path, dpi=130, metadata={"Software": None})


def _of(rows: Sequence[Row], against: str, **same: int) -> list[Row]:
    """Rows of a series that were measured."""
    return [
        row
        for row in rows
        if row["against"] == against
        and row.get("ns_per_symbol")
        and all(row[name] == value for name, value in same.items())
    ]


def _line(
    axes: Axes, rows: Sequence[Row], x: str, y: str, colour: str, style: str, label: str
) -> None:
    """A curve of the rows that have a value."""
    points = [(row[x], row[y]) for row in rows if row.get(y)]
    if points:
        axes.plot(
            *zip(*points, strict=True),
            style,
            color=colour,
            label=label,
            markersize=5,
            linewidth=1.6,
            alpha=0.9,
        )


def _panel(axes: Axes, title: str, rows: Sequence[Row], x: str) -> None:
    """A panel: flmc, NumPy where it was measured, and the limits."""
    _line(axes, rows, x, "numpy_ns_per_symbol", ORANGE, "^:", "NumPy engine")
    _line(axes, rows, x, "ns_per_symbol", BLUE, "o-", "flmc.run's engine")
    _line(axes, rows, x, "limit_ns_per_symbol", GREY, "--", "limit of the machine")
    axes.set_title(title, fontsize=10.5)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.grid(True, which="major", color="#DDDDDD", linewidth=0.7)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _count(value)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.tick_params(labelsize=9)


def _asymptote(axes: Axes, rows: Sequence[Row]) -> None:
    """The bound of a series as a cost of a symbol."""
    points = [
        (row["value"], row["ns_per_symbol"] / row["times_the_bound"])
        for row in rows
        if row.get("times_the_bound")
    ]
    if points:
        axes.plot(
            *zip(*points, strict=True),
            "-.",
            color=GREY,
            linewidth=1.3,
            label="bound for few: 1.5 (1 ms + full vectors)",
        )


def _count(value: float) -> str:
    """10 000 and more with a k or an M."""
    for size, unit in ((1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{unit}"
    return f"{value:g}"


def _legend(place: Axes, every: Any) -> None:
    """One legend for all panels, where the sixth would be."""
    place.axis("off")
    handles: dict[str, Any] = {}
    for axes in every.flat:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    place.legend(list(handles.values()), list(handles), loc="center", frameon=False, fontsize=10)
