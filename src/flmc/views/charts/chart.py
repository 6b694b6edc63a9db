"""The parts of which a chart is described: axes, layers drawn over each other, and light and dark
colours."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, Self

from flmc.base.arrays import Array


@dataclass(frozen=True)
class Theme:
    """Colours of a chart, as ``#rrggbb``.

    Attributes
    ----------
    name
        ``light`` or ``dark``.
    background
        Colour behind the chart.
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
"""Themes of charts by name, ``light`` and ``dark``."""


Colour = Literal["blue", "vermilion", "green", "purple", "orange", "sky", "ink", "muted"]
"""Name of one of the ``colours`` of a :data:`flmc.views.charts.chart.Theme`; ``ink`` is the colour
of text, ``muted`` a paler one."""
Stroke = Literal["solid", "dashed", "dotted"]
"""Styles of a line in a chart."""
Numbers = tuple[float, ...]
"""Coordinates as a tuple of floats, not an array, so that charts can be compared and sent to a
browser."""


def numbers(values: Iterable[float] | Array) -> Numbers:
    """The values as a tuple of floats."""
    return tuple(float(value) for value in values)


@dataclass(frozen=True)
class ChartAxis:
    """One axis of a chart.

    Attributes
    ----------
    label
        Quantity along the axis, with its unit.
    logarithmic
        Whether the scale is logarithmic.
    low, high
        Ends of the axis; None: the layers decide.
    categories
        Labels in place of numbers: the i-th label, from 0, is at the value i; empty for numbers.
    equal
        For a y axis: whether its unit is drawn as long as that of the x axis.
    """

    label: str
    logarithmic: bool = False
    low: float | None = None
    high: float | None = None
    categories: tuple[str, ...] = ()
    equal: bool = False


@dataclass(frozen=True)
class Line:
    """A layer of a chart: points joined by straight lines.

    Attributes
    ----------
    x, y
        Coordinates of the points; a NaN interrupts the line.
    width
        Width in typographic points.
    label
        Name in the legend; empty: not in the legend.
    low, high
        y of the lower and the upper edge of a shaded band at every point; empty for no band.
    dots
        Whether every point has a dot.
    """

    x: Numbers
    y: Numbers
    colour: Colour = "blue"
    stroke: Stroke = "solid"
    width: float = 2.0
    label: str = ""
    low: Numbers = ()
    high: Numbers = ()
    dots: bool = False


@dataclass(frozen=True)
class Points:
    """A layer of a chart: separate dots.

    Attributes
    ----------
    x, y
        Coordinates of the dots.
    size
        Diameter of a dot in typographic points.
    label
        Name in the legend; empty: not in the legend.
    """

    x: Numbers
    y: Numbers
    colour: Colour = "sky"
    size: float = 4.0
    label: str = ""


@dataclass(frozen=True)
class Words:
    """A layer of a chart: a few words beside the point (x, y).

    Attributes
    ----------
    side
        Side of the point on which the words are.
    """

    x: float
    y: float
    text: str
    colour: Colour = "ink"
    side: Literal["left", "right", "above", "below"] = "right"


@dataclass(frozen=True)
class Mark:
    """A layer of a chart: a straight line across all of it at one value, with a few words.

    Attributes
    ----------
    axis
        The axis to which ``value`` belongs: ``x`` gives a vertical line.
    text
        Words beside the line; empty for none.
    """

    axis: Literal["x", "y"]
    value: float
    text: str = ""
    colour: Colour = "ink"
    stroke: Stroke = "dashed"


@dataclass(frozen=True)
class Cells:
    """A layer of a chart: a grid of coloured cells, which fills the axes exactly.

    Attributes
    ----------
    x, y
        Middles of the columns and of the rows, evenly spaced on their axes.
    codes
        Row by row from below, the index of each cell's kind in ``kinds``; -1 for a cell without a
        kind.
    kinds
        Names of the kinds of cells, for the legend.
    colours
        Colour of the cells of each kind.
    """

    x: Numbers
    y: Numbers
    codes: tuple[tuple[int, ...], ...]
    kinds: tuple[str, ...]
    colours: tuple[Colour, ...]


Layer = Line | Points | Words | Mark | Cells
"""A layer of a chart; layers later in a chart's tuple are drawn above earlier ones."""


@dataclass(frozen=True)
class Chart:
    """A picture described as a value, apart from how it is drawn: axes, layers and caption.

    Attributes
    ----------
    name
        Name used in file names and URLs: letters, digits and hyphens.
    x, y
        The two axes.
    layers
        Layers in the order in which they are drawn, the lowest first.
    caption
        Message of the picture in a sentence or two; empty for none.
    """

    name: str
    title: str
    x: ChartAxis
    y: ChartAxis
    layers: tuple[Layer, ...] = ()
    caption: str = ""

    def each(self, kind: type[Layer]) -> tuple[Layer, ...]:
        """The chart's layers of the class ``kind``, in order from the lowest."""
        return tuple(layer for layer in self.layers if isinstance(layer, kind))

    def over(self, *layers: Layer) -> Self:
        """A copy of the chart with ``layers`` in front of the chart's own layers, so that they are
        drawn first, below these."""
        return type(self)(
            self.name, self.title, self.x, self.y, (*layers, *self.layers), self.caption
        )
