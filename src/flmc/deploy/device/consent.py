r"""Consent: a device's decision on a run, by its own budget and its own rules.

A device computes the price of the plan itself and adds it to the prices of earlier runs:
:math:`\sum_i\varepsilon_i \le \varepsilon` and :math:`\sum_i\delta_i \le \delta` over all its
runs. This is basic composition, which also holds where later plans depend on what earlier runs
published. A run counts in whole from its first answer: it may have ended early because of what
it published, so the rest of its price cannot be handed back. Where the owner changes the unit that
the budget protects (all data of the device, or one example), earlier runs count with their price
for the new unit, which the journal holds as well.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass

from flmc.base import checks
from flmc.base.errors import FlmcError, InvalidSetting
from flmc.base.tables import format_up
from flmc.deploy.accounting import NOT_HIDDEN, cost_of_run
from flmc.deploy.device.device_journal import UNKNOWN, DeviceJournal, Price
from flmc.privacy.neighbours import RELATIONS, UNITS
from flmc.wire.federation import Federation

_log = logging.getLogger("flmc.deploy.device")
_SLOT_SHARE = 0.5
"""Largest share of the slot (the fixed time from question to answer) that computing and storing an
answer may take, as measured when the device joins; a device that takes longer refuses the run."""
OTHER_AIR = (
    "the air has lost the journal that it had when this device joined: it could add fresh noise to"
    " symbols that it published before; use a new run"
)
"""Reason that a device gives for not answering an air whose journal is not the one that it had when
the device joined."""


class Refused(Exception):  # noqa: N818 (says what the device does)
    """Raised if a device decides not to take part in a run; the message gives the reason."""


@dataclass(frozen=True)
class Budget:
    """Lifetime privacy budget of a device's data.

    Attributes
    ----------
    epsilon
        Largest sum of epsilon over all runs; infinite: no limit, prices are only recorded.
    delta
        Largest sum of delta over all runs.
    runs
        Largest number of runs that the device answers; epsilon of each is stated at ``delta /
        runs``.
    neighbouring
        Unit that epsilon protects: all data of the ``device``, or one ``example``. The device
        decides this whatever a plan states; one example costs less, and protects less.
    relation
        How the unit differs in neighbouring data: ``replace``, ``zero_out`` or, of an example,
        ``add_remove``. Runs whose plan has another relation are refused, and so are all runs where
        the journal holds runs of another: their prices do not add up.
    """

    epsilon: float = 10.0
    delta: float = 1e-4
    runs: int = 10
    neighbouring: str = "device"
    relation: str = "replace"

    def __post_init__(self) -> None:
        if self.epsilon != math.inf:
            checks.positive("the budget's epsilon", self.epsilon)
        checks.between("the budget's delta", self.delta, 0.0, 1.0)
        checks.at_least("the budget's runs", self.runs, 1)
        checks.one_of("the budget's neighbouring", self.neighbouring, UNITS)
        checks.one_of("the budget's relation", self.relation, RELATIONS)
        if self.neighbouring == "device" and self.relation == "add_remove":
            raise InvalidSetting(NOT_HIDDEN)

    @property
    def share(self) -> float:
        """Delta at which the epsilon of one run is stated: the lifetime delta divided by the number
        of runs."""
        return self.delta / self.runs


@dataclass(frozen=True)
class Rules:
    """Decisions of a device's owner, by which the device joins or refuses runs.

    Attributes
    ----------
    device, model
        Number of the device, and the model whose gradients it computes.
    budget
        Lifetime privacy budget of its data.
    largest_theta
        Largest magnitude of an entry of theta at which the device computes a gradient.
    largest_amplitude
        Largest transmit amplitude; infinite: the plan's power limit.
    accept_data_dependent
        Whether the device joins a plan computed from devices' data, for which there is no privacy
        statement.
    """

    device: int
    model: str = "linear"
    budget: Budget = Budget()
    largest_theta: float = 1e6
    largest_amplitude: float = math.inf
    accept_data_dependent: bool = False

    def __post_init__(self) -> None:
        checks.at_least("the device's number", self.device, 0)
        checks.positive("largest_theta", self.largest_theta)
        if self.largest_amplitude != math.inf:
            checks.positive("largest_amplitude", self.largest_amplitude)


def check_federation(federation: Federation, rules: Rules) -> None:
    """Raise ``Refused`` if a federation has no device with the number in ``rules``, has another
    model than the device, never lets the device transmit, or has a plan computed from devices' data
    that the owner does not accept."""
    plan = federation.plan
    if rules.device >= plan.num_devices:
        raise Refused(
            f"this is device {rules.device}, and the plan is for devices 0 to"
            f" {plan.num_devices - 1}"
        )
    if federation.model != rules.model:
        raise Refused(
            f"the run samples the model {federation.model!r}, and this device was set up for"
            f" {rules.model!r}"
        )
    _refuse_silence(federation, rules.device)
    if plan.data_dependent and not rules.accept_data_dependent:
        raise Refused(
            "the plan was computed from the devices' data, so that its privacy statement does not"
            " hold for a deployment; plan with public_smoothness and public_convexity, or set"
            " accept_data_dependent"
        )


def _refuse_silence(federation: Federation, device: int) -> None:
    """Raise ``Refused`` if the plan never lets the device (from 0) transmit."""
    active = federation.plan.active
    if active is not None and not (active[:, device] > 0).any():
        raise Refused(f"the plan has device {device} silent in every round")


def check_budget(federation: Federation, rules: Rules, journal: DeviceJournal) -> Price | None:
    """Price of a run in which the device has sent nothing yet; None if the device has answered in
    the run before, so that its journal has already charged the run. Raises ``Refused`` if the
    lifetime budget does not suffice, or if the plan of a charged run has changed.

    All runs count with their price for the unit that the budget protects now (all data of the
    device, or one example), also those that were joined when it protected the other unit: a sum of
    prices for different units would hold for neither unit.

    A run that was joined and never answered has cost nothing, and is joined anew. The decision does
    not depend on the device's data, and so reveals nothing about them.
    """
    _refuse_mixture(federation, rules.budget, journal)
    digest, before = federation.digest.hex(), journal.runs.get(federation.run)
    if before is not None and before.answers:
        if before.digest != digest:
            raise Refused(
                f"the run {federation.run!r} was joined with the digest {before.digest[:12]}, and"
                f" now has {digest[:12]}: a plan that changes needs a new run"
            )
        if before.price.neighbouring != rules.budget.neighbouring:
            _refuse_switch(rules.budget, journal, 0.0)
        return None
    budget = rules.budget
    price = _price(federation, budget)
    epsilon, delta = price.epsilon(budget.neighbouring), price.delta
    if budget.epsilon != math.inf:
        # Nothing is checked for a budget without a limit: such a device only records prices.
        spent, deltas = journal.spent(budget.neighbouring)
        if len(journal.answered) >= budget.runs:
            raise Refused(f"the budget is for {budget.runs} runs, and as many were answered")
        if deltas + delta > budget.delta * (1 + 1e-9):
            raise Refused(
                f"the run counts with delta {delta:g}, earlier runs with {deltas:g}, and the"
                f" lifetime budget of this device is delta {budget.delta:g}"
            )
        _refuse_switch(budget, journal, epsilon)
        if spent + epsilon > budget.epsilon:
            less = federation.plan.limits.neighbouring != budget.neighbouring == "device"
            hint = "; the plan protects one example only (neighbouring)" if less else ""
            raise Refused(
                f"the run may cost epsilon {format_up(epsilon)} at delta {delta:g}, earlier runs"
                f" {format_up(spent) if spent else '0'}, and the lifetime budget of this device is"
                f" {budget.epsilon:g} for the data of one {budget.neighbouring}{hint}"
            )
    return price


def _refuse_mixture(federation: Federation, budget: Budget, journal: DeviceJournal) -> None:
    """Raise ``Refused`` if the plan, or a run that the device has answered, has another relation
    than the budget: epsilons of different relations do not add up. A budget without a limit only
    records, and is held to the plan's relation all the same."""
    asked = federation.plan.limits.relation
    if asked != budget.relation:
        raise Refused(
            f"the plan has relation {asked!r}, and the budget of this device is for"
            f" {budget.relation!r}: set relation in [budget] of a device with a new journal, or"
            " plan with the budget's"
        )
    unlike = [
        name for name, run in journal.runs.items() if run.answers and run.price.relation != asked
    ]
    if unlike:
        raise Refused(
            f"the run {unlike[0]!r} was joined for relation"
            f" {journal.runs[unlike[0]].price.relation!r}, and the budget is for"
            f" {budget.relation!r}: epsilons of different relations do not add up; set relation"
            " back in [budget], or give new data a new journal"
        )


