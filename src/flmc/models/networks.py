"""Bayesian neural networks that classify, from data with features and a target; they need the extra
``jax``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from flmc.base import checks
from flmc.data.federated import FederatedData
from flmc.models.differentiation import require_jax
from flmc.models.log_density import LogDensityModel
from flmc.models.pointwise import likelihood_of_target
from flmc.models.regressions import check_targets


def mlp(
    data: FederatedData,
    hidden: Sequence[int] = (32,),
    *,
    prior_sd: float = 1.0,
    smoothness: float | None = None,
    seed: int = 0,
) -> LogDensityModel:
    r"""Fully connected network with tanh units and a softmax at its end, for several classes.

    Layer l has weights with independent normal priors of standard deviation
    :math:`s/\sqrt{n_{l-1}}`, with the number :math:`n_{l-1}` of its inputs and s = ``prior_sd``,
    and biases of standard deviation s. The posterior has many modes, among them those that differ
    by an exchange of units: look at predictions, not at single weights.

    Parameters
    ----------
    data
        Targets are 0, 1, ..., one for each class. The number of classes is that of
        ``data.classes``, or without these the largest target plus 1.
    hidden
        Number of units of every hidden layer.
    prior_sd
        Scale s of the prior: the standard deviation of biases, and of a weight times the root of
        its layer's number of inputs.
    smoothness
        Largest curvature from public knowledge; None: measured from the data at the start and
        after some steps of descent, so that plans are marked ``data_dependent``.
    seed
        Seed of the start: weights are drawn from the prior, because at zero all units would be
        alike; biases start at zero.

    Raises
    ------
    InvalidSetting
        If a target is no class, or a number of units is below 1.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> x, y = rng.standard_normal((40, 2)), rng.integers(0, 3, 40).astype(float)
    >>> data = flmc.data.FederatedData(x, y, (25, 15))
    >>> model = flmc.models.networks.mlp(data, (4,))
    >>> model.dim, model.layout.entries()[0]
    (27, 'layer0.bias[0]')
    """
    count = len(data.classes) or int(data.targets.max()) + 1
    check_targets(data, set(range(count)), f"0 to {count - 1}, one for each class")
    checks.positive("prior_sd", prior_sd)
    sizes = [data.features.shape[1], *(checks.at_least("hidden", n, 1) for n in hidden), count]
    jax = require_jax()
    jnp = jax.numpy

    def log_prior(w: Any) -> Any:
        # Each square is divided by the prior's variance: s^2/inputs for weights, s^2 for biases.
        total = 0.0
        for number, size in enumerate(sizes[:-1]):
            layer = w[f"layer{number}"]
            total = total + size * jnp.sum(jnp.square(layer["weight"]))
            total = total + jnp.sum(jnp.square(layer["bias"]))
        return -0.5 / prior_sd**2 * total

    def scores(w: Any, row: Any) -> Any:
        values = row["x"]
        for number in range(len(sizes) - 1):
            layer = w[f"layer{number}"]
            values = values @ layer["weight"] + layer["bias"]
            if number < len(sizes) - 2:
                values = jnp.tanh(values)
        return values

    def log_likelihood(w: Any, row: Any) -> Any:
        return jax.nn.log_softmax(scores(w, row))[jnp.asarray(row["y"], int)]

    def simulate(w: Any, row: Any, key: Any) -> Any:
        return jax.random.categorical(key, scores(w, row)).astype(float)

    rng = np.random.default_rng(seed)
    start = {
        f"layer{number}": {
            "weight": prior_sd / math.sqrt(inputs) * rng.standard_normal((inputs, units)),
            "bias": np.zeros(units),
        }
        for number, (inputs, units) in enumerate(pairwise(sizes))
    }
    return LogDensityModel(
        log_prior,
        likelihood_of_target(data, log_likelihood, simulate),
        data,
        start,
        smoothness,
        None,
        start_sd=0.01 * prior_sd,
    )
