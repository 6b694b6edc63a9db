"""Inverse questions: the smallest value of a setting with which a plan meets its requirements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from flmc.base.errors import InvalidSetting, RunFailed
from flmc.base.findings import gravest
from flmc.base.progress import Progress
from flmc.models.model import Model
from flmc.planning.advice.requirements import Requirement
from flmc.planning.plans import Plan
from flmc.settings.assembly import assemble, make_model
from flmc.settings.schema import Settings, merge
from flmc.settings.solutions import AXES, Point, Solution
from flmc.settings.suggestions import make_search, suggest_settings

_INCURABLE = {"missing-devices", "burn-in-unknown"}
"""Findings that no value of a setting can cure, so that they do not count."""


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
        One of :data:`flmc.settings.solutions.AXES`. SNR, epsilon, rounds, devices and examples are
        solved for the smallest value, clip and slope parameter for the best one: the plan against
        which least speaks, and among these the one whose draws are expected to be closest to the
        posterior.
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
    if name not in AXES:
        raise InvalidSetting(f"solve must be one of {', '.join(AXES)}; got {name!r}")
    trials = _Trials(settings, name, tuple(requirements), suggest, progress)
    return trials.best() if AXES[name].best else trials.smallest()


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
                fitting = make_search(settings).ranked()
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
            for each in gravest([f for f in plan.findings if f.code not in _INCURABLE])
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
        start, axis = self.start(), self.axis
        meets = not self.at(start).broken
        step, low, high = axis.step, start, start
        while True:
            further = low - step if meets else high + step
            if abs(further - start) > axis.reach:
                if not meets:
                    last = self.at(high)
                    raise RunFailed(
                        f"no value of {self.name} up to {last.value:.5g} meets the requirements:"
                        f" {last.broken[0]}"
                    )
                low = further
                break
            if meets:
                low = further
                if self.at(low).broken:
                    break
                high = low
            else:
                low, high = high, further
                if not self.at(high).broken:
                    break
            step *= 1.5
        while high - low > axis.resolution:
            middle = (low + high) / 2
            low, high = (middle, high) if self.at(middle).broken else (low, middle)
        return self._verified(high)

    def _verified(self, place: float) -> Solution:
        """The solution with the accountant's own limit, a little further where the estimate was
        too kind."""
        why: tuple[str, ...] = ()
        for more in (0, 1, 2, 4, 8, 16):
            point = self.at(place + more * self.axis.resolution)
            settings = self.settings_at(point.value)
            if self.suggest:
                try:
                    found = suggest_settings(settings)
                except RunFailed as error:
                    why = (str(error),)
                    continue
                settings = merge({}, {**found.settings, **settings.model_dump(exclude_unset=True)})
            plan = assemble(settings).plan()
            why = self.broken(plan, roughly=False)
            if not why:
                return self._solution(point.value, settings, plan)
        raise RunFailed(f"no value of {self.name} was found that meets the requirements: {why[0]}")

    def best(self) -> Solution:
        """The value against which least speaks, among those on a grid about the given one."""
        start, axis = self.start(), self.axis
        count = int(axis.reach / axis.step)
        points = [self.at(start + index * axis.step) for index in range(-count, count + 1)]
        made = [point for point in points if point.plan is not None]
        if not made:
            raise RunFailed(f"no value of {self.name} can be planned for: {points[0].broken[0]}")
        chosen = min(made, key=_badness)
        settings = self.settings_at(chosen.value)
        return self._solution(chosen.value, settings, assemble(settings).plan())

    def _solution(self, value: float, settings: Settings, plan: Plan) -> Solution:
        curve = tuple(self.tried[each] for each in sorted(self.tried))
        return Solution(self.name, value, settings, plan, curve)


def _badness(point: Point) -> tuple[int, float]:
    """What points are compared by: how much speaks against them, then the expected distance of the
    draws from the posterior, rounds of burn-in standing for slowness."""
    plan = point.plan
    if plan is None:
        return 1000, math.inf
    law = plan.prediction
    off = 0.0 if law is None else law.distance_squared or 0.0
    return len(point.broken), off + plan.dim * (plan.rounds_needed or 0) / max(1, plan.num_rounds)
