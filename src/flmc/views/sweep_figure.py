"""The figure of a sweep, which is a set of runs over combinations of settings: results against the
numeric setting that has most values."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from flmc.base.errors import MissingExtra
from flmc.planning.fairness import QUANTITIES
from flmc.planning.limits import Limits
from flmc.runs.sweeps.table import DATA_SETS, Sweep
from flmc.views.figures import (
    COLOURS,
    draw_curves,
    epsilon_label,
    label_y,
    make_x_logarithmic,
    new_figure,
    write_png,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

SWEPT = (
    ("variance_ratio", "variance ratio"),
    ("wasserstein2_squared", "squared W2 distance"),
    ("one_chain_mean_error", "one chain: mean error"),
    ("r_hat", "R-hat"),
    ("stein_ratio", "Stein ratio"),
    ("mean_shift", "shift of the mean [posterior sd]"),
    ("accuracy", "accuracy, held out"),
    ("log_loss", "log loss, held out"),
    ("epsilon_run", "epsilon of the run"),
    ("temperature", "temperature"),
)
"""Columns of a sweep's table with the labels of their axes; a column is drawn if it was measured
and varies."""
PLANNED = (
    ("predicted_variance_ratio", "predicted variance ratio"),
    ("epsilon_round", "epsilon of a round"),
    ("gain_used", "gain"),
    ("rounds_needed", "rounds needed"),
)
"""Columns, with the labels of their axes, that are drawn for a sweep that only makes plans and runs
none."""


def draw_sweep_file(done: Sweep, out: Path) -> Path | None:
    """Write ``sweep.png`` into the directory ``out``: a panel for each result against the numeric
    setting with most values, with a curve for each combination of the other settings. If several
    methods were run on several data sets, a second row of panels shows each method's difference
    from the first, paired by data set. Where values over data sets have heavy tails, medians and
    quartiles are drawn in place of means and standard errors. Returns the file's path; None if
    there is nothing to draw, without Matplotlib, or if writing failed."""
    rows = [row for row in done.rows if row["error"] is None]
    numeric = {
        name: values
        for name, values in done.axes.items()
        if all(isinstance(v, (int, float)) for v in values) and len(values) > 1
    }
    columns = PLANNED if done.plan_only else SWEPT
    shown = [(name, words) for name, words in columns if _varies([row.get(name) for row in rows])]
    if not numeric or not shown:
        return None
    x = max(numeric, key=lambda name: len(numeric[name]))
    others = [name for name in done.axes if name != x]
    # If every run spends just the epsilon that it was allowed, a panel of spent against allowed
    # epsilon would show a mere diagonal, so it is left out.
    shown = [each for each in shown if x != "epsilon" or not _is_budget(rows, each[0])]
    if not shown:
        return None
    # Differences between methods cannot be drawn if the methods are the values on the x axis: each
    # point would belong to another method.
    pairs = [] if done.methods == x else done.paired
    try:
        rows_of_panels = 2 if pairs else 1
        figure, panels = new_figure(len(shown), rows_of_panels, width=3.2, height=3.0)
    except MissingExtra:
        return None
    # A curve has one style in all panels, so the styles are made from all points: a panel may lack
    # some curves, or their first points.
    styles = _styles_of(done.rows, others)
    marks = _Marks()
    for axes, (name, words) in zip(panels, shown, strict=False):
        table, middle = _points(rows, name, x, others)
        draw_curves(axes, table, name, list(styles), styles)
        _draw_median_intervals(axes, table, name, styles)
        marks.draw(axes, rows, table, name)
        if name in ("variance_ratio", "predicted_variance_ratio", "temperature", "stein_ratio"):
            axes.axhline(1.0, color="0.4", linestyle=":", linewidth=1)
        if x == "epsilon" and max(numeric[x]) >= 10 * min(numeric[x]):
            make_x_logarithmic(axes)
        axes.set_xlabel(_label_of_x(done, x))
        label_y(axes, _label(done, name, words) + middle)
    for axes, (name, words) in zip(panels[len(shown) :], shown, strict=False):
        of_metric = [each for each in pairs if each["metric"] == name]
        if not of_metric:
            axes.axis("off")
            continue
        _draw_pairs(axes, of_metric, x, others, styles)
        axes.set_xlabel(_label_of_x(done, x))
        label_y(axes, f"{words},\nless that of {of_metric[0]['against']}")
    head = [*_caveats(rows), *_comparison(done), *_bands(rows, [name for name, _ in shown])]
    if x == "epsilon" or any(name.startswith("epsilon") for name, _ in shown):
        head += done.reservations
    if head:
        # About 70 letters of this size fit into the width of one panel; longer lines would be cut
        # off at the edge of the figure.
        letters = 70 * max(1, len(panels) // rows_of_panels)
        figure.suptitle("\n".join(textwrap.fill(line, letters) for line in head), fontsize=7)
    drawn: dict[str, Any] = {}
    if others:
        for axes in panels:
            handles, labels = axes.get_legend_handles_labels()
            drawn |= dict(zip(labels, handles, strict=True))
        drawn = {curve: drawn[curve] for curve in styles if curve in drawn}
    drawn |= marks.handles
    if drawn:
        figure.legend(
            list(drawn.values()),
            list(drawn),
            loc="outside lower center",
            ncols=min(len(drawn), 4 if len(panels) > 2 else 2),
            fontsize=6.5,
            frameon=False,
        )
    return write_png(figure, out / "sweep.png")


class _Marks:
    """Draws marks over points of the panels of a sweep's figure that need a warning, such as plans
    that are infeasible or chains that do not agree, and collects the marks for the legend."""

    def __init__(self) -> None:
        self.handles: dict[str, Line2D] = {}
        """Entries of the legend, one for each kind of mark that was drawn: an empty line of
        Matplotlib with the mark, by the words that say what the mark means."""

    def draw(
        self,
        axes: Axes,
        rows: Sequence[Mapping[str, Any]],
        points: Sequence[Mapping[str, Any]],
        name: str,
    ) -> None:
        """Draw marks over those of ``points`` that need a warning, into the panel ``axes`` of the
        column ``name``. The i-th point was made from the i-th of those ``rows`` of the sweep's
        table in which the column has a value."""
        from matplotlib.lines import Line2D

        known = [row for row in rows if row.get(name) is not None]
        for words, (applies, style) in _MARKS.items():
            marked = [p for row, p in zip(known, points, strict=True) if applies(row, name)]
            if marked:
                line = {"linestyle": "", "color": "black", "zorder": 5, **style}
                axes.plot([p["x"] for p in marked], [p[name] for p in marked], **line)
                self.handles[words] = Line2D([], [], **line)


def _is_own_claim(row: Mapping[str, Any], name: str) -> bool:
    """Whether the column ``name`` is an epsilon that a user's own class states."""
    return name.startswith("epsilon") and bool(row.get("privacy_stated_by"))


