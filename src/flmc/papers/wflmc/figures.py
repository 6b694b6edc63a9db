"""The pictures of the study, drawn from its table."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flmc.papers.wflmc.results import Study
from flmc.runs.files.durable_files import read_table
from flmc.views.axes import make_y_logarithmic
from flmc.views.figures import COLOURS, draw_curves, new_figure, write_png_and_pdf

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_BASELINE = {"marker": "", "linewidth": 1.2, "linestyle": "--"}
_STYLES: dict[str, dict[str, Any]] = {
    "static": {"color": COLOURS[1], "marker": "s"},
    "adaptive": {"color": COLOURS[0], "marker": "o"},
    "without DP": {"color": COLOURS[2], "marker": "^"},
    "noiseless with DP": {"color": COLOURS[0], **_BASELINE},
    "noiseless without DP": {"color": COLOURS[2], **_BASELINE},
    "static, exact budget": {"color": COLOURS[4], "marker": "D"},
    "analog, own step": {"color": COLOURS[6], "marker": "v"},
    "digital, a = 0.05": {"color": COLOURS[3], "marker": "v", "linestyle": ":"},
    "digital, a = 0.2": {"color": COLOURS[3], "marker": "D"},
}
_OWN_COLOURS = ("#8C510A", "#762A83", "#1B7837", "#B2182B")
"""Colours of a user's own curves, which no other curve has."""
_USUAL = {"markersize": 3.5, "linewidth": 1.3}
_FIRST = ("static", "adaptive", "without DP", "noiseless with DP", "noiseless without DP")
"""Curves of the published figure, in the order of its legend."""


def draw_study(study: Study, out: Path) -> list[tuple[str, str]]:
    """Draw the pictures from the CSV, as PNG and PDF.

    Parameters
    ----------
    study
        What was measured: names of the curves, floor.
    out
        The directory with the CSV, where the pictures go.

    Returns
    -------
    list of tuple of str and str
        Name of the PNG, and caption, of every picture.
    """
    rows = [_as_drawn(row) for row in read_table(out / "points.csv")]
    ours = [curve for curve in study.curves if curve not in _FIRST]
    crosses = "; crosses: as published" if study.published else ""
    own = "; with curves of your own" if study.own_curves else ""
    return [
        (
            _draw(study, out, rows, [*_FIRST, *study.own_curves], "figure_snr"),
            f"Squared W2 against SNR, the published curves measured again{crosses}{own}",
        ),
        (
            _draw(study, out, rows, ["static", "adaptive", *ours], "figure_digital"),
            "The same setting with the digital scheme, and with plans of flmc's own",
        ),
    ]


def _as_drawn(row: Mapping[str, str]) -> dict[str, Any]:
    """A row of the table as `draw_curves` takes it, and the factor of its band."""
    spread = float(row["log_sd"] or "nan")
    return {
        **row,
        "x": float(row["snr_db"]),
        "distance": float(row["mean"]),
        "distance_se": 0.0,
        "spread": 1.0 if math.isnan(spread) else math.exp(spread),
    }


def _draw(
    study: Study, out: Path, rows: Sequence[Mapping[str, Any]], curves: Sequence[str], name: str
) -> str:
    """Draw some curves into a picture; returns the name of the PNG."""
    figure, (axes,) = new_figure(columns=1, width=6.4, height=4.2)
    own = {
        curve: {"color": _OWN_COLOURS[i % len(_OWN_COLOURS)], "marker": "P*Xh"[i % 4]}
        for i, curve in enumerate(study.own_curves)
    }
    styles = {curve: {**_USUAL, **_STYLES.get(curve, {}), **own.get(curve, {})} for curve in curves}
    draw_curves(axes, rows, "distance", curves, styles)
    for line, curve in zip(axes.get_lines(), curves, strict=True):
        band = [row for row in rows if row["curve"] == curve]
        # One standard deviation of the logarithm, which a logarithmic axis shows as it is.
        axes.fill_between(
            [row["x"] for row in band],
            [row["distance"] / row["spread"] for row in band],
            [row["distance"] * row["spread"] for row in band],
            color=line.get_color(),
            alpha=0.12,
            linewidth=0,
        )
    if name == "figure_snr":
        _draw_published(axes, rows)
    axes.axhline(study.floor, color="0.4", linestyle=":", linewidth=1, label="100 exact runs")
    make_y_logarithmic(axes)
    axes.set_xlabel("SNR [dB]")
    axes.set_ylabel("squared W2, largest over kept rounds")
    axes.legend(fontsize=7, framealpha=0.85, edgecolor="none")
    return write_png_and_pdf(figure, out, name)


def _draw_published(axes: Axes, rows: Sequence[Mapping[str, Any]]) -> None:
    """Mark published values by crosses in the colour of their curve."""
    printed = [row for row in rows if row["published"] not in ("", "nan")]
    for row in printed:
        colour = _STYLES[row["curve"]]["color"]
        axes.plot([row["x"]], [float(row["published"])], "x", color=colour, markersize=6)
    if printed:
        axes.plot([], [], "x", color="0.3", markersize=6, label="as published")
