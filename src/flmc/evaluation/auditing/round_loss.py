"""Law of the privacy loss of one round of a plan, between the two worlds that differ most."""

from __future__ import annotations

import numpy as np

from flmc.evaluation.auditing.loss_law import LossLaw, loss_law
from flmc.evaluation.auditing.neighbours import canary, neighbour
from flmc.evaluation.auditing.scene import Scene
from flmc.planning.plans import Plan
from flmc.uplink.power import finite_cap


def loss_of_round(plan: Plan) -> LossLaw | None:
    """Law of the privacy loss of the plan's worst round, as exact as its grid; no bound.

    Parameters
    ----------
    plan
        A plan. Every entry has its largest cap.

    Returns
    -------
    LossLaw or None
        None where nothing is known: no privacy statement, no noise, channel estimates that are
        not exact, or bits of gradients whose norm is clipped, for which the worst pair is another.
    """
    uplink = plan.uplink
    if plan.exposure is None or uplink.noise_is_exact or uplink.estimated is not None:
        return None
    if uplink.clips_norm and uplink.scheme == "digital":
        return None
    caps = np.broadcast_to(finite_cap(plan.uplink, plan.gain), (len(plan.gain), plan.dim))
    loudest = float(caps.max())
    scene = Scene(plan.uplink, loudest, plan.dim, plan.num_devices, 1, plan.limits.neighbouring)
    return loss_law(scene, canary(scene), neighbour(scene))