def _is_infeasible(row: Mapping[str, Any], name: str) -> bool:
    """Whether a row of the sweep's table is infeasible: by the verdict of its run, or by that of
    its plan if it was not run. ``name``, the column that is drawn, is not used."""
    return (row.get("verdict_of_run") or row.get("verdict")) == "infeasible"


def _is_unmixed(row: Mapping[str, Any], name: str) -> bool:
    """Whether the column ``name`` was measured on chains that do not agree with each other."""
    measured = not name.startswith("epsilon") and name not in ("temperature", *dict(PLANNED))
    return measured and "unmixed" in (row.get("findings_of_run") or "").split("; ")


_MARKS: dict[str, tuple[Callable[[Mapping[str, Any], str], bool], dict[str, Any]]] = {
    "infeasible by its verdict": (
        _is_infeasible,
        {"marker": "o", "markersize": 5, "markerfacecolor": "white", "markeredgewidth": 0.8},
    ),
    "chains not mixed": (_is_unmixed, {"marker": "x", "markersize": 4, "markeredgewidth": 0.8}),
    "stated by a user's class, not proven": (
        _is_own_claim,
        {"marker": "s", "markersize": 8, "fillstyle": "none", "markeredgewidth": 0.8},
    ),
}
"""Marks over points, by their words in the legend. Each is a function that says, for a row of the
sweep's table and the name of a column, whether the point is marked, and Matplotlib's arguments for
drawing the mark."""


