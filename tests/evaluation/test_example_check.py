"""What bounding examples does to the mean: told beforehand, and about as large as it is."""

from __future__ import annotations

import numpy as np
import pytest

import flmc
from flmc.models.regressions import logistic
from support import full_only


@pytest.fixture(scope="module")
def model() -> flmc.Model:
    """A logistic regression whose few examples with a large feature weigh much."""
    rng = np.random.default_rng(4)
    x = rng.standard_normal((300, 2)) * np.where(rng.random((300, 1)) < 0.1, 4.0, 1.0)
    y = np.where(rng.random(300) < 1 / (1 + np.exp(-0.3 * x[:, 0])), 1.0, -1.0)
    return logistic(flmc.data.FederatedData(x, y, (100, 100, 100)))


def plan_with(model: flmc.Model, norm: float | None) -> flmc.Plan:
    uplink = flmc.Analog(clip=60.0, example_norm=norm)
    return flmc.plan(model, uplink, num_rounds=3000, num_burn_in=500, forecast=False)


@full_only
def test_a_bound_that_bites_is_told(model: flmc.Model) -> None:
    """Against the mode of the bounded gradients by plain descent: half to twice the shift."""
    found = {each.code: each for each in flmc.check_model(model, plan_with(model, 0.8))}
    told = found["mean-shift"].numbers["mean_shift"]
    assert "example_norm = 0.8" in found["mean-shift"].message
    place = np.zeros((1, 1, 3))
    unbounded = place.copy()
    for _ in range(4000):
        place -= 2e-3 * model.norm_clipped_gradient(place, 0.8).sum(axis=2)
        unbounded -= 2e-3 * model.gradient(unbounded).sum(axis=2)
    steps = 1e-5 * np.eye(3)
    hessian = np.array(
        [
            (model.gradient(unbounded + step) - model.gradient(unbounded - step)).sum(axis=2)[0, 0]
            / 2e-5
            for step in steps
        ]
    )
    moved = (place - unbounded)[0, 0]
    assert 0.4 < told / np.sqrt(moved @ hessian @ moved) < 2.0


@pytest.mark.parametrize("norm", [None, 20.0])
def test_a_bound_that_does_not_bite_is_not(model: flmc.Model, norm: float | None) -> None:
    codes = {each.code for each in flmc.check_model(model, plan_with(model, norm))}
    assert "mean-shift" not in codes
