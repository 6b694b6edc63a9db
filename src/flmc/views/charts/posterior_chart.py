"""Chart of two entries: ellipses of the exact posterior, of a prediction, and of draws."""

from __future__ import annotations

import numpy as np

from flmc.base.arrays import Array
from flmc.models.distributions import Gaussian
from flmc.views.charts.chart import Axis, Chart, Colour, Layer, Line, Numbers, Points, numbers

_CORNERS = 72
"""Corners of the polygon that stands for an ellipse."""


def posterior_chart(
    exact: Gaussian,
    others: dict[str, Gaussian],
    draws: Array | None = None,
    entries: tuple[int, int] = (0, 1),
    title: str = "What will be sampled",
) -> Chart:
    """Two-sigma ellipses of two entries of the first data set.

    Parameters
    ----------
    exact
        The exact posterior.
    others
        Other laws, such as the predicted one, by their names.
    draws
        Draws to show as dots, (draw, dim); None for none.
    entries
        The two entries, counted from 0.
    title
        Title of the chart.
    """
    layers: list[Layer] = []
    if draws is not None and len(draws):
        shown = draws[:: max(1, len(draws) // 800)]
        x, y = numbers(shown[:, entries[0]]), numbers(shown[:, entries[1]])
        layers.append(Points(x, y, label="draws"))
    colours: tuple[Colour, ...] = ("blue", "vermilion", "green", "purple")
    for (name, law), colour in zip(others.items(), colours, strict=False):
        x, y = ellipse(law, entries)
        layers.append(Line(x, y, colour, label=name))
    x, y = ellipse(exact, entries)
    layers.append(Line(x, y, "ink", "dashed", label="exact posterior"))
    return Chart(
        "posterior",
        title,
        Axis(f"theta, entry {entries[0] + 1}"),
        Axis(f"theta, entry {entries[1] + 1}", equal=True),
        tuple(layers),
        "Ellipses hold about 86 % of two entries.",
    )


def ellipse(law: Gaussian, entries: tuple[int, int]) -> tuple[Numbers, Numbers]:
    """Points at Mahalanobis distance 2 from the mean of two entries, as x and y.

    Parameters
    ----------
    law
        A law whose first data set is taken.
    entries
        The two entries, counted from 0.
    """
    angle = np.linspace(0.0, 2.0 * np.pi, _CORNERS + 1)
    circle = np.stack([np.cos(angle), np.sin(angle)])
    root = np.linalg.cholesky(law.covariance[0][np.ix_(entries, entries)])
    x, y = law.mean[0][list(entries)][:, None] + 2.0 * root @ circle
    return numbers(x), numbers(y)
