"""Answers to inverse questions: a value, the plan that it gives, and the curve beside it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

from flmc.base.tables import Grid, Listing, format_short
from flmc.planning.plans import Plan
from flmc.settings.schema import Settings


class Axis(NamedTuple):
    """How a setting is searched.

    Attributes
    ----------
    step
        First step of the search: a factor in logarithms, or decibels.
    reach
        Largest distance from the value given.
    resolution
        To what the answer is found.
    whole
        Whether values are whole numbers.
    best
        Whether the best value is looked for, not the smallest.
    """

    step: float
    reach: float
    resolution: float
    whole: bool = False
    best: bool = False


_FACTOR = math.log(2.0)
AXES = {
    "snr_db": Axis(3.0, 60.0, 0.1),
    "epsilon": Axis(_FACTOR, math.log(1e4), 0.01),
    "rounds": Axis(_FACTOR, math.log(1e4), 0.01, whole=True),
    "devices": Axis(_FACTOR, math.log(1e3), 0.01, whole=True),
    "samples": Axis(_FACTOR, math.log(1e4), 0.01, whole=True),
    "clip": Axis(0.25, 2.0, 0.02, best=True),
    "slope_parameter": Axis(0.25, 2.0, 0.02, best=True),
}
"""Settings that can be solved for."""


class Point(NamedTuple):
    """A value that was tried.

    Attributes
    ----------
    value, plan
        The value, and the plan for it; None where none can be made.
    broken
        Why the plan does not do, a sentence each; empty if it does.
    """

    value: float
    plan: Plan | None
    broken: tuple[str, ...]


@dataclass(frozen=True)
class Solution:
    """Answer to an inverse question, with the curve beside it.

    Attributes
    ----------
    name, value
        The setting, and the value that was found.
    settings
        The settings with that value.
    plan
        The plan that they give, within the exact budget.
    curve
        Values that were tried, in order; where a budget of the run is searched, or settings are
        suggested, their plans are estimates.
    suggested
        The settings that were suggested for the value, with their reasons; None if none were.
    """

    name: str
    value: float
    settings: Settings
    plan: Plan
    curve: tuple[Point, ...]
    suggested: Listing | None = None

    @property
    def words(self) -> str:
        """The answer in a sentence."""
        kind = "best" if AXES[self.name].best else "smallest"
        return f"{self.name} = {self.value:.5g} is the {kind} value that meets the requirements"

    def grid(self) -> Grid:
        """Table of the values that were tried; estimates, where a budget of the run is searched."""
        header = ("gain", "binds", "temper-\nature", "burn-in\nneeded", "shift\nin sd", "meets")
        rows: list[tuple[str, ...]] = []
        for value, plan, broken in self.curve:
            why = "yes" if not broken else f"no: {_cause(broken[0])}"
            if plan is None:
                rows.append((f"{value:.5g}", "-", "-", "-", "-", "-", why))
                continue
            law = plan.prediction
            shift = law.mean_shift if law else None
            if shift is not None and shift < 0.001:
                shift = 0.0
            numbers = (plan.temperature, plan.rounds_needed, shift)
            cells = [format_short(number) for number in numbers]
            gain = format_short(plan.typical_gain)
            rows.append((f"{value:.5g}", gain, plan.binding, *cells, why))
        return Grid((self.name, *header), tuple(rows), f"plans for values of {self.name}")

    def to_document(self) -> dict[str, Any]:
        """The answer and the curve in plain values, for JSON, without the plan."""
        return {
            "name": self.name,
            "value": self.value,
            "estimated": self.settings.scope == "run" or self.suggested is not None,
            "curve": [
                {
                    "value": point.value,
                    "gain": point.plan and point.plan.typical_gain,
                    "binding": point.plan and point.plan.binding,
                    "temperature": point.plan and point.plan.temperature,
                    "rounds_needed": point.plan and point.plan.rounds_needed,
                    "broken": list(point.broken),
                }
                for point in self.curve
            ],
        }


def _cause(sentence: str) -> str:
    """The few words of a sentence that name what is not met."""
    return sentence.split(":")[0].removesuffix(" is not met")[:24]
