"""Linear regression that samples its noise: gradients in closed form, posterior by quadrature."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import flmc
from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.cli import main
from flmc.data import FederatedData
from flmc.evaluation.chain_statistics import chain_statistics, effective_size_of_mean
from flmc.models.regressions import linear_unknown_noise
from support import QUICK, full, full_only

pytest.importorskip("jax", reason="needs the extra jax")


def observed(count: int = 60, noise: float = 0.5) -> FederatedData:
    rng = np.random.default_rng(1)
    features = rng.standard_normal((count, 2))
    targets = 1.0 + features @ [0.7, -0.4] + noise * rng.standard_normal(count)
    return FederatedData(features, targets, (count - 30, 20, 10))


def test_gradients_in_closed_form() -> None:
    """Also with the examples clipped one by one, which log densities alone do not show."""
    data = observed()
    model = linear_unknown_noise(
        data, prior_sd=2.0, intercept_sd=3.0, noise_scale=0.7, noise_log_sd=0.5
    )
    theta = np.array([0.8, -0.3, 0.5, -0.6])  # intercept, log_noise, slopes
    away = data.targets - theta[0] - data.features @ theta[2:]
    precision = np.exp(-2 * theta[1])
    each = np.column_stack(
        [-away * precision, 1 - away**2 * precision, -(away * precision)[:, None] * data.features]
    )
    prior = (theta - [0, np.log(0.7), 0, 0]) / np.square([3.0, 0.5, 2.0, 2.0])
    for bound, found in (
        (np.inf, model.gradient(theta[None, None])),
        (0.4, model.clipped_gradient(theta[None, None], 0.4)),
    ):
        clipped = np.clip(each, -bound, bound)
        parts = [clipped[:30], clipped[30:50], clipped[50:]]
        expected = [part.sum(axis=0) + prior / 3 for part in parts]
        np.testing.assert_allclose(found[0, 0], expected, rtol=1e-9)


def by_quadrature(data: FederatedData) -> tuple[Array, Array]:
    """Mean and standard deviation of intercept, log noise and slopes under the default priors.

    For a given noise the other entries are conjugate, and so is the density of the targets; a fine
    grid of the noise does the rest."""
    design = np.column_stack([np.ones(data.num_samples), data.features])
    prior = np.diag([25.0, 1.0, 1.0])
    noises = np.linspace(-2.0, 1.5, 2001)
    weights, means, seconds = [], [], []
    for noise in noises:
        variance = np.exp(2 * noise)
        whole = variance * np.eye(data.num_samples) + design @ prior @ design.T
        fit = data.targets @ np.linalg.solve(whole, data.targets)
        weights.append(-0.5 * (np.linalg.slogdet(whole)[1] + fit + noise**2))
        covariance = np.linalg.inv(design.T @ design / variance + np.linalg.inv(prior))
        mean = covariance @ design.T @ data.targets / variance
        means.append([mean[0], noise, *mean[1:]])
        spread = np.diag(covariance)
        seconds.append(np.square(means[-1]) + np.array([spread[0], 0.0, *spread[1:]]))
    weight = np.exp(np.array(weights) - max(weights))
    weight /= weight.sum()
    mean = weight @ np.array(means)
    return mean, np.sqrt(weight @ np.array(seconds) - mean**2)


@full_only
def test_samples_are_those_of_quadrature() -> None:
    """Exact gradients and Gaussian noise: what is left is the step's own error. In coordinates of
    about unit curvature a step of eta widens variances by 1/(1 - eta/2), which is taken off; the
    curvature of this posterior changes by e^{2 sd} = 1.2 within a standard deviation of the noise,
    which changes that factor by 20 % of itself, 0.005 of the standard deviation."""
    data = observed()
    model = linear_unknown_noise(data).whitened()
    step = 0.1
    plan = flmc.plan(
        model,
        flmc.Ideal(),
        flmc.Limits(privacy="off"),
        num_rounds=full(6000, 1500),
        num_burn_in=200,
        step_size=step,
        draw_at="positions",
    )
    result = flmc.run(plan, model, seed=1, chains=16)
    draws = np.moveaxis(result.draws, 2, 0)
    mean, sd = by_quadrature(data)
    size = effective_size_of_mean(draws)
    found = draws.reshape(4, -1)
    assert (size > full(4000, 700)).all()
    assert (chain_statistics(draws).r_hat < (1.03 if QUICK else 1.01)).all()
    assert (np.abs(found.mean(axis=1) - mean) < 5 * sd / np.sqrt(size) + 0.005 * sd).all()
    narrowed = found.std(axis=1) * np.sqrt(1 - step / 2)
    # The standard error of a normal standard deviation is sd/sqrt(2 n); draws of squares remember
    # half as long, so the size of the mean is on the safe side.
    assert (np.abs(narrowed - sd) < (5 / np.sqrt(2 * size) + 0.005) * sd).all()


def test_few_examples_and_far_noise_still_have_a_start() -> None:
    """A perfect fit must not start at a noise of 0; a large spread must not start at noise 1."""
    x = np.array([[1.0, 0.0], [0.0, 1.0]])
    exact = linear_unknown_noise(FederatedData(x, np.array([1.0, 2.0]), (2,)))
    assert np.isfinite(exact.start_point).all()
    loud = observed(noise=40.0)
    model = linear_unknown_noise(loud, prior_sd=50.0, intercept_sd=50.0)
    assert model.start_point[1] == pytest.approx(np.log(40.0), abs=0.3)
    assert not model.public
    with pytest.raises(InvalidSetting, match="must hold numbers for a linear regression"):
        linear_unknown_noise(FederatedData(x, np.array([-1.0, 1.0]), (2,), classes=("no", "yes")))
    with pytest.raises(InvalidSetting, match=r"noise_scale must be positive, got 0.0"):
        linear_unknown_noise(loud, noise_scale=0.0)


@full_only
def test_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    data = observed()
    lines = [f"{a},{b},{y}" for (a, b), y in zip(data.features, data.targets, strict=True)]
    Path("numbers.csv").write_text("\n".join(["a,b,y", *lines]))
    asked = ["run", "--model", "linear_unknown_noise", "--data-file", "numbers.csv", "--target"]
    asked += ["y", "--deal", "iid", "--devices", "3", "--scheme", "analog", "--privacy", "off"]
    assert main([*asked, "--rounds", "120", "--burn-in", "40", "--chains", "2", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["plan"]["dim"], document["plan"]["num_devices"]) == (4, 3)
    assert document["plan"]["data_dependent"]
