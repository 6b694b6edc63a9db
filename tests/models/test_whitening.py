"""Coordinates in which a posterior is round: gradients, results in the model's own coordinates."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import flmc
from flmc.base.errors import InvalidSetting
from flmc.data import FederatedData
from flmc.models import regressions
from flmc.models.affine import Coordinates
from flmc.models.log_density import LogDensityModel
from support import full, full_only

pytest.importorskip("jax", reason="needs the extra jax")


@pytest.fixture(scope="module")
def model() -> LogDensityModel:
    """Logistic regression whose features differ in scale by a factor of 30."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal((80, 2)) * [30.0, 1.0]
    y = np.where(rng.random(80) < 1 / (1 + np.exp(-(x @ [0.03, 1.0]))), 1.0, -1.0)
    return regressions.logistic(FederatedData(x, y, (50, 30)))


def test_coordinates_go_there_and_back() -> None:
    rng = np.random.default_rng(2)
    there = Coordinates(rng.standard_normal(3), rng.standard_normal((3, 3)))
    theta = rng.standard_normal((4, 5, 3))
    np.testing.assert_allclose(there.to_model(there.from_model(theta)), theta)
    drawn = rng.standard_normal((500, 3)) @ rng.standard_normal((3, 3)) + [1.0, 2.0, 3.0]
    white = Coordinates.of_draws(drawn).from_model(drawn)
    np.testing.assert_allclose(white.mean(axis=0), 0.0, atol=1e-10)
    np.testing.assert_allclose(np.cov(white.T), np.eye(3), atol=1e-9)
    diagonal = Coordinates(np.zeros(2), np.array([2.0, 3.0]))
    np.testing.assert_array_equal(diagonal.scale, np.diag([2.0, 3.0]))


def test_gradients_follow_the_coordinates(model: LogDensityModel) -> None:
    rng = np.random.default_rng(3)
    scale, centre = rng.standard_normal((3, 3)), rng.standard_normal(3)
    white = model.whitened(scale=scale, centre=centre, smoothness=1e4, convexity=1e-3)
    assert white.public
    phi = rng.standard_normal((1, 4, 3))
    theta = centre + phi @ scale.T
    np.testing.assert_allclose(white.gradient(phi), model.gradient(theta) @ scale, rtol=1e-9)
    # Single examples are clipped in the coordinates that are transmitted.
    data, norm = model.data, 0.05
    assert isinstance(data, FederatedData)
    expected = np.zeros((2, 3))
    for n, device in enumerate(data.device_of):
        x, y = np.append(1.0, data.features[n]), data.targets[n]
        each = (-y * x / (1 + np.exp(y * (x @ theta[0, 0])))) @ scale
        expected[device] += each * min(1.0, norm / np.linalg.norm(each))
    prior = (theta[0, 0] / np.array([25.0, 1.0, 1.0])) @ scale / 2
    found = white.norm_clipped_gradient(phi[:, :1], norm)[0, 0]
    np.testing.assert_allclose(found, expected + prior, rtol=1e-9)


def test_the_curvature_becomes_one(model: LogDensityModel) -> None:
    white = model.whitened()
    assert model.smoothness is not None
    assert model.convexity is not None
    assert model.smoothness / model.convexity > 1000
    assert white.smoothness == pytest.approx(1.0, rel=1e-6)
    assert white.convexity == pytest.approx(1.0, rel=1e-3)
    assert not white.public


@full_only
def test_results_are_in_the_model_s_coordinates(model: LogDensityModel) -> None:
    """Mean and spread of draws of the whitened model against the posterior on a grid, which the
    plain model does not reach in as many rounds."""
    white = model.whitened()
    plan = flmc.plan(
        white,
        flmc.Analog(clip=20.0, snr_db=40.0),
        flmc.Limits(privacy="off"),
        num_rounds=full(3000, 1500),
        num_burn_in=300,
    )
    result = flmc.run(plan, white, seed=3, chains=20)
    data = model.data
    grid = np.stack(
        np.meshgrid(
            np.linspace(-1.5, 1.5, 61),
            np.linspace(-0.05, 0.12, 61),
            np.linspace(-0.5, 2.5, 61),
            indexing="ij",
        ),
        axis=-1,
    ).reshape(-1, 3)
    assert isinstance(data, FederatedData)
    scores = data.targets * (grid[:, :1] + grid[:, 1:] @ data.features.T)
    log = -np.logaddexp(0, -scores).sum(axis=1)
    log -= 0.5 * (grid[:, 1] ** 2 + grid[:, 2] ** 2 + grid[:, 0] ** 2 / 25)
    weight = np.exp(log - log.max())
    weight /= weight.sum()
    mean = weight @ grid
    sd = np.sqrt(weight @ (grid - mean) ** 2)
    assert (np.abs(result.mean[0] - mean) < 0.1 * sd).all()
    np.testing.assert_allclose(np.sqrt(np.diag(result.covariance[0])), sd, rtol=0.1)
    # Draws, moments and names agree with each other.
    flat = result.draws.reshape(-1, 3)
    np.testing.assert_allclose(flat.mean(axis=0), result.mean[0], rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(np.cov(flat.T, bias=True), result.covariance[0], rtol=1e-5)
    np.testing.assert_array_equal(result.parameters()["slope"], result.draws[:, :, 1:])
    given: Any = white.parameters(result.draws)
    np.testing.assert_array_equal(given["slope"], result.draws[:, :, 1:])
    # A second stage from a pilot's draws is as round.
    again = model.whitened(result.draws)
    assert again.smoothness is not None
    assert again.smoothness < 3.0
    assert not again.public


def test_what_is_refused(model: LogDensityModel) -> None:
    with pytest.raises(InvalidSetting, match="must be invertible"):
        model.whitened(scale=np.zeros((3, 3)))
    with pytest.raises(InvalidSetting, match="must fit"):
        model.whitened(scale=np.eye(2))
    with pytest.raises(InvalidSetting, match="more draws than entries"):
        model.whitened(np.zeros((2, 3)))
    with pytest.raises(InvalidSetting, match="do not vary"):
        model.whitened(np.zeros((50, 3)))
