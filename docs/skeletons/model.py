"""A model of your own: the gradient of the local cost of every device. Here Poisson regression."""

from __future__ import annotations

import numpy as np

import flmc
from flmc.base.arrays import Array

NUM_DEVICES, NUM_EXAMPLES, DIM = 10, 40, 2

rng = np.random.default_rng(5)
features = rng.uniform(-1.0, 1.0, (NUM_DEVICES, NUM_EXAMPLES, DIM))
counts = rng.poisson(np.exp(features @ [0.5, -0.5]))


def gradient(theta: Array) -> Array:
    """From theta (chain, entry) to the gradient of each device's negative log likelihood (chain,
    device, entry), summed over its examples; the prior is added by flmc."""
    rate = np.exp(np.clip(np.einsum("kne,ce->ckn", features, theta), None, 5.0))
    return np.asarray(np.einsum("ckn,kne->cke", rate - counts, features))


model = flmc.Model.from_gradient(
    gradient,
    prior=flmc.Normal(0.0, 1.0),
    dim=DIM,
    num_devices=NUM_DEVICES,
    # Bounds of the curvature of the whole negative log posterior. They count as public knowledge:
    # take them from what is known without the data if the plan is to be a privacy statement.
    smoothness=400.0,
    convexity=50.0,
)