def _points(
    rows: Sequence[Mapping[str, Any]], name: str, x: str, others: Sequence[str]
) -> tuple[list[dict[str, Any]], str]:
    """Points of all curves of the column ``name`` against the setting ``x``, as a table for
    :func:`flmc.views.figures.draw_curves`, and words to add to the label of the y axis.

    Points are means with standard errors. They are medians, and the words say so, in two cases: of
    data sets, with quartiles, if a row has heavy tails; and of single runs, if the temperature
    differs from run to run."""
    known = [row for row in rows if row.get(name) is not None]
    heavy = _is_heavy(rows, name)
    # The table has this column for the temperature, if runs differ because the channel is random.
    of_runs = f"{name}_of_runs"
    if any(row.get(of_runs) is not None for row in known):
        table = []
        for row in known:
            middle, low, high = (row.get(f"{of_runs}{end}") for end in ("", "_low", "_high"))
            same = row[name]  # without a median of runs, the row's number holds for all its runs
            point = {"curve": _curve(row, others), "x": row[x]}
            point |= {name: same if middle is None else middle}
            point |= {"low": same if low is None else low}
            table.append(point | {"high": same if high is None else high})
        return table, "\n(median of single runs)"
    table = []
    for row in known:
        point = {"curve": _curve(row, others), "x": row[x], name: row[name]}
        error = row.get(f"{name}_se") or 0.0
        if name.startswith("one_chain_"):  # a metric whose standard error the table does not hold
            error = _error_over_data_sets(row, name)
        point |= {"low": row[name] - error, "high": row[name] + error}
        if heavy:
            ends = {"low": row[f"{name}_q25"], "high": row[f"{name}_q75"]}
            point |= {name: row[f"{name}_median"], **ends}
            for end in ("low", "high"):
                point[f"median_{end}"] = row.get(f"{name}_median_{end}")
        table.append(point)
    return table, "\n(median of data sets)" if heavy else ""


def _draw_median_intervals(
    axes: Axes, table: Sequence[Mapping[str, Any]], name: str, styles: Mapping[str, Any]
) -> None:
    """Draw a bar from the lower to the upper end of the interval of each point's median, where
    there is one."""
    for point in table:
        low, high = point.get("median_low"), point.get("median_high")
        if low is not None and high is not None:
            around = [[max(0.0, point[name] - low)], [max(0.0, high - point[name])]]
            colour = styles[point["curve"]]["color"]
            bar = {"ecolor": colour, "elinewidth": 0.9, "capsize": 2, "fmt": "none"}
            axes.errorbar([point["x"]], [point[name]], around, **bar)


def _is_budget(rows: Sequence[Mapping[str, Any]], name: str) -> bool:
    """Whether the column ``name`` is an epsilon that equals the budget at all points."""
    known = [row for row in rows if row.get(name) is not None]
    return name.startswith("epsilon") and all(
        abs(row[name] - row["epsilon"]) <= 1e-3 * row["epsilon"] for row in known
    )


def _is_heavy(rows: Sequence[Mapping[str, Any]], name: str) -> bool:
    """Whether the column ``name`` has heavy tails over the data sets of a row, so that medians and
    quartiles are drawn."""
    return any(
        row.get(name) is not None and name in (row.get("heavy_tails") or "").split("; ")
        for row in rows
    )


