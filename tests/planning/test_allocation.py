"""Where a budget of the run is spent."""

from __future__ import annotations

import math

import numpy as np
import pytest

import flmc
from flmc.base.errors import InvalidSetting
from flmc.planning.allocation import noise_weights, water_fill
from support import full


def test_water_filling_is_the_minimum() -> None:
    """No shift of budget between two rounds that are below their caps makes the sum smaller."""
    rng = np.random.default_rng(0)
    weights, caps = rng.random(20) ** 4 + 1e-3, rng.random(20) + 0.5
    gains = water_fill(weights, caps, 3.0)
    assert np.square(gains).sum() == pytest.approx(3.0)
    assert (gains <= caps * (1 + 1e-12)).all()
    marginal = (weights / gains**4)[gains < caps * 0.999]
    np.testing.assert_allclose(marginal, marginal[0], rtol=1e-6)
    assert ((weights / gains**4)[gains >= caps * 0.999] >= marginal[0] * (1 - 1e-6)).all()


def test_weights_of_noise() -> None:
    """Against the variance of the linear recursion, round by round."""
    steps, contraction, burn_in = np.linspace(2, 1, 12), np.linspace(0.7, 0.9, 12), 5
    weights = noise_weights(steps, contraction, burn_in)
    direct = []
    for t in range(12):
        left, total = steps[t] ** 2, 0.0
        for s in range(t, 12):
            left = left if s == t else left * contraction[s] ** 2
            total += left if s >= burn_in else 0.0
        direct.append(total)
    np.testing.assert_allclose(weights, np.maximum(np.array(direct) / max(direct), 1e-3))


@pytest.mark.parametrize(
    ("uplink", "step"), [(flmc.Digital(), 1e-3), (flmc.Analog(), 1e-4)], ids=["digital", "analog"]
)
@pytest.mark.parametrize("epsilon", [20.0, 60.0])
def test_adaptive_beats_static(uplink: flmc.Uplink, step: float, epsilon: float) -> None:
    """Squared W2 distance at equal budget, over data sets, by more than five standard errors."""
    source = flmc.data.draw_linear_statistics(3, num_experiments=full(20, 10), kind="sufficient")
    model = flmc.LinearGaussian(source)
    found = {}
    for allocation in ("static", "adaptive"):
        limits = flmc.Limits(epsilon=epsilon, scope="run", allocation=allocation)
        plan = flmc.plan(model, uplink, limits, step_size=step, start="zero", forecast=False)
        assert plan.run_cost is not None
        assert plan.run_cost.epsilon <= epsilon * (1 + 1e-9)
        metrics = flmc.run(plan, model, seed=1, chains=full(60, 30), keep_draws=False).metrics
        assert metrics is not None
        found[allocation] = metrics.wasserstein2_squared
    gained = found["static"].mean - found["adaptive"].mean
    assert (
        gained > 5 * math.hypot(found["static"].se, found["adaptive"].se)
        or gained > 0.4 * found["static"].mean
    )
    with pytest.raises(InvalidSetting, match="needs a budget of the run"):
        flmc.Limits(epsilon=5.0, allocation="adaptive")
