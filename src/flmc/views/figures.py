"""Figures: how every picture of flmc begins, looks and is saved.

Every function draws into Axes that it is given, so that a user can add a curve of her own."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from flmc.base.errors import MissingExtra
from flmc.runs.durable_files import write_atomically

_log = logging.getLogger(__name__)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's palette, which colour-blind readers can tell apart."""


def new_figure(
    columns: int,
    rows: int = 1,
    width: float = 3.4,
    height: float = 3.2,
    layout: Literal["constrained"] | None = "constrained",
    **settings: Any,
) -> tuple[Figure, list[Axes]]:
    """Axes row by row, without a window; needs the extra `plot`."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtra("pictures need matplotlib: pip install 'flmc[plot]'") from error
    figure = Figure(figsize=(columns * width, rows * height), layout=layout)
    FigureCanvasAgg(figure)
    return figure, list(figure.subplots(rows, columns, squeeze=False, **settings).flat)


def draw_curves(
    axes: Axes,
    rows: Sequence[Mapping[str, Any]],
    value: str,
    curves: Sequence[str],
    styles: Mapping[str, Any] | None = None,
) -> None:
    """Curves of a table with shaded standard errors, on a logarithmic axis if they span more than a
    factor of three; rows have ``curve``, ``x``, the value and its standard error, named ``value``
    and ``value_se``."""
    shade = 0.25 if len(curves) < 5 else 0.1
    for index, name in enumerate(curves):
        points = sorted(
            (float(r["x"]), float(r[value]), float(r[value + "_se"]))
            for r in rows
            if r["curve"] == name
        )
        if not points:
            continue
        x, y, se = np.array(points).T
        below = 0.35 * min(
            len(curves) - 1 - index, 4
        )  # thicker, so that an equal curve above does not hide it
        style = {
            "color": COLOURS[index % len(COLOURS)],
            "marker": "os^Dv"[index % 5],
            "markersize": 2.5 + 2 * below,
            "linewidth": 1.1 + below,
            **(styles or {}).get(name, {}),
        }
        axes.plot(x, y, label=name, **style)
        axes.fill_between(
            x, np.maximum(y - se, 1e-300), y + se, color=style["color"], alpha=shade, linewidth=0
        )
    drawn = [float(row[value]) for row in rows if row["curve"] in curves]
    if drawn and 0 < 3 * min(drawn) < max(drawn):
        _make_logarithmic(axes)


def _make_logarithmic(axes: Axes) -> None:
    """Labels in plain numbers; at 2 and 5 too where there are few powers of ten. (Nine small ticks
    for each power would take as long to draw as all the rest.)"""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.set_yscale("log")
    low, high = axes.get_ylim()
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_locator(LogLocator(subs=(2.0, 5.0)))
    axes.yaxis.set_minor_formatter(
        axes.yaxis.get_major_formatter() if high < 30 * low else NullFormatter()
    )


def draw_mse(
    axes: Axes,
    rows: Sequence[Mapping[str, Any]],
    curves: Sequence[str],
    trace: float,
    **settings: Any,
) -> None:
    """Mean squared error in the paper's axes; the dotted line is what exact posterior samples
    have."""
    draw_curves(axes, rows, "mse", curves, **settings)
    axes.axhline(trace, color="0.4", linestyle=":", linewidth=1, label="exact samples")
    axes.set_ylabel("MSE")


def draw_variance_ratio(
    axes: Axes, rows: Sequence[Mapping[str, Any]], curves: Sequence[str], **settings: Any
) -> None:
    """Variance of the samples over the posterior's; 1 is right."""
    draw_curves(axes, rows, "variance_ratio", curves, **settings)
    axes.axhline(1.0, color="0.4", linestyle=":", linewidth=1)
    axes.set_ylabel("variance ratio")


def write_png(figure: Figure, path: Path) -> Path | None:
    """A picture that cannot be written is no reason to lose a result."""
    try:
        write_atomically(path, lambda stream: figure.savefig(stream, dpi=160, format="png"))
    except OSError as error:
        _log.warning("cannot write %s: %s", path, error.strerror)
        return None
    return path


def write_png_and_pdf(figure: Figure, out: Path, name: str) -> str:
    """Save a picture as PNG and as PDF; returns the name of the PNG."""
    figure.savefig(out / f"{name}.png", dpi=160)
    figure.set_layout_engine("none")  # the layout is found
    figure.savefig(out / f"{name}.pdf")
    return f"{name}.png"