def _bands(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> list[str]:
    """Lines for the head of the figure that say what shaded bands and bars are in the panels of the
    columns ``names``; empty if no panel has any."""
    errors = (
        row.get(f"{name}_se") or (name.startswith("one_chain_") and row.get(DATA_SETS))
        for name in names
        if not _is_heavy(rows, name)
        for row in rows
    )
    lines = ["shaded: one standard error to either side"] if any(errors) else []
    if any(_is_heavy(rows, name) for name in names):
        lines.append(
            "where medians are drawn, shaded: middle half of data sets; bars: 95 % interval of the"
            " median"
        )
    if "temperature" in names and any(row.get("temperature_of_runs") for row in rows):
        lines.append("temperature, shaded: nine of ten single runs")
    return lines


def _error_over_data_sets(row: Mapping[str, Any], name: str) -> float:
    """Standard error of the mean over data sets of the metric ``name`` in a row of the sweep's
    table; 0 for one data set."""
    values = (row.get(DATA_SETS) or {}).get(name)
    return 0.0 if values is None else float(np.std(values, ddof=1) / np.sqrt(len(values)))


def _draw_pairs(
    axes: Axes,
    pairs: Sequence[Mapping[str, Any]],
    x: str,
    others: Sequence[str],
    styles: Mapping[str, Any],
) -> None:
    """Draw the paired differences of one metric between methods against the setting ``x``, a curve
    with error bars for each method and combination of the settings ``others``: means with two
    standard errors, or medians with their 95 per cent interval if one of the differences has heavy
    tails."""
    heavy = any(each["heavy"] and each["median_low"] is not None for each in pairs)
    for curve in dict.fromkeys(_curve(each, others) for each in pairs):
        of_curve = sorted(
            (each for each in pairs if _curve(each, others) == curve), key=lambda each: each[x]
        )
        middle = [each["median" if heavy else "mean"] for each in of_curve]
        below, above = (
            [
                abs(each[f"median_{end}"] - each["median"]) if heavy else 2 * each["se"]
                for each in of_curve
            ]
            for end in ("low", "high")
        )
        places = [each[x] for each in of_curve]
        style = {"markersize": 3, "capsize": 2, "linewidth": 1, **styles[curve]}
        axes.errorbar(places, middle, (below, above), **style)
    # If one difference is far larger than the others, the axis is symmetric-logarithmic, so that
    # the signs of all can be seen.
    sizes = [max(abs(each["mean"]), 2 * each["se"]) for each in pairs]
    smallest = min((size for size in sizes if size > 0), default=0.0)
    if 0 < 20 * smallest < max(sizes):
        axes.set_yscale("symlog", linthresh=10.0 ** np.ceil(np.log10(smallest)))
        axes.yaxis.set_major_formatter("{x:g}")
    axes.axhline(0.0, color="0.4", linestyle=":", linewidth=1)
    words = "median, 95 % interval" if heavy else "mean ± 2 standard errors"
    axes.set_title(f"paired, {pairs[0]['data_sets']} data sets: {words}", fontsize=7)


def _comparison(done: Sweep) -> list[str]:
    """A list with a line for the head of the figure that names the quantity which all methods
    share, such as the effective step; empty if methods share none."""
    if done.equal is None:
        return []
    quantity = QUANTITIES[done.equal]
    pick = "largest" if quantity.shared is max else "smallest"
    bound = f"; of {done.bounded_energies} an upper bound" if done.bounded_energies else ""
    return [
        f"equal {done.equal}: {quantity.words} as the {pick} that a {done.methods} has by"
        f" itself{bound}"
    ]


def _caveats(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Lines for the head of the figure: at how many points there are too few draws for the squared
    W2 distance, or too few chains to separate a shift from the variance ratio."""
    few = sum(row.get("wasserstein2_floor") is not None for row in rows) - sum(
        row.get("wasserstein2_squared") is not None for row in rows
    )
    alone = sum(row.get("shift_from") in ("data sets", "nothing") for row in rows)
    lines = []
    if few:
        lines.append(
            f"squared W2 distance of {few} of {len(rows)} points not given:"
            " fewer than 20 independent draws a data set"
        )
    if alone:
        lines.append(
            f"variance ratio of {alone} of {len(rows)} points from one chain a data set:"
            " a shift of a data set's own counts as spread"
        )
    for name, words in (("stein_ratio", "Stein ratio"), ("mean_shift", "shift of the mean")):
        known = [row for row in rows if row.get(name) is not None]
        without = sum(row.get(f"{name}_se") is None for row in known)
        if without:
            lines.append(f"{words} of {without} of {len(known)} points without a known error")
    return lines


AXES_IN_WORDS = {"snr_db": "SNR [dB]", "samples": "examples"}
"""Labels of axes for settings whose names do not say what they are."""


def _label(done: Sweep, name: str, words: str) -> str:
    """Label of the axis for the column ``name``. It is ``words``, except for ``epsilon`` and
    ``epsilon_run``: their label names scope and delta, if all points of the sweep share these."""

    def shared(setting: str) -> Any:
        """The value of the limit ``setting`` that all points of the sweep share; None if the sweep
        varies it."""
        default = getattr(Limits(), setting)
        return None if setting in done.axes else done.base.get(setting, default)

    scope = "run" if name == "epsilon_run" else shared("scope")
    if name not in ("epsilon", "epsilon_run") or scope is None:
        return words
    delta = shared("delta" if scope == "round" else "run_delta")
    return words if delta is None else epsilon_label(scope, delta)


def _label_of_x(done: Sweep, x: str) -> str:
    """Label of the x axis for the setting ``x``. The setting ``epsilon`` is labelled as a budget,
    because a panel may show the epsilon that was spent on its y axis."""
    words = _label(done, x, AXES_IN_WORDS.get(x, x.replace("_", " ")))
    return f"budget\n({words})" if x == "epsilon" else words


def _styles_of(
    rows: Sequence[Mapping[str, Any]], others: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """Arguments of Matplotlib's ``plot`` for each curve, by the curve's name. ``others`` are the
    settings whose values make the curves: with one setting, each value has a colour and a marker;
    with several, each value of the first has a colour, and each combination of the others a line
    style and a marker."""
    names = list(dict.fromkeys(_curve(row, others) for row in rows))
    if len(others) < 2:
        return {
            curve: {"color": COLOURS[index % len(COLOURS)], "marker": _MARKERS[index % 5]}
            for index, curve in enumerate(names)
        }
    colours = list(dict.fromkeys(row[others[0]] for row in rows))
    lines = list(dict.fromkeys(_curve(row, others[1:]) for row in rows))
    styles = {}
    for row in rows:
        line = lines.index(_curve(row, others[1:]))
        styles[_curve(row, others)] = {
            "color": COLOURS[colours.index(row[others[0]]) % len(COLOURS)],
            "linestyle": ("-", "--", ":", "-.")[line % 4],
            "marker": _MARKERS[line % 5],
        }
    return styles


_MARKERS = "os^Dv"
"""Markers of curves, in Matplotlib's letters, in the order in which they are used."""


def _varies(values: Sequence[float | None]) -> bool:
    """Whether the largest and the smallest value differ by more than rounding; None is left out."""
    known = [value for value in values if value is not None]
    return bool(known) and max(known) - min(known) > 1e-6 * abs(max(known))


def _curve(row: Mapping[str, Any], names: Sequence[str]) -> str:
    """Name of the curve to which a row of the sweep's table belongs: names and values of the
    settings ``names``, such as ``scheme digital, rounds 300``."""
    values = {
        name: f"{row[name]:g}" if isinstance(row[name], float) else row[name] for name in names
    }
    return ", ".join(f"{name} {value}" for name, value in values.items())
