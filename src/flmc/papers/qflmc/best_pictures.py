"""Pictures that compare the digital with the analog scheme, each with its best design: the number
of devices up to which bits tell more than analog symbols at equal privacy, and the map of predicted
errors over all settings. Both are drawn from CSV files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from flmc.base.arrays import Array
from flmc.papers.qflmc.best_designs import DELTA
from flmc.papers.qflmc.information import budget_mu, run_epsilon
from flmc.papers.qflmc.readings import DELTA as ROUND_DELTA
from flmc.papers.qflmc.readings import EPSILON_OF_SNR_FIGURE
from flmc.runs.files.durable_files import read_table
from flmc.views.figures import epsilon_label, new_figure, write_png_and_pdf

_LEVELS = (1.0, 1.1, 1.5, 2.0, 3.0, 5.0, 10.0)
"""Numbers of devices at which the picture of thresholds has its contours."""
_MOST = 5.0
"""Difference of the errors, in per cent, at the ends of the map's colours."""
_PAPER = (20, 5, 300)
"""Devices, entries and rounds of the paper."""


def draw_thresholds(out: Path) -> str:
    """Draw, from ``information.csv`` in the directory ``out``, up to how many devices bits tell as
    much as analog symbols; returns the file name of the PNG."""
    table = read_table(out / "information.csv")
    epsilons = np.unique([float(row["epsilon"]) for row in table])
    bits = np.unique([float(row["bits"]) for row in table])
    most = np.reshape([float(row["most_devices"]) for row in table], (len(epsilons), len(bits)))
    figure, (axes,) = new_figure(columns=1, width=5.6, height=4.2)
    levels = (*_LEVELS, 20.0)
    shades = axes.contourf(
        bits, epsilons, most, levels=(0.0, *levels), cmap="Blues", norm=_even((0.0, *levels))
    )
    axes.contour(bits, epsilons, most, levels=_LEVELS, colors="0.3", linewidths=0.6)
    for devices, style in ((2.0, "--"), (5.0, "-.")):
        rule = [epsilon**2 / devices / budget_mu(epsilon, DELTA) ** 2 for epsilon in epsilons]
        label = f"rule of thumb, {devices:g} devices"
        axes.plot(rule, epsilons, color="#D55E00", linestyle=style, linewidth=1.4, label=label)
    rounds = _PAPER[1] * _PAPER[2]
    axes.axvline(rounds, color="0.3", linestyle=":", linewidth=1)
    words = f"the paper's run: {_PAPER[1]} entries, {_PAPER[2]} rounds"
    axes.text(rounds * 0.95, epsilons[0] * 1.2, words, rotation=90, ha="right", size=8)
    axes.set_xlabel("bits that a device sends in the run: entries x rounds")
    axes.set_ylabel(epsilon_label("run", DELTA))
    axes.set_ylim(epsilons[0], epsilons[-1])
    _plain_logarithms(axes)
    axes.set_xlim(bits[0], bits[-1])
    axes.legend(fontsize=8, loc="upper right")
    bar = figure.colorbar(shades, ax=axes, ticks=levels, format="%g")
    bar.set_label("devices up to which bits tell more than analog symbols", size=9)
    return write_png_and_pdf(figure, out, "figure_information")


def _even(levels: Sequence[float]) -> Any:
    """Norm that gives each interval between two levels a colour of its own, evenly spread."""
    from matplotlib.colors import BoundaryNorm

    return BoundaryNorm(levels, ncolors=256)


def _plain_logarithms(axes: Any) -> None:
    """Make both axes logarithmic, with plain numbers at powers of ten."""
    from matplotlib.ticker import FuncFormatter, NullLocator

    for axis, name in ((axes.xaxis, "x"), (axes.yaxis, "y")):
        getattr(axes, f"set_{name}scale")("log")
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_locator(NullLocator())


