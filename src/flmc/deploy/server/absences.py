"""What missing devices did to a run: the temperature at which it sampled, from its ledger."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np

from flmc.base.findings import Finding
from flmc.planning.plans import Plan

_HOTTER = 0.05
"""Share by which a mean temperature may exceed the plan's without a word."""


def absences(plan: Plan, ledger: Sequence[str]) -> tuple[Finding, ...]:
    """What is to be said of a run in whose kept rounds devices were missing; nothing if none was.

    With K_a of K devices active the noise in a step is larger by about (K/K_a)^2, and so is the
    spread of the draws.

    Parameters
    ----------
    plan, ledger
        The plan, and a line of JSON for every round.
    """
    rounds = [json.loads(line) for line in ledger[plan.num_burn_in :]]
    active = np.array([plan.num_devices - len(each["silent"]) for each in rounds])
    planned = plan.num_active[plan.num_burn_in :][: len(active)]
    missing = float(np.mean(planned - active)) if len(active) else 0.0
    heats = [each["temperature"] for each in rounds if each.get("temperature") is not None]
    if missing <= 0 or not heats or plan.temperature is None:
        return ()
    heat = float(np.mean(heats))
    said = (
        f"{active.mean():.3g} devices were active in a kept round on average, {missing:.3g} fewer"
        f" than planned: the mean temperature was {heat:.4g}, and the plan's {plan.temperature:.4g}"
    )
    hot = heat > plan.temperature * (1 + _HOTTER)
    if hot:
        said += "; draws spread wider by about as much; run it again with all devices"
    numbers = {"num_active": float(active.mean()), "temperature": heat}
    return (Finding("absent-devices", "warning" if hot else "note", said, numbers=numbers),)
