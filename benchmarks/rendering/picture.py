"""Cost of a symbol against devices, entries, experiments, chains and rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

Row = Mapping[str, Any]


class Look(NamedTuple):
    """How a curve is drawn and called."""

    label: str
    colour: str
    style: str


# Okabe and Ito's colours, which people of any colour vision tell apart; markers and dashes differ
# too. In the order of the legend.
GREY = "#6B6B6B"
FLMC = Look("flmc, engine auto", "#0072B2", "o-")
CHAINS = Look("the same, chains of one data set", "#009E73", "s--")
NUMPY = Look("NumPy engine", "#D55E00", "^:")
C = Look("C reference, standard point", "#000000", "*")
LIMIT = Look("limit of the machine", GREY, "--")
BOUND = Look("bound for few: 1.5 (1 ms + full vectors)", GREY, "-.")
LOOKS = (FLMC, CHAINS, NUMPY, C, LIMIT, BOUND)


def draw(document: Row, path: Path) -> None:
    """Draw the five panels, with what the document has rows for.

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
    _line(axes[0, 1], CHAINS, _points(_of(large, "dim, chains"), "dim", "ns_per_symbol"))
    for place, name, words in (
        (axes[1, 0], "experiments", "data sets (one chain)"),
        (axes[1, 1], "chains", "chains (one data set)"),
        (axes[1, 2], "rounds", "rounds (8 data sets)"),
    ):
        rows = _of(few, name)
        _panel(place, words, rows, "value")
        bounds = [(row["value"], row["ns_per_symbol"] / row["times_the_bound"]) for row in rows]
        _line(place, BOUND, bounds)
    standard = [row for row in document.get("standard", []) if row["scheme"] == "digital"]
    reference = [row for row in standard if row["what"] == "C reference"]
    _line(axes[1, 0], C, [(1000, row["ns_per_symbol"]) for row in reference if row["seconds"]])
    for row in axes:
        row[0].set_ylabel("ns of CPU per symbol")
    _legend(axes[0, 2], axes, document["machine"])
    figure.suptitle("What a transmitted symbol costs", fontsize=13, fontweight="bold")
    # Without the name of the program: the same JSON and Matplotlib give the same bytes.
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


def _points(rows: Sequence[Row], x: str, y: str) -> list[tuple[float, float]]:
    """The points of the rows that have a value."""
    return [(row[x], row[y]) for row in rows if row.get(y)]


def _line(axes: Axes, look: Look, points: Sequence[tuple[float, float]]) -> None:
    """A curve, if it has points."""
    if points:
        size = 9 if look is C else 5
        xs, ys = zip(*points, strict=True)
        axes.plot(
            *(xs, ys, look.style), color=look.colour, label=look.label, markersize=size, alpha=0.9
        )


def _panel(axes: Axes, title: str, rows: Sequence[Row], x: str) -> None:
    """A panel: flmc, NumPy where it was measured, and the limits."""
    _line(axes, NUMPY, _points(rows, x, "numpy_ns_per_symbol"))
    _line(axes, FLMC, _points(rows, x, "ns_per_symbol"))
    _line(axes, LIMIT, _points(rows, x, "limit_ns_per_symbol"))
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


def _count(value: float) -> str:
    """A thousand and more with a k or an M."""
    for size, unit in ((1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{unit}"
    return f"{value:g}"


def _legend(place: Axes, every: Any, machine: Row) -> None:
    """One legend for all panels where the sixth would be, and where the numbers come from."""
    place.axis("off")
    handles: dict[str, Any] = {}
    for axes in every.flat:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    shown = [look.label for look in LOOKS if look.label in handles]
    place.legend(
        [handles[label] for label in shown], shown, loc="center", frameon=False, fontsize=10
    )
    origin = f"{machine['processor']}, {machine['processors']} processors\n{machine['date']}"
    place.text(
        *(0.5, 0.08, origin), transform=place.transAxes, ha="center", fontsize=8.5, color=GREY
    )
