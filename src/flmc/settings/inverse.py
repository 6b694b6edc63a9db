"""Inverse questions: the smallest value of a setting with which a plan meets its requirements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from flmc.base.errors import FlmcError, InvalidSetting, RunFailed
from flmc.base.findings import gravest
from flmc.base.progress import Progress
from flmc.base.tables import Grid, Listing, format_short
from flmc.models.model import Model
from flmc.planning.plans import Plan
from flmc.planning.requirements import Requirement
from flmc.settings.assembly import assemble
from flmc.settings.construction import make_model
from flmc.settings.schema import Settings, merge
from flmc.settings.suggestions import INCURABLE, SuggestedSettings, make_search, suggest_settings


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


# Inverse questions: the smallest value of a setting with which a plan meets its requirements.


def solve(
    settings: Settings,
    name: str,
    requirements: Sequence[Requirement] = (),
    *,
    suggest: bool = False,
    progress: Progress | None = None,
) -> Solution:
    """The smallest (or best) value of a setting with which the plan meets its requirements.

    Parameters
    ----------
    settings
        All other settings. A burn-in that is not given is automatic.
    name
        One of :data:`flmc.settings.inverse.AXES`. SNR, epsilon, rounds, devices and
        examples are solved for the smallest value, clip and slope parameter for the best one: the
        plan against which least speaks, and among these the one whose draws are expected to be
        closest to the posterior.
    requirements
        What the plan must meet, beside having no finding that speaks against it.
    suggest
        Whether other settings that are left open are suggested anew for every value.
    progress
        Called with a rough share of the work now and then.

    Raises
    ------
    InvalidSetting
        If the setting cannot be solved for.
    RunFailed
        If no value is found.
    """
    _check(settings, name)
    trials = _Trials(settings, name, tuple(requirements), suggest, progress)
    return trials.best() if AXES[name].best else trials.smallest()


def _check(settings: Settings, name: str) -> None:
    """Refuse a setting that cannot be solved for, or that has no effect."""
    if name not in AXES:
        raise InvalidSetting(f"solve must be one of {', '.join(AXES)}; got {name!r}")
    idle = {
        "epsilon": settings.privacy == "off" or settings.scheme == "ideal",
        "snr_db": settings.scheme == "ideal",
        "clip": settings.scheme == "ideal",
        "slope_parameter": settings.scheme != "digital",
        "devices": settings.model != "linear",
        "samples": settings.model != "linear",
    }
    if idle.get(name, False):
        raise InvalidSetting(
            f"{name} has no effect with scheme {settings.scheme!r}, privacy {settings.privacy!r}"
            f" and model {settings.model!r}: it cannot be solved for"
        )


class _Trials:
    """Plans for values of one setting, each made once."""

    def __init__(
        self,
        settings: Settings,
        name: str,
        requirements: tuple[Requirement, ...],
        suggest: bool,
        progress: Progress | None,
    ) -> None:
        self.given, self.name, self.axis = settings, name, AXES[name]
        self.requirements, self.suggest, self.progress = requirements, suggest, progress
        self.tried: dict[float, Point] = {}
        self.models: dict[Any, Model] = {}

    def settings_at(self, value: float) -> Settings:
        """The settings with another value; a burn-in that was not given is automatic."""
        changes: dict[str, Any] = {self.name: int(value) if self.axis.whole else value}
        if "burn_in" not in self.given.model_fields_set and not self.suggest:
            changes["burn_in"] = "auto"
        given = self.given.model_dump(exclude_unset=True)
        return merge({}, {**given, **changes})

    def at(self, place: float) -> Point:
        """The point at a place of the axis: a logarithm, or decibels."""
        value = place if self.name == "snr_db" else math.exp(place)
        if self.axis.whole:
            value = float(max(1, math.ceil(value * (1 - 1e-12))))
        if value not in self.tried:
            self.tried[value] = self._try(value)
            if self.progress is not None:
                self.progress(1.0 - 0.9 ** len(self.tried))
        return self.tried[value]

    def _try(self, value: float) -> Point:
        try:
            settings = self.settings_at(value)
            if self.suggest:
                fitting = make_search(settings).ranked
                plan = fitting[0] if fitting else None
                return Point(value, plan, () if fitting else ("no settings fit",))
            plan = assemble(settings, self._model(settings)).try_plan()
        except InvalidSetting as error:
            return Point(value, None, (str(error),))
        return Point(value, plan, self.broken(plan, roughly=True))

    def _model(self, settings: Settings) -> Model:
        """The model, made once for the same data."""
        key = (settings.devices, settings.samples, settings.dim)
        if key not in self.models:
            self.models[key] = make_model(settings)
        return self.models[key]

    def broken(self, plan: Plan, *, roughly: bool) -> tuple[str, ...]:
        """Why a plan does not do, a sentence each."""
        against = [
            f"{each.code}: {each.short or each.message}"
            for each in gravest([f for f in plan.findings if f.code not in INCURABLE])
        ]
        asked = (each.broken(plan, roughly=roughly) for each in self.requirements)
        return (*against, *(text for text in asked if text is not None))

    def start(self) -> float:
        """Place of the value that was given."""
        value = getattr(self.given, self.name)
        if value is None:
            value = getattr(assemble(self.given).uplink, "slope", 0.0) * 2.0
        return float(value) if self.name == "snr_db" else math.log(value)

    def smallest(self) -> Solution:
        """The smallest value that does, by steps that grow, then by halving."""
        found = self._bracket()
        if found is None:
            values = sorted(self.tried)
            why = self.at(self.start()).broken[0]
            raise RunFailed(
                f"no value of {self.name} from {values[0]:.5g} to {values[-1]:.5g} was found that"
                f" meets the requirements; at the one given: {why}"
            )
        low, high = found
        while high - low > self.axis.resolution:
            middle = (low + high) / 2
            low, high = (middle, high) if self.at(middle).broken else (low, middle)
        return self._verified(high)

    def _bracket(self) -> tuple[float, float] | None:
        """A place that does not do and one above it that does; None where none does.

        From a value that does the search goes down; from one that does not, up and then down, for
        more is not always better."""
        start, axis = self.start(), self.axis
        step, last = axis.step, start
        meets = not self.at(start).broken
        if meets:
            while abs(last - step - start) <= axis.reach:
                if self.at(last - step).broken:
                    return last - step, last
                last, step = last - step, 1.5 * step
            return last - axis.resolution / 2, last
        for sign in (1.0, -1.0):
            step, last = axis.step, start
            while abs(last + sign * step - start) <= axis.reach:
                there = last + sign * step
                if not self.at(there).broken:
                    return (last, there) if sign > 0 else self._floor(there)
                last, step = there, 1.5 * step
        return None

    def _floor(self, place: float) -> tuple[float, float]:
        """A bracket below a place that does."""
        step = self.axis.step
        while not self.at(place - step).broken and step < self.axis.reach:
            place, step = place - step, 1.5 * step
        return place - step, place

    def _verified(self, place: float) -> Solution:
        """The solution with the accountant's own limit, a little further where the estimate was
        too kind."""
        why: tuple[str, ...] = ()
        for more in (0, 1, 2, 4, 8, 16, 32, 64):
            point = self.at(place + more * self.axis.resolution)
            settings, suggested = self.settings_at(point.value), None
            if self.suggest:
                try:
                    found = suggest_settings(settings)
                except RunFailed as error:
                    why = (str(error),)
                    continue
                suggested = found
                settings = merge({}, {**settings.model_dump(exclude_unset=True), **found.settings})
            try:
                plan = assemble(settings).plan()
            except InvalidSetting as error:  # the accountant knows better than the estimate
                why = (str(error),)
                continue
            why = self.broken(plan, roughly=False)
            if not why:
                return self._solution(point.value, settings, plan, suggested)
        raise RunFailed(f"no value of {self.name} was found that meets the requirements: {why[0]}")

    def best(self) -> Solution:
        """The value against which least speaks, among those on a grid about the given one."""
        start, axis = self.start(), self.axis
        count = int(axis.reach / axis.step)
        points = [self.at(start + index * axis.step) for index in range(-count, count + 1)]
        made = [point for point in points if point.plan is not None]
        why = ""
        if not made:
            raise RunFailed(f"no value of {self.name} can be planned for: {points[0].broken[0]}")
        for chosen in sorted(made, key=_badness)[:3]:
            settings, suggested = self.settings_at(chosen.value), None
            try:
                if self.suggest:
                    suggested = suggest_settings(settings)
                    given = settings.model_dump(exclude_unset=True)
                    settings = merge({}, {**given, **suggested.settings})
                plan = assemble(settings).plan()
            except FlmcError as error:
                why = str(error)
                continue
            broken = self.broken(plan, roughly=False)
            if not broken:
                return self._solution(chosen.value, settings, plan, suggested)
            why = broken[0]
        raise RunFailed(f"no value of {self.name} meets the requirements: {why}")

    def _solution(
        self, value: float, settings: Settings, plan: Plan, suggested: SuggestedSettings | None
    ) -> Solution:
        curve = tuple(self.tried[each] for each in sorted(self.tried))
        listing = None if suggested is None else suggested.listing()
        return Solution(self.name, value, settings, plan, curve, listing)


def _badness(point: Point) -> tuple[int, float]:
    """What points are compared by: how much speaks against them, then the expected distance of the
    draws from the posterior, rounds of burn-in standing for slowness."""
    plan = point.plan
    if plan is None:
        return 1000, math.inf
    law = plan.prediction
    off = 0.0 if law is None else law.distance_squared or 0.0
    return len(point.broken), off + plan.dim * (plan.rounds_needed or 0) / max(1, plan.num_rounds)
