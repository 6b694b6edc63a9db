"""Early steps that are larger: they carry chains to the posterior, and inject noise."""

from __future__ import annotations

import math

import numpy as np
import pytest

import flmc
from flmc.base.special import ndtr
from flmc.planning import burn_in
from flmc.planning.burn_in import _factors_up_to, auto_burn_in_factor, injected_variance
from flmc.planning.step_size import auto_step_size
from support import against_sampling, full


def _mse(plan: flmc.Plan, model: flmc.LinearGaussian) -> float:
    metrics = flmc.run(plan, model, seed=2, chains=2, keep_draws=False).metrics
    assert metrics is not None
    return metrics.mse.mean


@pytest.mark.parametrize(
    ("uplink", "limits"),
    [
        (flmc.Analog(snr_db=10, fading=flmc.RayleighFading(0.04)), flmc.Limits()),
        (flmc.Digital(snr_db=10, fading=flmc.RayleighFading(0.04)), flmc.Limits()),
        (flmc.Digital(), flmc.Limits(epsilon=3, scope="run")),
    ],
    ids=["rayleigh analog", "rayleigh digital", "run budget"],
)
def test_the_automatic_factor_is_about_the_best(uplink: flmc.Uplink, limits: flmc.Limits) -> None:
    """Factors three times smaller and three times larger, and none at all, are worse or about as
    good. The factor before it knew the noise (478 for the first case) was three times worse than
    none."""
    data = flmc.data.draw_linear(seed=1, num_experiments=full(40, 12))
    model = flmc.LinearGaussian(data)
    plan = flmc.plan(model, uplink, limits, forecast=False)
    best = _mse(plan, model)
    for other in (1.0, plan.burn_in_step_factor / 3, plan.burn_in_step_factor * 3):
        changed = flmc.plan(model, uplink, limits, burn_in_step_factor=other, forecast=False)
        # A third of the best: with 12 data sets a mean square error is known to about 15 %, and
        # the minimum is flat.
        assert best < 1.34 * _mse(changed, model)


def test_noise_that_does_not_matter_changes_nothing() -> None:
    """With the noise of temperature 1 at the paper's setting the factor is the one that travel
    asks for."""
    uplink = flmc.Digital()
    travel = auto_burn_in_factor(uplink, 1.5e-3, 100, 20, 2 * math.sqrt(2), 1300.0, noise=0.0)
    noisy = auto_burn_in_factor(uplink, 1.5e-3, 100, 20, 2 * math.sqrt(2), 1300.0, noise=33.3)
    assert noisy == travel > 1


def test_injected_variance_against_a_walk() -> None:
    """A chain in one entry with quadratic cost, simulated: the bound is met to a factor of two in
    the three regimes (free walk, relaxing, clipped)."""
    uplink, num_devices, curvature = flmc.Analog(clip=1.0), 10, 100.0
    rng = np.random.default_rng(5)
    for step, noise, rounds in ((1e-5, 40.0, 50), (1e-3, 1.0, 400), (2e-3, 3e4, 4000)):
        x = np.zeros(2000)
        for _ in range(rounds):
            pull = num_devices * uplink.mean_symbol(curvature * x / num_devices)
            x = x - step * (pull + math.sqrt(noise) * rng.standard_normal(len(x)))
        found = injected_variance(uplink, np.array(step), rounds, num_devices, curvature, noise)
        # The variance of 2000 walks is known to 3 %; the formula is a bound between regimes.
        assert 0.5 < x.var() / float(found) < 2.0


def test_steps_are_made_for_all_rounds_together(model: flmc.LinearGaussian) -> None:
    """One round with a single device used to set the step of all 300; now it may make the mean
    temperature of all rounds 1.02."""
    active = (np.random.default_rng(0).random((300, 20)) < 0.6).astype(float)
    active[active.sum(axis=1) == 0, 0] = 1
    active[250] = np.eye(20)[0]
    uplink = flmc.Digital(snr_db=10)
    plan = flmc.plan(model, uplink, active=active)
    alone = flmc.plan(model, uplink, active=np.tile(np.eye(20)[0], (300, 1)))
    assert plan.step_size > 5 * alone.step_size
    assert plan.temperature is not None
    # The one round is among the 100 kept ones: at most three times 0.02.
    assert 0.99 <= plan.temperature <= 1.061


def test_the_same_number_of_devices_in_every_round_attains_temperature_one() -> None:
    """An array of equal numbers gives the step of one number, to the last bit."""
    uplink = flmc.Digital(snr_db=10)
    one = auto_step_size(uplink, 20, 0.1, 1300.0, 900.0, 5)
    many = auto_step_size(uplink, 20, 0.1, 1300.0, 900.0, np.full((300, 1), 5.0))
    assert one == many


def test_automatic_burn_in_is_what_is_needed(model: flmc.LinearGaussian) -> None:
    plan = flmc.plan(model, flmc.Digital(), num_burn_in="auto")
    assert plan.rounds_needed is not None
    assert plan.rounds_needed <= plan.num_burn_in <= plan.rounds_needed + 5
    assert not against_sampling(plan)
    short = flmc.plan(model, flmc.Digital(snr_db=0), num_rounds=50, num_burn_in="auto")
    assert short.num_burn_in == 45  # a tenth is kept
    assert against_sampling(short) == ["burn-in"]
    own = flmc.Model.from_gradient(
        lambda theta: theta[:, None] - np.zeros((2, 2)),
        prior=flmc.Normal(),
        dim=2,
        num_devices=2,
        smoothness=3.0,
    )
    with pytest.raises(flmc.errors.InvalidSetting, match="convexity"):
        flmc.plan(own, flmc.Digital(), num_burn_in="auto")


def test_factors_that_are_tried_are_those_of_numpy_to_the_bit() -> None:
    for highest in np.exp(np.random.default_rng(1).uniform(0, 8, 200)):
        np.testing.assert_array_equal(_factors_up_to(highest), np.geomspace(1.0, highest, 200))


@pytest.mark.parametrize("noise", [1e-6, 1.0, 1e2, 1e4])
def test_the_largest_factor_is_taken_without_looking_only_where_it_wins(
    noise: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = (flmc.Digital(), 1e-3, 50, 20, 2.0, 1200.0, noise)
    found = auto_burn_in_factor(*asked)
    # An array of one is the short cut; with an infinite error it is never taken.
    monkeypatch.setattr(burn_in, "ndtr", lambda x: np.full(1, np.inf) if x.size == 1 else ndtr(x))
    assert auto_burn_in_factor(*asked) == found
