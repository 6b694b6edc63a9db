"""Charts of privacy: epsilon over the rounds of a run, and the law of one round's loss."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from flmc.base.tables import format_up
from flmc.evaluation.auditing.loss_law import LossLaw
from flmc.planning.costs.privacy_curve import SpentAfter
from flmc.planning.plans import Plan
from flmc.views.axes import epsilon_label
from flmc.views.charts.chart import Axis, Chart, Colour, Layer, Line, Mark, numbers

COLOURS: tuple[Colour, ...] = ("blue", "vermilion", "green", "purple")
"""Colours of settings that are compared, in order."""
_SHOWN_POINTS = 80
"""Points at which a law is drawn."""


def spending_chart(curves: Mapping[str, Sequence[SpentAfter]], plan: Plan) -> Chart:
    """Epsilon after so many rounds, for one plan or several.

    Parameters
    ----------
    curves
        What the first rounds cost, by the name of the plan; an empty name is not shown.
    plan
        One of the plans, whose delta and budget are shown.
    """
    layers: list[Layer] = []
    for (name, curve), colour in zip(curves.items(), COLOURS, strict=False):
        known = [point for point in curve if math.isfinite(point.epsilon) and point.epsilon > 0]
        x, y = (numbers(part) for part in zip(*known, strict=True)) if known else ((), ())
        layers.append(Line(x, y, colour, label=name, dots=True))
    limits = plan.limits
    if limits.scope == "run" and limits.epsilon is not None and limits.criterion != "off":
        layers.append(Mark("y", limits.epsilon, f"budget {limits.epsilon:g}", "muted"))
    last = [curve[-1] for curve in curves.values() if curve]
    said = "; ".join(
        f"{name + ': ' if name else ''}epsilon {format_up(end.epsilon)} after {end.rounds} rounds"
        for name, end in zip(curves, last, strict=False)
    )
    return Chart(
        "spending",
        "Privacy over the run",
        Axis("rounds", logarithmic=True),
        Axis(epsilon_label("run", limits.run_delta), logarithmic=True),
        tuple(layers),
        f"{said}." if said else "",
    )


def loss_chart(laws: Mapping[str, LossLaw], plan: Plan, *, marked: bool = True) -> Chart:
    """Density of the privacy loss of one round, with epsilon marked.

    Parameters
    ----------
    laws
        Laws of the loss of the worst round, by the name of their scheme.
    plan
        The plan of the first of them: its epsilon of a round, delta and criterion are told.
    marked
        Whether epsilon is marked.
    """
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
        Axis("privacy loss"),
        Axis("density", low=0.0),
        tuple(layers),
        _meaning(plan.limits.criterion, plan.limits.delta),
    )


def _meaning(criterion: str, delta: float) -> str:
    """What epsilon says of the loss, by the criterion that it is stated with."""
    if criterion == "tight":
        return (
            "At epsilon the mean of 1 - exp(epsilon - loss) over larger losses is at"
            f" most delta = {delta:g}; the loss itself exceeds epsilon more often."
        )
    return f"The loss exceeds epsilon with probability delta = {delta:g} at most."


def _density(law: LossLaw) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Losses and their density in the first world, where nearly all of it lies."""
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
