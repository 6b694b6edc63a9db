"""What a chart consists of: axes, layers that are drawn over each other, and light and dark
colours."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, Self

from flmc.base.arrays import Array

# Light and dark: the colours of charts.


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


Colour = Literal["blue", "vermilion", "green", "purple", "orange", "sky", "ink", "muted"]
"""Name of a colour of :data:`flmc.views.charts.chart.Theme`; ``ink`` is that of text."""
Stroke = Literal["solid", "dashed", "dotted"]
"""How a line is drawn."""
Numbers = tuple[float, ...]
"""Plain numbers, so that charts can be compared and sent to a browser."""


def numbers(values: Iterable[float] | Array) -> Numbers:
    """Plain numbers of an array or a list.

    Parameters
    ----------
    values
        Numbers of any kind.
    """
    return tuple(float(value) for value in values)


@dataclass(frozen=True)
class Axis:
    """One axis of a chart.

    Attributes
    ----------
    label
        What is shown along it, with its unit.
    logarithmic
        Whether equal factors are equally far apart.
    low, high
        Ends of the axis; None: as the layers need.
    categories
        Names in place of numbers: place i of the axis is the i-th of them, counted from 0 and from
        below.
    equal
        For the axis upwards: whether a unit is as long as one of the axis to the right.
    """

    label: str
    logarithmic: bool = False
    low: float | None = None
    high: float | None = None
    categories: tuple[str, ...] = ()
    equal: bool = False


@dataclass(frozen=True)
class Line:
    """Points joined by straight lines.

    Attributes
    ----------
    x, y
        The points; a NaN interrupts the line.
    colour, stroke, width
        How it looks; the width is in points.
    label
        Its name in the legend; empty: it is not in the legend.
    low, high
        Ends of a shaded band about the line, for every point; empty: there is none.
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
    """Dots that nothing joins.

    Attributes
    ----------
    x, y
        Where they are.
    colour, size
        How they look; the size is a diameter in points.
    label
        Their name in the legend; empty: they are not in the legend.
    """

    x: Numbers
    y: Numbers
    colour: Colour = "sky"
    size: float = 4.0
    label: str = ""


@dataclass(frozen=True)
class Words:
    """A few words at a place of the chart.

    Attributes
    ----------
    x, y
        The place.
    text
        The words.
    colour
        Their colour.
    side
        On which side of the place they stand.
    """

    x: float
    y: float
    text: str
    colour: Colour = "ink"
    side: Literal["left", "right", "above", "below"] = "right"


@dataclass(frozen=True)
class Mark:
    """A straight line across the whole chart, with a few words.

    Attributes
    ----------
    axis
        The axis on which the value is marked: ``x`` gives an upright line.
    value
        The value.
    text
        Words beside the line; empty for none.
    colour, stroke
        How it looks.
    """

    axis: Literal["x", "y"]
    value: float
    text: str = ""
    colour: Colour = "ink"
    stroke: Stroke = "dashed"


@dataclass(frozen=True)
class Cells:
    """A rectangle of coloured cells; the axes of the chart span it exactly.

    Attributes
    ----------
    x, y
        Middles of the columns and of the rows, evenly spaced on their axes.
    codes
        For every row from below, the number of each cell's kind; -1: not known yet.
    kinds
        Names of the kinds, for the legend.
    colours
        Colour of every kind.
    """

    x: Numbers
    y: Numbers
    codes: tuple[tuple[int, ...], ...]
    kinds: tuple[str, ...]
    colours: tuple[Colour, ...]


Layer = Line | Points | Words | Mark | Cells
"""What is drawn; later layers lie above earlier ones."""


@dataclass(frozen=True)
class Chart:
    """A picture as a value.

    Attributes
    ----------
    name
        Name for files and addresses: letters, digits and hyphens.
    title
        What the picture shows, in a few words.
    x, y
        The axes.
    layers
        What is drawn, from below.
    caption
        What the picture says, in a sentence or two; empty for none.
    """

    name: str
    title: str
    x: Axis
    y: Axis
    layers: tuple[Layer, ...] = ()
    caption: str = ""

    def each(self, kind: type[Layer]) -> tuple[Layer, ...]:
        """Layers of one kind, from below.

        Parameters
        ----------
        kind
            One of the classes of layers.
        """
        return tuple(layer for layer in self.layers if isinstance(layer, kind))

    def over(self, *layers: Layer) -> Self:
        """The same chart with layers below those that it has.

        Parameters
        ----------
        *layers
            What lies below.
        """
        return type(self)(
            self.name, self.title, self.x, self.y, (*layers, *self.layers), self.caption
        )
