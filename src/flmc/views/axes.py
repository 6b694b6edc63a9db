"""Axes: logarithms with plain numbers, and labels that say all that a number needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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
    >>> from flmc.views.axes import make_x_logarithmic
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
    >>> from flmc.views.axes import epsilon_label
    >>> epsilon_label("round", 0.01)
    'epsilon of a round, delta = 0.01'
    """
    return f"epsilon of {'a' if scope == 'round' else 'the'} {scope}, delta = {delta:g}"
