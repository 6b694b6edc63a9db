"""Chart of the limits of the gain: what power, the sampler and privacy allow, in decibels."""

from __future__ import annotations

import math

from flmc.planning.plans import Plan
from flmc.planning.plans.rows import CONSTRAINTS
from flmc.views.charts.chart import Axis, Chart, Colour, Layer, Line, Mark, Words

COLOUR_OF_CONSTRAINT: dict[str, Colour] = {
    "power": "orange",
    "langevin": "blue",
    "privacy": "green",
}
"""Colour of every constraint, the same in all charts."""
NAME_OF_CONSTRAINT = {"power": "power", "langevin": "sampler", "privacy": "privacy"}
"""Constraints in one word each."""
_ROOM = 6.0
"""Decibels that the chart reaches beyond the limits."""


def limits_chart(plan: Plan) -> Chart:
    """Bars up to the largest gain that each constraint allows; the shortest decides.

    Parameters
    ----------
    plan
        The plan.
    """
    gain = decibels(plan.typical_gain)
    limits = {name: decibels(value) for name, value in vars(plan.gain_limits).items()}
    finite = [value for value in (*limits.values(), gain) if math.isfinite(value)]
    low, high = min(finite) - 2 * _ROOM, max(finite) + 2 * _ROOM
    layers: list[Layer] = []
    for place, name in enumerate(reversed(CONSTRAINTS)):
        limit, margin = limits[name], plan.margins_db[name]
        bounded, decides = math.isfinite(limit), name == plan.binding
        end = limit if bounded else high
        colour = COLOUR_OF_CONSTRAINT[name]
        width = 22.0 if decides else 12.0
        layers.append(Line((low, end), (place, place), colour, "solid", width))
        if not bounded:
            layers.append(Words(high, place, "no limit", "ink", "left"))
        else:
            layers.append(Words(end, place, _words(decides, margin), "ink"))
    layers.append(Mark("x", gain, f"gain {gain:.1f} dB"))
    return Chart(
        "limits",
        "What limits the gain",
        Axis("gain at the receiver [dB]", low=low, high=high),
        Axis("", low=-0.6, high=2.6, categories=tuple(reversed(NAME_OF_CONSTRAINT.values()))),
        tuple(layers),
        _sentence(plan),
    )


def decibels(gain: float) -> float:
    """A gain in decibels of power, 20 log10 of it; infinite for an infinite one.

    Parameters
    ----------
    gain
        Positive.
    """
    return 20.0 * math.log10(gain) if math.isfinite(gain) else math.inf


def _words(decides: bool, margin: float) -> str:
    """What stands at the end of a bar."""
    return "decides" if decides else f"{margin:+.1f} dB"


def _sentence(plan: Plan) -> str:
    """What decides, in words."""
    if plan.binding == "given":
        return "The gain was given; the bars show what the constraints would allow."
    if plan.binding not in CONSTRAINTS:
        return "Nothing limits the gain."
    others = {name: room for name, room in plan.margins_db.items() if name != plan.binding}
    near = min(others, key=lambda name: others[name])
    said = f"The {CONSTRAINTS[plan.binding]} decides"
    if math.isinf(others[near]):
        return f"{said}; nothing else limits the gain."
    if others[near] < 0.05:
        return f"{said}; the {CONSTRAINTS[near]} allows just as much."
    return f"{said}; the {CONSTRAINTS[near]} would allow {others[near]:.1f} dB more."
