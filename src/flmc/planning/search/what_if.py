"""What relaxing one constraint would bring: plans beside the one that was asked for."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from flmc.base.errors import InvalidSetting
from flmc.base.tables import Grid, format_short, format_up
from flmc.models.model import Model
from flmc.planning.planner import plan
from flmc.planning.plans import Plan
from flmc.planning.privacy_cost import Cost


@dataclass(frozen=True)
class WhatIf:
    """Plans with one constraint relaxed each.

    Attributes
    ----------
    plans
        The plans by what was relaxed, in words; the first is the plan as it is.
    """

    plans: dict[str, Plan]

    def grid(self, *, with_run: bool = True) -> Grid:
        """Grid with a row for each plan: gain, what binds, step, temperature, burn-in needed,
        epsilon.

        Parameters
        ----------
        with_run
            Whether to state the privacy of the whole run, which may take a second to compute.

        Returns
        -------
        Grid
            Cells in words and numbers.
        """
        header = [
            "if",
            "gain",
            "binds",
            "step",
            "temper-\nature",
            "burn-in\nneeded",
            "epsilon\nround",
        ]
        header += ["epsilon\nrun"] if with_run else []
        rows = []
        for name, each in self.plans.items():
            costs = [each.round_cost, *([each.run_cost] if with_run else [])]
            numbers = map(format_short, (each.temperature, each.rounds_needed))
            gain, step = format_short(each.typical_gain), format_short(each.step_size)
            rows.append((name, gain, each.binding, step, *numbers, *map(_epsilon, costs)))
        limits = next(iter(self.plans.values())).limits
        of_run = f", {limits.run_delta:g} for the run" if with_run else ""
        title = (
            "what relaxing would bring, one thing at a time (delta"
            f" {limits.delta:g} for a round{of_run})"
        )
        return Grid(tuple(header), tuple(rows), title)


def _epsilon(cost: Cost | None) -> str:
    """Epsilon of a cost, rounded up like every bound; where it is 0, the delta that is left, which
    is not 0."""
    if cost is None:
        return "-"
    if cost.delta_at_zero is not None:
        return f"0 (delta {format_up(cost.delta_at_zero, 1)})"
    return "inf" if math.isinf(cost.epsilon) else format_up(cost.epsilon, 3)


def what_if(planned: Plan, model: Model, settings: Mapping[str, Any]) -> WhatIf:
    """Plans with one constraint relaxed at a time: 3 dB more power, twice the budget, half and
    twice the step.

    Parameters
    ----------
    planned
        The plan as it is.
    model
        The model that it was made for.
    settings
        The keyword arguments of :func:`flmc.plan` that it was made with.

    Returns
    -------
    WhatIf
        The plan as it is, and the relaxed ones. Power is not relaxed for the ideal uplink, nor a
        budget that was not given.
    """
    uplink, limits = planned.uplink, planned.limits
    found = {"as planned": planned}

    def relax(name: str, uplink: Any = uplink, limits: Any = limits, **changes: Any) -> None:
        # Relaxing one thing may make another impossible: such a row is left out.
        with suppress(InvalidSetting):
            found[name] = plan(model, uplink, limits, **{**settings, **changes, "forecast": False})

    if not uplink.noise_is_exact:
        relax("+ 3 dB", uplink=replace(uplink, snr_db=uplink.snr_db + 3))
        if limits.privacy != "off" and limits.epsilon is not None:
            relax("epsilon x 2", limits=replace(limits, epsilon=2 * limits.epsilon))
    relax("step / 2", step_size=planned.step_size / 2)
    relax("step x 2", step_size=planned.step_size * 2)
    return WhatIf(found)
