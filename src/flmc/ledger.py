"""The ledger: which devices transmitted at which gain, round by round, written before the symbols are used.

An entry says what a round may spend at most: its gain is the plan's cap. It depends on the plan and the number of the
round alone, so the ledger of a run that was interrupted and went on is that of a run that was not. A simulation that
goes on repeats the very symbols of the rounds it lost, so that nothing is spent twice."""

from __future__ import annotations

import json

from flmc.errors import InvalidSetting
from flmc.files import Log
from flmc.plan import Plan
from flmc.power import finite_cap


def entries(plan: Plan, first: int, until: int) -> list[str]:
    """Rounds number ``first`` to ``until - 1`` (from 0) as JSON, counted from 1."""
    if plan.active is None and len(plan.gain) == 1:  # all alike but for their number
        same = _what(plan, 0)
        return [f'{{"round":{index + 1},{same}' for index in range(first, until)]
    return [f'{{"round":{index + 1},{_what(plan, index)}' for index in range(first, until)]


def _what(plan: Plan, index: int) -> str:
    """Gain of every entry (one where they are equal), and who was silent; without the opening brace."""
    gain = finite_cap(plan.uplink, plan.gain[0 if len(plan.gain) == 1 else index])
    silent = [] if plan.active is None else [k for k, on in enumerate(plan.active[index]) if not on]
    return json.dumps({"gain": [float(value) for value in gain], "silent": silent}, separators=(",", ":"))[1:]


def check(log: Log, plan: Plan) -> None:
    """Refuse a ledger of another run."""
    if log.entries != entries(plan, 0, min(len(log.entries), plan.num_rounds)):
        raise InvalidSetting(f"the ledger {str(log.path)!r} belongs to another run")


def spend(log: Log, plan: Plan, until: int) -> None:
    """Record rounds up to ``until`` as spent, as far as they are not yet."""
    new = entries(plan, len(log.entries), until)
    if new:
        log.append(new)
