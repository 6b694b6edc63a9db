"""Figures: how every picture of flmc begins, looks and is saved; axes, labels and fonts.

Every function draws into Axes that it is given, so that users can add curves of their own."""

from __future__ import annotations

import atexit
import logging
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from flmc.base.errors import MissingExtra
from flmc.runs.files.durable_files import write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


# The usual font with Latin signs only, for PDFs.
#
# A PDF holds the signs that it needs, and to take them out of a font with thousands takes longer
# than to draw the picture. Signs, their widths and the font's name in the PDF are the same.


_FAMILY = "flmc small"
"""How the small font is called inside this process."""
_SIGNS = frozenset(map(chr, (*range(0x20, 0x7F), *range(0xA0, 0x100), 0x2212)))
"""Signs of the small font: Latin ones, and the minus of numbers on an axis."""


def families_for(figure: Figure) -> list[str]:
    """Families of sans-serif fonts to save a drawn figure with: the small font first, if it has all
    signs.

    Parameters
    ----------
    figure
        A figure that was drawn, so that its axes have their numbers.
    """
    from matplotlib import rcParams
    from matplotlib.text import Text

    usual: list[str] = rcParams["font.sans-serif"]
    signs = {sign for text in figure.findobj(Text) for sign in text.get_text()}
    return [_FAMILY, *usual] if signs - {"\n"} <= _SIGNS and _make_known() else usual


@cache
def _make_known() -> bool:
    """Make the small font known to Matplotlib; False if the usual one is not TrueType."""
    from fontTools import subset
    from matplotlib import font_manager

    found = font_manager.findfont(font_manager.FontProperties(family=["sans-serif"]))
    if not found.endswith(".ttf"):
        return False
    directory = tempfile.TemporaryDirectory(prefix="flmc-font-")
    atexit.register(directory.cleanup)
    path = Path(directory.name) / "small.ttf"
    # Rules for other scripts than these signs are written in would be looked through for every PDF.
    options = subset.Options(
        glyph_names=True,
        name_IDs=["*"],
        drop_tables=["FFTM"],
        layout_scripts=["DFLT", "latn"],
        layout_features=["kern", "liga"],
    )
    subsetter = subset.Subsetter(options)
    subsetter.populate(unicodes=map(ord, _SIGNS))
    with subset.load_font(found, options) as small:
        subsetter.subset(small)
        for record in small["name"].names:
            if record.nameID in (1, 16):  # the family; the name in a PDF is another
                record.string = _FAMILY
        small.save(path)
    font_manager.fontManager.addfont(path)
    return True


# Axes: logarithms with plain numbers, and labels that say all that a number needs.


def make_y_logarithmic(axes: Axes) -> None:
    """Make the y axis logarithmic, with labels in plain numbers; at 2 and 5 too where there are few
    powers of ten.

    Parameters
    ----------
    axes
        Where curves were drawn.
    """
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.set_yscale("log")
    low, high = axes.get_ylim()
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    # Two small ticks for each power of ten: the usual nine take as long to draw as all the rest.
    axes.yaxis.set_minor_locator(LogLocator(subs=(2.0, 5.0)))
    axes.yaxis.set_minor_formatter(
        axes.yaxis.get_major_formatter() if high < 30 * low else NullFormatter()
    )


def make_x_logarithmic(axes: Axes) -> None:
    """Make the x axis of a drawn figure logarithmic, with plain numbers at 1, 2 and 5 times powers
    of ten.

    Parameters
    ----------
    axes
        Where curves were drawn at positive x.

    Examples
    --------
    >>> from flmc.views.figures import make_x_logarithmic
    >>> from flmc.views.figures import new_figure
    >>> figure, (axes,) = new_figure(columns=1)
    >>> _ = axes.plot([0.5, 3.0, 20.0], [1.0, 2.0, 3.0])
    >>> make_x_logarithmic(axes)
    >>> [label.get_text() for label in axes.get_xticklabels()]
    ['0.5', '1', '2', '5', '10', '20']
    """
    from matplotlib.ticker import NullLocator

    low, high = axes.dataLim.intervalx
    powers = 10.0 ** np.arange(np.floor(np.log10(low)), np.ceil(np.log10(high)) + 1)
    marks = np.outer(powers, [1.0, 2.0, 5.0]).ravel()
    marks = marks[(marks >= low / 1.01) & (marks <= high * 1.01)]
    axes.set_xscale("log")
    axes.set_xticks(marks, [f"{mark:g}" for mark in marks])
    axes.xaxis.set_minor_locator(NullLocator())


