"""Charts of plans: what limits the gain, which limit decides at which SNR and epsilon, plans for
tried values of a setting, and privacy."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from flmc.base.arrays import Array
from flmc.base.tables import format_up
from flmc.evaluation.audit.likelihood_ratio import AttackLossLaw
from flmc.planning.plans import Plan
from flmc.planning.plans.rows import CONSTRAINTS
from flmc.planning.privacy_curve import SpentAfter
from flmc.settings.questions import Point, Solution
from flmc.settings.regimes import BINDING, RegimeMap
from flmc.views.charts.chart import (
    Cells,
    Chart,
    ChartAxis,
    Colour,
    Layer,
    Line,
    Mark,
    Points,
    Stroke,
    Words,
    numbers,
)
from flmc.views.charts.drawing import edges
from flmc.views.figures import epsilon_label

COLOUR_OF_CONSTRAINT: dict[str, Colour] = {
    "power": "orange",
    "langevin": "blue",
    "privacy": "green",
}
"""Colour of every constraint of the gain, the same in all charts."""
NAME_OF_CONSTRAINT = {"power": "power", "langevin": "sampler", "privacy": "privacy"}
"""One word for every constraint of the gain, by the constraint's name in a plan."""
_MARGIN_DB = 6.0
"""Half of the decibels by which the gain's axis exceeds the range from the smallest to the largest
limit."""


def limits_chart(plan: Plan) -> Chart:
    """Chart of a plan with a bar for each constraint, up to the largest gain that it allows; the
    shortest bar decides the gain."""
    gain = decibels(plan.typical_gain)
    limits = {name: decibels(value) for name, value in vars(plan.gain_limits).items()}
    finite = [value for value in (*limits.values(), gain) if math.isfinite(value)]
    low, high = min(finite) - 2 * _MARGIN_DB, max(finite) + 2 * _MARGIN_DB
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
        ChartAxis("gain at the receiver [dB]", low=low, high=high),
        ChartAxis("", low=-0.6, high=2.6, categories=tuple(reversed(NAME_OF_CONSTRAINT.values()))),
        tuple(layers),
        _limits_sentence(plan),
    )


def decibels(gain: float) -> float:
    """A positive gain in decibels of power, 20 log10(gain); infinite for an infinite gain."""
    return 20.0 * math.log10(gain) if math.isfinite(gain) else math.inf


def _words(decides: bool, margin: float) -> str:
    """Words at the end of a constraint's bar: that it decides the gain (``decides``), or by how
    many dB (``margin``) it would allow more."""
    return "decides" if decides else f"{margin:+.1f} dB"


def _limits_sentence(plan: Plan) -> str:
    """A sentence that says which constraint decides the plan's gain, and which comes next."""
    if plan.binding == "given":
        return "The gain was given; the bars show what the constraints would allow."
    if plan.binding not in CONSTRAINTS:
        return "Nothing limits the gain."
    others = {name: room for name, room in plan.margins_db.items() if name != plan.binding}
    near = min(others, key=lambda name: others[name])
    decides = f"The {CONSTRAINTS[plan.binding]} decides"
    if math.isinf(others[near]):
        return f"{decides}; nothing else limits the gain."
    if others[near] < 0.05:
        return f"{decides}; the {CONSTRAINTS[near]} allows just as much."
    return f"{decides}; the {CONSTRAINTS[near]} would allow {others[near]:.1f} dB more."


_RATIOS = (1.02, 1.1, 1.5, 3.0, 10.0, 100.0)
"""Predicted ratios of the samples' variance to the posterior's for which the map of regimes (over
SNR and epsilon) has a contour."""
_EPSILONS = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)
"""Epsilons of the whole run for which the map of regimes (over SNR and epsilon) has a contour."""


def regime_chart(regimes: RegimeMap, here: tuple[float, float], scope: str, delta: float) -> Chart:
    """Map over SNR and epsilon: each cell has the colour of the constraint that decides the gain
    there, with contours of predicted numbers, and a dot at the SNR (dB) and epsilon of the present
    settings (``here``); ``scope`` (``round`` or ``run``) and ``delta`` say what the epsilon on the
    axis is about."""
    cells = Cells(
        regimes.snr_db,
        regimes.epsilon,
        tuple(tuple(_code(regime.binding) for regime in row) for row in regimes.regimes),
        tuple(f"{NAME_OF_CONSTRAINT[name]} decides" for name in BINDING),
        tuple(COLOUR_OF_CONSTRAINT[name] for name in BINDING),
    )
    layers: list[Layer] = [cells]
    layers += _contours(regimes, "variance_ratio", _RATIOS, "ink", "solid", "variance ratio")
    layers += _contours(regimes, "run_epsilon", _EPSILONS, "purple", "dotted", "epsilon of the run")
    layers += _contours(
        regimes, "analog_is_better", (0.5,), "vermilion", "dashed", "analog better | digital better"
    )
    layers.append(Points((here[0],), (here[1],), "ink", 14.0, "these settings"))
    x, y = edges(regimes.snr_db, False), edges(regimes.epsilon, True)
    return Chart(
        "regimes",
        "Regimes: what decides where",
        ChartAxis("SNR at the transmitter [dB]", low=float(x[0]), high=float(x[-1])),
        ChartAxis(epsilon_label(scope, delta), True, float(y[0]), float(y[-1])),
        tuple(layers),
        _regime_sentence(regimes),
    )


