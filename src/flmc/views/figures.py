"""Functions that all figures share: for new figures, axes, labels, colours, fonts and files.

Functions draw into Axes that the caller provides, so that users can add curves of their own."""

from __future__ import annotations

import atexit
import logging
import tempfile
import textwrap
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


# A PDF embeds the glyphs that it needs, and extracting them from a font with thousands of glyphs
# takes longer than drawing the picture. So PDFs use the usual font reduced to Latin characters:
# glyphs, widths and the font's name in the PDF are the same.
_FAMILY = "flmc small"
"""Name under which the font that is reduced to Latin characters is registered with Matplotlib in
this process."""
_SIGNS = frozenset(map(chr, (*range(0x20, 0x7F), *range(0xA0, 0x100), 0x2212)))
"""Characters of the font that is reduced for PDFs: Latin ones, and the minus sign of numbers on an
axis."""


def families_for(figure: Figure) -> list[str]:
    """Names of sans-serif font families for the PDF of a drawn figure, in the order of preference.
    The first is a font reduced to Latin characters, which is faster to embed, unless the figure has
    characters that it lacks."""
    from matplotlib import rcParams
    from matplotlib.text import Text

    usual: list[str] = rcParams["font.sans-serif"]
    signs = {sign for text in figure.findobj(Text) for sign in text.get_text()}
    return [_FAMILY, *usual] if signs - {"\n"} <= _SIGNS and _register_reduced_font() else usual


@cache
def _register_reduced_font() -> bool:
    """Register the font reduced to Latin characters with Matplotlib; False if the usual font is not
    TrueType and cannot be reduced."""
    from fontTools import subset
    from matplotlib import font_manager

    usual = font_manager.findfont(font_manager.FontProperties(family=["sans-serif"]))
    if not usual.endswith(".ttf"):
        return False
    directory = tempfile.TemporaryDirectory(prefix="flmc-font-")
    atexit.register(directory.cleanup)
    path = Path(directory.name) / "small.ttf"
    # Layout rules of other scripts are dropped, because Matplotlib would process them for every
    # PDF.
    options = subset.Options(
        glyph_names=True,
        name_IDs=["*"],
        drop_tables=["FFTM"],
        layout_scripts=["DFLT", "latn"],
        layout_features=["kern", "liga"],
    )
    subsetter = subset.Subsetter(options)
    subsetter.populate(unicodes=map(ord, _SIGNS))
    with subset.load_font(usual, options) as small:
        subsetter.subset(small)
        for record in small["name"].names:
            # Records 1 and 16 hold the name of the font's family; the name shown in a PDF is in
            # another record.
            if record.nameID in (1, 16):
                record.string = _FAMILY
        small.save(path)
    font_manager.fontManager.addfont(path)
    return True


