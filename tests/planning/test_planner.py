"""Plans: limits, what binds, warnings, refusals."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flmc
from flmc.base.errors import InvalidSetting
from flmc.data.linear_data import LinearStatistics
from flmc.planning.prediction import solve_stationary
from flmc.planning.temperature import calibrated_gain, temperature
from support import against_sampling


def test_what_binds(model: flmc.LinearGaussian) -> None:
    assert flmc.plan(model, flmc.Digital()).binding == "langevin"
    assert flmc.plan(model, flmc.Digital(snr_db=5)).binding == "power"
    assert flmc.plan(model, flmc.Digital(), gain=0.1).binding == "given"
    assert flmc.plan(model, flmc.Digital(), flmc.Limits(langevin="off")).binding == "power"


def test_a_step_that_cannot_reach_temperature_one(model: flmc.LinearGaussian) -> None:
    """Quantisation alone is too much noise: the plan takes all the power there is and states T."""
    plan = flmc.plan(model, flmc.Digital(), step_size=0.01)
    assert plan.binding == "power"
    assert plan.temperature == pytest.approx(0.01 * (1 / 0.71131**2 + 20) / 0.05, rel=1e-4)
    assert any("temperature 4.4" in text for text in plan.warnings)


def test_power_forces_a_small_gain(model: flmc.LinearGaussian) -> None:
    plan = flmc.plan(model, flmc.Digital(snr_db=0), step_size=1.5e-3)
    assert plan.binding == "power"
    assert plan.temperature is not None
    assert plan.temperature > 10


def test_the_gain_never_exceeds_the_calibrated_one(model: flmc.LinearGaussian) -> None:
    for snr_db in (0, 10, 20, 60):
        plan = flmc.plan(model, flmc.Digital(snr_db=snr_db))
        assert plan.temperature is not None
        assert plan.temperature >= 1 - 1e-12


def test_short_burn_in_is_warned_of(model: flmc.LinearGaussian) -> None:
    plan = flmc.plan(model, flmc.Digital(snr_db=0))
    assert any("burn-in of 200 rounds is short" in text for text in plan.warnings)
    assert not against_sampling(flmc.plan(model, flmc.Analog()))


def test_burn_in_factor(model: flmc.LinearGaussian) -> None:
    plan = flmc.plan(model, flmc.Digital(), burn_in_step_factor=4.0, num_fast=50)
    assert plan.step_sizes[:50] == pytest.approx(4 * plan.step_size)
    assert plan.step_sizes[50:] == pytest.approx(plan.step_size)
    slow = flmc.plan(model, flmc.Digital(), burn_in_step_factor=1.0)
    assert plan.gain == pytest.approx(slow.gain)
    assert plan.rounds_needed is not None
    assert slow.rounds_needed is not None
    assert plan.rounds_needed < slow.rounds_needed
    assert flmc.plan(model, flmc.Digital(), step_size=1e-3).burn_in_step_factor == 1.0
    ideal = flmc.plan(model, flmc.Ideal(), burn_in_step_factor=4.0)
    assert ideal.gain[0, 0] == pytest.approx(
        2 * ideal.gain[-1, 0]
    )  # its noise is exact at the larger step too


def test_start_zero(model: flmc.LinearGaussian) -> None:
    plan = flmc.plan(
        model, flmc.Digital(), num_rounds=1, num_burn_in=0, start="zero", step_size=1e-9
    )
    # One step from zero: noise of sd sqrt(2 eta_eff) = 7e-6 and a pull of at most 20e-9.
    assert np.abs(flmc.run(plan, model, seed=1).draws).max() < 5e-5


def test_data_dependence(model: flmc.LinearGaussian) -> None:
    assert flmc.plan(model, flmc.Digital()).data_dependent
    assert not flmc.plan(model, flmc.Digital(), step_size=1e-3).data_dependent
    public = flmc.plan(model, flmc.Digital(), public_smoothness=1400.0, public_convexity=1000.0)
    assert not public.data_dependent
    assert not flmc.plan(model, flmc.Digital(), flmc.Limits(langevin="paper")).data_dependent


def test_random_fading_is_planned_with_the_median_round(model: flmc.LinearGaussian) -> None:
    plan = flmc.plan(model, flmc.Digital(fading=flmc.RayleighFading(0.2)))
    assert 0 < plan.gain_limits.power < np.inf
    assert plan == flmc.plan(model, flmc.Digital(fading=flmc.RayleighFading(0.2)))


def measured_ratio(
    plan: flmc.Plan, model: flmc.LinearGaussian, seeds: int = 1, chains: int = 50
) -> float:
    """Variance ratio of runs of a plan, averaged over seeds."""
    runs = [
        flmc.run(plan, model, seed=s, chains=chains, keep_draws=False).metrics for s in range(seeds)
    ]
    return float(np.mean([m.variance_ratio.mean for m in runs if m is not None]))


def test_temperature_counts_every_kept_round(model: flmc.LinearGaussian) -> None:
    """A loud last round does not hide the quiet ones before it."""
    gain = np.full((300, 1), 0.1)
    gain[-1] = 0.27386
    plan = flmc.plan(model, flmc.Digital(), gain=gain, step_size=1.5e-3)
    assert plan.temperature == pytest.approx(
        1.5e-3 * (0.99 * 100 + 0.01 / 0.27386**2 + 20) / 0.05, rel=1e-4
    )
    assert plan.prediction is not None
    assert measured_ratio(plan, model) == pytest.approx(plan.prediction.variance_ratio, rel=0.1)


def test_temperature_counts_deep_fades(model: flmc.LinearGaussian) -> None:
    """Rounds whose gain the channel forces down are hot; the plan says how hot they are on
    average."""
    plan = flmc.plan(model, flmc.Digital(fading=flmc.RayleighFading(0.2)), num_rounds=600)
    assert plan.temperature is not None
    assert plan.prediction is not None
    assert plan.temperature > 1.0
    # Averages over deep fades converge slowly: 25 % is what 8 drawn channels give.
    assert measured_ratio(plan, model, seeds=8, chains=20) == pytest.approx(
        plan.prediction.variance_ratio, rel=0.25
    )


def test_temperature_counts_a_weak_device_that_comes_and_goes(model: flmc.LinearGaussian) -> None:
    gains = np.full((20, 1), 0.04)
    gains[0] = 0.004
    active = np.ones((300, 20))
    active[::2, 0] = 0
    plan = flmc.plan(
        model, flmc.Digital(fading=flmc.FixedFading(gains)), step_size=1.5e-3, active=active
    )
    assert plan.temperature is not None
    assert plan.temperature > 3.0
    assert plan.prediction is not None
    assert plan.prediction.variance_ratio > 3.0


def test_per_entry_gains_may_exceed_the_common_limit(model: flmc.LinearGaussian) -> None:
    plan = flmc.plan(model, flmc.Digital(), gain=[1.45, 0.1, 0.2, 0.2, 0.2], step_size=1e-3)
    np.testing.assert_allclose(plan.planned_gain, [[1.45, 0.1, 0.2, 0.2, 0.2]])


def test_unequal_devices_are_predicted_and_warned_of() -> None:
    """Where local gradients do not vanish at the mode V_q = K overestimates: T = 1, but the chain
    is too narrow."""
    gram = np.broadcast_to(60 * np.eye(2), (1, 20, 2, 2))
    moment = np.where(np.arange(20) % 2, 25.0, -25.0)[None, :, None] * np.ones(2)
    model = flmc.LinearGaussian(LinearStatistics(gram, moment))
    plan = flmc.plan(model, flmc.Digital(link=flmc.Linear(1.0)))
    assert plan.temperature == pytest.approx(1.0)
    assert plan.prediction is not None
    assert plan.prediction.variance_ratio < 0.7
    assert any("predicted variance ratio" in text for text in plan.warnings)
    assert measured_ratio(plan, model, chains=200) == pytest.approx(
        plan.prediction.variance_ratio, rel=0.1
    )


def test_everything_clipped_is_no_crash() -> None:
    gram, moment = np.full((1, 2, 1, 1), 60.0), np.array([[[1000.0], [-1000.0]]])
    plan = flmc.plan(flmc.LinearGaussian(LinearStatistics(gram, moment)), flmc.Digital())
    assert plan.prediction is None
    assert against_sampling(plan) == ["no-prediction"]


def test_a_prior_far_from_zero(model: flmc.LinearGaussian) -> None:
    data = flmc.data.draw_linear(seed=1, theta=[12.0] * 5)
    far = flmc.LinearGaussian(data, prior_mean=12.0)
    # Without larger first steps: with them chains arrive from zero after 69 of 200 rounds, where
    # the rule of the plan asks for 248. 400 chains then have 1.01 to 1.08 times the variance.
    slow = flmc.plan(far, flmc.Digital(), start="zero", burn_in_step_factor=1.0)
    assert any("is short" in text for text in slow.warnings)
    assert not against_sampling(flmc.plan(far, flmc.Digital(), start="zero"))
    assert not against_sampling(flmc.plan(far, flmc.Digital(), start="prior"))


def test_following_the_advice_on_burn_in_ends_the_warning(model: flmc.LinearGaussian) -> None:
    for uplink in (flmc.Digital(), flmc.Digital(snr_db=5), flmc.Analog(snr_db=0)):
        needed = flmc.plan(model, uplink, num_rounds=20, num_burn_in=10).rounds_needed
        assert needed is not None
        again = flmc.plan(model, uplink, num_rounds=needed + 10, num_burn_in=needed)
        assert not any("is short" in text for text in again.warnings)
    # 200 rounds are short by the rule, which asks for 275, but of 400 chains all but one arrive. Of
    # those that have 100 rounds, many do not: their variance is up to 11 times too large.
    slow = flmc.plan(model, flmc.Digital(), burn_in_step_factor=1.0)
    hasty = flmc.plan(model, flmc.Digital(), burn_in_step_factor=1.0, num_burn_in=100)
    assert not any("is short" in text for text in slow.warnings)
    assert any("is short" in text for text in hasty.warnings)
    few = flmc.plan(model, flmc.Digital(), burn_in_step_factor=8.0, num_fast=0).rounds_needed
    assert few == slow.rounds_needed


def test_forecasts_are_not_part_of_the_digest() -> None:
    """What is published of a plan with a given step must not depend on the data."""
    models = [flmc.LinearGaussian(flmc.data.draw_linear(seed=s)) for s in (1, 2)]
    first, second = (flmc.plan(m, flmc.Digital(), step_size=1e-3) for m in models)
    assert first.prediction != second.prediction
    assert first.digest == second.digest


def test_plans_are_values(model: flmc.LinearGaussian) -> None:
    first, second = (flmc.plan(model, flmc.Digital()) for _ in range(2))
    assert first == second
    assert hash(first) == hash(second)
    assert first != flmc.plan(model, flmc.Digital(snr_db=24))
    assert first != flmc.plan(model, flmc.Digital(), num_rounds=301)
    document = json.loads(json.dumps(first.to_document()))
    assert document["scheme"] == "digital"
    assert document["limits"]["privacy"] is None
    assert document["gain"] == pytest.approx(0.27386, abs=5e-6)
    text = str(first)
    assert "0.27386 <- decides" in text
    assert "temperature" in text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_burn_in": 300}, "num_burn_in must be below num_rounds = 300, got 300"),
        ({"num_rounds": 0}, "num_rounds must be a whole number of at least 1, got 0"),
        ({"step_size": -1.0}, "step_size must be positive, got -1.0"),
        ({"step_size": float("nan")}, "step_size must be a finite number, got nan"),
        ({"start": "here"}, "start must be one of prior, zero; got 'here'"),
        ({"gain": 0.8}, r"gain must not exceed the power limit 0.711312 at 25 dB, got 0.8"),
        ({"gain": [0.1, 0.2]}, r"gain must broadcast to \(round, dim\) = \(300, 5\), got \(1, 2\)"),
        ({"gain": 0.0}, "gain must be positive, got 0"),
        (
            {"active": np.zeros((300, 20))},
            "at least one device in every round, got none in round 1",
        ),
        ({"active": np.ones((2, 2))}, r"\(round, device\) = \(300, 20\)"),
        ({"gain": [[[0.1]]]}, r"gain must broadcast"),
        ({"burn_in_step_factor": 0}, "burn_in_step_factor must be positive, got 0"),
        ({"num_fast": 201}, "num_fast must not exceed num_burn_in = 200, got 201"),
        ({"public_convexity": 3.0}, "must come with public_smoothness"),
        (
            {"public_smoothness": 1.0, "public_convexity": 3.0},
            "must not exceed public_smoothness 1, got 3",
        ),
    ],
)
def test_impossible_plans(model: flmc.LinearGaussian, change: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidSetting, match=message):
        flmc.plan(model, flmc.Digital(), **change)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: flmc.Digital(clip=0), "clip must be positive, got 0"),
        (lambda: flmc.Digital(clip=-3.0), "clip must be positive, got -3.0"),
        (lambda: flmc.Analog(noise_power=-1), "noise_power must be positive, got -1"),
        (lambda: flmc.Analog(snr_db=float("inf")), "snr_db must be a finite number, got inf"),
        (lambda: flmc.ConstantFading(0.0), "fading must be positive, got 0.0"),
        (lambda: flmc.FixedFading(np.array([[1.0, 0.0]])), "array of positive numbers"),
        (lambda: flmc.Sigmoid(float("nan")), "slope_parameter must be a finite number, got nan"),
        (lambda: flmc.Linear(1.5), r"ratio must lie in \(0, 1\], got 1.5"),
        (
            lambda: flmc.Limits(langevin="maybe"),
            "langevin must be one of calibrated, paper, off; got 'maybe'",
        ),
        (lambda: flmc.Digital(link="sigmoid"), "link must be a flmc.Link"),  # type: ignore[arg-type]
        (lambda: flmc.Digital(fading=0.04), "fading must be a flmc.Fading"),  # type: ignore[arg-type]
        (
            lambda: flmc.replace(flmc.Digital(), gain=3),
            "Digital has no setting 'gain'; it has average_snr_db, batch_share, clip",
        ),
    ],
)
def test_impossible_uplinks(make: Any, message: str) -> None:
    with pytest.raises(InvalidSetting, match=message):
        make()


def test_a_dead_channel_is_refused(model: flmc.LinearGaussian) -> None:
    class Dead(flmc.Fading):
        def draw(self, rng: np.random.Generator, rounds: range, num_devices: int, dim: int) -> Any:
            return np.zeros((1, num_devices, 1))

    with pytest.raises(InvalidSetting, match="fading must be positive"):
        flmc.plan(model, flmc.Digital(fading=Dead()))


def test_divergence_names_round_and_data_set(small: flmc.LinearGaussian) -> None:
    plan = flmc.plan(small, flmc.Ideal(), step_size=10.0)
    assert "no-prediction" in against_sampling(plan)
    with pytest.raises(flmc.errors.RunFailed, match=r"after round \d+ in data set [012], chain 0"):
        flmc.run(plan, small, engine="numpy")


@settings(max_examples=50, deadline=None)
@given(st.floats(1e-3, 1.0), st.floats(1e-6, 1e-1), st.integers(1, 200), st.data())
def test_calibration_round_trip(
    slope: float, step: float, num_devices: int, data: st.DataObject
) -> None:
    """The calibrated gain gives temperature 1, and more gain is colder."""
    active = data.draw(st.integers(1, num_devices))
    uplink = flmc.Digital(link=flmc.Sigmoid(slope))
    gain = calibrated_gain(uplink, step, num_devices, active)
    if np.isinf(gain):
        assert step >= 2 * uplink.slope * active / num_devices**2 * (1 - 1e-9)
    else:
        assert temperature(uplink, step, gain, num_devices, active) == pytest.approx(1.0)
        assert temperature(uplink, step, 2 * gain, num_devices, active) < 1.0


def test_stationary_covariance_against_scipy() -> None:
    from scipy.linalg import solve_discrete_lyapunov

    rng = np.random.default_rng(0)
    root = rng.normal(size=(6, 6))
    decay = 0.05 * (root @ root.T / 6 + 0.1 * np.eye(6)) + 0.0005 * rng.normal(size=(6, 6))
    noise = np.diag(rng.uniform(0.5, 1, 6))
    solved = solve_stationary(decay[None], noise[None])
    assert solved is not None
    exact = solve_discrete_lyapunov(np.eye(6) - decay, noise)
    np.testing.assert_allclose(solved[0], exact, rtol=1e-8)
    assert solve_stationary(-np.eye(6)[None], noise[None]) is None
    # A step so short that one minus it is one to rounding: 2 X C = Q for a multiple of the
    # identity.
    tiny = solve_stationary(1e-18 * np.eye(6)[None], noise[None])
    assert tiny is not None
    np.testing.assert_allclose(tiny[0], noise / 2e-18, rtol=1e-9, atol=0)


def test_the_shortest_ideal_run() -> None:
    """One round without burn-in: no round has a larger step, and the ideal uplink has no largest
    speed."""
    model = flmc.LinearGaussian(flmc.data.draw_linear(seed=1))
    assert flmc.plan(model, flmc.Ideal(), num_rounds=1, num_burn_in=0).rounds_needed is not None


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_rounds": 10**12}, "a plan of so many rounds and devices would take .* GB of memory"),
        ({"num_rounds": 10**20}, "a plan of so many rounds and devices would take .* GB of memory"),
    ],
)
def test_what_does_not_fit_is_refused_at_once(settings: dict[str, int], message: str) -> None:
    model = flmc.LinearGaussian(flmc.data.draw_linear(seed=1))
    with pytest.raises(InvalidSetting, match=message):
        flmc.plan(model, flmc.Digital(), **settings)  # type: ignore[arg-type]


def test_data_and_chains_that_do_not_fit_are_refused_at_once() -> None:
    with pytest.raises(InvalidSetting, match="the examples would take"):
        flmc.data.draw_linear(seed=1, num_samples=10**12)
    with pytest.raises(InvalidSetting, match="the statistics of one data set would take"):
        flmc.data.draw_linear_statistics(
            1, num_experiments=1, dim=10**6, num_samples=10, kind="sufficient"
        )
    model = flmc.LinearGaussian(flmc.data.draw_linear(seed=1))
    plan = flmc.plan(model, flmc.Digital(), forecast=False)
    with pytest.raises(InvalidSetting, match="the chains and their draws would take"):
        flmc.run(plan, model, chains=10**10, keep_draws=True)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: flmc.Digital(snr_db=4000), "snr_db must lie strictly between -300 and 400"),
        (lambda: flmc.ConstantFading(1e-200), "fading must lie between 1e-30 and 1e.30"),
        (lambda: flmc.Limits(epsilon=1e-300), "epsilon must lie between 1e-15 and 1e.15"),
    ],
)
def test_absurd_values_are_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(InvalidSetting, match=message):
        make()


def test_a_given_gain_that_breaks_its_budget_is_said() -> None:
    model = flmc.LinearGaussian(flmc.data.draw_linear(seed=1))
    loud = flmc.plan(model, flmc.Digital(), flmc.Limits(epsilon=0.5), gain=0.3)
    assert any("spends epsilon" in text for text in loud.warnings)
    assert loud.temperature == pytest.approx(1.0, rel=0.1)  # the step follows the gain
    long = flmc.plan(model, flmc.Digital(), flmc.Limits(epsilon=5, scope="run"), gain=0.1)
    assert any("a run stops there" in text for text in long.warnings)


@pytest.mark.parametrize("uplink", [flmc.Digital(), flmc.Analog(), flmc.Digital(csi_error=0.2)])
def test_an_effective_step_is_the_step_times_the_slope(uplink: flmc.Uplink) -> None:
    model = flmc.LinearGaussian(flmc.data.draw_linear(seed=1))
    plan = flmc.plan(model, uplink, effective_step_size=2e-5, forecast=False)
    assert plan.effective_step_size == pytest.approx(2e-5, rel=1e-12)
    assert plan.slope is not None
    same = flmc.plan(model, uplink, step_size=2e-5 / plan.slope, forecast=False)
    assert same.digest == plan.digest


def test_an_effective_step_is_given_alone_and_needs_a_slope() -> None:
    model = flmc.LinearGaussian(flmc.data.draw_linear(seed=1))
    with pytest.raises(InvalidSetting, match=r"got both, 0\.1 and 0\.2"):
        flmc.plan(model, flmc.Analog(), step_size=0.1, effective_step_size=0.2)
    with pytest.raises(InvalidSetting, match="effective_step_size must be positive, got -1"):
        flmc.plan(model, flmc.Analog(), effective_step_size=-1.0)
    with pytest.raises(InvalidSetting, match="needs an uplink with a slope"):
        flmc.plan(model, flmc.Digital(link=flmc.uplink.links.Sign()), effective_step_size=1e-5)