def _code(binding: str) -> int:
    """Index of ``binding``, the constraint that decides the gain, among those that have a colour in
    the map of regimes; -1 where no plan can be made."""
    return BINDING.index(binding) if binding in BINDING else -1


def _regime_sentence(regimes: RegimeMap) -> str:
    """Sentences about the map of regimes, over SNR and epsilon: how wide the samples are predicted
    to be, and which scheme, digital or analog, comes closer to the posterior."""
    ratios = regimes.values("variance_ratio")
    ratios = ratios[np.isfinite(ratios)]
    width = ""
    if ratios.size:
        width = f"Predicted variance ratio from {ratios.min():.3g} to {ratios.max():.3g}. "
    return width + _better_scheme(regimes)


def _better_scheme(regimes: RegimeMap) -> str:
    """A sentence that says which scheme, digital or analog, is predicted to come closer to the
    posterior, and in which part of the map over SNR and epsilon."""
    better = regimes.values("analog_is_better")
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
    regimes: RegimeMap,
    name: str,
    levels: tuple[float, ...],
    colour: Colour,
    stroke: Stroke,
    label: str,
) -> list[Layer]:
    """Contours of the quantity ``name`` over the map of SNR and epsilon, as lines at the values
    ``levels``, with the value written at the middle of each line; empty if nothing is known."""
    from contourpy import contour_generator  # a package that Matplotlib brings

    values = regimes.values(name)
    if name != "analog_is_better":
        # Contours are interpolated linearly between cells, which fits logarithms better, because
        # the values span decades.
        values = np.log(np.maximum(values, 1e-300))
        levels_drawn = [math.log(level) for level in levels]
    else:
        levels_drawn = list(levels)
    masked = np.ma.masked_invalid(values)
    if masked.count() == 0:
        return []
    generator = contour_generator(
        np.array(regimes.snr_db), np.log(np.array(regimes.epsilon)), masked
    )
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
    """Points of a contour as two tuples, SNR and epsilon; ``line`` (point, 2) has SNR and the
    logarithm of epsilon."""
    return tuple(map(float, line[:, 0])), tuple(float(math.exp(y)) for y in line[:, 1])


_QUANTITIES: dict[str, Callable[[Plan], float | None]] = {
    "temperature": lambda plan: plan.temperature,
    "rounds of burn-in that are needed": lambda plan: plan.rounds_needed,
    "predicted mean shift [posterior sd]": lambda plan: (
        None if plan.prediction is None else plan.prediction.mean_shift
    ),
}
"""Quantities of a plan that a chart may show, as functions of the plan by the label of their
axis."""


def solution_chart(solution: Solution) -> Chart:
    """Chart of the plans for tried values of one setting, with the setting on the x axis and on the
    y axis that quantity of a plan that varies most."""
    label = max(_QUANTITIES, key=lambda name: _spread(solution, _QUANTITIES[name]))
    known = [
        (point.value, number, not point.broken)
        for point in solution.curve
        if (number := _number(point, _QUANTITIES[label])) is not None
    ]
    x, y = numbers(value for value, *_ in known), numbers(number for _, number, _ in known)
    layers: list[Layer] = [Line(x, y, "muted", width=1.2)]
    kinds: tuple[tuple[bool, Colour, str], ...] = (
        (True, "green", "meets the requirements"),
        (False, "vermilion", "does not"),
    )
    for meets, colour, name in kinds:
        chosen = [(value, number) for value, number, good in known if good is meets]
        x, y = numbers(value for value, _ in chosen), numbers(number for _, number in chosen)
        layers.append(Points(x, y, colour, 9.0, name))
    layers.append(Mark("x", solution.value, f"{solution.value:.4g}"))
    return Chart(
        f"solve-{solution.name.replace('_', '-')}",
        f"Plans for values of {solution.name}",
        ChartAxis(solution.name, solution.name != "snr_db"),
        ChartAxis(label, _spread(solution, _QUANTITIES[label]) > math.log(5.0)),
        tuple(layers),
        f"{solution.words}.",
    )


