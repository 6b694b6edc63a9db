"""Limits in which the answer is known."""

from __future__ import annotations

import numpy as np
import pytest

import flmc
from flmc.base.arrays import Array
from flmc.planning.temperature import calibrated_gain, paper_gain
from flmc.sampling import langevin

rng = np.random.default_rng(0)


def one_round(uplink: flmc.Uplink, gain: float, num_devices: int, dim: int) -> langevin.Round:
    return langevin.Round(
        0.01, np.full(dim, gain), np.ones((num_devices, dim)), None, float(num_devices)
    )


def test_zero_noise_and_linear_link_converge_to_the_posterior_mean(
    model: flmc.LinearGaussian,
) -> None:
    """Without channel noise only quantisation is left, whose effect vanishes with the step: follow
    the mean bit."""
    uplink = flmc.Digital(link=flmc.Linear(1.0))
    theta = np.zeros((1, 1, 5))
    for _ in range(3000):
        theta = theta - 0.005 * uplink.mean_symbol(model.gradient(theta)).sum(axis=2)
    # Every step shrinks the distance by 0.005 x 1096 / 30 = 18 %: only rounding is left.
    np.testing.assert_allclose(theta[0, 0], model.posterior.mean[0], atol=1e-9)
    # And with real bits: the error of the mean is that of averaging over 100 chains of small steps.
    silent, off = flmc.replace(uplink, noise_power=1e-12), flmc.Limits(langevin="off")
    plan = flmc.plan(
        model, silent, off, step_size=5e-4, start="zero", num_rounds=1500, num_burn_in=1000
    )
    metrics = flmc.run(plan, model, seed=1, chains=100, keep_draws=False).metrics
    assert metrics is not None
    assert metrics.mean_error_squared.mean < 0.01 * metrics.posterior_trace


def test_no_noise_is_gradient_descent(small: flmc.LinearGaussian) -> None:
    state = langevin.init(np.ones((3, 2, 3)))
    noise = langevin.Noise(np.zeros((3, 2, 3)), None)
    after, info = langevin.step(
        state, noise, one_round(flmc.Ideal(), 1.0, 4, 3), small.gradient, flmc.Ideal()
    )
    np.testing.assert_allclose(
        after.theta, 1.0 - 0.01 * small.gradient(state.theta).sum(axis=2), rtol=1e-12
    )
    np.testing.assert_array_equal(info.symbols, info.gradient)
    assert after.round == 1


def test_slope_one_without_quantisation_noise_is_the_papers_limit() -> None:
    for active in (1, 7, 20):
        assert calibrated_gain(flmc.Analog(), 1e-3, 20, active) == pytest.approx(
            paper_gain(flmc.Analog(), 1e-3, 20, active)
        )


def test_permuting_devices_changes_nothing(small: flmc.LinearGaussian) -> None:
    order = [2, 0, 3, 1]
    theta, uniform, normal = (
        rng.normal(size=(3, 1, 3)),
        rng.random((3, 1, 4, 3)),
        rng.normal(size=(3, 1, 3)),
    )
    uplink, state = flmc.Digital(), langevin.init(theta)
    this = one_round(uplink, 0.3, 4, 3)

    def permuted(t: Array) -> Array:
        return small.gradient(t)[:, :, order]

    first, _ = langevin.step(state, langevin.Noise(normal, uniform), this, small.gradient, uplink)
    second, _ = langevin.step(
        state, langevin.Noise(normal, uniform[:, :, order]), this, permuted, uplink
    )
    np.testing.assert_allclose(first.theta, second.theta, rtol=1e-12)


