"""The verdict of a plan: three lights, of which each must be green for the word GOOD.

*Sampling*: whether the samples are those of the posterior, as a prediction or a pilot says; where
the aim is an answer, whether gradients are linear in theta where the chain goes. *Privacy*: whether
the budget of the whole run is kept. *Use*: whether one chain is worth enough independent draws, or
whether the answer is narrow enough. A light that could not be judged is not green; one that was not
asked for does not count."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from flmc.base.findings import Finding, Light, gravest
from flmc.base.tables import Row, Severity, format_up

if TYPE_CHECKING:
    from flmc.planning.plans.plan_value import Plan

State = Literal["good", "not asked", "unknown", "warning", "infeasible"]
"""States that a light can have, from the best to the worst."""
_SHOWN: dict[State, tuple[str, Severity]] = {
    "good": ("GOOD", "good"),
    "not asked": ("GOOD", "plain"),
    "unknown": ("NOT KNOWN", "unknown"),
    "warning": ("WARNING", "warning"),
    "infeasible": ("INFEASIBLE", "bad"),
}
"""For each state of the worst light: the verdict in a word, and the style in which a row is
printed."""


class LightState(NamedTuple):
    """One light of a verdict: what it is about, its state, and the reason in a few words."""

    light: Light
    state: State
    words: str

    @property
    def row(self) -> Row:
        """Row of a printed plan with the name of the light, its state and the reason."""
        return Row(self.light, f"{self.state}: {self.words}", severity=_SHOWN[self.state][1])


@dataclass(frozen=True)
class Verdict:
    """The three lights of a plan together."""

    lights: tuple[LightState, ...]
    """The lights sampling, privacy and use, in this order."""

    @property
    def state(self) -> State:
        """State of the worst light; ``good`` if every light is ``good`` or ``not asked``."""
        order = get_args(State)
        worst = max((each.state for each in self.lights), key=order.index)
        return "good" if worst == "not asked" else worst

    @property
    def good(self) -> bool:
        """Whether every light that was asked for is green."""
        return self.state == "good"

    @property
    def headline(self) -> Row:
        """Row with the verdict in a word, and the reasons of the lights whose state decides it."""
        state = self.state
        reasons = [each.words for each in self.lights if state in ("good", each.state)]
        word, severity = _SHOWN[state]
        return Row(word, "; ".join(reasons), severity=severity)

    def light(self, name: str) -> LightState:
        """The light with this name: ``sampling``, ``privacy`` or ``use``."""
        return next(each for each in self.lights if each.light == name)

    def to_document(self) -> dict[str, Any]:
        """The verdict in plain values, for JSON."""
        return {
            "state": self.state,
            "lights": {
                each.light: {"state": each.state, "words": each.words} for each in self.lights
            },
        }


def verdict_of(
    plan: Plan, findings: Sequence[Finding] | None = None, *, with_run: bool = False
) -> Verdict:
    """The verdict of a plan, from its findings, its prediction and its privacy budget.

    ``findings`` replace the plan's own, for example by those of its run. Where the privacy light is
    not good and the budget is for one round, ``with_run`` adds the cost of the whole run to the
    light's reason, which may take a second to compute."""
    findings = plan.findings if findings is None else findings
    greens = {"sampling": _sampling, "privacy": _privacy, "use": _use}
    lights = []
    for light in get_args(Light):
        worst = gravest([each for each in findings if each.light == light])
        if worst:
            reasons = "; ".join(each.short or each.message for each in worst)
            if light == "privacy" and with_run and plan.limits.scope == "round":
                reasons += "" if plan.run_cost is None else f"; the run costs {plan.run_cost}"
            # Every severity of a finding that is graver than a note is also the name of a light's
            # state.
            lights.append(LightState(light, worst[0].severity, reasons))  # type: ignore[arg-type]
        else:
            lights.append(LightState(light, *greens[light](plan)))
    return Verdict(tuple(lights))


def _sampling(plan: Plan) -> tuple[State, str]:
    """State and reason of the sampling light, for a plan in which no finding graver than a note is
    about sampling."""
    law = plan.prediction
    if law is None or law.mean_shift is None:
        return "unknown", "what the chain samples was not predicted"
    shift = "less than 0.01" if law.mean_shift < 0.01 else f"{law.mean_shift:.2g}"
    if plan.aim == "answer":
        return "good", (
            "by prediction gradients are linear in theta where the chain goes, and the answer's"
            f" mean is off by {shift} posterior sd"
        )
    return "good", (
        f"by prediction the samples' variance is {law.variance_ratio:.3g} times the posterior's,"
        f" and their mean is off by {shift} posterior sd"
    )


UNASKED_BUDGET = "unasked-budget"
"""Code of the note that the privacy budget was not asked for: a comparison set it, to make methods
equal."""


def _privacy(plan: Plan) -> tuple[State, str]:
    """State and reason of the privacy light, for a plan in which no finding graver than a note is
    about privacy."""
    limits = plan.limits
    unasked = any(each.code == UNASKED_BUDGET for each in plan.findings)
    if unasked or limits.privacy == "off" or limits.epsilon is None or plan.uplink.noise_is_exact:
        return "not asked", "no privacy budget was asked for"
    if plan.unknown_privacy is not None:
        return "unknown", plan.unknown_privacy
    where = ", in a simulation: the plan looked at the data" if plan.data_dependent else ""
    if plan.uplink.privacy_stated_by is not None:
        where = f", as stated by {plan.uplink.privacy_stated_by}{where}"
    return "good", f"the whole run keeps epsilon {format_up(limits.epsilon)}{where}"


def _use(plan: Plan) -> tuple[State, str]:
    """State and reason of the use light, for a plan in which no finding graver than a note is about
    use."""
    if plan.aim == "answer" and plan.answer is not None:
        wide = f"{plan.answer.width:.3g} times as wide as the exact posterior's"
        return "good", f"the answer's intervals will be at most {wide}"
    if plan.effective_draws is None:
        return "unknown", "how many independent draws one chain is worth is not known"
    return "good", f"one chain is worth {plan.effective_draws:.3g} independent draws"
