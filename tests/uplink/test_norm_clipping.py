"""Clipping by norm: what is sent, what it may cost in power, and what it reveals."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.special import log_ndtr

import flmc
from flmc.base.arrays import Array
from flmc.uplink.power import power_limited_gain, power_scale
from support import full

vectors = st.lists(st.floats(-100, 100), min_size=4, max_size=4).map(np.array)


@given(one=vectors, other=vectors, clip=st.floats(0.1, 50))
def test_the_norm_is_bounded_and_nothing_moves_further_apart(
    one: Array, other: Array, clip: float
) -> None:
    uplink = flmc.Analog(clip=clip, clipping="norm")
    sent = uplink.symbols(np.stack([one, other]), None)
    assert (np.linalg.norm(sent, axis=-1) <= clip * (1 + 1e-12)).all()
    assert np.linalg.norm(sent[0] - sent[1]) <= np.linalg.norm(one - other) * (1 + 1e-9) + 1e-12


@given(seed=st.integers(0, 1000), dim=st.integers(1, 6))
def test_the_power_limit_holds_for_every_gradient(seed: int, dim: int) -> None:
    """The worst gradient points at the entry that costs most; no gradient of that norm costs more,
    and at the limit that one costs just P_0."""
    rng = np.random.default_rng(seed)
    uplink = flmc.Analog(clip=7.0, clipping="norm", snr_db=10)
    fading, gain = rng.uniform(0.01, 0.1, (3, dim)), rng.uniform(0.1, 1.0, dim)
    factor = float(power_scale(uplink, gain, fading))
    gradients = rng.standard_normal((200, 1, dim))
    gradients *= 7.0 / np.linalg.norm(gradients, axis=-1, keepdims=True)
    power = np.mean(np.square(factor * gain * gradients / fading), axis=-1)
    assert power.max() <= uplink.power_limit * (1 + 1e-9)
    worst = np.mean(np.square(factor * gain * 7.0 * np.eye(dim)[:, None] / fading), axis=-1)
    assert worst.max() == pytest.approx(uplink.power_limit)


def test_where_entries_share_a_path_gain_the_limit_is_that_of_a_block() -> None:
    """a_s <= P min h^2/ell^2 with P = m P_0, as the predecessor has it."""
    uplink = flmc.Analog(clip=30.0, clipping="norm", snr_db=20)
    fading = np.array([0.3, 0.1, 0.2])[:, None] * np.ones((1, 5))
    squared = float(power_limited_gain(uplink, fading)) ** 2
    assert squared == pytest.approx(5 * uplink.power_limit * 0.1**2 / 30.0**2)


def gaussian_epsilon(shift: float, delta: float) -> float:
    """Epsilon of the Gaussian mechanism with sensitivity over noise ``shift``: the exact formula,
    solved here anew."""

    def excess(epsilon: float) -> float:
        upper = np.exp(log_ndtr(shift / 2 - epsilon / shift))
        return float(upper - np.exp(epsilon + log_ndtr(-shift / 2 - epsilon / shift)) - delta)

    return float(brentq(excess, 0.0, 1e4))


@pytest.mark.parametrize("rounds", [1, 40])
@pytest.mark.parametrize("dim", [1, 5])
@pytest.mark.parametrize(
    ("settings", "neighbouring", "bound"),
    [
        ({}, "device", lambda dim: 30.0),
        ({"example_norm": 4.0}, "example", lambda dim: 4.0),
        ({"example_norm": 4.0}, "device", lambda dim: 30.0),
        ({"example_norm": 60.0}, "example", lambda dim: 30.0),
        ({"example_clip": 3.0}, "example", lambda dim: 3.0 * np.sqrt(dim)),
        ({"example_clip": 29.0}, "example", lambda dim: min(30.0, 29.0 * np.sqrt(dim))),
    ],
)
def test_the_sensitivity_of_a_round(
    settings: dict[str, float], neighbouring: str, bound: object, dim: int, rounds: int
) -> None:
    uplink = flmc.Analog(clipping="norm", **settings)  # type: ignore[arg-type]
    gain = 0.004
    event = uplink.event_of_rounds(np.full((rounds, 1), gain), dim, neighbouring)
    shift = 2 * bound(dim) * gain * np.sqrt(rounds)  # type: ignore[operator]
    assert event.epsilon(1e-5) == pytest.approx(gaussian_epsilon(shift, 1e-5), rel=1e-6)
    # Entries of their own gains: all of the move may be in the loudest.
    gains = np.full((rounds, dim), gain / 2)
    gains[:, 0] = gain
    louder = uplink.event_of_rounds(gains, dim, neighbouring)
    assert louder.epsilon(1e-5) == pytest.approx(event.epsilon(1e-5), rel=1e-9)


def test_bits_are_accounted_as_before() -> None:
    """The law of a bit is within the extremes however the gradient was clipped."""
    gains = np.full((3, 1), 0.1)
    epsilons = [
        flmc.Digital(clipping=clipping).event_of_rounds(gains, 5).epsilon(1e-5)
        for clipping in ("entry", "norm")
    ]
    assert epsilons[0] == epsilons[1]


def test_a_plan_gains_the_root_of_the_entries(model: flmc.LinearGaussian) -> None:
    """At equal clip and budget five entries may be sent sqrt(5) times as loudly: 7 dB."""
    limits = flmc.Limits(epsilon=5.0, scope="run", langevin="off")
    plans = [
        flmc.plan(model, flmc.Analog(clipping=clipping, snr_db=60), limits, step_size=1e-4)
        for clipping in ("entry", "norm")
    ]
    assert [plan.binding for plan in plans] == ["privacy", "privacy"]
    ratio = plans[1].gain_limits.privacy / plans[0].gain_limits.privacy
    assert ratio == pytest.approx(np.sqrt(5), rel=1e-6)
    assert plans[1].run_cost is not None
    assert plans[1].run_cost.epsilon == pytest.approx(5.0, rel=1e-6)
    law = plans[1].prediction
    assert law is not None
    metrics = flmc.run(plans[1], model, seed=1, chains=200, keep_draws=False).metrics
    assert metrics is not None
    # Half of the gradients are clipped by their norm, which widens the law beyond the temperature
    # 43; 5 standard errors are 12 %.
    assert law.variance_ratio > 1.2 * (plans[1].temperature or 0.0)
    margin = 5 * metrics.variance_ratio.se
    assert law.variance_ratio == pytest.approx(metrics.variance_ratio.mean, abs=margin)
    again = flmc.Plan.from_document(plans[1].to_document())
    assert again.digest == plans[1].digest != plans[0].digest


@pytest.mark.parametrize("scheme", [flmc.Analog, flmc.Digital])
def test_both_engines_clip_and_count_alike(scheme: type[flmc.Uplink]) -> None:
    data = flmc.data.draw_linear(seed=3, num_samples=200, num_devices=4, num_experiments=2)
    model = flmc.LinearGaussian(data)
    uplink = scheme(clip=16.0, clipping="norm", snr_db=30)
    plan = flmc.plan(model, uplink, num_rounds=400, num_burn_in=200)
    runs = [
        flmc.run(plan, model, seed=1, chains=full(50, 20), engine=name)
        for name in ("numpy", "numba")
    ]
    shares = [run.clipped_fraction for run in runs]
    assert 0.02 < shares[0] < 0.98
    # Chains follow each other's noise, so that shares agree far better than chains scatter.
    assert shares[1] == pytest.approx(shares[0], rel=0.15)
