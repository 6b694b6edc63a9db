"""Models in other coordinates: gradients, posteriors, engines, and what counts as public."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import flmc
from flmc.base.errors import InvalidSetting
from flmc.models import regressions
from flmc.models.whitening import WhitenedModel
from flmc.models.wide_linear import WideLinear
from support import full_only

SCALE, CENTRE = np.array([[2.0, 0.0, 0.3], [0.1, 0.5, 0.0], [0.0, 0.0, 1.5]]), np.array([1.0, 2, 3])


@pytest.fixture(scope="module")
def model() -> flmc.LinearGaussian:
    data = flmc.data.draw_linear(seed=1, num_samples=80, dim=3, num_devices=4, num_experiments=2)
    return flmc.LinearGaussian(data)


def test_gradients_and_costs(model: flmc.LinearGaussian) -> None:
    white = flmc.whiten(model, scale=SCALE, centre=CENTRE)
    phi = np.random.default_rng(0).standard_normal((2, 5, 3))
    expected = model.gradient(CENTRE + phi @ SCALE.T) @ SCALE
    np.testing.assert_allclose(white.gradient(phi), expected, rtol=1e-12)
    costs = white.quadratic()
    assert costs is not None
    found = np.einsum("ekij,ecj->ecki", costs.hessian, phi) - costs.offset[:, None]
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)
    ours, theirs = white.predict(phi), model.predict(CENTRE + phi @ SCALE.T)
    assert ours is not None
    assert theirs is not None
    np.testing.assert_allclose(ours, theirs, rtol=1e-12)


def test_the_posterior_is_the_same_one(model: flmc.LinearGaussian) -> None:
    """The mode of the new costs, and curvatures that are eigenvalues of the new Hessian."""
    white = flmc.whiten(model, scale=SCALE, centre=CENTRE)
    assert white.posterior is not None
    at_mode = white.gradient(white.posterior.mean[:, None]).sum(axis=2)
    assert np.abs(at_mode).max() < 1e-8
    costs = white.quadratic()
    assert costs is not None
    curvatures = np.linalg.eigvalsh(costs.hessian.sum(axis=1))
    assert white.smoothness == pytest.approx(curvatures.max())
    assert white.convexity == pytest.approx(curvatures.min())


@pytest.mark.parametrize("engine", ["numpy", "numba", "jax"])
def test_results_are_in_the_model_s_coordinates(model: flmc.LinearGaussian, engine: str) -> None:
    """Means of chains in whitened coordinates against the exact ones: 5 standard errors of 40
    chains with at least 20 independent draws each."""
    root = np.linalg.cholesky(model.posterior.covariance[0])
    white = flmc.whiten(model, scale=root, centre=model.posterior.mean[0])
    plan = flmc.plan(white, flmc.Ideal(), num_rounds=400, num_burn_in=100)
    result = flmc.run(plan, white, seed=1, chains=40, engine=engine)
    sd = np.sqrt(np.diagonal(model.posterior.covariance, axis1=1, axis2=2))
    error = 5 / np.sqrt(40 * 20)
    assert np.abs((result.mean - model.posterior.mean) / sd).max() < error
    # The step widens by a few per cent.
    assert np.abs(np.sqrt(result.variance) / sd - 1.03).max() < error


def test_traced_gradients_follow() -> None:
    data = flmc.data.draw_linear(seed=1, num_samples=20, dim=3, num_devices=4)
    wide = WideLinear(data)
    white = flmc.whiten(wide, scale=SCALE, centre=CENTRE, smoothness=10.0)
    costs = white.traced()
    assert costs is not None
    phi = np.array([0.3, -1.0, 0.2])
    with jax.enable_x64():
        found = costs.gradients(jax.numpy.asarray(phi), costs.data(0))
    np.testing.assert_allclose(found, white.gradient(phi[None, None])[0, 0], rtol=1e-9)


def test_what_is_public(model: flmc.LinearGaussian) -> None:
    given = flmc.whiten(model, scale=np.ones(3), smoothness=100.0, convexity=1.0)
    assert given.public
    assert not given.made_from_data
    prior = flmc.whiten(model, "prior", smoothness=100.0, convexity=1.0)
    assert prior.public
    drawn = np.random.default_rng(0).standard_normal((50, 3))
    pilot = flmc.whiten(model, draws=drawn, smoothness=100.0, convexity=1.0)
    plan = flmc.plan(pilot, flmc.Digital(), step_size=1e-3, forecast=False)
    # Even with a step that is given: gradients are taken in coordinates that data decided.
    assert plan.data_dependent
    assert not flmc.plan(prior, flmc.Digital(), step_size=1e-3, forecast=False).data_dependent


@full_only
def test_a_public_sample_decides() -> None:
    """Coordinates of another sample of the same law: curvatures near 1."""
    rng = np.random.default_rng(3)

    def sample(count: int) -> flmc.data.FederatedData:
        x = rng.standard_normal((count, 2)) * [5.0, 0.5]
        y = np.where(rng.random(count) < 1 / (1 + np.exp(-(x @ [0.2, 1.0]))), 1.0, -1.0)
        return flmc.data.FederatedData(x, y, (count // 2, count - count // 2))

    model = regressions.logistic(sample(400))
    white = flmc.whiten(model, sample(200))
    assert white.smoothness is not None
    assert white.convexity is not None
    assert white.smoothness / white.convexity < 5
    assert model.smoothness is not None
    assert model.convexity is not None
    assert model.smoothness / model.convexity > 50
    assert not white.made_from_data


def test_data_that_scaled_themselves_stay_marked() -> None:
    data = flmc.data.read("sklearn:breast_cancer", standardise="data").split(4, "iid", seed=0)
    model = regressions.logistic(data, feature_norm=100.0)
    plan = flmc.plan(
        model,
        flmc.Digital(),
        step_size=1e-3,
        public_smoothness=1e4,
        public_convexity=1.0,
        forecast=False,
    )
    assert plan.data_dependent
    linear = flmc.LinearGaussian(data.to_linear())
    assert flmc.plan(linear, flmc.Digital(), step_size=1e-3, forecast=False).data_dependent


def test_refusals(model: flmc.LinearGaussian) -> None:
    with pytest.raises(InvalidSetting, match="got 0 of them"):
        flmc.whiten(model)
    with pytest.raises(InvalidSetting, match="got 2 of them"):
        flmc.whiten(model, "prior", scale=np.ones(3))
    with pytest.raises(InvalidSetting, match="source must be"):
        flmc.whiten(model, "posterior")  # type: ignore[arg-type]
    with pytest.raises(InvalidSetting, match="must fit"):
        flmc.whiten(model, scale=np.ones(2))
    with pytest.raises(InvalidSetting, match="whiten it once"):
        flmc.whiten(flmc.whiten(model, "prior"), "prior")
    with pytest.raises(InvalidSetting, match="models from log densities"):
        flmc.whiten(model, flmc.data.FederatedData(np.eye(3), np.ones(3), (3,)))
    white = flmc.whiten(model, "prior")
    assert isinstance(white, WhitenedModel)
    with pytest.raises(InvalidSetting, match="single examples"):
        white.clipped_gradient(np.zeros((2, 1, 3)), 1.0)