def draw_map(out: Path) -> str:
    """Draw the map of predicted answers from ``best.csv`` in the directory ``out``, a panel for
    every SNR and number of entries; returns the file name of the PNG."""
    from matplotlib.colors import TwoSlopeNorm

    table = read_table(out / "best.csv")
    levels = {
        name: sorted({float(row[name]) for row in table}) for name in ("dim", "snr_db", "epsilon")
    }
    columns, rows = len(levels["snr_db"]), len(levels["dim"])
    figure, panels = new_figure(columns, rows, width=3.0, height=2.8)
    norm = TwoSlopeNorm(0.0, -_MOST, _MOST)
    meshes = []
    for index, axes in enumerate(panels):
        dim, snr_db = levels["dim"][index // columns], levels["snr_db"][index % columns]
        here = [r for r in table if (float(r["dim"]), float(r["snr_db"])) == (dim, snr_db)]
        meshes.append(_draw_panel(axes, here, dim, levels["epsilon"], norm))
        axes.set_title(f"{snr_db:g} dB, {'1 entry' if dim == 1 else f'{dim:g} entries'}", size=9)
        if index // columns == rows - 1:
            axes.set_xlabel("devices x entries")
        if index % columns == 0:
            axes.set_ylabel(epsilon_label("run", DELTA), size=9)
    handles, labels = panels[-1].get_legend_handles_labels()
    words = "numbers: error of the better scheme, in standard deviations of the posterior"
    figure.suptitle(words, size=9)
    figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=8, frameon=False)
    bar = figure.colorbar(meshes[0], ax=panels, extend="both", shrink=0.8)
    bar.set_label("digital's error over analog's, less 1, in %", size=9)
    return write_png_and_pdf(figure, out, "figure_best")


def _draw_panel(
    axes: Any, table: Sequence[Mapping[str, Any]], dim: float, epsilons: Sequence[float], norm: Any
) -> Any:
    """Draw one panel of the map into ``axes`` and return its mesh of colours: the digital scheme's
    error over the analog one's, for every number of devices (x axis) and epsilon of the run (y
    axis). ``table`` holds the rows of the CSV file for the panel's SNR and number ``dim`` of
    entries; ``norm`` maps ratios to colours."""
    devices = sorted({int(row["num_devices"]) for row in table})
    ratio = np.full((len(epsilons), len(devices)), np.nan)
    error = np.full_like(ratio, np.nan)
    for row in table:
        at = epsilons.index(float(row["epsilon"])), devices.index(int(row["num_devices"]))
        if row["ratio"] != "":
            ratio[at] = 100.0 * (float(row["ratio"]) - 1.0)
            errors = [float(row[f"{s}_error"] or "inf") for s in ("digital", "analog")]
            error[at] = min(errors)
    x = dim * np.array(devices, dtype=np.float64)
    axes.set_facecolor("0.8")
    mesh = axes.pcolormesh(_edges(x), _edges(np.array(epsilons)), ratio, cmap="RdBu_r", norm=norm)
    for (row, column), value in np.ndenumerate(error):
        if np.isfinite(value):
            place = (x[column], epsilons[row])
            pale = "white" if abs(ratio[row, column]) > 0.8 * _MOST else "black"
            axes.text(*place, f"{value:.3g}", size=5, ha="center", va="center", color=pale)
    budgets = np.geomspace(epsilons[0], epsilons[-1], 40)
    rule = [epsilon**2 / budget_mu(epsilon, DELTA) ** 2 for epsilon in budgets]
    axes.plot(
        rule,
        budgets,
        color="0.1",
        linestyle="--",
        linewidth=1.2,
        label="rule of thumb: digital may win to its left",
    )
    if dim == _PAPER[1]:
        budget = run_epsilon(EPSILON_OF_SNR_FIGURE, ROUND_DELTA, _PAPER[2], DELTA)
        axes.plot(
            [_PAPER[0] * dim],
            [budget],
            "*k",
            markersize=7,
            linestyle="",
            label="the paper's setting",
        )
    axes.plot([], [], "s", color="0.8", linestyle="", label="no design has an answer")
    _plain_logarithms(axes)
    axes.set_xlim(_edges(x)[[0, -1]])
    axes.set_ylim(_edges(np.array(epsilons))[[0, -1]])
    return mesh


def _edges(centres: Array) -> Array:
    """Edges of the cells about the given centres on a logarithmic axis, (number of centres + 1)."""
    logs = np.log(centres)
    middle = (logs[1:] + logs[:-1]) / 2
    first, last = 2 * logs[0] - middle[0], 2 * logs[-1] - middle[-1]
    return np.asarray(np.exp(np.concatenate([[first], middle, [last]])))