def _number(point: Point, quantity: Callable[[Plan], float | None]) -> float | None:
    """A quantity of the plan at one tried value; None where it is not known, not positive or
    infinite."""
    number = None if point.plan is None else quantity(point.plan)
    return number if number is not None and 0 < number < math.inf else None


def _spread(solution: Solution, quantity: Callable[[Plan], float | None]) -> float:
    """Natural logarithm of the largest over the smallest value that a quantity has in the tried
    plans; -1 where fewer than two are known."""
    known = [number for point in solution.curve if (number := _number(point, quantity)) is not None]
    return math.log(max(known) / min(known)) if len(known) > 1 else -1.0


COLOURS: tuple[Colour, ...] = ("blue", "vermilion", "green", "purple")
"""Colours of curves for settings that are compared, in their order."""
_SHOWN_POINTS = 80
"""Number of points at which the density of a privacy loss is drawn."""


def spending_chart(curves: Mapping[str, Sequence[SpentAfter]], plan: Plan) -> Chart:
    """Chart of the epsilon spent against rounds for one plan or several, by name (an empty name is
    not shown); ``plan`` gives the delta and the budget that the chart states."""
    layers: list[Layer] = []
    for (name, curve), colour in zip(curves.items(), COLOURS, strict=False):
        known = [point for point in curve if math.isfinite(point.epsilon) and point.epsilon > 0]
        x, y = (numbers(part) for part in zip(*known, strict=True)) if known else ((), ())
        layers.append(Line(x, y, colour, label=name, dots=True))
    limits = plan.limits
    if limits.scope == "run" and limits.epsilon is not None and limits.criterion != "off":
        layers.append(Mark("y", limits.epsilon, f"budget {limits.epsilon:g}", "muted"))
    last = [curve[-1] for curve in curves.values() if curve]
    ends = "; ".join(
        f"{name + ': ' if name else ''}epsilon {format_up(end.epsilon)} after {end.rounds} rounds"
        for name, end in zip(curves, last, strict=False)
    )
    return Chart(
        "spending",
        "Privacy over the run",
        ChartAxis("rounds", logarithmic=True),
        ChartAxis(epsilon_label("run", limits.run_delta), logarithmic=True),
        tuple(layers),
        f"{ends}." if ends else "",
    )


def loss_chart(laws: Mapping[str, AttackLossLaw], plan: Plan, *, marked: bool = True) -> Chart:
    """Chart of the probability density of the privacy loss in a plan's worst round, a curve for
    each law by its name in the legend, with a mark at the epsilon that ``plan`` states for a round,
    if ``marked``."""
    cost = plan.round_cost
    layers: list[Layer] = []
    for (name, law), colour in zip(laws.items(), COLOURS, strict=False):
        x, y = _density(law)
        layers.append(Line(x, y, colour, label=name))
    if marked and cost is not None and math.isfinite(cost.epsilon):
        layers.append(Mark("x", cost.epsilon, f"epsilon {format_up(cost.epsilon)}", "blue"))
    return Chart(
        "loss",
        "Privacy loss of one round",
        ChartAxis("privacy loss"),
        ChartAxis("density", low=0.0),
        tuple(layers),
        _meaning(plan.limits.criterion, plan.limits.delta),
    )


def _meaning(criterion: str, delta: float) -> str:
    """A sentence that says what the stated epsilon means for the privacy loss under a privacy
    criterion."""
    if criterion == "tight":
        return (
            "At epsilon the mean of 1 - exp(epsilon - loss) over larger losses is at"
            f" most delta = {delta:g}; the loss itself exceeds epsilon more often."
        )
    return f"The loss exceeds epsilon with probability delta = {delta:g} at most."


def _density(law: AttackLossLaw) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Values of the privacy loss, and the probability density at these values in the first of two
    neighbouring worlds, without the outer 1e-4 of probability at either end; both arrays are empty
    for a law on too coarse a grid."""
    total = np.cumsum(law.first)
    first, last = (int(np.searchsorted(total, share)) for share in (1e-4, 1 - 1e-4))
    edges = np.unique(
        np.linspace(first, min(last + 1, len(total) - 1), _SHOWN_POINTS + 1, dtype=int)
    )
    if len(edges) < 3:
        return (), ()
    step = law.losses[1] - law.losses[0]
    masses = np.diff(total[edges])
    middles = (law.losses[edges[1:]] + law.losses[edges[:-1] + 1]) / 2
    return numbers(middles), numbers(masses / (np.diff(edges) * step))
