"""Chart of regimes: which constraint decides for every SNR and epsilon, with contours."""

from __future__ import annotations

import math

import numpy as np

from flmc.base.arrays import Array
from flmc.settings.questions.regimes import BINDING, RegimeMap
from flmc.views.axes import epsilon_label
from flmc.views.charts.chart import Axis, Cells, Chart, Colour, Layer, Line, Points, Stroke, Words
from flmc.views.charts.drawing import edges
from flmc.views.charts.limits_chart import COLOUR_OF_CONSTRAINT, NAME_OF_CONSTRAINT

_RATIOS = (1.02, 1.1, 1.5, 3.0, 10.0, 100.0)
"""Predicted variance ratios that have a contour."""
_EPSILONS = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)
"""Epsilons of the whole run that have a contour."""


def regime_chart(found: RegimeMap, here: tuple[float, float], scope: str, delta: float) -> Chart:
    """Cells coloured by what decides, with contours and the place of the settings.

    Parameters
    ----------
    found
        The map.
    here
        SNR and epsilon of the settings.
    scope, delta
        What epsilon is for, ``round`` or ``run``, and its delta.
    """
    cells = Cells(
        found.snr_db,
        found.epsilon,
        tuple(tuple(_code(regime.binding) for regime in row) for row in found.regimes),
        tuple(f"{NAME_OF_CONSTRAINT[name]} decides" for name in BINDING),
        tuple(COLOUR_OF_CONSTRAINT[name] for name in BINDING),
    )
    layers: list[Layer] = [cells]
    layers += _contours(found, "variance_ratio", _RATIOS, "ink", "solid", "variance ratio")
    layers += _contours(found, "run_epsilon", _EPSILONS, "purple", "dotted", "epsilon of the run")
    layers += _contours(
        found, "analog_is_better", (0.5,), "vermilion", "dashed", "analog better | digital better"
    )
    layers.append(Points((here[0],), (here[1],), "ink", 14.0, "these settings"))
    x, y = edges(found.snr_db, False), edges(found.epsilon, True)
    return Chart(
        "regimes",
        "Regimes: what decides where",
        Axis("SNR at the transmitter [dB]", low=float(x[0]), high=float(x[-1])),
        Axis(epsilon_label(scope, delta), True, float(y[0]), float(y[-1])),
        tuple(layers),
        _sentence(found),
    )


def _code(binding: str) -> int:
    """Number of a constraint among those of the map; -1 where no plan can be made."""
    return BINDING.index(binding) if binding in BINDING else -1


def _sentence(found: RegimeMap) -> str:
    """How wide the samples are predicted to be, and which scheme comes closer to the posterior."""
    ratios = found.values("variance_ratio")
    ratios = ratios[np.isfinite(ratios)]
    width = ""
    if ratios.size:
        width = f"Predicted variance ratio from {ratios.min():.3g} to {ratios.max():.3g}. "
    return width + _better_scheme(found)


def _better_scheme(found: RegimeMap) -> str:
    """Which scheme comes closer to the posterior, and where."""
    better = found.values("analog_is_better")
    known = better[~np.isnan(better)]
    if not known.size:
        return "Which scheme is better is not predicted for these settings."
    at = "at the same effective step"
    if known.all():
        return (
            f"Analog is predicted to come closer to the posterior wherever both are predicted,"
            f" {at}."
        )
    if not known.any():
        return (
            "Digital is predicted to come closer to the posterior wherever both are predicted,"
            f" {at}."
        )
    return (
        f"Analog is predicted to come closer to the posterior in {100 * known.mean():.0f} % of the"
        f" places where both are predicted, digital in the others, {at}."
    )


def _contours(
    found: RegimeMap,
    name: str,
    levels: tuple[float, ...],
    colour: Colour,
    stroke: Stroke,
    label: str,
) -> list[Layer]:
    """Lines along which a number of the map has a value, with the value at one end of each."""
    from contourpy import contour_generator  # comes with Matplotlib

    values = found.values(name)
    if name != "analog_is_better":
        values = np.log(np.maximum(values, 1e-300))
        levels_drawn = [math.log(level) for level in levels]
    else:
        levels_drawn = list(levels)
    masked = np.ma.masked_invalid(values)
    if masked.count() == 0:
        return []
    generator = contour_generator(np.array(found.snr_db), np.log(np.array(found.epsilon)), masked)
    layers: list[Layer] = []
    for level, drawn in zip(levels, levels_drawn, strict=True):
        for line in generator.lines(drawn):
            x, y = _plain(np.asarray(line))
            first = not any(isinstance(layer, Line) for layer in layers)
            layers.append(Line(x, y, colour, stroke, 1.4, label if first else ""))
            if len(x) > 3 and name != "analog_is_better":
                middle = len(x) // 2
                layers.append(Words(x[middle], y[middle], f"{level:g}", colour, "above"))
    return layers


def _plain(line: Array) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Points of a contour, with epsilon in place of its logarithm."""
    return tuple(map(float, line[:, 0])), tuple(float(math.exp(y)) for y in line[:, 1])
