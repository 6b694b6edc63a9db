"""Gradients of the sum of all local costs, a few places at a time where there are many entries."""

from __future__ import annotations

import numpy as np

from flmc.base.arrays import Array
from flmc.models.model import Model
from flmc.models.wide_linear import WideLinear

_AT_ONCE = 8_000_000
"""Entries of local gradients that are held at a time, 64 MB."""


def places_at_once(model: Model) -> int:
    """Number of places at which local gradients of all devices are held at a time.

    Parameters
    ----------
    model
        The model; its devices and entries count.
    """
    return max(1, _AT_ONCE // (model.num_devices * model.dim))


def summed_gradients(model: Model, theta: Array) -> Array:
    """Gradient of the sum of all local costs of the first data set, (place, dim).

    Parameters
    ----------
    model
        Gives the local gradients.
    theta
        Where, (place, dim).
    """
    if isinstance(model, WideLinear):
        return model.summed_gradient(theta)
    size = places_at_once(model)
    parts = [
        model.gradient(theta[None, first : first + size], slice(0, 1))[0].sum(axis=1)
        for first in range(0, len(theta), size)
    ]
    return np.concatenate(parts)
