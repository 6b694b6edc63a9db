"""Any chart drawn with Matplotlib, into Axes or as the bytes of a file."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from flmc.base.arrays import Array
from flmc.views.charts.chart import LIGHT, Cells, Chart, Line, Mark, Points, Theme, Words
from flmc.views.figures import new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FileFormat = Literal["png", "svg", "pdf"]
"""Formats of files into which a chart can be drawn."""
_STROKES = {"solid": "-", "dashed": "--", "dotted": ":"}
_SIDES: dict[str, dict[str, Any]] = {
    "left": {"xytext": (-5, 0), "ha": "right", "va": "center"},
    "right": {"xytext": (5, 0), "ha": "left", "va": "center"},
    "above": {"xytext": (0, 4), "ha": "center", "va": "bottom"},
    "below": {"xytext": (0, -4), "ha": "center", "va": "top"},
}


def draw_chart(axes: Axes, chart: Chart, theme: Theme = LIGHT) -> None:
    """Draw a chart into Axes of Matplotlib, with the colours of a theme.

    Examples
    --------
    >>> from flmc.views.charts.chart import ChartAxis, Chart, Line
    >>> from flmc.views.charts.drawing import draw_chart
    >>> from flmc.views.figures import new_figure
    >>> figure, (axes,) = new_figure(columns=1)
    >>> line = Line((0.0, 1.0), (1.0, 10.0), label="a")
    >>> draw_chart(axes, Chart("example", "Example", ChartAxis("x"), ChartAxis("y", True), (line,)))
    >>> axes.get_yscale(), axes.get_ylabel()
    ('log', 'y')
    """
    _prepare(axes, chart, theme)
    for layer in chart.layers:
        if isinstance(layer, Cells):
            _draw_cells(axes, chart, layer, theme)
        elif isinstance(layer, Line):
            _draw_line(axes, layer, theme)
        elif isinstance(layer, Points):
            style: dict[str, Any] = {
                "markersize": layer.size,
                "label": layer.label or "_",
                "alpha": 0.6,
            }
            axes.plot(layer.x, layer.y, ".", color=theme.colours[layer.colour], **style)
        elif isinstance(layer, Words):
            place = {"textcoords": "offset points", "fontsize": 9, **_SIDES[layer.side]}
            colour = theme.colours[layer.colour]
            axes.annotate(layer.text, (layer.x, layer.y), color=colour, **place)
        else:
            _draw_mark(axes, layer, theme)
    # Limits of the axes are set last, because Matplotlib changes them whenever a layer is drawn.
    if chart.x.low is not None or chart.x.high is not None:
        axes.set_xlim(chart.x.low, chart.x.high)
    if chart.y.low is not None or chart.y.high is not None:
        axes.set_ylim(chart.y.low, chart.y.high)
    if any(getattr(layer, "label", "") or isinstance(layer, Cells) for layer in chart.layers):
        axes.legend(
            frameon=False, fontsize=8, labelcolor=theme.colours["ink"], loc="lower left",
            bbox_to_anchor=(0.0, 1.0), ncols=3, borderaxespad=0.2, handlelength=1.6,
        )  # fmt: skip


def render_chart(
    chart: Chart, file_format: FileFormat, theme: Theme = LIGHT, *, titled: bool = True
) -> bytes:
    """The bytes of a picture file with the chart, and with its title above if ``titled``. Equal
    charts give equal bytes."""
    figure, (axes,) = new_figure(columns=1, width=6.4, height=4.0)
    figure.set_facecolor(theme.background)
    draw_chart(axes, chart, theme)
    if titled:
        figure.suptitle(chart.title, fontsize=11, color=theme.colours["ink"])
    stream = io.BytesIO()
    # Files of equal charts are to be equal, so the date is left out of the metadata.
    dates: dict[str, dict[str, Any]] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    figure.savefig(stream, format=file_format, dpi=160, metadata=dates.get(file_format))
    return stream.getvalue()


def _prepare(axes: Axes, chart: Chart, theme: Theme) -> None:
    """Set scales, labels, grid and colours of Axes of Matplotlib to those of the chart and the
    theme."""
    ink = theme.colours["ink"]
    axes.set_facecolor(theme.background)
    axes.set_xlabel(chart.x.label, color=ink)
    axes.set_ylabel(chart.y.label, color=ink)
    axes.tick_params(colors=ink, labelsize=9)
    axes.grid(visible=True, color=theme.grid, linewidth=0.8)
    axes.set_axisbelow(True)
    for side, spine in axes.spines.items():
        spine.set_color(theme.colours["muted"])
        spine.set_visible(side in ("left", "bottom"))
    if chart.x.logarithmic:
        axes.set_xscale("log")
    if chart.y.logarithmic:
        axes.set_yscale("log")
    for axis, target in ((chart.x, axes.xaxis), (chart.y, axes.yaxis)):
        if axis.categories:
            target.set_ticks(range(len(axis.categories)), axis.categories)
    if chart.y.equal:
        axes.set_aspect("equal", adjustable="datalim")


def _draw_line(axes: Axes, line: Line, theme: Theme) -> None:
    """Draw a line of a chart into Axes, and the shaded band about it if it has one."""
    colour = theme.colours[line.colour]
    axes.plot(
        line.x, line.y, _STROKES[line.stroke], color=colour, linewidth=line.width * 0.8,
        label=line.label or "_", marker="o" if line.dots else "", markersize=4,
        solid_capstyle="butt",
    )  # fmt: skip
    if line.low:
        axes.fill_between(line.x, line.low, line.high, color=colour, alpha=0.2, linewidth=0)


def _draw_mark(axes: Axes, mark: Mark, theme: Theme) -> None:
    """Draw the vertical or horizontal line of ``mark`` across the Axes, with its words at the
    line's upper or right end."""
    colour = theme.colours[mark.colour]
    style: dict[str, Any] = {"color": colour, "linestyle": _STROKES[mark.stroke], "linewidth": 1.2}
    words: dict[str, Any] = {"color": colour, "fontsize": 8, "textcoords": "offset points"}
    if mark.axis == "x":
        axes.axvline(mark.value, **style)
        place = (mark.value, 1.0)
        frame = axes.get_xaxis_transform()
        axes.annotate(
            mark.text, place, xycoords=frame, xytext=(3, -3), ha="left", va="top", **words
        )
    else:
        axes.axhline(mark.value, **style)
        place = (1.0, mark.value)
        frame = axes.get_yaxis_transform()
        axes.annotate(
            mark.text, place, xycoords=frame, xytext=(-3, 2), ha="right", va="bottom", **words
        )


