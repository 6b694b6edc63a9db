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
"""Colour of each constraint that may decide the gain, the same in all charts."""
NAME_OF_CONSTRAINT = {"power": "power", "langevin": "sampler", "privacy": "privacy"}
"""Word for each constraint that may decide the gain, as charts show it, by the constraint's name in
a plan."""
_MARGIN_DB = 6.0
"""Half the distance, in decibels, from the smallest or largest limit of the gain to the end of the
axis of the gain."""


def limits_chart(plan: Plan) -> Chart:
    """Chart of a plan with a bar for each constraint of the gain (power, sampler's noise, privacy),
    which reaches to the largest gain that the constraint allows; the shortest bar decides the
    gain."""
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
    """The ``gain`` in decibels, 20 log10(gain), for a positive gain; infinite for an infinite
    one."""
    return 20.0 * math.log10(gain) if math.isfinite(gain) else math.inf


def _words(decides: bool, margin: float) -> str:
    """Words at the end of a constraint's bar: ``decides`` if it decides the gain, else the number
    of dB (``margin``) by which it would allow a larger gain."""
    return "decides" if decides else f"{margin:+.1f} dB"


def _limits_sentence(plan: Plan) -> str:
    """A sentence that names the constraint that decides the plan's gain, and the constraint with
    the next larger limit of the gain, with the distance of the two limits in dB."""
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
"""Values of the predicted variance ratio (variance of the samples over the posterior's) at which
the chart over SNR and epsilon has contour lines."""
_EPSILONS = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)
"""Values of the whole run's epsilon at which the chart over SNR and epsilon has contour lines."""


def regime_chart(regimes: RegimeMap, here: tuple[float, float], scope: str, delta: float) -> Chart:
    """Chart over SNR and epsilon. Each cell has the colour of the constraint that decides the gain
    there; contour lines show the predicted variance ratio, the epsilon of the whole run, and where
    analog is better than digital. A dot marks ``here``, the SNR (dB) and epsilon of the user's
    settings. The epsilon on the axis is that of a ``round`` or a ``run`` (``scope``) at
    ``delta``."""
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
    """Index of the constraint ``binding`` in ``BINDING``, for the colour of its cells; -1 if no
    constraint decides the gain, or no plan can be made."""
    return BINDING.index(binding) if binding in BINDING else -1


def _regime_sentence(regimes: RegimeMap) -> str:
    """Caption of the chart over SNR and epsilon: the range of the predicted variance ratio, and
    whether digital or analog transmission is predicted to come closer to the posterior."""
    ratios = regimes.values("variance_ratio")
    ratios = ratios[np.isfinite(ratios)]
    width = ""
    if ratios.size:
        width = f"Predicted variance ratio from {ratios.min():.3g} to {ratios.max():.3g}. "
    return width + _better_scheme(regimes)


def _better_scheme(regimes: RegimeMap) -> str:
    """A sentence that says whether digital or analog transmission is predicted to come closer to
    the posterior, and in what share of the cells over SNR and epsilon."""
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
    """Contour lines of a quantity over SNR and epsilon, at the values ``levels``, as layers of a
    chart. ``name`` is the quantity's name as a field of :class:`Regime`, ``label`` its name in the
    legend. The value of each line stands at its middle, except where the quantity is which scheme
    is better. Empty if no value of the quantity is known."""
    from contourpy import contour_generator  # a package that Matplotlib brings

    values = regimes.values(name)
    if name != "analog_is_better":
        # Contour lines are found by linear interpolation between cells. The values span decades, so
        # their logarithms are closer to linear.
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
    """SNR and epsilon at the points of a contour line, as two tuples; ``line`` (point, 2) holds SNR
    and the logarithm of epsilon."""
    return tuple(map(float, line[:, 0])), tuple(float(math.exp(y)) for y in line[:, 1])


_QUANTITIES: dict[str, Callable[[Plan], float | None]] = {
    "temperature": lambda plan: plan.temperature,
    "rounds of burn-in that are needed": lambda plan: plan.rounds_needed,
    "predicted mean shift [posterior sd]": lambda plan: (
        None if plan.prediction is None else plan.prediction.mean_shift
    ),
}
"""Quantities of a plan, of which the chart of the values that ``solve`` tried has one on its y
axis. A key is the label of the axis, a value the function that computes the quantity of a plan."""


def solution_chart(solution: Solution) -> Chart:
    """Chart of the plans for all values that ``solve`` tried for a setting: the setting is on the x
    axis, and on the y axis is the one of three quantities (temperature, needed burn-in, shift of
    the mean) that varies most."""
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
    """Value of ``quantity``, a function of a plan, for the plan at one tried value of a setting
    (``point``); None if there is no plan, or the value is unknown, infinite or not positive."""
    number = None if point.plan is None else quantity(point.plan)
    return number if number is not None and 0 < number < math.inf else None


def _spread(solution: Solution, quantity: Callable[[Plan], float | None]) -> float:
    """Natural logarithm of the largest over the smallest value that a quantity has in the tried
    plans; -1 where fewer than two are known."""
    known = [number for point in solution.curve if (number := _number(point, quantity)) is not None]
    return math.log(max(known) / min(known)) if len(known) > 1 else -1.0


COLOURS: tuple[Colour, ...] = ("blue", "vermilion", "green", "purple")
"""Colours of the curves of compared settings, in the order of the settings."""
_SHOWN_POINTS = 80
"""Number of points at which the density of a privacy loss is drawn."""


def spending_chart(curves: Mapping[str, Sequence[SpentAfter]], plan: Plan) -> Chart:
    """Chart of the epsilon spent against rounds, with a curve for each item of ``curves``, whose
    key is its name in the legend (a curve with an empty name is not in the legend). The budget and
    delta in the chart are those of ``plan``."""
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
    """Chart of the probability density of the privacy loss in a plan's worst round, with a curve
    for each item of ``laws``, whose key is its name in the legend. If ``marked``, a vertical line
    marks the epsilon that ``plan`` states for a round."""
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
    """A sentence that says what the stated epsilon means for the privacy loss, given the criterion
    by which the plan computes epsilon (``tight``, ``tail`` or ``paper``)."""
    if criterion == "tight":
        return (
            "At epsilon the mean of 1 - exp(epsilon - loss) over larger losses is at"
            f" most delta = {delta:g}; the loss itself exceeds epsilon more often."
        )
    return f"The loss exceeds epsilon with probability delta = {delta:g} at most."


def _density(law: AttackLossLaw) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Values of the privacy loss, and its probability density at these values in the first of two
    neighbouring data sets. The smallest and the largest losses, with probability 1e-4 each, are
    left out; both tuples are empty if the law's grid is too coarse."""
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
