"""Log likelihoods of devices as a whole: against sums over examples, and a series whose posterior
is exact."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import flmc
from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.data.examples import Examples
from flmc.deploy.device.local_model import local_gradient
from flmc.models.single_device import local_models
from support import full, full_only

jnp = pytest.importorskip("jax.numpy", reason="needs the extra jax")

SIZES = (7, 1, 0, 12, 7)


def log_prior(w: Any) -> Any:
    return -0.5 * jnp.sum(w["slope"] ** 2) - w["sd"]


def of_example(w: Any, row: Any) -> Any:
    return -0.5 * ((row["y"] - row["x"] @ w["slope"]) / w["sd"]) ** 2 - jnp.log(w["sd"])


def of_device(w: Any, device: Any) -> Any:
    """The same, by arrays: a sum over all rows of one device."""
    left = (device["y"] - device["x"] @ w["slope"]) / w["sd"]
    return -0.5 * (left**2).sum() - device["y"].size * jnp.log(w["sd"])


START = {"slope": np.zeros(2), "sd": flmc.Parameter(1.0, flmc.supports.positive)}


def draw_data() -> Examples:
    rng = np.random.default_rng(1)
    return flmc.data.from_arrays(
        [{"x": rng.standard_normal((n, 2)), "y": rng.standard_normal(n)} for n in SIZES]
    )


def models() -> list[Any]:
    """The model by examples and by devices."""
    data = draw_data()
    return [
        flmc.Model.from_log_density(log_prior, likelihood, data, START, likelihood_of=of)
        for likelihood, of in ((of_example, "example"), (of_device, "device"))
    ]


@full_only
def test_a_sum_over_examples_is_the_same_by_devices() -> None:
    """Devices of unequal size, two of equal size, and one without data."""
    examples, devices = models()
    thetas = np.random.default_rng(2).standard_normal((1, 5, 3))
    expected = examples.gradient(thetas)
    np.testing.assert_allclose(devices.gradient(thetas), expected, rtol=1e-10, atol=1e-12)
    assert devices.smoothness == pytest.approx(examples.smoothness, rel=1e-9)
    assert devices.convexity == pytest.approx(examples.convexity, rel=1e-9)
    np.testing.assert_array_equal(devices.gradient(thetas)[0, :, 2], devices.prior_share(thetas)[0])
    # Coordinates and single devices keep what the likelihood is of.
    white = [each.whitened() for each in (examples, devices)]
    expected = white[0].gradient(thetas)
    np.testing.assert_allclose(white[1].gradient(thetas), expected, rtol=1e-5, atol=1e-6)
    one = next(iter(local_models(devices)))
    expected = next(iter(local_models(examples))).gradient(thetas)
    np.testing.assert_allclose(one.gradient(thetas), expected, rtol=1e-10, atol=1e-12)


def test_settings_of_single_examples_are_refused_by_name() -> None:
    _, devices = models()
    theta = np.zeros((1, 1, 3))
    for asked in (
        lambda: devices.clipped_gradient(theta, 0.2),
        lambda: devices.norm_clipped_gradient(theta, 0.2),
        lambda: flmc.plan(devices, flmc.Analog(example_norm=1.0), num_rounds=40),
        lambda: flmc.plan(devices, flmc.Digital(example_clip=1.0), num_rounds=40),
        lambda: local_gradient(devices, flmc.Analog(example_norm=1.0), 5, shares_prior=False),
    ):
        with pytest.raises(InvalidSetting, match=r"of a device as a whole.*neighbouring='device'"):
            asked()
    with pytest.raises(InvalidSetting, match="likelihood_of must be one of example, device"):
        flmc.Model.from_log_density(
            log_prior, of_device, draw_data(), START, likelihood_of="devices"
        )
    # Who forgets the argument is told of it.
    with pytest.raises(InvalidSetting, match="likelihood_of='device'"):
        flmc.Model.from_log_density(
            log_prior, lambda w, row: jnp.ones(3) * of_example(w, row), draw_data(), START
        )


# An autoregressive series on every device: y = X beta + e, e[t] = MEMORY e[t-1] + noise, with the
# stationary law of e[0]. A sum over rows is none of it: rows without the one before say less.
MEMORY, NOISE, LENGTHS = 0.8, 0.5, (40, 25, 60, 40)


def series() -> Examples:
    rng = np.random.default_rng(3)
    devices = []
    for length in LENGTHS:
        error = np.empty(length)
        error[0] = NOISE / np.sqrt(1 - MEMORY**2) * rng.standard_normal()
        for t in range(1, length):
            error[t] = MEMORY * error[t - 1] + NOISE * rng.standard_normal()
        slow = np.linspace(-1.0, 1.0, length)
        devices.append({"t": slow, "y": 0.7 - 0.4 * slow + error})
    return flmc.data.from_arrays(devices)


def of_series(w: Any, device: Any) -> Any:
    error = device["y"] - w["level"] - w["trend"] * device["t"]
    steps = error[1:] - MEMORY * error[:-1]
    first = (1 - MEMORY**2) * error[0] ** 2
    return -0.5 * (first + (steps**2).sum()) / NOISE**2


def exact() -> tuple[Array, Array]:
    """Mean and covariance of the posterior, from the covariance matrices of the series (and so by
    another way than the steps), with a prior of standard deviation 2."""
    data, precision, moment = series(), np.eye(2) / 4, np.zeros(2)
    for device in range(len(LENGTHS)):
        rows = data.of_device(device).rows()
        lag = np.abs(np.subtract.outer(np.arange(LENGTHS[device]), np.arange(LENGTHS[device])))
        inverse = np.linalg.inv(NOISE**2 / (1 - MEMORY**2) * MEMORY**lag)
        design = np.column_stack([np.ones(LENGTHS[device]), rows["t"]])
        precision += design.T @ inverse @ design
        moment += design.T @ inverse @ rows["y"]
    return np.array(np.linalg.solve(precision, moment)), np.array(np.linalg.inv(precision))


def series_model(**given: Any) -> flmc.Model:
    return flmc.Model.from_log_density(
        lambda w: -(w["level"] ** 2 + w["trend"] ** 2) / 8,
        of_series,
        series(),
        {"level": 0.0, "trend": 0.0},
        likelihood_of="device",
        **given,
    )


@pytest.mark.parametrize(
    "uplink",
    [
        flmc.Analog(clip=40.0, snr_db=50.0),
        pytest.param(flmc.Digital(clip=15.0, link=flmc.Linear(), snr_db=50.0), marks=full_only),
    ],
    ids=["analog", "digital"],
)
def test_a_series_has_its_exact_posterior(uplink: Any) -> None:
    """A posterior that is normal, sampled at midpoints, has no error of the step, and neither a
    clip that no gradient reaches nor a straight link adds one. Chains are independent, so that
    their means and mean squares give the Monte-Carlo errors."""
    plan = flmc.plan(series_model(), uplink, num_rounds=full(4000, 1200), num_burn_in=200)
    result = flmc.run(plan, series_model(), seed=4, chains=24, engine="jax")
    mean, covariance = exact()
    sd = np.sqrt(np.diag(covariance))
    draws = result.draws
    assert plan.temperature is not None
    chain_means = draws.mean(axis=1)
    error = chain_means.std(axis=0, ddof=1) / np.sqrt(len(draws))
    assert (np.abs(chain_means.mean(axis=0) - mean) < 5 * error).all()
    squares = np.square((draws - mean) / sd).mean(axis=1)
    error = squares.std(axis=0, ddof=1) / np.sqrt(len(draws))
    # Bits have less noise than is planned for where gradients are not small: 3 % at most here.
    less = 0.0 if uplink.link is None else 0.03
    assert (squares.mean(axis=0) - plan.temperature < 5 * error).all()
    assert (squares.mean(axis=0) - plan.temperature > -5 * error - less).all()
    # A server's answer from one chain, which is worth many draws: within 5 of its own deviations.
    answer = result.posterior()
    width = np.sqrt(np.diag(answer.covariance[0])) / sd
    assert ((width > 0.8) & (width < 1.5)).all()
    assert (np.abs(answer.mean[0] - mean) < 5 * width * sd).all()