def _draw_cells(axes: Axes, chart: Chart, cells: Cells, theme: Theme) -> None:
    """Draw the coloured cells of a chart into Axes, with a square of each kind in the legend."""
    from matplotlib.colors import ListedColormap

    # A cell's code, the index of its kind or -1 for none, selects colour number code + 1; the first
    # colour, for cells without a kind, is that of the grid.
    colours = [theme.grid, *(theme.colours[name] for name in cells.colours)]
    axes.pcolormesh(
        edges(cells.x, chart.x.logarithmic),
        edges(cells.y, chart.y.logarithmic),
        np.array(cells.codes) + 1,
        cmap=ListedColormap(colours),
        vmin=-0.5,
        vmax=len(colours) - 0.5,
        alpha=0.55,
        rasterized=True,
    )
    for kind, colour in zip(cells.kinds, colours[1:], strict=True):
        axes.plot([], [], "s", color=colour, alpha=0.55, markersize=8, label=kind)


def edges(middles: tuple[float, ...], logarithmic: bool) -> Array:
    """Edges of the cells whose ``middles`` ascend and are evenly spaced on a linear or logarithmic
    axis, (cells + 1).

    Examples
    --------
    >>> from flmc.views.charts.drawing import edges
    >>> [round(float(edge), 6) for edge in edges((1.0, 100.0), logarithmic=True)]
    [0.1, 10.0, 1000.0]
    """
    places = np.log(middles) if logarithmic else np.asarray(middles, dtype=float)
    step = (places[-1] - places[0]) / (len(places) - 1)
    ends = places[0] + step * (np.arange(len(places) + 1) - 0.5)
    return np.asarray(np.exp(ends) if logarithmic else ends)
