r"""Consent: whether a device takes part in a run, by its own budget and its own rules.

A device computes itself what the plan may cost it, and adds it to what earlier runs may have cost:
:math:`\sum_i\varepsilon_i \le \varepsilon` and :math:`\sum_i\delta_i \le \delta` over all runs that
it joins (basic composition, which holds also where later plans were chosen by what earlier runs
gave out). A run counts in whole from its first answer on: when it ends early, that may be because
of what it gave out, so that what is left of it cannot be handed back."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass

from flmc.base import checks
from flmc.base.errors import FlmcError
from flmc.base.tables import format_up
from flmc.deploy.accounting import cost_of_run
from flmc.deploy.device.device_journal import DeviceJournal
from flmc.wire.federation import Federation

_log = logging.getLogger("flmc.deploy.device")
_ROOM = 0.5
"""Share of the slot that computing an answer may take, when the device joins."""
OTHER_AIR = (
    "the air has lost the journal that it had when this device joined: it could add fresh noise to"
    " symbols that it published before; use a new run"
)
"""Why a device does not answer when the air's journal has another name."""


class Refused(Exception):  # noqa: N818 (says what the device does)
    """The device does not take part; the message says why."""


@dataclass(frozen=True)
class Budget:
    """What a device's data may cost over its lifetime.

    Attributes
    ----------
    epsilon
        Largest sum of epsilon over all runs; infinite: no limit, what runs cost is recorded only.
    delta
        Sum of delta over all runs.
    runs
        Runs that may be joined; each is accounted at ``delta / runs``.
    neighbouring
        What epsilon protects: all data of the ``device``, or one ``example``. It is the device's to
        say, whatever a plan states: one example costs less, and protects less.
    """

    epsilon: float = 10.0
    delta: float = 1e-4
    runs: int = 10
    neighbouring: str = "device"

    def __post_init__(self) -> None:
        if self.epsilon != math.inf:
            checks.positive("the budget's epsilon", self.epsilon)
        checks.between("the budget's delta", self.delta, 0.0, 1.0)
        checks.at_least("the budget's runs", self.runs, 1)
        checks.one_of("the budget's neighbouring", self.neighbouring, ("device", "example"))

    @property
    def share(self) -> float:
        """Delta of one run."""
        return self.delta / self.runs


@dataclass(frozen=True)
class Rules:
    """What a device decides by itself.

    Attributes
    ----------
    device, model
        Its number, and the model that it computes gradients of.
    budget
        What its data may cost over its lifetime.
    largest_theta
        Largest magnitude of an entry of theta at which it computes a gradient.
    largest_amplitude
        Largest transmit amplitude; infinite: what the plan's power limit allows.
    accept_data_dependent
        Whether it takes part in a plan that was computed from devices' data, for which there is no
        privacy statement.
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
    """Refuse a federation that has no place for the device, or asks for another model.

    Parameters
    ----------
    federation, rules
        What is asked, and what the device decides by itself.

    Raises
    ------
    Refused
        With the reason.
    """
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
    """Refuse a plan in which the device is never to transmit: there is nothing to join."""
    active = federation.plan.active
    if active is not None and not (active[:, device] > 0).any():
        raise Refused(f"the plan has device {device} silent in every round")


def check_budget(
    federation: Federation, rules: Rules, journal: DeviceJournal
) -> tuple[float, float] | None:
    """Epsilon and delta that a new run may cost; None: it was answered before, and is charged.

    A run that was joined and never answered has cost nothing, and is joined anew.

    Nothing here looks at data, so that whatever is said of the outcome tells nothing of them.

    Parameters
    ----------
    federation, rules
        What is asked, and what the device decides by itself.
    journal
        Knows what was joined.

    Raises
    ------
    Refused
        With the reason.
    """
    digest, before = federation.digest.hex(), journal.runs.get(federation.run)
    if before is not None and before.answers:
        if before.digest != digest:
            raise Refused(
                f"the run {federation.run!r} was joined with the digest {before.digest[:12]}, and"
                f" now has {digest[:12]}: a plan that changes needs a new run"
            )
        return None
    budget = rules.budget
    epsilon, delta = _price(federation, budget)
    if budget.epsilon != math.inf:
        spent, deltas = journal.spent
        if len(journal.answered) >= budget.runs:
            raise Refused(f"the budget is for {budget.runs} runs, and as many were answered")
        if deltas + delta > budget.delta * (1 + 1e-9):
            raise Refused(
                f"the run counts with delta {delta:g}, earlier runs with {deltas:g}, and the"
                f" lifetime budget of this device is delta {budget.delta:g}"
            )
        if spent + epsilon > budget.epsilon:
            less = federation.plan.limits.neighbouring != budget.neighbouring == "device"
            hint = "; the plan protects one example only (neighbouring)" if less else ""
            raise Refused(
                f"the run may cost epsilon {format_up(epsilon)} at delta {delta:g}, earlier runs"
                f" {format_up(spent) if spent else '0'}, and the lifetime budget of this device is"
                f" {budget.epsilon:g} for the data of one {budget.neighbouring}{hint}"
            )
    return epsilon, delta


def check_pace(
    federation: Federation, rehearse: Callable[[], None], clock: Callable[[], float]
) -> None:
    """Refuse a slot in which an answer may not be ready.

    Parameters
    ----------
    federation, rehearse
        The run, and what does the work of an answer: gradient, sealing, a line on the disk.
    clock
        The monotonic clock, in seconds.

    Raises
    ------
    Refused
        If an answer takes more than half of the slot.
    """
    took = []
    for _ in range(4):  # the first may compile, and others may be interrupted
        began = clock()
        rehearse()
        took.append(clock() - began)
    if min(took) > _ROOM * federation.slot_ms / 1000:
        # How long exactly may tell of the data: it stays on the device.
        detail = f"{1000 * min(took):.0f} ms"
        _log.error("an answer takes too long", extra={"event": "pace", "detail": detail})
        raise Refused(
            "gradient, sealing and journal take more than half of the slot on this device, and it"
            f" must answer within the slot of {federation.slot_ms} ms; use a longer slot_ms"
        )


def _price(federation: Federation, budget: Budget) -> tuple[float, float]:
    """What a run may cost a device."""
    delta = budget.share
    try:
        epsilon = cost_of_run(federation, delta, budget.neighbouring)
    except FlmcError as error:
        if budget.epsilon != math.inf:
            raise Refused(str(error)) from error
        return 1e300, delta  # joined without a budget: nothing is known but that it was much
    return min(epsilon, 1e300), delta  # JSON has no infinity