def epsilon_label(scope: str, delta: float) -> str:
    """Label of an axis of epsilon: an epsilon says nothing without its delta and what it is for.

    Parameters
    ----------
    scope
        ``round`` or ``run``.
    delta
        The delta at which epsilon is stated.

    Examples
    --------
    >>> from flmc.views.figures import epsilon_label
    >>> epsilon_label("round", 0.01)
    'epsilon of a round, delta = 0.01'
    """
    return f"epsilon of {'a' if scope == 'round' else 'the'} {scope}, delta = {delta:g}"


_log = logging.getLogger(__name__)


COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's palette, whose colours colour-blind readers can tell apart."""


def new_figure(
    columns: int,
    rows: int = 1,
    width: float = 3.4,
    height: float = 3.2,
    layout: Literal["constrained"] | None = "constrained",
    **settings: Any,
) -> tuple[Figure, list[Axes]]:
    """A new figure without a window, and its Axes row by row; needs the extra `plot`.

    Parameters
    ----------
    columns, rows
        Number of Axes beside and below each other.
    width, height
        Size of each of the Axes, in inches.
    layout
        How Matplotlib finds the margins; None: they are set by the caller, which is faster.
    **settings
        Further arguments of Matplotlib's ``Figure.subplots``.

    Returns
    -------
    tuple of Figure and list of Axes
        The figure, which has a canvas to be saved from.

    Raises
    ------
    MissingExtra
        If Matplotlib is not installed.

    Examples
    --------
    >>> from flmc.views.figures import new_figure
    >>> figure, (left, right) = new_figure(columns=2, sharey=True)
    >>> left.get_ylim() == right.get_ylim()
    True
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtra("pictures need matplotlib: pip install 'flmc[plot]'") from error
    # Not by pyplot, which keeps every figure in memory and may open a window.
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
    """Draw curves of a table with shaded standard errors.

    The y axis becomes logarithmic if the values span more than a factor of three.

    Parameters
    ----------
    axes
        Where to draw.
    rows
        The table: rows with ``curve`` (a name), ``x``, the value and its standard error. Numbers
        may be text, as read from CSV.
    value
        Name of the column to draw; the standard error is in ``value + "_se"``.
    curves
        Names of the curves to draw, in the order of the legend.
    styles
        Arguments of Matplotlib's ``plot`` for some curves, by name; they beat the usual style.

    Examples
    --------
    >>> from flmc.views.figures import draw_curves, new_figure
    >>> rows = [{"curve": "a", "x": x, "mse": 10.0**x, "mse_se": 0.1} for x in range(3)]
    >>> figure, (axes,) = new_figure(columns=1)
    >>> draw_curves(axes, rows, "mse", ["a"])
    >>> axes.get_yscale()
    'log'
    """
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
        # The earlier a curve is drawn, the thicker: an equal curve above does not hide it.
        below = 0.35 * min(len(curves) - 1 - index, 4)
        style = {
            "color": COLOURS[index % len(COLOURS)],
            "marker": "os^Dv"[index % 5],
            "markersize": 2.5 + 2 * below,
            "linewidth": 1.1 + 2 * below,
            **(styles or {}).get(name, {}),
        }
        axes.plot(x, y, label=name, **style)
        axes.fill_between(
            x, np.maximum(y - se, 1e-300), y + se, color=style["color"], alpha=shade, linewidth=0
        )
    drawn = [float(row[value]) for row in rows if row["curve"] in curves]
    if drawn and 0 < 3 * min(drawn) < max(drawn):
        make_y_logarithmic(axes)


def draw_mse(
    axes: Axes,
    rows: Sequence[Mapping[str, Any]],
    curves: Sequence[str],
    trace: float,
    **settings: Any,
) -> None:
    """Draw the mean squared error in the paper's axes, with a dotted line where exact posterior
    samples are.

    Parameters
    ----------
    axes
        Where to draw.
    rows
        The table: rows with ``curve``, ``x``, ``mse`` and ``mse_se``.
    curves
        Names of the curves to draw.
    trace
        trace(Sigma), the MSE of exact posterior samples.
    **settings
        ``styles``, as for :func:`draw_curves`.
    """
    draw_curves(axes, rows, "mse", curves, **settings)
    axes.axhline(trace, color="0.4", linestyle=":", linewidth=1, label="exact samples")
    axes.set_ylabel("MSE")


def draw_variance_ratio(
    axes: Axes, rows: Sequence[Mapping[str, Any]], curves: Sequence[str], **settings: Any
) -> None:
    """Draw the variance of the samples over the posterior's, with a dotted line at 1, which is
    right.

    Parameters
    ----------
    axes
        Where to draw.
    rows
        The table: rows with ``curve``, ``x``, ``variance_ratio`` and ``variance_ratio_se``.
    curves
        Names of the curves to draw.
    **settings
        ``styles``, as for :func:`draw_curves`.
    """
    draw_curves(axes, rows, "variance_ratio", curves, **settings)
    axes.axhline(1.0, color="0.4", linestyle=":", linewidth=1)
    axes.set_ylabel("variance ratio")


def draw_distance(
    axes: Axes,
    rows: Sequence[Mapping[str, Any]],
    curves: Sequence[str],
    exact: float,
    **settings: Any,
) -> None:
    """Draw the squared W2 distance of one run to the posterior, dotted where exact draws are.

    Parameters
    ----------
    axes
        Where to draw.
    rows
        The table: rows with ``curve``, ``x``, ``one_run_wasserstein2_squared`` and its ``_se``.
    curves
        Names of the curves to draw.
    exact
        Distance of as many exact draws.
    **settings
        ``styles``, as for :func:`draw_curves`.
    """
    draw_curves(axes, rows, "one_run_wasserstein2_squared", curves, **settings)
    axes.axhline(exact, color="0.4", linestyle=":", linewidth=1)
    axes.set_ylabel("squared W2, one run")


def write_png(figure: Figure, path: Path) -> Path | None:
    """Save a figure as PNG. If that fails, warn and go on: a picture is no reason to lose a result.

    Parameters
    ----------
    figure
        What to save.
    path
        The file.

    Returns
    -------
    Path or None
        The file; None if it could not be written.
    """
    try:
        write_atomically(path, lambda stream: figure.savefig(stream, dpi=160, format="png"))
    except OSError as error:
        _log.warning("cannot write %s: %s", path, error.strerror)
        return None
    return path


def write_png_and_pdf(figure: Figure, out: Path, name: str) -> str:
    """Save a figure as PNG and as PDF; the PDF has its fonts inside, as TrueType.

    Parameters
    ----------
    figure
        What to save.
    out
        The directory.
    name
        Name of the files, without their endings.

    Returns
    -------
    str
        Name of the PNG.
    """
    from matplotlib import rc_context

    figure.savefig(out / f"{name}.png", dpi=160)
    figure.set_layout_engine(None)  # saving the PNG has found the layout; once is enough
    # The usual Type 3 fonts are refused by many publishers, and cannot be edited.
    with rc_context({"pdf.fonttype": 42, "font.sans-serif": families_for(figure)}):
        figure.savefig(out / f"{name}.pdf")
    return f"{name}.png"
