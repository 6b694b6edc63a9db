"""Prediction of what the chain of a plan will sample."""

from __future__ import annotations

import numpy as np

from flmc.base.arrays import Array
from flmc.models.linear import LinearGaussian
from flmc.models.model import Model
from flmc.planning.plans import Plan
from flmc.planning.prediction import Prediction, predict


def predict_plan(decided: Plan, model: Model) -> Prediction | None:
    """Prediction of what a plan's chain will sample; None where none can be made.

    Parameters
    ----------
    decided
        A plan whose link has a slope.
    model
        The model that it was made for.
    """
    if (
        not isinstance(model, LinearGaussian)
        or not decided.scheduler.everyone
        or decided.uplink.clips_examples
        or decided.uplink.clips_norm  # the law of a clipped norm is not that of single entries
    ):
        return None
    return predict(model, decided.uplink, decided.step_size, noise_of(decided))


def noise_of(decided: Plan) -> Array:
    """Mean variance N_0/A^2 of the channel's noise at the server in kept rounds, (dim).

    Parameters
    ----------
    decided
        The plan.
    """
    return np.asarray(decided.uplink.noise_power * np.mean(decided.planned_gain**-2.0, axis=0))
