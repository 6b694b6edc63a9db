"""Chart of an inverse question: what plans give at every value that was tried."""

from __future__ import annotations

import math
from collections.abc import Callable

from flmc.planning.plans import Plan
from flmc.settings.questions.solutions import Point, Solution
from flmc.views.charts.chart import Axis, Chart, Colour, Layer, Line, Mark, Points, numbers

_QUANTITIES: dict[str, Callable[[Plan], float | None]] = {
    "temperature": lambda plan: plan.temperature,
    "rounds of burn-in that are needed": lambda plan: plan.rounds_needed,
    "predicted mean shift [posterior sd]": lambda plan: (
        None if plan.prediction is None else plan.prediction.mean_shift
    ),
}
"""What may be drawn against the values, by the label of its axis."""


def solution_chart(solution: Solution) -> Chart:
    """What changes most from plan to plan, against the values that were tried.

    Parameters
    ----------
    solution
        The answer, with its curve.
    """
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
        Axis(solution.name, solution.name != "snr_db"),
        Axis(label, _spread(solution, _QUANTITIES[label]) > math.log(5.0)),
        tuple(layers),
        f"{solution.words}.",
    )


def _number(point: Point, quantity: Callable[[Plan], float | None]) -> float | None:
    """A quantity of the plan of a point; None where it is not known or not positive."""
    found = None if point.plan is None else quantity(point.plan)
    return found if found is not None and 0 < found < math.inf else None


def _spread(solution: Solution, quantity: Callable[[Plan], float | None]) -> float:
    """Logarithm of the largest over the smallest value of a quantity; -1 where few are known."""
    found = [number for point in solution.curve if (number := _number(point, quantity)) is not None]
    return math.log(max(found) / min(found)) if len(found) > 1 else -1.0
