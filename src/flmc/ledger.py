"""The ledger: which devices transmitted at which gain, round by round, written before the symbols are used.

An entry says what a round may spend at most: its gain is the plan's cap. It depends on the plan and the number of the
round alone, so the ledger of a run that was interrupted and went on is that of a run that was not. A simulation that
goes on repeats the very symbols of the rounds it lost, so that nothing is spent twice."""

from __future__ import annotations

import json

from flmc.files import Log
from flmc.plan import Plan


def entry(plan: Plan, index: int) -> str:
    """Round number ``index`` (from 0) as JSON."""
    gain = plan.gain[0 if len(plan.gain) == 1 else index]
    document = {
        "round": index + 1,
        "gain": [float(value) for value in gain],
        "silent": [] if plan.active is None else [k for k, on in enumerate(plan.active[index]) if not on],
    }
    return json.dumps(document, separators=(",", ":"))


def spend(log: Log, plan: Plan, until: int) -> None:
    """Record rounds up to ``until`` as spent, as far as they are not yet."""
    new = [entry(plan, index) for index in range(len(log.entries), until)]
    if new:
        log.append(new)