def _refuse_switch(budget: Budget, journal: DeviceJournal, epsilon: float) -> None:
    """Raise ``Refused`` if the owner has changed the unit that the budget protects (all data of the
    device, or one example), and the budget does not suffice for the new unit. That is so if some
    answered runs were joined for the other unit, and the epsilons of all answered runs for the new
    unit, plus ``epsilon`` of one more run, exceed the budget."""
    unlike = [
        (name, run.price)
        for name, run in journal.runs.items()
        if run.answers and run.price.neighbouring != budget.neighbouring
    ]
    spent = journal.spent(budget.neighbouring)[0]
    if budget.epsilon == math.inf or not unlike or spent + epsilon <= budget.epsilon:
        return
    name, price = max(unlike, key=lambda each: each[1].epsilon(budget.neighbouring))
    cost, unit = price.epsilon(budget.neighbouring), f"the data of one {budget.neighbouring}"
    if cost >= UNKNOWN:
        raise Refused(
            f"what the run {name!r} cost is not known for {unit}: this journal has it for another"
            ' relation, or from an flmc that did not write which; set neighbouring = "example" in'
            " [budget], or give new data a new journal"
        )
    raise Refused(
        f"the run {name!r} was joined for the data of one {price.neighbouring} and cost epsilon"
        f" {format_up(cost)} for {unit}; all runs together {format_up(spent + epsilon)}, and the"
        f" lifetime budget is {budget.epsilon:g}: set neighbouring back in [budget], or raise its"
        " epsilon"
    )


