"""The figure of a sweep over combinations of settings: its results against the numeric setting with
most values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from flmc.base.errors import MissingExtra
from flmc.planning.limits import Limits
from flmc.runs.sweeps.table import Sweep
from flmc.views.figures import (
    COLOURS,
    draw_curves,
    epsilon_label,
    make_x_logarithmic,
    new_figure,
    write_png,
)

SWEPT = (
    ("variance_ratio", "variance ratio"),
    ("wasserstein2_squared", "squared W2 distance"),
    ("epsilon_run", "epsilon of the run"),
    ("temperature", "temperature"),
)
"""Columns of a sweep, with their labels, that are drawn if they were measured and vary."""
PLANNED = (
    ("predicted_variance_ratio", "predicted variance ratio"),
    ("epsilon_round", "epsilon of a round"),
    ("gain_used", "gain"),
    ("rounds_needed", "rounds needed"),
)
"""Columns that are drawn of a sweep that was planned only, and their labels."""


def draw_sweep_file(done: Sweep, out: Path) -> Path | None:
    """Write ``sweep.png`` into the directory ``out``: results against the numeric setting with most
    values, one curve for each combination of the other settings. Returns the file's path; None if
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
    try:
        figure, panels = new_figure(columns=len(shown), width=3.2, height=3.0)
    except MissingExtra:
        return None
    others = [name for name in done.axes if name != x]
    styles = _styles_of(rows, others)
    for axes, (name, words) in zip(panels, shown, strict=True):
        table = [
            {
                "curve": _curve(row, others),
                "x": row[x],
                name: row[name],
                f"{name}_se": row.get(f"{name}_se") or 0,
            }
            for row in rows
            if row.get(name) is not None
        ]
        draw_curves(axes, table, name, list(dict.fromkeys(row["curve"] for row in table)), styles)
        if name in ("variance_ratio", "predicted_variance_ratio", "temperature"):
            axes.axhline(1.0, color="0.4", linestyle=":", linewidth=1)
        if x == "epsilon" and max(numeric[x]) >= 10 * min(numeric[x]):
            make_x_logarithmic(axes)
        axes.set_xlabel(_label(done, x, AXES_IN_WORDS.get(x, x.replace("_", " "))))
        axes.set_ylabel(_label(done, name, words))
    caveats = _caveats(rows)
    if caveats:
        figure.suptitle("\n".join(caveats), fontsize=7)
    if others:
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(
            handles,
            labels,
            loc="outside lower center",
            ncols=min(len(labels), 4),
            fontsize=6.5,
            frameon=False,
        )
    return write_png(figure, out / "sweep.png")


def _caveats(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Lines for the head of the figure that say how many measurements suffer from too few chains or
    draws."""
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
    return lines


AXES_IN_WORDS = {"snr_db": "SNR [dB]", "samples": "examples"}
"""Labels of axes for settings whose names alone would not be understood."""


def _label(done: Sweep, name: str, words: str) -> str:
    """Label of the axis for the column ``name``, which is ``words``; for ``epsilon`` and
    ``epsilon_run`` it is a label with scope and delta instead, if all points share these."""

    def shared(setting: str) -> Any:
        """The value of a setting that all points of the sweep share; None if it varies."""
        default = getattr(Limits(), setting)
        return None if setting in done.axes else done.base.get(setting, default)

    scope = "run" if name == "epsilon_run" else shared("scope")
    if name not in ("epsilon", "epsilon_run") or scope is None:
        return words
    delta = shared("delta" if scope == "round" else "run_delta")
    return words if delta is None else epsilon_label(scope, delta)


def _styles_of(
    rows: Sequence[Mapping[str, Any]], others: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """Line styles of all curves, as arguments of Matplotlib's ``plot`` by the curve's name: a
    colour for each value of the first setting in ``others``, a line and a marker for each
    combination of the rest."""
    if len(others) < 2:
        return {}
    colours = list(dict.fromkeys(row[others[0]] for row in rows))
    lines = list(dict.fromkeys(_curve(row, others[1:]) for row in rows))
    styles = {}
    for row in rows:
        line = lines.index(_curve(row, others[1:]))
        styles[_curve(row, others)] = {
            "color": COLOURS[colours.index(row[others[0]]) % len(COLOURS)],
            "linestyle": ("-", "--", ":", "-.")[line % 4],
            "marker": "os^Dv"[line % 5],
        }
    return styles


def _varies(values: Sequence[float | None]) -> bool:
    """Whether the values other than None differ by more than rounding."""
    known = [value for value in values if value is not None]
    return bool(known) and max(known) - min(known) > 1e-6 * abs(max(known))


def _curve(row: Mapping[str, Any], names: Sequence[str]) -> str:
    """Name of the curve to which a row of the sweep belongs: names and values of the settings
    ``names``."""
    values = {
        name: f"{row[name]:g}" if isinstance(row[name], float) else row[name] for name in names
    }
    return ", ".join(f"{name} {value}" for name, value in values.items())