def make_y_logarithmic(axes: Axes) -> None:
    """Make the y axis logarithmic, with plain numbers at powers of ten; where these are few, also
    at 2 and 5 times powers of ten."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.set_yscale("log")
    low, high = axes.get_ylim()
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    # Two minor ticks for each power of ten: drawing all the usual ones would take as long as
    # drawing the rest of the figure.
    axes.yaxis.set_minor_locator(LogLocator(subs=(2.0, 5.0)))
    axes.yaxis.set_minor_formatter(
        axes.yaxis.get_major_formatter() if high < 30 * low else NullFormatter()
    )


_MOST_MARKS = 7
"""Largest number of ticks of a logarithmic x axis whose labels fit side by side below a panel. In
place of more ticks, at 1, 2 and 5 times powers of ten, only powers of ten have one."""


def make_x_logarithmic(axes: Axes) -> None:
    """Make the x axis of a drawn figure logarithmic, with plain numbers at 1, 2 and 5 times powers
    of ten, or where these are too many to stand side by side at powers of ten alone.

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
    if len(marks) > _MOST_MARKS:
        apart = -(-len(powers) // _MOST_MARKS)
        marks = powers[(powers >= low / 1.01) & (powers <= high * 1.01)][::apart]
    axes.set_xscale("log")
    axes.set_xticks(marks, [f"{mark:g}" for mark in marks])
    axes.xaxis.set_minor_locator(NullLocator())


def epsilon_label(scope: str, delta: float) -> str:
    """Label of an epsilon axis, with the scope (``round`` or ``run``) and delta, without which an
    epsilon means nothing.

    Examples
    --------
    >>> from flmc.views.figures import epsilon_label
    >>> epsilon_label("round", 0.01)
    'epsilon of a round, delta = 0.01'
    """
    return f"epsilon of {'a' if scope == 'round' else 'the'} {scope}, delta = {delta:g}"


def label_y(axes: Axes, words: str, **settings: Any) -> None:
    """Label the y axis with ``words``, in lines of at most 24 characters, which fit beside the
    usual panels: Matplotlib makes no room for a label that is longer than its axis, and cuts it off
    at the edge of the picture. ``settings`` are arguments of ``set_ylabel``.

    Examples
    --------
    >>> from flmc.views.figures import label_y, new_figure
    >>> figure, (axes,) = new_figure(columns=1)
    >>> label_y(axes, "epsilon of the run, delta = 1e-05")
    >>> axes.get_ylabel()
    'epsilon of the run,\\ndelta = 1e-05'
    """
    lines = (textwrap.fill(line, 24, break_long_words=False) for line in words.splitlines())
    axes.set_ylabel("\n".join(lines), **settings)


_log = logging.getLogger(__name__)


COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Colours of curves, as ``#rrggbb``: Okabe and Ito's palette, which colour-blind readers can tell
apart."""


def new_figure(
    columns: int,
    rows: int = 1,
    width: float = 3.4,
    height: float = 3.2,
    layout: Literal["constrained"] | None = "constrained",
    **settings: Any,
) -> tuple[Figure, list[Axes]]:
    """A new Matplotlib figure without a window, and a list of its Axes row by row, ``width`` by
    ``height`` inches each; ``settings`` are arguments of Matplotlib's ``subplots``. With ``layout``
    None the caller sets the margins, which is faster. Raises ``MissingExtra`` without Matplotlib.

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
    # The figure is made without pyplot, which keeps every figure in memory and may open a window.
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
    """Draw the named ``curves`` of a table, with a shaded band of one standard error. Each row is a
    point of the curve in its column ``curve``, with x in the column ``x`` and y in the column whose
    name is ``value``. That name with ``_se`` at its end is the column of standard errors; the
    columns ``low`` and ``high``, if there are any, are the ends of the band. Numbers may be text,
    as read from CSV.

    ``styles`` has arguments of Matplotlib's ``plot`` for some curves, by name. The y axis becomes
    logarithmic if the values span more than a factor of three.

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
        points = sorted((float(r["x"]), *_shaded(r, value)) for r in rows if r["curve"] == name)
        if not points:
            continue
        x, y, low, high = np.array(points).T
        # Curves that are drawn earlier are thicker, so that a later curve with the same values does
        # not hide them.
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
            x, np.maximum(low, 1e-300), high, color=style["color"], alpha=shade, linewidth=0
        )
    drawn = [float(row[value]) for row in rows if row["curve"] in curves]
    if drawn and 0 < 3 * min(drawn) < max(drawn):
        make_y_logarithmic(axes)


def _shaded(row: Mapping[str, Any], value: str) -> tuple[float, float, float]:
    """The number under the key ``value`` in a row of a table, and the lower and upper end of the
    band that is shaded about it."""
    y = float(row[value])
    if "low" in row:
        return y, float(row["low"]), float(row["high"])
    error = float(row[value + "_se"])
    return y, y - error, y + error


def draw_mse(
    axes: Axes,
    rows: Sequence[Mapping[str, Any]],
    curves: Sequence[str],
    trace: float,
    **settings: Any,
) -> None:
    """Draw the column ``mse``, the mean squared distance of draws from the posterior mean, as
    :func:`draw_curves` does, with a dotted line at ``trace``, the value of exact posterior
    samples."""
    draw_curves(axes, rows, "mse", curves, **settings)
    axes.axhline(trace, color="0.4", linestyle=":", linewidth=1, label="exact samples")
    axes.set_ylabel("MSE")


def draw_variance_ratio(
    axes: Axes, rows: Sequence[Mapping[str, Any]], curves: Sequence[str], **settings: Any
) -> None:
    """Draw the column ``variance_ratio``, the variance of the draws over the posterior's, as
    :func:`draw_curves` does, with a dotted line at 1, the right value."""
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
    """Draw the column ``one_run_wasserstein2_squared``, the squared 2-Wasserstein distance of the
    draws from the posterior, as :func:`draw_curves` does, with a dotted line at ``exact``, the
    distance of equally many exact draws."""
    draw_curves(axes, rows, "one_run_wasserstein2_squared", curves, **settings)
    axes.axhline(exact, color="0.4", linestyle=":", linewidth=1)
    axes.set_ylabel("squared W2, one run")


def write_png(figure: Figure, path: Path) -> Path | None:
    """Save a figure as PNG and return its path. If that fails, log a warning and return None: a
    missing picture must not end the run whose result it shows."""
    try:
        write_atomically(path, lambda stream: figure.savefig(stream, dpi=160, format="png"))
    except OSError as error:
        _log.warning("cannot write %s: %s", path, error.strerror)
        return None
    return path


def write_png_and_pdf(figure: Figure, out: Path, name: str) -> str:
    """Save a figure in the directory ``out`` as PNG and as PDF with embedded TrueType fonts;
    returns the file name of the PNG."""
    from matplotlib import rc_context

    figure.savefig(out / f"{name}.png", dpi=160)
    # Saving the PNG has computed the layout; without an engine it is not computed again for the
    # PDF.
    figure.set_layout_engine(None)
    # Fonts are embedded as Type 42: many publishers refuse Matplotlib's default, Type 3, which
    # cannot be edited.
    with rc_context({"pdf.fonttype": 42, "font.sans-serif": families_for(figure)}):
        figure.savefig(out / f"{name}.pdf")
    return f"{name}.png"
