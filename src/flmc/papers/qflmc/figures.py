"""The pictures of a reproduction, drawn from its tables."""

from __future__ import annotations

from pathlib import Path

from flmc.papers.qflmc.readings import EPSILON_OF_SNR_FIGURE, READINGS, SNR_OF_EPSILON_FIGURES
from flmc.papers.qflmc.study import Study
from flmc.runs.durable_files import read_table
from flmc.views.figures import (
    COLOURS,
    draw_curves,
    draw_mse,
    draw_variance_ratio,
    new_figure,
    write_png_and_pdf,
)

SCHEME_STYLES = {
    "digital": {"color": COLOURS[0], "marker": "o", "markersize": 3, "linewidth": 1.5},
    "analog": {"color": COLOURS[1], "marker": "s", "markersize": 3, "linewidth": 1.5},
    "digital without DP": {"color": COLOURS[0], "marker": "", "linestyle": "--", "linewidth": 1.5},
    "analog without DP": {"color": COLOURS[1], "marker": "", "linestyle": "--", "linewidth": 1.5},
}
"""How the curves of figures 2 and 3 look."""


def draw_study(study: Study, out: Path) -> list[tuple[str, str]]:
    """Draw every picture of a reproduction from its CSV, as PNG and PDF.

    Parameters
    ----------
    study
        What was measured: which figures there are.
    out
        The directory with the CSV, where the pictures go.

    Returns
    -------
    list of tuple of str and str
        Name of the PNG, and caption, of every picture.
    """
    drawn = []
    points = read_table(out / "points.csv") if study.figures else []
    labels = {"2": "SNR [dB]", "3": "epsilon", "4": "epsilon"}
    for number in study.figures:
        for reading in READINGS:
            rows = [
                row for row in points if (row["figure"], row["reading"]) == (number, reading.name)
            ]
            curves = list(dict.fromkeys(row["curve"] for row in rows))
            styles = SCHEME_STYLES if number != "4" else None
            figure, (left, right) = new_figure(columns=2, width=3.5, height=2.7, layout=None)
            # All these pictures have the same shape, so their margins are written down: to find
            # them for every picture would take half of the time.
            figure.subplots_adjust(left=0.125, right=0.975, bottom=0.165, top=0.9, wspace=0.36)
            draw_mse(left, rows, curves, study.trace, styles=styles)
            draw_variance_ratio(right, rows, curves, styles=styles)
            for axes in (left, right):
                axes.set_xlabel(labels[number])
            left.legend(fontsize=6.5, framealpha=0.8, edgecolor="none")
            fixed = (
                f"epsilon {EPSILON_OF_SNR_FIGURE:g}"
                if number == "2"
                else f"{SNR_OF_EPSILON_FIGURES:g} dB"
            )
            figure.suptitle(f"figure {number}, reading: {reading.name}; {fixed}", fontsize=9)
            caption = f"Figure {number} of the paper, {reading.name}: {reading.words}"
            drawn.append(
                (write_png_and_pdf(figure, out, f"figure_{number}_{reading.name}"), caption)
            )
    if study.beyond:
        drawn.append(
            (
                _draw_beyond(out),
                "Beyond: squared W2 distance and epsilon of the run, at equal effective step and"
                " rounds",
            )
        )
    return drawn


def _draw_beyond(out: Path) -> str:
    """Draw the comparison beyond the paper; returns the name of the PNG."""
    figure, panels = new_figure(columns=2, rows=2, width=3.5, height=2.6)
    table = read_table(out / "beyond.csv")
    names = list(dict.fromkeys(row["scheme"] for row in table))
    for column, (sweep, label) in enumerate(
        (("snr_db", "SNR [dB]"), ("epsilon", "epsilon of a round"))
    ):
        rows = [
            {**row, "curve": row["scheme"], "epsilon_run_se": "0"}
            for row in table
            if row["sweep"] == sweep
        ]
        for axes, value, words in (
            (panels[column], "wasserstein2_squared", "squared W2 distance"),
            (panels[2 + column], "epsilon_run", "epsilon of the run"),
        ):
            draw_curves(axes, [row for row in rows if row[value]], value, names)
            axes.set_xlabel(label)
            axes.set_ylabel(words)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=7, frameon=False)
    return write_png_and_pdf(figure, out, "figure_beyond")
