"""Models: gradients against finite differences, posteriors against the textbook."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import flmc
from flmc.base.arrays import Array
from flmc.base.clipping import clip_norm
from flmc.base.errors import InvalidSetting
from flmc.models.clipped_examples import NormClip


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


@pytest.mark.parametrize("samples", [60, 12_000])
def test_norms_of_examples_are_bounded(samples: int) -> None:
    """Against every example's gradient, scaled down by itself; few examples, and so many that they
    are sorted; near the mode and far away."""
    data = flmc.data.draw_linear(seed=1, num_samples=samples, dim=3, num_devices=4)
    model = flmc.LinearGaussian(data, noise_variance=1.7, prior_mean=0.3)
    rng = np.random.default_rng(2)
    sd = np.sqrt(np.diag(model.posterior.covariance[0]))
    for reach in (1.0, 30.0, 1e6):
        theta = model.posterior.mean[0] + reach * sd * rng.standard_normal((2, 3))
        found = model.norm_clipped_gradient(theta[None], 2.5)[0]
        for chain, at in enumerate(theta):
            each = data.features * ((data.features @ at - data.targets) / 1.7)[:, None]
            norms = np.linalg.norm(each, axis=1, keepdims=True)
            bounded = each * np.minimum(1.0, 2.5 / norms)
            sums = bounded.reshape(4, -1, 3).sum(axis=1) + (at - 0.3) / 4
            np.testing.assert_allclose(found[chain], sums, rtol=1e-9, atol=1e-9 * samples)


def test_an_example_that_is_no_number_counts_as_nothing() -> None:
    data = flmc.data.draw_linear(seed=1, num_samples=6, dim=2, num_devices=2)
    model = flmc.LinearGaussian(data)
    lost = model.norm_clipped_gradient(np.full((1, 1, 2), np.nan), 1.0)
    assert np.isnan(lost).all()  # the prior's share, which is public
    whole = model.norm_clipped_gradient(np.full((1, 1, 2), 1e300), 1.0)
    prior = np.full(2, 1e300) / 2
    # Each of three examples moves a device's gradient by a norm of 1 at most.
    assert np.linalg.norm((whole[0, 0] - prior) * 1.0, axis=1).max() <= 3.0
    for bad in ([np.inf, 1.0], [np.nan, 2.0], [1e200, -1e200], [-np.inf, np.inf], [0.0, 0.0]):
        held = clip_norm(np.array([bad, [3.0, 4.0]]), 1.0)
        assert np.linalg.norm(held, axis=1).max() <= 1 + 1e-15
        np.testing.assert_allclose(held[1], [0.6, 0.8])


def test_a_function_that_bounds_norms() -> None:
    seen = np.array([[1.0, 2.0], [3.0, 4.0]])

    def gradient(theta: Array) -> Array:
        return np.asarray(theta[:, None] - seen)

    model = flmc.Model.from_gradient(
        gradient,
        prior=flmc.Normal(),
        dim=2,
        num_devices=2,
        smoothness=3.0,
        convexity=3.0,
        norm_clipped_gradient=lambda theta, norm: clip_norm(gradient(theta), norm),
    )
    uplink = flmc.Analog(clip=5.0, example_norm=0.5, example_shrink=0.5)
    found = uplink.local_gradients(model, np.zeros((1, 1, 2)))
    np.testing.assert_allclose(np.linalg.norm(found, axis=-1), 0.5)
    plan = flmc.plan(
        model, uplink, flmc.Limits(neighbouring="example"), num_rounds=20, num_burn_in=5
    )
    assert not plan.data_dependent
    without = flmc.Model.from_gradient(gradient, prior=flmc.Normal(), dim=2, num_devices=2)
    with pytest.raises(InvalidSetting, match="pass norm_clipped_gradient"):
        flmc.plan(without, uplink, num_rounds=20, num_burn_in=5, step_size=0.1)
    forgetful = flmc.Model.from_gradient(
        gradient,
        prior=flmc.Normal(),
        dim=2,
        num_devices=2,
        norm_clipped_gradient=lambda theta, norm: gradient(theta),
    )
    with pytest.raises(InvalidSetting, match="norm_clipped_gradient does not clip"):
        flmc.plan(forgetful, uplink, num_rounds=20, num_burn_in=5, step_size=0.1)


@pytest.mark.parametrize("rule", ["clipped_gradient", "norm_clipped_gradient"])
def test_one_example_cannot_move_the_others(rule: str) -> None:
    """An example with a huge target moves the centre about which many examples are sorted; the sums
    of the others must stay what they are. (A classification with too narrow a margin moved every
    device by a thousand bounds.)"""
    data = flmc.data.draw_linear(seed=1, num_samples=10_000, dim=1, num_devices=10)
    theta = np.zeros((1, 2, 1))
    theta[0, 1] = 1.0
    before = getattr(flmc.LinearGaussian(data), rule)(theta, 4.0)
    for huge in (1e3, 3.280367725181565e24, 3.280367725181571e24, 1e100):
        targets = data.targets.copy()
        targets[0] = huge
        changed = flmc.LinearGaussian(
            flmc.LinearData(data.features, targets, device_sizes=data.device_sizes)
        )
        at = changed.posterior.mean[0]
        moved = getattr(changed, rule)(theta, 4.0) - before
        assert np.abs(moved).max() <= 2 * 4.0 * (1 + 1e-6)
        assert np.abs(moved[:, :, 1:]).max() <= 1e-6 * 4.0
        # Where its own posterior is, too: every other example is clipped there, or not, as ever.
        there = getattr(changed, rule)(at[None, None], 4.0)[0, 0]
        plain = (data.features * (data.features @ at - data.targets)[:, None]).clip(-4.0, 4.0)
        sums = plain.reshape(10, -1, 1).sum(axis=1) + at / 10
        rounding = 1e-6 * 4.0 + 1e-12 * np.abs(at).max()
        np.testing.assert_allclose(there[1:], sums[1:], atol=rounding)


def test_tiny_features_have_norms() -> None:
    features = np.full((1, 1000), 1.57e-162)
    features[0, 0] = 2.3e-162
    rule = NormClip(4.0)
    found = rule.held(np.array([[-1e175]]), features)[0, 0] * features[0]
    scaled = found / np.abs(found).max()
    assert np.abs(found).max() * np.sqrt(np.square(scaled).sum()) <= 4.0 * (1 + 1e-12)
    assert rule.limits(np.zeros((1, 3))).tolist() == [[0.0]]
