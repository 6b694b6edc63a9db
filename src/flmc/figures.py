"""Pictures. Every function draws into Axes that it is given, so that a user can add her own curve."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from flmc.checks import Array
from flmc.errors import MissingExtra
from flmc.files import read_table, write_atomically
from flmc.model import Gaussian
from flmc.power import planned_power_limit
from flmc.privacy.account import epsilon_of
from flmc.privacy.event import event_of
from flmc.reproduce.readings import EPSILON_OF_SNR_FIGURE, READINGS, SNR_OF_EPSILON_FIGURES
from flmc.reproduce.study import Study
from flmc.run import Result
from flmc.spent import SpentCurve
from flmc.sweep import Sweep
from flmc.uplink import Analog, Digital, replace

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


def draw_posterior(axes: Axes, result: Result, posterior: Gaussian, entries: tuple[int, int] = (0, 1)) -> None:
    """Draws of two entries of the first data set, their two-sigma ellipse, and the exact posterior's."""
    draws = result.draws[: result.num_chains].reshape(-1, result.plan.dim)[:, entries]
    shown = draws[:: max(1, len(draws) // 2000)]
    axes.plot(*shown.T, ".", color=COLOURS[5], markersize=2, alpha=0.5, rasterized=True, label="draws")
    pick = np.ix_(entries, entries)
    for mean, covariance, colour, label in (
        (result.mean[0], result.covariance[0], COLOURS[0], "draws, 2 sigma"),
        (posterior.mean[0], posterior.covariance[0], COLOURS[1], "exact posterior, 2 sigma"),
    ):
        axes.plot(*_ellipse(mean[list(entries)], covariance[pick]), color=colour, label=label)
    axes.set_aspect("equal", adjustable="datalim")
    axes.set_xlabel(f"theta, entry {entries[0] + 1}")
    axes.set_ylabel(f"theta, entry {entries[1] + 1}")


def draw_loss_against_snr(axes: Axes, digital: Digital, analog: Analog, dim: int, delta: float, snr_db: Array) -> None:
    """Epsilon of one round at full transmit power, against the SNR: bounded for digital, not for analog."""
    for uplink, colour in ((digital, COLOURS[0]), (analog, COLOURS[1])):
        epsilon = []
        for value in snr_db:
            loud = replace(uplink, snr_db=float(value))
            event = event_of(loud, [(planned_power_limit(loud, 2, dim), dim)])
            epsilon.append(epsilon_of(event, delta))
        axes.semilogy(snr_db, epsilon, color=colour, label=uplink.scheme)
    bound = event_of(digital, [(1.0, dim)]).largest_loss
    axes.axhline(bound, color=COLOURS[0], linestyle=":", label=f"digital bound {bound:g}")
    axes.set_xlabel("SNR at the transmitter [dB]")
    axes.set_ylabel(f"epsilon of one round at delta = {delta:g}")
    axes.legend(frameon=False)


def draw_curves(
    axes: Axes,
    rows: Sequence[Mapping[str, Any]],
    value: str,
    curves: Sequence[str],
    styles: Mapping[str, Any] | None = None,
) -> None:
    """Curves of a table with shaded standard errors, on a logarithmic axis if they span more than a factor of three;
    rows have ``curve``, ``x``, the value and its standard error, named ``value`` and ``value_se``."""
    shade = 0.25 if len(curves) < 5 else 0.1
    for index, name in enumerate(curves):
        points = sorted((float(r["x"]), float(r[value]), float(r[value + "_se"])) for r in rows if r["curve"] == name)
        if not points:
            continue
        x, y, se = np.array(points).T
        below = 0.35 * min(len(curves) - 1 - index, 4)  # thicker, so that an equal curve above does not hide it
        style = {
            "color": COLOURS[index % len(COLOURS)],
            "marker": "os^Dv"[index % 5],
            "markersize": 2.5 + 2 * below,
            "linewidth": 1.1 + below,
            **(styles or {}).get(name, {}),
        }
        axes.plot(x, y, label=name, **style)
        axes.fill_between(x, np.maximum(y - se, 1e-300), y + se, color=style["color"], alpha=shade, linewidth=0)
    drawn = [float(row[value]) for row in rows if row["curve"] in curves]
    if drawn and 0 < 3 * min(drawn) < max(drawn):
        _make_logarithmic(axes)


def _make_logarithmic(axes: Axes) -> None:
    """Labels in plain numbers; at 2 and 5 too where there are few powers of ten. (Nine small ticks for each power would
    take as long to draw as all the rest.)"""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.set_yscale("log")
    low, high = axes.get_ylim()
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_locator(LogLocator(subs=(2.0, 5.0)))
    axes.yaxis.set_minor_formatter(axes.yaxis.get_major_formatter() if high < 30 * low else NullFormatter())


def draw_mse(
    axes: Axes, rows: Sequence[Mapping[str, Any]], curves: Sequence[str], trace: float, **settings: Any
) -> None:
    """Mean squared error in the paper's axes; the dotted line is what exact posterior samples have."""
    draw_curves(axes, rows, "mse", curves, **settings)
    axes.axhline(trace, color="0.4", linestyle=":", linewidth=1, label="exact samples")
    axes.set_ylabel("MSE")


def draw_variance_ratio(axes: Axes, rows: Sequence[Mapping[str, Any]], curves: Sequence[str], **settings: Any) -> None:
    """Variance of the samples over the posterior's; 1 is right."""
    draw_curves(axes, rows, "variance_ratio", curves, **settings)
    axes.axhline(1.0, color="0.4", linestyle=":", linewidth=1)
    axes.set_ylabel("variance ratio")


def _ellipse(mean: Array, covariance: Array) -> Array:
    """Points at Mahalanobis distance 2, (2, point)."""
    angle = np.linspace(0, 2 * np.pi, 200)
    circle = np.stack([np.cos(angle), np.sin(angle)])
    return np.asarray(mean[:, None] + 2.0 * np.linalg.cholesky(covariance) @ circle)


SCHEME_STYLES = {
    "digital": {"color": COLOURS[0], "marker": "o", "markersize": 3, "linewidth": 1.5},
    "analog": {"color": COLOURS[1], "marker": "s", "markersize": 3, "linewidth": 1.5},
    "digital without DP": {"color": COLOURS[0], "marker": "", "linestyle": "--", "linewidth": 1.5},
    "analog without DP": {"color": COLOURS[1], "marker": "", "linestyle": "--", "linewidth": 1.5},
}


def draw_study(study: Study, out: Path) -> list[tuple[str, str]]:
    """Every picture of a reproduction, from its CSV, as PNG and PDF; returns the PNG names and captions."""
    drawn = []
    points = read_table(out / "points.csv") if study.figures else []
    labels = {"2": "SNR [dB]", "3": "epsilon", "4": "epsilon"}
    for number in study.figures:
        for reading in READINGS:
            rows = [row for row in points if (row["figure"], row["reading"]) == (number, reading.name)]
            curves = list(dict.fromkeys(row["curve"] for row in rows))
            styles = SCHEME_STYLES if number != "4" else None
            figure, (left, right) = new_figure(columns=2, width=3.5, height=2.7, layout=None)
            # All these pictures have the same shape: margins once and for all, for finding them takes half of the time.
            figure.subplots_adjust(left=0.125, right=0.975, bottom=0.165, top=0.9, wspace=0.36)
            draw_mse(left, rows, curves, study.trace, styles=styles)
            draw_variance_ratio(right, rows, curves, styles=styles)
            for axes in (left, right):
                axes.set_xlabel(labels[number])
            left.legend(fontsize=6.5, framealpha=0.8, edgecolor="none")
            fixed = f"epsilon {EPSILON_OF_SNR_FIGURE:g}" if number == "2" else f"{SNR_OF_EPSILON_FIGURES:g} dB"
            figure.suptitle(f"figure {number}, reading: {reading.name}; {fixed}", fontsize=9)
            caption = f"Figure {number} of the paper, {reading.name}: {reading.words}"
            drawn.append((_save(figure, out, f"figure_{number}_{reading.name}"), caption))
    if study.beyond:
        drawn.append(
            (
                _draw_beyond(out),
                "Beyond: squared W2 distance and epsilon of the run, at equal effective step and rounds",
            )
        )
    return drawn


def _draw_beyond(out: Path) -> str:
    figure, panels = new_figure(columns=2, rows=2, width=3.5, height=2.6)
    table = read_table(out / "beyond.csv")
    names = list(dict.fromkeys(row["scheme"] for row in table))
    for column, (sweep, label) in enumerate((("snr_db", "SNR [dB]"), ("epsilon", "epsilon of a round"))):
        rows = [{**row, "curve": row["scheme"], "epsilon_run_se": "0"} for row in table if row["sweep"] == sweep]
        for axes, value, words in (
            (panels[column], "wasserstein2_squared", "squared W2 distance"),
            (panels[2 + column], "epsilon_run", "epsilon of the run"),
        ):
            draw_curves(axes, rows, value, names)
            axes.set_xlabel(label)
            axes.set_ylabel(words)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=7, frameon=False)
    return _save(figure, out, "figure_beyond")


SWEPT = (
    ("variance_ratio", "variance ratio"),
    ("wasserstein2_squared", "squared W2 distance"),
    ("epsilon_run", "epsilon of the run"),
    ("temperature", "temperature"),
)
"""What a sweep is drawn of, as far as it was measured."""


def draw_sweep_file(done: Sweep, out: Path) -> Path | None:
    """``sweep.png`` in ``out``: against the numeric setting with most values, one curve for each choice of the others;
    None where there is nothing to draw, or no matplotlib."""
    rows = [row for row in done.rows if row["error"] is None]
    numeric = {
        name: values
        for name, values in done.grid.axes.items()
        if all(isinstance(v, (int, float)) for v in values) and len(values) > 1
    }
    shown = [(name, words) for name, words in SWEPT if _varies([row.get(name) for row in rows])]
    if not numeric or not shown:
        return None
    x = max(numeric, key=lambda name: len(numeric[name]))
    try:
        figure, panels = new_figure(columns=len(shown), width=3.2, height=3.0)
    except MissingExtra:
        return None
    others = [name for name in done.grid.axes if name != x]
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
        if name in ("variance_ratio", "temperature"):
            axes.axhline(1.0, color="0.4", linestyle=":", linewidth=1)
        axes.set_xlabel(AXES_IN_WORDS.get(x, x.replace("_", " ")))
        axes.set_ylabel(words)
    if others:
        handles, labels = panels[0].get_legend_handles_labels()
        columns = min(len(labels), 4)
        figure.legend(handles, labels, loc="outside lower center", ncols=columns, fontsize=6.5, frameon=False)
    return _write_png(figure, out / "sweep.png")


AXES_IN_WORDS = {"snr_db": "SNR [dB]", "samples": "examples"}


def _styles_of(rows: Sequence[Mapping[str, Any]], others: Sequence[str]) -> dict[str, dict[str, Any]]:
    """A colour for each value of the first setting, a line and a marker for each choice of the rest."""
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
    """Whether there is something to see, beyond rounding."""
    known = [value for value in values if value is not None]
    return bool(known) and max(known) - min(known) > 1e-6 * abs(max(known))


def draw_ledger_file(curve: SpentCurve, out: Path) -> Path | None:
    """``ledger.png`` in ``out``: epsilon spent against round; None without matplotlib or a bound."""
    if not np.isfinite([epsilon for _, epsilon in curve.points]).all():
        return None
    try:
        figure, (axes,) = new_figure(columns=1)
    except MissingExtra:
        return None
    rounds, epsilon = zip(*curve.points, strict=True)
    axes.plot(rounds, epsilon, color=COLOURS[0], marker="o", markersize=3)
    axes.set_xlabel("round")
    axes.set_ylabel(f"epsilon spent, at delta = {curve.run_delta:g}")
    if curve.budget is not None:
        axes.axhline(curve.budget, color="0.4", linestyle=":", linewidth=1, label="budget of the run")
        axes.legend(fontsize=7, frameon=False)
    axes.set_ylim(bottom=0)
    axes.locator_params(axis="x", integer=True)
    axes.set_title(f"neighbouring: {curve.neighbouring.partition(' ')[0]}", fontsize=9)
    return _write_png(figure, out / "ledger.png")


def _write_png(figure: Figure, path: Path) -> Path | None:
    """A picture that cannot be written is no reason to lose a result."""
    try:
        write_atomically(path, lambda stream: figure.savefig(stream, dpi=160, format="png"))
    except OSError as error:
        _log.warning("cannot write %s: %s", path, error.strerror)
        return None
    return path


def _curve(row: Mapping[str, Any], names: Sequence[str]) -> str:
    """The values of these settings, in words."""
    values = {name: f"{row[name]:g}" if isinstance(row[name], float) else row[name] for name in names}
    return ", ".join(f"{name} {value}" for name, value in values.items())


def _save(figure: Figure, out: Path, name: str) -> str:
    figure.savefig(out / f"{name}.png", dpi=160)
    figure.set_layout_engine("none")  # the layout is found
    figure.savefig(out / f"{name}.pdf")
    return f"{name}.png"
