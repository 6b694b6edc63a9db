"""Models: gradients against finite differences, posteriors against the textbook."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import flmc
from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting


def cost(
    data: flmc.LinearData, theta: Array, precision: Array, mean: Array, variance: float
) -> float:
    residual = data.targets - data.features @ theta
    return float(
        residual @ residual / (2 * variance) + (theta - mean) @ precision @ (theta - mean) / 2
    )


def test_gradients_sum_to_the_gradient_of_the_negative_log_posterior() -> None:
    rng = np.random.default_rng(0)
    data = flmc.data.draw_linear(seed=1, num_samples=37, dim=4, device_sizes=(5, 0, 20, 12))
    root = rng.normal(size=(4, 4))
    precision, mean, variance = root @ root.T + np.eye(4), rng.normal(size=4), 1.7
    model = flmc.LinearGaussian(
        data, prior_precision=precision, prior_mean=mean, noise_variance=variance
    )
    theta = rng.normal(size=4)
    total = model.gradient(theta[None, None])[0, 0].sum(axis=0)
    eye = np.eye(4) * 1e-6
    numeric = [
        (
            cost(data, theta + e, precision, mean, variance)
            - cost(data, theta - e, precision, mean, variance)
        )
        / 2e-6
        for e in eye
    ]
    np.testing.assert_allclose(total, numeric, rtol=1e-6)


def test_posterior_is_the_textbooks() -> None:
    data = flmc.data.draw_linear(seed=1, num_samples=50, dim=3, num_devices=7)
    model = flmc.LinearGaussian(data)
    gram = data.features.T @ data.features + np.eye(3)
    np.testing.assert_allclose(
        model.posterior.mean[0], np.linalg.solve(gram, data.features.T @ data.targets)
    )
    np.testing.assert_allclose(model.posterior.covariance[0], np.linalg.inv(gram))
    values = np.linalg.eigvalsh(gram)
    assert (model.convexity, model.smoothness) == pytest.approx((values[0], values[-1]))


def test_general_prior_and_noise_are_sampled(model: flmc.LinearGaussian) -> None:
    """A conjugate truth that differs from the standard one: a variance taken for a standard
    deviation would show."""
    data = flmc.data.draw_linear(seed=6, num_samples=400, dim=2, num_devices=5, noise_variance=4.0)
    other = flmc.LinearGaussian(
        data, prior_precision=np.array([3.0, 0.5]), prior_mean=0.7, noise_variance=4.0
    )
    np.testing.assert_allclose(other.prior.sd, np.array([3.0, 0.5]) ** -0.5)
    plan = flmc.plan(other, flmc.Analog(snr_db=40.0))
    metrics = flmc.run(plan, other, seed=1, chains=500, keep_draws=False).metrics
    assert metrics is not None
    assert plan.prediction is not None
    assert (
        abs(metrics.variance_ratio.mean - plan.prediction.variance_ratio)
        < 5 * metrics.variance_ratio.se
    )
    assert metrics.mean_error_squared.mean < 0.01 * metrics.posterior_trace


def test_a_batch_of_thetas(small: flmc.LinearGaussian) -> None:
    theta = np.random.default_rng(1).normal(size=(3, 6, 3))
    whole = small.gradient(theta)
    assert whole.shape == (3, 6, 4, 3)
    for e in range(3):
        for k in range(4):
            expected = theta[e] @ small.hessian[e, k] - small.offset[e, k]
            np.testing.assert_allclose(whole[e, :, k], expected, rtol=1e-10, atol=1e-10)
    np.testing.assert_array_equal(small.gradient(theta[1:2], slice(1, 2)), whole[1:2])


@given(st.integers(1, 500), st.data())
def test_even_splits(num_samples: int, data: st.DataObject) -> None:
    num_devices = data.draw(st.integers(1, num_samples))
    sizes = flmc.data.split_evenly(num_samples, num_devices)
    assert sum(sizes) == num_samples
    assert len(sizes) == num_devices
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"num_samples": 10, "num_devices": 20},
            "num_devices must not exceed num_samples = 10, got 20",
        ),
        (
            {"num_samples": 10, "device_sizes": (3, 3)},
            "device_sizes must add up to num_samples = 10, got 6",
        ),
        ({"theta": (1.0, 2.0)}, "theta must have dim = 5 entries"),
        ({"dim": 0}, "dim must be a whole number of at least 1, got 0"),
        ({"noise_variance": -1.0}, "noise_variance must be positive, got -1.0"),
    ],
)
def test_impossible_data(settings: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidSetting, match=message):
        flmc.data.draw_linear(seed=1, **settings)  # type: ignore[arg-type]


def test_user_models_are_checked() -> None:
    def wrong(theta: Array) -> Array:
        return theta

    model = flmc.Model.from_gradient(
        wrong, prior=flmc.Normal(0, 1), dim=3, num_devices=2, smoothness=1.0
    )
    with pytest.raises(
        InvalidSetting,
        match=r"gradient must return \(chain, device, dim\) = \(4, 2, 3\), got \(4, 3\)",
    ):
        flmc.run(flmc.plan(model, flmc.Digital()), model, chains=4)
    with pytest.raises(InvalidSetting, match="convexity must not exceed smoothness"):
        flmc.Model.from_gradient(
            wrong, prior=flmc.Normal(0, 1), dim=3, num_devices=2, smoothness=1.0, convexity=2.0
        )
    unknown = flmc.Model.from_gradient(wrong, prior=flmc.Normal(0, 1), dim=3, num_devices=2)
    with pytest.raises(InvalidSetting, match="needs the smoothness"):
        flmc.plan(unknown, flmc.Digital())


def test_many_examples_are_clipped_like_few() -> None:
    """Of many examples only those near the clip are looked at, and all where chains are far away:
    the sums are those of every example by itself, to rounding."""
    rng = np.random.default_rng(4)
    sizes = (0, 4000, 5500, 0, 700)
    data = flmc.data.draw_linear(
        seed=5, num_samples=sum(sizes), dim=3, device_sizes=sizes, num_experiments=2
    )
    model = flmc.LinearGaussian(data, noise_variance=1.7, prior_precision=2.0, prior_mean=0.5)
    sd = np.sqrt(np.diagonal(model.posterior.covariance, axis1=1, axis2=2))[:, None]
    ends = np.cumsum(sizes)
    for far in (0.5, 3.0, 20.0, 1000.0):
        theta = model.posterior.mean[:, None] + far * sd * rng.standard_normal((2, 4, 3))
        found = model.clipped_gradient(theta, 2.5)
        residual = np.einsum("eni,eci->ecn", data.features, theta) - data.targets[:, None]
        each = np.clip(residual[..., None] * data.features[:, None] / 1.7, -2.5, 2.5)
        for k, (end, size) in enumerate(zip(ends, sizes, strict=True)):
            expected = each[:, :, end - size : end].sum(axis=2) + 2.0 * (theta - 0.5) / 5
            assert found[:, :, k] == pytest.approx(expected, rel=1e-9, abs=1e-7)
        # What was asked before changes nothing.
        assert np.array_equal(found[1:], model.clipped_gradient(theta[1:], 2.5, slice(1, 2)))
    one = model.clipped_gradient(np.full((2, 1, 3), np.nan), 2.5)
    assert np.isnan(one).all() or np.isfinite(one).all()
