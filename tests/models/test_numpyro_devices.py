"""Models of NumPyro that are no sum over rows: of a device as a whole, as NumPyro's documentation
writes time series; against densities that are written by hand and a posterior that is exact."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import flmc
from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.data import Examples, from_arrays
from support import full, full_only

jax = pytest.importorskip("jax", reason="needs the extra jax")
numpyro = pytest.importorskip("numpyro", reason="needs the extra numpyro")
dist = pytest.importorskip("numpyro.distributions", reason="needs the extra numpyro")
jnp = jax.numpy

LENGTHS = (9, 0, 5, 14, 9)
POSITIVE = flmc.supports.positive


def data() -> Examples:
    rng = np.random.default_rng(1)
    return from_arrays([{"y": np.cumsum(rng.standard_normal(n))} for n in LENGTHS])


def normal(value: Any, mean: Any, sd: Any) -> Any:
    """Log density of normal values, all constants included."""
    return (-0.5 * ((value - mean) / sd) ** 2 - jnp.log(sd * np.sqrt(2 * np.pi))).sum()


# NumPyro's example "AR2 process", once by scan and once by arrays.


def ar2_prior_sites() -> tuple[Any, ...]:
    first = numpyro.sample("alpha_1", dist.Normal(0, 1))
    second = numpyro.sample("alpha_2", dist.Normal(0, 1))
    const = numpyro.sample("const", dist.Normal(0, 1))
    return first, second, const, numpyro.sample("sigma", dist.HalfNormal(1))


def ar2_scan(y: Any) -> None:
    first, second, const, sigma = ar2_prior_sites()

    def transition(carry: Any, _: Any) -> Any:
        before, before_that = carry
        mean = const + first * before + second * before_that
        now = numpyro.sample("y", dist.Normal(mean, sigma))
        return (now, before), mean

    from numpyro.contrib.control_flow import scan

    with numpyro.handlers.condition(data={"y": y[2:]}):
        _, mean = scan(transition, (y[1], y[0]), jnp.arange(y.shape[0] - 2))
    numpyro.deterministic("mu", mean)


def ar2_steps(y: Any) -> None:
    """With a site for each step, so that longer series have more sites."""
    first, second, const, sigma = ar2_prior_sites()
    for t in range(2, len(y)):
        mean = const + first * y[t - 1] + second * y[t - 2]
        numpyro.sample(f"y_{t}", dist.Normal(mean, sigma), obs=y[t])


def ar2_by_hand(w: Any, device: Any) -> Any:
    y = device["y"]
    mean = w["const"] + w["alpha_1"] * y[1:-1] + w["alpha_2"] * y[:-2]
    return normal(y[2:], mean, w["sigma"])


AR2_START = {"alpha_1": 0.0, "alpha_2": 0.0, "const": 0.0, "sigma": flmc.Parameter(0.7, POSITIVE)}


def ar2_prior(w: Any) -> Any:
    return -0.5 * (w["alpha_1"] ** 2 + w["alpha_2"] ** 2 + w["const"] ** 2 + w["sigma"] ** 2)


# A random walk seen as a whole, by NumPyro's own distribution, about an unknown level, whose second
# prior is a factor of parameters alone.


def walk(y: Any) -> None:
    level = numpyro.sample("level", dist.Normal(0.0, 3.0))
    sigma = numpyro.sample("sigma", dist.HalfNormal(2.0))
    numpyro.factor("more_prior", -((level / sigma) ** 2))
    numpyro.sample("walk", dist.GaussianRandomWalk(sigma, num_steps=len(y)), obs=y - level)
    # Depends on the length of the series, which is data of a device.
    numpyro.factor("each_length", -0.1 * len(y) * sigma)


def walk_by_hand(w: Any, device: Any) -> Any:
    y = device["y"]
    steps = jnp.concatenate([y[:1] - w["level"], jnp.diff(y)])
    return normal(steps, 0.0, w["sigma"]) - 0.1 * y.size * w["sigma"]


def walk_prior(w: Any) -> Any:
    return -0.5 * (w["level"] / 3) ** 2 - (w["level"] / w["sigma"]) ** 2 - w["sigma"] ** 2 / 8


WALK_START = {"level": 0.0, "sigma": flmc.Parameter(1.0, POSITIVE)}


@pytest.mark.parametrize(
    ("model", "prior", "likelihood", "start"),
    [
        (ar2_scan, ar2_prior, ar2_by_hand, AR2_START),
        pytest.param(ar2_steps, ar2_prior, ar2_by_hand, AR2_START, marks=full_only),
        (walk, walk_prior, walk_by_hand, WALK_START),
    ],
    ids=["AR(2) by scan", "AR(2) by steps", "random walk"],
)
def test_it_is_the_density_by_hand(
    model: Callable[..., None], prior: Any, likelihood: Any, start: Any
) -> None:
    """On devices of several lengths and one without data; and each device by itself, with its share
    of the prior, as in a federation."""
    found: Any = flmc.Model.from_numpyro(model, data(), likelihood_of="device", smoothness=1.0)
    expected = flmc.Model.from_log_density(
        prior, likelihood, data(), start, likelihood_of="device", smoothness=1.0
    )
    assert found.likelihood_of == "device"
    assert expected.layout is not None
    assert found.layout.entries() == expected.layout.entries()
    thetas = 0.5 * np.random.default_rng(2).standard_normal((1, 4, found.dim))
    gradients = expected.gradient(thetas)
    np.testing.assert_allclose(found.gradient(thetas), gradients, rtol=1e-9, atol=1e-9)
    for device in (0, 2):
        one = flmc.Model.from_numpyro(
            model,
            data().of_device(device),
            likelihood_of="device",
            smoothness=1.0,
            prior_devices=len(LENGTHS),
        )
        np.testing.assert_allclose(
            one.gradient(thetas)[:, :, 0], gradients[:, :, device], rtol=1e-9, atol=1e-9
        )


@full_only
def test_devices_add_up_to_the_log_joint_of_all() -> None:
    """Against NumPyro's own log density of one model in which all series are, and the prior is
    once."""
    found: Any = flmc.Model.from_numpyro(ar2_scan, data(), likelihood_of="device", smoothness=1.0)
    theta = 0.5 * np.random.default_rng(3).standard_normal(4)
    series = [data().of_device(k).rows()["y"] for k, n in enumerate(LENGTHS) if n]
    with jax.enable_x64():

        def cost(theta: Any) -> Any:
            values = found.layout.values(theta)
            each = [
                numpyro.infer.util.log_density(ar2_scan, (jnp.asarray(y),), {}, values)[0]
                for y in series
            ]
            prior = numpyro.infer.util.log_density(ar2_prior_sites, (), {}, values)[0]
            return -sum(each) + (len(each) - 1) * prior - found.layout.log_jacobian(theta)

        value, gradient = jax.value_and_grad(cost)(jnp.asarray(theta))
        own = found._costs.total(jnp.asarray(theta), found._data)
    assert float(own) == pytest.approx(float(value), rel=1e-10)
    summed = found.gradient(theta[None, None])[0, 0].sum(axis=0)
    np.testing.assert_allclose(summed, gradient, rtol=1e-9, atol=1e-9)


def states(y: Any) -> None:
    sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))
    state = numpyro.sample("state", dist.GaussianRandomWalk(sigma, num_steps=len(y)))
    numpyro.sample("y", dist.Normal(state, 1.0), obs=y)


def states_by_scan(y: Any) -> None:
    from numpyro.contrib.control_flow import scan

    sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))

    def transition(before: Any, seen: Any) -> Any:
        now = numpyro.sample("state", dist.Normal(before, sigma))
        numpyro.sample("y", dist.Normal(now, 1.0), obs=seen)
        return now, None

    scan(transition, 0.0, y)


def shocks_by_scan(y: Any) -> None:
    """Latent sites whose law has no traced parameter, in a loop."""
    from numpyro.contrib.control_flow import scan

    sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))

    def transition(before: Any, seen: Any) -> Any:
        now = before + sigma * numpyro.sample("shock", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(now, 1.0), obs=seen)
        return now, None

    scan(transition, 0.0, y)


def prior_of_data(y: Any) -> None:
    memory = numpyro.sample("memory", dist.Normal(0.0, 1.0 + jnp.abs(y).max()))
    numpyro.sample("steps", dist.Normal(memory * y[:-1], 1.0), obs=y[1:])


def site_of_long_series(y: Any) -> None:
    memory = numpyro.sample("memory", dist.Normal(0.0, 1.0))
    if len(y) > 10:
        numpyro.sample("late", dist.Normal(0.0, 1.0))
    numpyro.sample("steps", dist.Normal(memory * y[:-1], 1.0), obs=y[1:])


def branching(y: Any) -> None:
    memory = numpyro.sample("memory", dist.Normal(0.0, 1.0))
    sd = 1.0 if y[0] > 100 else 2.0
    numpyro.sample("steps", dist.Normal(memory * y[:-1], sd), obs=y[1:])


def impossible(y: Any) -> None:
    memory = numpyro.sample("memory", dist.Normal(0.0, 1.0))
    numpyro.sample("steps", dist.Normal(memory, -1.0), obs=y)


def blind(y: Any) -> None:
    memory = numpyro.sample("memory", dist.Normal(0.0, 1.0))
    numpyro.sample("steps", dist.Normal(memory, 1.0), obs=1.0)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (states, "latent site 'state' has one value for each row of a device"),
        (states_by_scan, "latent site 'state' is in a loop over rows"),
        (shocks_by_scan, "latent site 'shock' is in a loop over rows"),
        (prior_of_data, "prior of the latent site 'memory' depends on the data of a device"),
        (site_of_long_series, "whether there is a site 'late' depends on the data"),
        (branching, "branches on values of the data"),
        (impossible, "log density of the site 'steps' is infinite or no number"),
        (blind, "observes nothing"),
    ],
)
def test_what_cannot_be_a_model_of_one_device_is_refused_by_name(
    model: Callable[..., None], message: str
) -> None:
    with pytest.raises(InvalidSetting, match=message):
        flmc.Model.from_numpyro(model, data(), likelihood_of="device", smoothness=1.0)


def test_settings_are_checked() -> None:
    model = flmc.Model.from_numpyro(walk, data(), likelihood_of="device", smoothness=1.0)
    with pytest.raises(InvalidSetting, match=r"of a device as a whole.*neighbouring='device'"):
        flmc.plan(model, flmc.Analog(example_norm=1.0), num_rounds=40)
    with pytest.raises(InvalidSetting, match="likelihood_of must be one of example, device"):
        flmc.Model.from_numpyro(walk, data(), likelihood_of="devices")
    with pytest.raises(InvalidSetting, match="one device, which has no such plate"):
        flmc.Model.from_numpyro(walk, data(), likelihood_of="device", local="homes")


def test_a_constant_series_is_data_all_the_same() -> None:
    """A site is not taken for a part of the prior because a device's data happen to be zeros, or
    all alike: it would be counted once for all devices."""

    def spread(y: Any) -> None:
        scale = numpyro.sample("scale", dist.HalfNormal(1.0))
        numpyro.factor("roughness", -y.var() / scale - len(y) * jnp.log(scale))

    def still(y: Any) -> None:
        scale = numpyro.sample("scale", dist.HalfNormal(1.0))
        numpyro.factor("roughness", -y.var() / scale)

    alike = from_arrays([{"y": np.zeros(4)}, {"y": np.zeros(4)}])
    theta = np.zeros((1, 1, 1))
    for model, slope in ((spread, 4.0), (still, 0.0)):
        found = flmc.Model.from_numpyro(model, alike, likelihood_of="device", smoothness=1.0)
        share = found.prior_share(theta)[0, 0]
        # Of the prior: ln scale - scale^2/2, at scale 1, and half of it on each device.
        np.testing.assert_allclose(share, 0.0, atol=1e-12)
        np.testing.assert_allclose(found.gradient(theta)[0, 0], slope, atol=1e-12)


def test_a_length_may_be_fixed() -> None:
    """A curve of fixed length is a parameter of all devices, whose series have that length."""

    def curve(y: Any, num: int) -> None:
        with numpyro.plate("time", num):
            level = numpyro.sample("level", dist.Normal(0.0, 1.0))
        error = y - level
        numpyro.sample("steps", dist.Normal(0.5 * error[:-1], 1.0), obs=error[1:])

    rng = np.random.default_rng(4)
    same = from_arrays([{"y": rng.standard_normal(3)} for _ in range(2)])
    model: Any = flmc.Model.from_numpyro(
        curve, same, likelihood_of="device", fixed={"num": 3}, smoothness=1.0
    )
    assert model.layout.entries() == ["level[0]", "level[1]", "level[2]"]


MEMORY, NOISE, LONG = 0.8, 0.5, (40, 25, 60, 40)


def with_memory(t: Any, y: Any) -> None:
    """An autoregressive series about a line, as one normal vector."""
    level = numpyro.sample("level", dist.Normal(0.0, 2.0))
    trend = numpyro.sample("trend", dist.Normal(0.0, 2.0))
    lag = jnp.abs(jnp.arange(len(y))[:, None] - jnp.arange(len(y)))
    covariance = NOISE**2 / (1 - MEMORY**2) * MEMORY**lag
    numpyro.sample("y", dist.MultivariateNormal(level + trend * t, covariance), obs=y)


def exact(series: Examples) -> tuple[Array, Array]:
    """Mean and covariance of the posterior, by the steps of the series (and so by another way than
    the covariance matrix)."""
    precision, moment = np.eye(2) / 4, np.zeros(2)
    for device, length in enumerate(LONG):
        rows = series.of_device(device).rows()
        design, seen = np.column_stack([np.ones(length), rows["t"]]), rows["y"]
        first = np.sqrt(1 - MEMORY**2)
        design = np.vstack([first * design[:1], design[1:] - MEMORY * design[:-1]]) / NOISE
        seen = np.append(first * seen[0], seen[1:] - MEMORY * seen[:-1]) / NOISE
        precision += design.T @ design
        moment += design.T @ seen
    return np.array(np.linalg.solve(precision, moment)), np.array(np.linalg.inv(precision))


def test_a_series_has_its_exact_posterior() -> None:
    """Sampled over the analog uplink, at midpoints, without clipping: no error of the step is left.
    Chains are independent, so that their means and mean squares give the Monte-Carlo errors."""
    rng = np.random.default_rng(3)
    devices = []
    for length in LONG:
        error = np.empty(length)
        error[0] = NOISE / np.sqrt(1 - MEMORY**2) * rng.standard_normal()
        for step in range(1, length):
            error[step] = MEMORY * error[step - 1] + NOISE * rng.standard_normal()
        slow = np.linspace(-1.0, 1.0, length)
        devices.append({"t": slow, "y": 0.7 - 0.4 * slow + error})
    series = from_arrays(devices)
    model = flmc.Model.from_numpyro(with_memory, series, likelihood_of="device")
    uplink = flmc.Analog(clip=40.0, snr_db=50.0)
    plan = flmc.plan(model, uplink, num_rounds=full(4000, 1200), num_burn_in=200)
    result = flmc.run(plan, model, seed=4, chains=24, engine="jax")
    assert result.clipped_fraction == 0.0
    assert plan.temperature is not None
    mean, covariance = exact(series)
    sd = np.sqrt(np.diag(covariance))
    chains = np.sqrt(len(result.draws))
    means = result.draws.mean(axis=1)
    assert (np.abs(means.mean(axis=0) - mean) < 5 * means.std(axis=0, ddof=1) / chains).all()
    squares = np.square((result.draws - mean) / sd).mean(axis=1)
    error = squares.std(axis=0, ddof=1) / chains
    assert (np.abs(squares.mean(axis=0) - plan.temperature) < 5 * error).all()
