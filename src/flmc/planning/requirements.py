"""Requirements that a plan must meet, as text: ``temperature<=1.05``, ``run.epsilon<=3``,
``burn-in``."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass

from flmc.base import checks
from flmc.base.errors import InvalidSetting
from flmc.base.tables import format_up
from flmc.planning.plans import Plan
from flmc.planning.privacy_cost import Cost
from flmc.planning.privacy_estimate import estimate_epsilon

_RELATIONS: dict[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}
_CODES = {
    "burn-in": "the burn-in is long enough",
    "temperature": "the temperature is 1, to 5 %",
    "deep-fades": "all runs have nearly the same temperature, whatever their channel",
    "mean-shift": "the mean is off by less than 0.25 posterior sd, or sd of the answer",
    "variance-ratio": "the predicted variance ratio is like the temperature",
    "clipped": "few gradient entries are clipped",
    "over-budget": "a given gain keeps the budget",
    "no-prediction": "the law of the samples can be predicted",
    "feasible": "nothing makes the plan infeasible",
    "good": "all three lights are green, or not asked for",
    "sampling": "the samples are predicted to be those of the posterior",
    "privacy": "the budget of the whole run is kept",
    "use": "one chain is worth enough independent draws, or the answer narrow enough",
    "curvature-unknown": "the rounds tell every curvature well enough for an answer",
    "not-linear": "gradients are linear where the chain goes, to 25 %",
}
"""Words that are requirements by themselves, with their meaning: the plan must have no finding with
this code, or the light of this name must be green."""


def _epsilon(cost: Cost | None) -> float | None:
    return None if cost is None else cost.epsilon


def _predicted(plan: Plan, name: str) -> float | None:
    """Value of the field ``name`` of a plan's ``Prediction``; None where the plan has no
    prediction."""
    value: float | None = getattr(plan.prediction, name, None)
    return value


_QUANTITIES: dict[str, Callable[[Plan], float | None]] = {
    "temperature": lambda plan: plan.temperature,
    "gain": lambda plan: plan.typical_gain,
    "step_size": lambda plan: plan.step_size,
    "rounds": lambda plan: float(plan.num_rounds),
    "kept": lambda plan: float(plan.num_rounds - plan.num_burn_in),
    "rounds_needed": lambda plan: plan.rounds_needed,
    "effective_draws": lambda plan: plan.effective_draws,
    "price": lambda plan: plan.release().price,
    "round.epsilon": lambda plan: _epsilon(plan.round_cost),
    "run.epsilon": lambda plan: _epsilon(plan.run_cost),
    "width": lambda plan: None if plan.answer is None else plan.answer.width,
    "mean_width": lambda plan: None if plan.answer is None else plan.answer.mean_width,
    "variance_ratio": lambda plan: _predicted(plan, "variance_ratio"),
    "mean_shift": lambda plan: _predicted(plan, "mean_shift"),
    "clipped_fraction": lambda plan: _predicted(plan, "clipped_fraction"),
    "margin.power": lambda plan: plan.margins_db["power"],
    "margin.langevin": lambda plan: plan.margins_db["langevin"],
    "margin.privacy": lambda plan: plan.margins_db["privacy"],
    "received_snr_db": lambda plan: plan.radio.received_snr_db,
}
"""Functions that give the numbers of a plan that requirements may bound, by name; margins are in
decibels. A number that is not known is None."""


@dataclass(frozen=True)
class Requirement:
    """A requirement that a plan must meet: a bound of one of its numbers, such as
    ``temperature<=1.05``, or a word, such as ``good``."""

    text: str
    """Text of the requirement, as the user wrote it."""
    name: str
    """Name of the number that is bounded, or the word itself."""
    relation: str = ""
    """Relation of the number to its bound, ``<=``, ``>=``, ``<`` or ``>``; empty for a word."""
    bound: float = 0.0
    """Bound of the number; without meaning for a requirement that is a word."""

    def broken(self, plan: Plan, *, roughly: bool = False) -> str | None:
        """Sentence that says why a plan does not meet the requirement; None if it does. A plan that
        was not judged meets no requirement that is a word. With ``roughly`` the run's epsilon is
        estimated quickly, not bounded by the accountant."""
        if not self.relation:
            return self._broken_word(plan)
        of_run = self.name == "run.epsilon" and roughly
        value = estimate_epsilon(plan) if of_run else _QUANTITIES[self.name](plan)
        if value is None:
            return f"{self.text} is not met: {self.name} is unknown"
        # A relative excess of 1e-9 counts as rounding: 5.000000000005 meets a bound of 5.
        slack = 1e-9 * abs(self.bound) if self.relation in ("<=", ">=") else 0.0
        bound = self.bound + (slack if self.relation == "<=" else -slack)
        if _RELATIONS[self.relation](value, bound):
            return None
        said = format_up(value) if self.name.endswith("epsilon") else f"{value:.5g}"
        return f"{self.text} is not met: {self.name} is {said}"

    def _broken_word(self, plan: Plan) -> str | None:
        """Sentence that says why a plan does not meet a requirement that is a single word; None if
        it does."""
        verdict = plan.verdict
        if verdict is None:
            return f"{self.name} is not met: the plan was not judged"
        if self.name == "feasible":
            bad = [each.words for each in verdict.lights if each.state == "infeasible"]
            return f"feasible is not met: {bad[0]}" if bad else None
        if self.name == "good":
            return None if verdict.good else f"good is not met: {verdict.headline.text}"
        if self.name in ("sampling", "privacy", "use"):
            light = verdict.light(self.name)
            return None if light.state == "good" else f"{self.name} is not met: {light.words}"
        finding = next((each for each in plan.findings if each.code == self.name), None)
        if finding is None or finding.severity == "note":
            return None
        return f"{self.name} is not met: {finding.short or finding.message}"


def read_requirement(text: str) -> Requirement:
    """Requirement from its text, ``NAME<=NUMBER`` (or >=, <, >) or a word; any other text raises
    ``InvalidSetting``.

    Examples
    --------
    >>> from flmc.planning.requirements import read_requirement
    >>> read_requirement("temperature <= 1.05").bound
    1.05
    """
    parts = re.fullmatch(r"\s*([\w.\-]+?)\s*(?:(<=|>=|<|>)\s*(\S+))?\s*", text)
    name, relation, number = parts.groups() if parts else (text, None, None)
    if relation is None:
        if name not in _CODES:
            raise InvalidSetting(
                f"a requirement must be NAME<=NUMBER (or >=, <, >) with a name of"
                f" {', '.join(_QUANTITIES)}; or one of {', '.join(_CODES)}; got {text!r}"
            )
        return Requirement(text.strip(), name)
    if name not in _QUANTITIES:
        raise InvalidSetting(
            f"a requirement must bound one of {', '.join(_QUANTITIES)}; got {text!r}"
        )
    try:
        bound = checks.number_in(number or "")
    except ValueError:
        bound = math.nan
    if math.isnan(bound):
        raise InvalidSetting(f"a requirement needs a number behind {relation}, got {text!r}")
    return Requirement(text.strip(), name, relation, bound)
