"""Translation of the charts of :mod:`flmc.views` into options of ECharts, the library that draws
them in the browser."""

from __future__ import annotations

import math
from typing import Any

from flmc.views.charts.chart import (
    Cells,
    Chart,
    ChartAxis,
    Colour,
    Line,
    Mark,
    Points,
    Theme,
    Words,
)
from flmc.views.charts.drawing import edges

Options = dict[str, Any]
"""Options of a chart in ECharts' format."""
_LEGEND = 26
"""Height in pixels that is kept free for a chart's legend. One line is enough: ECharts splits a
longer legend into pages, which the reader turns."""
_SIDES = {"left": "left", "right": "right", "above": "top", "below": "bottom"}


def to_options(chart: Chart, theme: Theme) -> Options:
    """A chart of :mod:`flmc.views` as options of ECharts, in the colours of a theme: axes, series,
    legend and tooltip."""
    cells = next((layer for layer in chart.layers if isinstance(layer, Cells)), None)
    series = _series(chart, theme)
    named = [each["name"] for each in series if each.get("name")]
    options: Options = {
        "animation": False,
        "backgroundColor": "transparent",
        "textStyle": {"color": theme.colours["ink"], "fontFamily": "Roboto, sans-serif"},
        "grid": {
            "left": 62,
            "right": 24,
            "top": 14 + (_LEGEND if named or cells else 0),
            "bottom": 46,
        },
        "tooltip": _tooltip(theme, bool(cells)),
        "xAxis": [_axis(chart.x, theme, "x")],
        "yAxis": [_axis(chart.y, theme, "y")],
        "series": series,
    }
    if named:
        options["legend"] = {
            "type": "scroll",
            "data": list(dict.fromkeys(named)),
            "top": 0,
            "left": 0,
            "itemHeight": 9,
            "itemWidth": 18,
            "textStyle": {"color": theme.colours["ink"], "fontSize": 12},
            "selectedMode": False,
        }
    if cells is not None:
        _add_cells(options, chart, cells, theme)
    return options


def _tooltip(theme: Theme, over_cells: bool) -> Options:
    """ECharts' options of the box that shows the numbers below the mouse pointer; ``over_cells``
    says that the chart has coloured cells."""
    return {
        "trigger": "item" if over_cells else "axis",
        "confine": True,
        "backgroundColor": theme.background,
        "borderColor": theme.grid,
        "textStyle": {"color": theme.colours["ink"], "fontSize": 12},
        ":valueFormatter": "v => typeof v === 'number' ? Number(v.toPrecision(4)).toString() : v",
    }


def _axis(axis: ChartAxis, theme: Theme, name: str) -> Options:
    """ECharts' options of the axis ``name``, which is ``x`` or ``y``: scale, ends, label and ticks
    in the colours of the theme."""
    ink, muted = theme.colours["ink"], theme.colours["muted"]
    options: Options = {
        "type": "log" if axis.logarithmic else "value",
        "name": axis.label,
        "nameLocation": "middle",
        "nameGap": 28 if name == "x" else 46,
        "nameTextStyle": {"color": ink, "fontSize": 12},
        "axisLabel": {"color": ink, "fontSize": 11, "hideOverlap": True},
        "axisLine": {"show": True, "onZero": False, "lineStyle": {"color": muted}},
        "axisTick": {"show": True, "lineStyle": {"color": muted}},
        "splitLine": {"show": True, "lineStyle": {"color": theme.grid}},
        "scale": True,
    }
    if axis.low is not None:
        options["min"] = axis.low
    if axis.high is not None:
        options["max"] = axis.high
    if axis.categories:
        names = ",".join(f"'{each}'" for each in axis.categories)
        options["axisLabel"][":formatter"] = f"v => [{names}][v] ?? ''"
        options |= {"interval": 1, "splitLine": {"show": False}, "axisTick": {"show": False}}
        options["axisLabel"] |= {"hideOverlap": False, "showMinLabel": False, "showMaxLabel": False}
        # ECharts puts ticks at multiples of the interval from the lower end of the axis, so the end
        # must be a whole number for ticks to lie at the categories.
        options |= {"min": -1, "max": len(axis.categories)}
    elif axis.logarithmic or axis.low is not None or axis.high is not None:
        options["axisLabel"][":formatter"] = "v => Number(v.toPrecision(3)).toString()"
        # The labels at the two ends of the axis are hidden: the ends are seldom round numbers, and
        # their labels would have too many digits.
        if not axis.logarithmic:
            options["axisLabel"] |= {"showMinLabel": False, "showMaxLabel": False}
    return options


def _series(chart: Chart, theme: Theme) -> list[Options]:
    """ECharts' options of the series that draw a chart's layers (lines, dots, words and marks),
    except its coloured cells."""
    series: list[Options] = []
    marks: list[Options] = []
    for layer in chart.layers:
        if isinstance(layer, Line):
            series += _line(layer, theme)
        elif isinstance(layer, Points):
            series.append(
                {
                    "type": "scatter",
                    "name": layer.label,
                    "data": _pairs(layer.x, layer.y),
                    "symbolSize": layer.size,
                    "z": 3,
                    "itemStyle": {"color": theme.colours[layer.colour], "opacity": 0.6},
                    "silent": True,
                    "large": False,
                    "tooltip": {"show": False},
                }
            )
        elif isinstance(layer, Words):
            series.append(_words(layer, theme))
        elif isinstance(layer, Mark):
            marks.append(_mark(layer, theme))
    if marks:
        series.append(
            {
                "type": "line",
                "data": [],
                "silent": True,
                "markLine": {"symbol": "none", "silent": True, "data": marks},
            }
        )
    return series