@pytest.mark.parametrize("scheme", [flmc.Digital, flmc.Analog, flmc.Ideal])
@pytest.mark.parametrize(
    "shape",
    [
        {"num_devices": 1},
        {"dim": 1},
        {"num_devices": 1, "dim": 1, "num_samples": 1},
        {"device_sizes": (1, 500, 0, 99)},
        {"num_samples": 20},
    ],
    ids=["one device", "dim 1", "one of everything", "uneven", "one sample a device"],
)
def test_shapes(scheme: type[flmc.Uplink], shape: dict[str, int]) -> None:
    settings: dict[str, object] = {"num_samples": 600, **shape}
    if "device_sizes" in shape:
        settings["num_devices"] = 4
    model = flmc.LinearGaussian(flmc.data.draw_linear(seed=2, **settings))  # type: ignore[arg-type]
    result = flmc.run(
        flmc.plan(model, scheme(), num_rounds=40, num_burn_in=10), model, seed=1, chains=3
    )
    assert result.draws.shape == (3, 30, model.dim)
    assert np.isfinite(result.draws).all()


def test_one_device_samples_the_posterior() -> None:
    """K = 1: the analog chain equals Langevin with the whole gradient."""
    model = flmc.LinearGaussian(
        flmc.data.draw_linear(seed=2, num_devices=1, num_samples=300, dim=1)
    )
    uplink = flmc.Analog(clip=200.0, snr_db=60.0)
    plan = flmc.plan(model, uplink)
    metrics = flmc.run(plan, model, seed=1, chains=400, keep_draws=False).metrics
    assert metrics is not None
    assert plan.prediction is not None
    assert (
        abs(metrics.variance_ratio.mean - plan.prediction.variance_ratio)
        < 5 * metrics.variance_ratio.se
    )


def test_general_fading_with_inversion_equals_none(small: flmc.LinearGaussian) -> None:
    """Channel inversion takes h out: only rounding in the last digits is left."""
    limits = flmc.Limits(langevin="off")
    gains = rng.uniform(0.2, 2.0, (4, 3))
    results = []
    for fading in (flmc.ConstantFading(1.0), flmc.FixedFading(gains)):
        uplink = flmc.Digital(fading=fading, snr_db=30)
        plan = flmc.plan(
            small,
            uplink,
            limits,
            num_rounds=30,
            num_burn_in=5,
            step_size=0.01,
            gain=[0.3, 0.4, 0.5],
        )
        results.append(flmc.run(plan, small, seed=3, chains=2).draws)
    np.testing.assert_allclose(results[0], results[1], atol=1e-10)


def test_random_fading_bounds_the_gain(small: flmc.LinearGaussian) -> None:
    from flmc.sampling.schedule import draw_schedule

    uplink = flmc.Digital(fading=flmc.RayleighFading(0.5), snr_db=10)
    plan = flmc.plan(small, uplink, num_rounds=150, num_burn_in=5, step_size=0.02)
    schedule = draw_schedule(plan, 1, range(3), 0)
    transmitted = schedule.gain[:, :, None, :] / schedule.fading
    assert (np.square(transmitted).mean(axis=-1) <= uplink.power_limit * (1 + 1e-12)).all()
    assert (schedule.gain <= plan.gain + 1e-15).all()
    assert schedule.gain.shape == (3, 128, 3)
    assert np.unique(schedule.gain).size > 10


def test_a_zero_gradient_gives_a_fair_bit() -> None:
    bits = flmc.Digital().symbols(np.zeros((1000, 100)), rng.random((1000, 100)))
    assert set(np.unique(bits)) == {-1.0, 1.0}
    assert abs(bits.mean()) < 5 / np.sqrt(bits.size)


def test_gradients_that_are_not_numbers() -> None:
    gradient = np.array([np.nan, np.inf, -np.inf, 5.0])
    np.testing.assert_array_equal(
        flmc.Analog(clip=2.0).symbols(gradient, None), [0.0, 2.0, -2.0, 2.0]
    )
    nan = np.full((100, 1000), np.nan)
    bits = flmc.Digital().symbols(nan, rng.random(nan.shape))
    assert abs(bits.mean()) < 5 / np.sqrt(bits.size)  # a fair bit, not a certain -1
    assert np.isnan(nan).all()  # the caller's array is not touched
