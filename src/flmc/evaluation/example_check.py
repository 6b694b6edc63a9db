r"""What bounding single examples does to a model's own gradients, from a pilot at the mode.

At the mode the gradients of all examples and of the prior cancel. Where some examples are cut down
to ``example_clip`` or ``example_norm``, they leave a sum r, and the mean of the samples moves by
about :math:`H^{-1} r` with the curvature H."""

from __future__ import annotations

import numpy as np

from flmc.base.findings import Finding
from flmc.evaluation.pilot import Pilot
from flmc.planning.plans import Plan

_SHIFTED = 0.2
"""Shift of the mean in posterior standard deviations, in the worst direction, that is warned of."""


def judge_examples(plan: Plan, pilot: Pilot) -> list[Finding]:
    """Finding where bounding single examples moves the mean of the samples.

    Parameters
    ----------
    plan, pilot
        Gives the bound of examples; and a pilot that has arrived at the mode.
    """
    if not plan.uplink.clips_examples:
        return []
    place = pilot.theta[None]
    left = pilot.local_gradients(place)[0].sum(axis=0) - pilot.summed(place)[0]
    curve = pilot.curves[-1]
    # Along the directions that were measured; where these are not all, a lower bound.
    inside = curve.basis @ left
    matrix = (curve.matrix + curve.matrix.T) / 2
    shift = float(np.sqrt(max(0.0, inside @ np.linalg.pinv(matrix, hermitian=True) @ inside)))
    if not shift > _SHIFTED:
        return []
    name = "example_clip" if plan.uplink.example_norm is None else "example_norm"
    text = (
        f"bounding single examples by {name} = {plan.uplink.example_bound:g} moves the mean by"
        f" about {shift:.2g} posterior sd in the worst direction: gradients of examples near the"
        " mode are cut down; use a larger bound, which costs privacy, or more examples"
    )
    numbers = {"shift": shift, "bound": plan.uplink.example_bound}
    short = f"the bound of examples moves the mean by {shift:.2g} sd"
    return [Finding("example-shift", "warning", text, short, numbers)]
