"""The sampler lands on the exact posterior, and the plan says beforehand where it will land."""

from __future__ import annotations

import numpy as np
import pytest

import flmc
from flmc.base.arrays import Array
from support import against_sampling, full

UPLINKS = {
    "sigmoid": flmc.Digital(link=flmc.Sigmoid(0.05)),
    "linear": flmc.Digital(link=flmc.Linear(1.0)),
    "analog": flmc.Analog(),
    "ideal": flmc.Ideal(),
}


@pytest.mark.parametrize("name", UPLINKS)
def test_calibrated_defaults(model: flmc.LinearGaussian, name: str) -> None:
    plan = flmc.plan(model, UPLINKS[name])
    assert plan.temperature == pytest.approx(1.0)
    assert against_sampling(plan) == []
    chains = full(2000, 400)
    metrics = flmc.run(plan, model, seed=7, chains=chains, keep_draws=False).metrics
    assert metrics is not None
    assert plan.prediction is not None
    assert 0.95 < metrics.variance_ratio.mean < 1.20
    # 3 % is the bar at 2000 chains, where it is 4 to 9 standard errors; fewer chains widen it like
    # 1/sqrt.
    bar = 0.03 * (2000 / chains) ** 0.5
    assert metrics.variance_ratio.mean == pytest.approx(plan.prediction.variance_ratio, rel=bar)
    assert metrics.mean_error_squared.mean < bar / 3 * metrics.posterior_trace


@pytest.mark.parametrize("snr_db", [0, 5, 10, 15])
@pytest.mark.parametrize("name", ["sigmoid", "linear", "analog"])
def test_low_snr_lowers_the_step(model: flmc.LinearGaussian, name: str, snr_db: float) -> None:
    uplink = flmc.replace(UPLINKS[name], snr_db=snr_db)
    needed = flmc.plan(model, uplink).rounds_needed
    assert needed is not None
    burn_in = int(1.3 * needed)
    plan = flmc.plan(model, uplink, num_rounds=burn_in + needed // 2, num_burn_in=burn_in)
    assert plan.temperature == pytest.approx(1.0)
    assert plan.step_size < flmc.plan(model, UPLINKS[name]).step_size
    metrics = flmc.run(plan, model, seed=11, chains=full(2000, 200), keep_draws=False).metrics
    assert metrics is not None
    assert plan.prediction is not None
    assert plan.prediction.variance_ratio < 1.10
    assert metrics.variance_ratio.mean < full(110, 130) / 100
    margin = 5 * metrics.variance_ratio.se  # a jackknife over 20 batches of chains
    assert abs(metrics.variance_ratio.mean - plan.prediction.variance_ratio) < margin
    assert metrics.mean_error_squared.mean < full(1, 8) / 100 * metrics.posterior_trace


def test_the_papers_limit_is_far_too_wide_and_the_plan_says_so(model: flmc.LinearGaussian) -> None:
    plan = flmc.plan(model, flmc.Digital(), flmc.Limits(langevin="paper"))
    assert plan.step_size == 8.28e-3
    assert any("temperature 43.3" in warning for warning in plan.warnings)
    metrics = flmc.run(plan, model, seed=3, chains=full(2000, 200), keep_draws=False).metrics
    assert metrics is not None
    assert plan.temperature is not None
    assert plan.prediction is not None
    assert 50 < metrics.variance_ratio.mean < 65
    # The temperature leaves clipping and the curvature of the link out; the prediction does not.
    assert plan.temperature == pytest.approx(metrics.variance_ratio.mean, rel=0.35)
    # Under heavy clipping the Gaussian closure is an approximation: 3 % is what it reaches here.
    assert plan.prediction.variance_ratio == pytest.approx(metrics.variance_ratio.mean, rel=0.03)


def test_silent_devices(model: flmc.LinearGaussian) -> None:
    """Devices that come and go: the gain of each round makes T = 1 for those that transmit, and the
    factor K/K_a stands for the others."""
    active = (np.random.default_rng(4).random((600, 20)) < 0.9).astype(float)
    plan = flmc.plan(
        model, flmc.Digital(link=flmc.Linear(1.0)), num_rounds=600, num_burn_in=300, active=active
    )
    assert plan.gain.shape == (600, 1)
    metrics = flmc.run(plan, model, seed=2, chains=full(400, 100), keep_draws=False).metrics
    assert metrics is not None
    # That gradients of silent devices are missing is noise too, which the temperature leaves out:
    # about 2 % here.
    assert abs(metrics.variance_ratio.mean - 1.0) < 5 * metrics.variance_ratio.se + 0.03
    assert metrics.mean_error_squared.mean < 0.05 * metrics.posterior_trace


def test_user_models_sample_their_posterior(model: flmc.LinearGaussian) -> None:
    def gradient(theta: Array) -> Array:
        local = np.einsum("kij,cj->cki", model.hessian[0], theta) - model.offset[0]
        return np.asarray(
            local - theta[:, None, :] / model.num_devices
        )  # from_gradient adds the prior's share

    own = flmc.Model.from_gradient(
        gradient,
        prior=flmc.Normal(0, 1),
        dim=5,
        num_devices=20,
        smoothness=model.smoothness,
        convexity=model.convexity,
        posterior=model.posterior,
    )
    ours = flmc.run(flmc.plan(own, flmc.Digital()), own, seed=5, chains=20)
    theirs = flmc.run(flmc.plan(model, flmc.Digital()), model, seed=5, chains=20, engine="numpy")
    # The same numbers but for rounding in the last digits. Rounding may flip a random bit, which
    # happens in none of these draws: a flipped bit would move theta by far more than 1e-9.
    assert abs(ours.draws - theirs.draws).max() < 1e-9
