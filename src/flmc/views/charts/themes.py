"""Light and dark: the colours of charts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from flmc.views.charts.chart import Colour


@dataclass(frozen=True)
class Theme:
    """Colours of a chart, as ``#rrggbb``.

    Attributes
    ----------
    name
        ``light`` or ``dark``.
    background
        What the chart lies on.
    grid
        Lines of the grid.
    colours
        The colours that layers name. They are those of Okabe and Ito's palette, which colour-blind
        readers can tell apart, a little lighter on a dark background.
    """

    name: str
    background: str
    grid: str
    colours: Mapping[Colour, str]


LIGHT = Theme(
    "light",
    "#ffffff",
    "#e3e6ea",
    {
        "blue": "#0072B2",
        "vermilion": "#D55E00",
        "green": "#009E73",
        "purple": "#B8588F",
        "orange": "#E69F00",
        "sky": "#56B4E9",
        "ink": "#1d2733",
        "muted": "#66727f",
    },
)
DARK = Theme(
    "dark",
    "#161c24",
    "#2c3642",
    {
        "blue": "#4BA3DB",
        "vermilion": "#F08B4B",
        "green": "#2FC79B",
        "purple": "#DC96BE",
        "orange": "#F0B73A",
        "sky": "#8CCBF2",
        "ink": "#e8edf2",
        "muted": "#9aa7b4",
    },
)
THEMES = {"light": LIGHT, "dark": DARK}
"""Both themes by their names."""
