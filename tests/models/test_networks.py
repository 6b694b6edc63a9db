"""The Bayesian network: gradients by finite differences, a run, large sizes."""

from __future__ import annotations

import numpy as np
import pytest

import flmc
from flmc.base.errors import InvalidSetting
from flmc.evaluation.predictive import class_numbers, class_probabilities, score_probabilities
from flmc.models.networks import mlp
from support import full, full_only


def blobs(count: int = 90, seed: int = 1) -> flmc.data.FederatedData:
    """Three classes around three points."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, count)
    x = np.array([[0.0, 2.0], [2.0, -1.0], [-2.0, -1.0]])[y] + 0.5 * rng.standard_normal((count, 2))
    sizes = (count // 2, count // 3, count - count // 2 - count // 3)
    return flmc.data.FederatedData(x, y.astype(float), sizes, classes=("a", "b", "c"))


def cost(theta: np.ndarray, data: flmc.data.FederatedData, units: int) -> float:
    """Negative log posterior of a network with one hidden layer, written out; prior_sd is 1."""
    bias, weight, out_bias, out_weight = np.split(theta, np.cumsum([units, 2 * units, 3]))
    hidden = np.tanh(data.features @ weight.reshape(2, units) + bias)
    scores = hidden @ out_weight.reshape(units, 3) + out_bias
    top = scores.max(axis=1, keepdims=True)
    logs = scores - top - np.log(np.exp(scores - top).sum(axis=1, keepdims=True))
    likelihood = logs[np.arange(len(logs)), data.targets.astype(int)].sum()
    prior = 2 * np.sum(weight**2) + units * np.sum(out_weight**2)
    return float(-likelihood + 0.5 * (prior + np.sum(bias**2) + np.sum(out_bias**2)))


def test_gradients_are_those_of_the_posterior() -> None:
    data = blobs()
    model = mlp(data, (4,), smoothness=100.0)
    assert model.dim == 4 + 8 + 3 + 12
    theta = np.random.default_rng(2).standard_normal(model.dim)
    found = model.gradient(theta[None, None])[0, 0].sum(axis=0)
    steps = 1e-6 * np.eye(model.dim)
    expected = [
        (cost(theta + step, data, 4) - cost(theta - step, data, 4)) / 2e-6 for step in steps
    ]
    # Central differences of a cost of about 300 in double precision: 1e-7 of it over the step.
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-4)


@full_only
def test_it_learns() -> None:
    """Three well separated classes over a noisy channel: nine in ten held-out examples right."""
    model = mlp(blobs(), (8,))
    uplink = flmc.Digital(link=flmc.Linear(), clip=20.0, snr_db=25)
    plan = flmc.plan(model, uplink, num_rounds=full(3000, 1500), num_burn_in=1000, step_size=0.02)
    result = flmc.run(plan, model, seed=1, chains=2, thin=20)
    test = blobs(300, seed=5)
    theta = result.draws.reshape(-1, model.dim)
    scores = score_probabilities(class_probabilities(model, theta, test), class_numbers(test))
    assert scores.accuracy > 0.9


@full_only
def test_ten_thousand_parameters_run() -> None:
    data = flmc.data.read("sklearn:digits").split(20, "iid", seed=1)
    model = mlp(data, (100, 40), smoothness=4e4)
    assert model.dim > 10_000
    plan = flmc.plan(
        model,
        flmc.Digital(link=flmc.Linear(), clip=5.0),
        num_rounds=6,
        num_burn_in=2,
        step_size=1e-3,
    )
    result = flmc.run(plan, model, thin=2)
    assert result.engine == "jax"
    assert result.draws.shape == (1, 2, model.dim)
    assert result.variance.shape == (1, model.dim)
    with pytest.raises(InvalidSetting, match="only variances"):
        _ = result.covariance


def test_refusals() -> None:
    data = blobs()
    with pytest.raises(InvalidSetting, match="hidden must be"):
        mlp(data, (0,))
    with pytest.raises(InvalidSetting, match="one for each class"):
        mlp(flmc.data.FederatedData(data.features, data.targets + 0.5, data.device_sizes), (2,))