def check_pace(
    federation: Federation, rehearse: Callable[[], None], clock: Callable[[], float]
) -> None:
    """Raise ``Refused`` if the work of an answer, done by ``rehearse`` (gradient, sealing, a write
    to the disk), takes this device more than half of the federation's slot; ``clock`` counts
    seconds."""
    took = []
    # The fastest of four attempts counts, because the first may compile code and others may be
    # interrupted.
    for _ in range(4):
        began = clock()
        rehearse()
        took.append(clock() - began)
    if min(took) > _SLOT_SHARE * federation.slot_ms / 1000:
        # The measured time may depend on the data: it goes to the device's own log, and is not
        # published.
        detail = f"{1000 * min(took):.0f} ms"
        _log.error("an answer takes too long", extra={"event": "pace", "detail": detail})
        raise Refused(
            "gradient, sealing and journal take more than half of the slot on this device, and it"
            f" must answer within the slot of {federation.slot_ms} ms; use a longer slot_ms"
        )


def _price(federation: Federation, budget: Budget) -> Price:
    """Privacy price of a whole run for a device: epsilon for all data of the device, and epsilon
    for one example, both at the delta that the ``budget`` has for one run. Raises ``Refused`` if
    the budget has a limit and the epsilon that it limits is not known."""
    epsilons: dict[str, float | None] = {}
    for neighbouring in ("device", "example"):
        try:
            cost = cost_of_run(federation, budget.share, neighbouring, 1, budget.relation)
            epsilons[neighbouring] = min(cost, UNKNOWN)
        except FlmcError as error:
            if budget.epsilon != math.inf and neighbouring == budget.neighbouring:
                raise Refused(str(error)) from error
            epsilons[neighbouring] = None
    known = (epsilons["device"], epsilons["example"])
    return Price(budget.neighbouring, *known, budget.share, budget.relation)
