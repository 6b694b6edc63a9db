"""Fair comparison: plans of several methods brought to one effective step, one privacy cost, one
energy or one airtime.

The shared value is one that all methods can reach. Of steps, epsilons and energies it is the
smallest that a method has by itself, because these can be lowered but not raised beyond a limit. Of
airtimes it is the largest, because a run can be made longer, and a shorter one may end within its
burn-in."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from flmc.base import checks
from flmc.base.errors import InvalidSetting
from flmc.base.findings import Finding
from flmc.planning.decision import decide
from flmc.planning.judgement import ROUND_BUDGET, judge_budget
from flmc.planning.plans import Plan
from flmc.planning.plans.verdict import UNASKED_BUDGET
from flmc.planning.search import Axis, Candidate, smallest

_SNR = Axis(3.0, 600.0, 1e-4)
"""Scale of the search for the SNR limit, in decibels, at which a method transmits a given energy;
its resolution is 0.002 per cent of the energy."""


@dataclass(frozen=True)
class Quantity:
    """A quantity, such as the energy of a run, in which the methods of a comparison can be made
    equal."""

    words: str
    """Name of the quantity, as it stands in messages."""
    definition: str
    """Sentence that says what is made equal, to which value, and which setting is varied for it."""
    of: Callable[[Plan], float | None]
    """Function that gives the value of the quantity for a plan; None where the plan has none."""
    shared: Callable[[Iterable[float]], float]
    """Function (smallest or largest) that picks the shared value among those that the methods have
    by themselves."""
    changes: Callable[[Candidate, Plan, Equality], dict[str, Any]]
    """Function that gives the changes of settings, as values by name, that bring a candidate to the
    shared value; its arguments are the candidate, its plan, and the ``Equality`` to be reached."""
    slack: Callable[[Plan, float], float]
    """Function of a plan and the shared value: the largest difference from the shared value with
    which the plan still counts as equal."""


def _effective_step(plan: Plan) -> float | None:
    return plan.effective_step_size


def _epsilon(plan: Plan) -> float | None:
    cost = plan.run_cost
    return None if cost is None or math.isinf(cost.epsilon) else cost.epsilon


def _energy(plan: Plan) -> float | None:
    return None if plan.airtime is None else plan.airtime.energy * plan.uplink.noise_power


def _airtime(plan: Plan) -> float | None:
    return None if plan.airtime is None else float(plan.airtime.channel_uses)


def _share_step(held: Candidate, plan: Plan, shared: Equality) -> dict[str, Any]:
    """Changes of settings, by name, that give a candidate the effective step that all compared
    methods share, and the same factor of the step in early burn-in."""
    return {
        "step_size": "auto",
        "effective_step_size": shared.value,
        "burn_in_step_factor": shared.setter.burn_in_step_factor,
    }


def _share_budget(held: Candidate, plan: Plan, shared: Equality) -> dict[str, Any]:
    """Changes of settings, by name, that set a candidate's privacy budget of the run to the epsilon
    that all compared methods share."""
    return {"privacy": "tight", "epsilon": shared.value, "scope": "run"}


def _lower_snr(held: Candidate, plan: Plan, shared: Equality) -> dict[str, Any]:
    """Change of settings, by name: the largest SNR limit, in decibels and up to the search's
    resolution, at which a candidate stays below the energy that all compared methods share; its own
    limit where it never transmits so much."""
    # The gain that the privacy budget allows does not depend on the power, so it is computed once.
    allowed = plan.gain_limits.privacy

    def enough(snr_db: float) -> bool:
        changed = held.with_value("snr_db", snr_db)
        assert changed is not None
        made = decide(changed.model, changed.uplink, changed.limits, changed.request, allowed)
        energy = _energy(made)
        return energy is not None and energy >= shared.value

    found = smallest(enough, plan.uplink.snr_db, _SNR)
    # The search ends at most its resolution above the shared energy, which no method is to exceed.
    return {"snr_db": plan.uplink.snr_db if found is None else found - _SNR.resolution}


def _share_airtime(held: Candidate, plan: Plan, shared: Equality) -> dict[str, Any]:
    """Change of settings, by name, that gives a candidate as many rounds as fit into the channel
    uses that all compared methods share."""
    return {"num_rounds": int(shared.value) // plan.uplink.symbols_per_round(plan.dim)}


def _in_proportion(share: float) -> Callable[[Plan, float], float]:
    return lambda plan, value: share * value


QUANTITIES: dict[str, Quantity] = {
    "step": Quantity(
        "effective step",
        "every method runs at the smallest effective step that one of them takes by itself, with"
        " that one's factor in early burn-in; effective_step_size is varied",
        _effective_step,
        min,
        _share_step,
        _in_proportion(1e-9),
    ),
    "privacy": Quantity(
        "epsilon of the run",
        "every method has the smallest epsilon of the run, for one chain, that one of them costs by"
        " itself as its budget of the run; epsilon is varied, with scope 'run' and privacy 'tight'",
        _epsilon,
        min,
        _share_budget,
        _in_proportion(1e-3),
    ),
    "energy": Quantity(
        "energy of a device in the run",
        "every method has the smallest energy, averaged over devices, that one of them has in a run"
        " by itself; snr_db is lowered. Where symbols differ in energy, as analog ones do, it is an"
        " upper bound: such a method transmits less",
        _energy,
        min,
        _lower_snr,
        _in_proportion(1e-3),
    ),
    "airtime": Quantity(
        "channel uses of a device in the run",
        "every method has as many rounds as fit into the most channel uses that one of them takes"
        " in a run by itself; rounds are varied, and a burn-in that was given stays",
        _airtime,
        max,
        _share_airtime,
        lambda plan, value: plan.uplink.symbols_per_round(plan.dim) - 0.5,
    ),
}
"""Quantities in which methods can be made equal, by the name that a user gives as the setting
``equal``."""


@dataclass(frozen=True)
class Equality:
    """Value of a quantity, such as the epsilon of the run, that all methods of a comparison are
    made to share."""

    name: str
    """Name of the shared quantity: ``step``, ``privacy``, ``energy`` or ``airtime``."""
    value: float
    """Value of the quantity that all compared methods share."""
    setter: Plan
    """Plan of the method that has the shared value without a change of its settings."""
    from_data: bool
    """Whether any of the compared plans, among which the shared value was picked, was computed from
    the devices' private data."""

    @classmethod
    def among(cls, name: str, plans: Sequence[Plan]) -> Equality:
        """The value of the quantity ``name`` that methods with these plans share. Raises
        ``InvalidSetting`` for an unknown quantity, where no plan has a value, and for epsilons with
        different deltas or neighbouring relations."""
        checks.one_of("equal", name, tuple(QUANTITIES))
        quantity = QUANTITIES[name]
        if name == "privacy":
            _check_one_statement(plans)
        known = [(value, plan) for plan in plans if (value := quantity.of(plan)) is not None]
        if not known:
            raise InvalidSetting(
                f"equal {name!r} needs a method whose {quantity.words} is known, and none has one"
            )
        value = quantity.shared(each for each, _ in known)
        setter = next(plan for each, plan in known if each == value)
        return cls(name, value, setter, any(each.data_dependent for each in plans))

    @property
    def quantity(self) -> Quantity:
        """The quantity in which the compared methods are equal."""
        return QUANTITIES[self.name]

    def changes(self, held: Candidate, plan: Plan) -> dict[str, Any]:
        """Changes of settings, by name, that bring a candidate with this plan to the shared value;
        empty where it has the value already. Raises ``InvalidSetting`` for a candidate that has no
        value of the quantity."""
        own = self.quantity.of(plan)
        if own is None:
            raise InvalidSetting(
                f"equal {self.name!r} cannot be reached: the {plan.uplink.scheme} uplink has no"
                f" {self.quantity.words}{self._why_unknown(plan)}"
            )
        # Plans with equal effective steps may still differ in the larger steps of early burn-in, so
        # for the quantity "step" settings are changed even where the value is close.
        close = abs(own - self.value) <= self.quantity.slack(plan, self.value)
        if plan == self.setter or (close and self.name != "step"):
            return {}
        return self.quantity.changes(held, plan, self)

    def _why_unknown(self, plan: Plan) -> str:
        """Reason why a plan has no epsilon, as text in brackets; empty where the shared quantity is
        not epsilon, or the plan has one."""
        reason = plan.unknown_privacy if self.name == "privacy" else None
        return "" if reason is None else f" ({reason})"

    def check(self, plan: Plan) -> None:
        """Raise ``InvalidSetting`` unless a plan has the shared value of the quantity, within its
        tolerance."""
        own = self.quantity.of(plan)
        if own is None or abs(own - self.value) > self.quantity.slack(plan, self.value):
            stated = "none" if own is None else f"{own:.6g}"
            given = " with a gain that was given" if plan.binding == "given" else ""
            raise InvalidSetting(
                f"equal {self.name!r} cannot be reached: the {self.quantity.words} must be"
                f" {self.value:.6g}, and the {plan.uplink.scheme} uplink has {stated}{given}"
            )

    def to_document(self) -> dict[str, Any]:
        """Name, definition and value of the shared quantity, for JSON."""
        definition = self.quantity.definition
        return {"name": self.name, "definition": definition, "value": self.value}

    def findings(self, changes: dict[str, Any], own: Plan) -> tuple[Finding, ...]:
        """Findings about how a plan was brought to the shared value: a note with the ``changes`` of
        settings, and where epsilon is shared, findings about the privacy budget that ``own`` (the
        plan before the changes) was asked to keep. A budget that only the comparison has set is
        noted as such: nobody asked for its protection, and equal methods must be judged alike."""
        findings = [self._note(changes)]
        if self.name == "privacy" and changes:
            findings += [each for each in judge_budget(own) if each.code == ROUND_BUDGET]
            if own.limits.privacy == "off" or own.limits.epsilon is None:
                text = f"the budget of epsilon {self.value:.6g} was set by the comparison alone"
                findings.append(Finding(UNASKED_BUDGET, "note", text, light="privacy"))
        return tuple(findings)

    def _note(self, changes: dict[str, Any]) -> Finding:
        """Note, for the findings of a plan, that it shares the value of the quantity, and by which
        ``changes`` of settings."""
        changed = ", ".join(f"{name} {value}" for name, value in changes.items())
        how = f"by {changed}" if changed else "by itself"
        text = f"{self.quantity.words} {self.value:.6g} as all methods compared, {how}"
        return Finding("made-equal", "note", text, numbers={self.name: self.value})


def _check_one_statement(plans: Sequence[Plan]) -> None:
    """Raise ``InvalidSetting`` for plans whose epsilons cannot be compared: with different deltas,
    or for different neighbouring data."""
    for words, values in (
        ("run_delta", {each.limits.run_delta for each in plans}),
        ("neighbouring relation", {each.limits.neighbours for each in plans}),
    ):
        if len(values) > 1:
            listed = ", ".join(map(str, sorted(values)))
            raise InvalidSetting(f"equal 'privacy' needs one {words} for all methods, got {listed}")


def with_changes(held: Candidate, changes: dict[str, Any]) -> Candidate:
    """The candidate with several settings changed one after the other, in the order of ``changes``,
    which has values by name."""
    for name, value in changes.items():
        changed = held.with_value(name, value)
        assert changed is not None  # it is None for a missing link only, and no link is changed
        held = changed
    return held