def _line(line: Line, theme: Theme) -> list[Options]:
    """ECharts' series of a line; a line with a band around it has two more series, which fill the
    band."""
    colour = theme.colours[line.colour]
    series: list[Options] = []
    if line.low:
        # ECharts has no bands. So an invisible line is drawn at the band's lower end, and the
        # height of the band is stacked on it as a filled area.
        height = tuple(high - low for low, high in zip(line.low, line.high, strict=True))
        for values, opacity in ((line.low, 0.0), (height, 0.2)):
            series.append(
                {
                    "type": "line",
                    "data": _pairs(line.x, values),
                    "stack": f"band {line.label}",
                    "symbol": "none",
                    "silent": True,
                    "tooltip": {"show": False},
                    "lineStyle": {"opacity": 0},
                    "areaStyle": {"color": colour, "opacity": opacity},
                }
            )
    series.append(
        {
            "type": "line",
            "name": line.label,
            "data": _pairs(line.x, line.y),
            "z": 3,
            "showSymbol": line.dots,
            "symbolSize": 6,
            "connectNulls": False,
            "lineStyle": _stroke(line.colour, line.stroke, line.width, theme),
            "itemStyle": {"color": colour},
            "emphasis": {"disabled": True},
        }
    )
    return series


def _stroke(colour: Colour, stroke: str, width: float, theme: Theme) -> Options:
    return {"color": theme.colours[colour], "type": stroke, "width": width, "cap": "butt"}


def _words(words: Words, theme: Theme) -> Options:
    """ECharts' series that draws a text at one point of the chart: as ECharts has no free texts,
    the text is the label of an invisible dot."""
    return {
        "type": "scatter",
        "data": _pairs((words.x,), (words.y,)),
        "symbolSize": 1,
        "silent": True,
        "itemStyle": {"color": "transparent"},
        "tooltip": {"show": False},
        "z": 5,
        "label": {
            "show": True,
            "formatter": words.text,
            "position": _SIDES[words.side],
            "color": theme.colours[words.colour],
            "fontSize": 12,
        },
    }


def _mark(mark: Mark, theme: Theme) -> Options:
    """ECharts' options of a mark, which is a straight line across the chart with a label."""
    colour = theme.colours[mark.colour]
    end = "insideEndTop" if mark.axis == "y" else "end"
    return {
        f"{mark.axis}Axis": mark.value,
        "lineStyle": {"color": colour, "type": mark.stroke, "width": 1.5},
        "label": {
            "show": bool(mark.text),
            "formatter": mark.text,
            "color": colour,
            "position": end,
            "fontSize": 11,
            "distance": 2,
        },
    }


def _pairs(x: tuple[float, ...], y: tuple[float, ...]) -> list[list[float | None]]:
    """Points in ECharts' format; points that are not finite become gaps."""
    return [
        [a, b] if math.isfinite(a) and math.isfinite(b) else [None, None]
        for a, b in zip(x, y, strict=True)
    ]


def _add_cells(options: Options, chart: Chart, cells: Cells, theme: Theme) -> None:
    """Add the coloured ``cells`` of ``chart`` to its ECharts ``options``, in place: as a heatmap on
    invisible category axes, which cover the same rectangle as the chart's own axes."""
    x, y = edges(cells.x, chart.x.logarithmic), edges(cells.y, chart.y.logarithmic)
    options["xAxis"][0] |= {"min": float(x[0]), "max": float(x[-1])}
    options["yAxis"][0] |= {"min": float(y[0]), "max": float(y[-1])}
    for name, middles in (("xAxis", cells.x), ("yAxis", cells.y)):
        options[name][0]["splitLine"] = {"show": False}
        options[name].append(
            {"type": "category", "show": False, "data": [f"{middle:.4g}" for middle in middles]}
        )
    kinds = zip(cells.kinds, cells.colours, strict=True)
    colours = [theme.colours[colour] for colour in cells.colours]
    for code, (kind, _) in enumerate(kinds):
        data = [
            [column, row, code]
            for row, codes in enumerate(cells.codes)
            for column, each in enumerate(codes)
            if each == code
        ]
        options["series"].append(
            {
                "type": "heatmap",
                "name": kind,
                "data": data,
                "xAxisIndex": 1,
                "yAxisIndex": 1,
                "itemStyle": {"color": colours[code], "opacity": 0.55},
                "z": 1,
            }
        )
    options["legend"]["data"] = [*cells.kinds, *options["legend"]["data"]]
    count = len(options["series"])
    # ECharts refuses heatmaps without a visualMap, which maps each cell's code to a colour.
    options["visualMap"] = {
        "show": False,
        "type": "piecewise",
        "dimension": 2,
        "seriesIndex": list(range(count - len(cells.kinds), count)),
        "categories": list(range(len(cells.kinds))),
        "inRange": {"color": colours, "opacity": 0.55},
    }
