"""Two stages with one budget: what they cost, that adaptivity is accounted, what they sample."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import flmc
from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting, RunFailed
from flmc.base.randomness import second_seed
from flmc.models.affine import Coordinates
from flmc.models.whitening import in_coordinates
from flmc.runs.two_stage_run import effective_draws, read_pilot
from flmc.sampling.path import ChainPath
from support import full, full_only

LIMITS = flmc.Limits(epsilon=8.0, scope="run")


@pytest.fixture(scope="module")
def model() -> flmc.LinearGaussian:
    """Features that differ in scale by a factor of 5."""
    data = flmc.data.draw_linear(seed=1, num_samples=400, dim=3, num_devices=5)
    scaled = flmc.LinearData(data.features * [5.0, 1.0, 2.0], data.targets, data.device_sizes)
    return flmc.LinearGaussian(scaled)


@pytest.mark.parametrize("uplink", [flmc.Digital(), flmc.Analog()], ids=["digital", "analog"])
def test_both_stages_cost_what_one_run_costs(
    model: flmc.LinearGaussian, uplink: flmc.Uplink
) -> None:
    both = flmc.plan_two_stages(model, uplink, LIMITS, num_rounds=300, pilot_rounds=120)
    assert "tells which of two" in str(both.listing().rows)
    assert both.cost is not None
    assert both.cost.epsilon <= 8.0
    # The same number of rounds in one run, at the same gain, by the event itself.
    event = uplink.event_of_rounds(np.full((300, 1), both.most_gain), model.dim)
    assert both.cost.epsilon == pytest.approx(event.epsilon(both.cost.delta), rel=1e-9)
    white = flmc.whiten(model, scale=np.array([0.1, 0.5, 0.3]), smoothness=40.0, convexity=1.0)
    main = both.main(white, 40.0, 1.0)
    assert main.num_rounds == 180
    assert main.gain.max() <= both.most_gain * (1 + 1e-12)


@settings(max_examples=full(60, 10), deadline=None)
@given(
    scale=st.floats(1e-3, 1e3),
    smoothness=st.floats(1e-2, 1e5),
    ratio=st.floats(1.0, 1e3),
)
def test_no_outcome_of_the_pilot_overspends(scale: float, smoothness: float, ratio: float) -> None:
    """Whatever coordinates and curvature a pilot finds: the second stage keeps cap and rounds."""
    data = flmc.data.draw_linear(seed=1, num_samples=40, dim=2, num_devices=3)
    model = flmc.LinearGaussian(data)
    both = flmc.plan_two_stages(model, flmc.Digital(), LIMITS, num_rounds=60)
    white = flmc.whiten(
        model, scale=np.full(2, scale), smoothness=smoothness, convexity=smoothness / ratio
    )
    main = both.main(white, smoothness, smoothness / ratio)
    stated = both.cost
    assert stated is not None
    gains = np.concatenate(
        [np.broadcast_to(each.gain, (each.num_rounds, 2)) for each in (both.pilot, main)]
    )
    found = flmc.Digital().event_of_rounds(gains, 2).epsilon(stated.delta)
    assert found <= stated.epsilon * (1 + 1e-9) <= 8.0 * (1 + 1e-9)


def _received(bit: Array, gain: float, probability: float) -> Array:
    """Density of what is received at some places, if a bit is +1 with this probability."""
    up, down = stats.norm.pdf(bit, gain), stats.norm.pdf(bit, -gain)
    return np.asarray(probability * up + (1 - probability) * down)


@pytest.mark.parametrize("rule", ["as before", "turned", "by what was seen", "silent", "quieter"])
def test_adaptivity_is_accounted(rule: str) -> None:
    """Two rounds of one entry by quadrature: the second round's coordinates (which turn the sign of
    a gradient, or shrink it) and its gain follow from what the first received. The worst pair of
    neighbours, with gradients at both ends of the clip, still costs no more than is stated."""
    uplink = flmc.Digital(link=flmc.Sigmoid(0.1), clip=10.0)
    gain, epsilon = 1.3, 0.8
    stated = uplink.event_of_rounds(np.full((2, 1), gain), 1).delta(epsilon)
    y = np.linspace(-8, 8, 1601)
    width = y[1] - y[0]
    high, low = uplink.link.extremes(uplink.clip)
    first = [_received(y, gain, p) for p in (high, low)]  # for both neighbours
    delta = 0.0
    for seen, one, other in zip(y, *first, strict=True):
        pair, loud = (high, low), gain
        if rule == "turned" or (rule == "by what was seen" and seen < 0):
            pair = (low, high)
        if rule == "silent" and abs(seen) > 1:
            loud = 0.0
        if rule == "quieter":
            loud = gain * abs(np.tanh(seen))
            middle = 0.25 * float(np.tanh(seen))  # a scale that leaves a part of the gradient
            pair = (0.5 + middle, 0.5 - middle)
        second = [_received(y, loud, p) for p in pair]
        excess = one * second[0] - np.exp(epsilon) * other * second[1]
        delta += float(np.maximum(excess, 0.0).sum()) * width * width
    assert delta <= stated * (1 + 1e-4)
    if rule == "as before":
        assert delta == pytest.approx(stated, rel=1e-3)


def test_the_second_stage_sees_released_draws_only(model: flmc.LinearGaussian) -> None:
    """Another model with other data, and the same draws of the pilot: the same second plan."""
    both = flmc.plan_two_stages(model, flmc.Analog(), num_rounds=3000)
    pilot = flmc.run(both.pilot, model, seed=3, engine="numpy")
    other = flmc.LinearGaussian(
        flmc.data.draw_linear(seed=9, num_samples=100, dim=3, num_devices=5)
    )
    plans = []
    for each in (model, other):
        found = read_pilot(pilot)
        white = in_coordinates(
            each, found.coordinates, found.smoothness, found.convexity, public=True
        )
        plans.append(both.main(white, found.smoothness, found.convexity))
    assert plans[0].digest == plans[1].digest


def test_both_stages_sample_the_posterior(model: flmc.LinearGaussian) -> None:
    """Without a budget, against the exact posterior, in the model's own coordinates: five standard
    errors of the main chains' means by their effective draws."""
    uplink = flmc.Digital(link=flmc.Linear(), clip=60.0)
    both = flmc.plan_two_stages(model, uplink, num_rounds=full(9000, 3000), pilot_rounds=1500)
    result = flmc.run_two_stages(both, model, seed=2, chains=8, engine="numba")
    posterior = model.posterior
    assert result.main.draws.shape[2] == 3
    sd = np.sqrt(np.diagonal(posterior.covariance[0]))
    worth = effective_draws(result.main.draws)
    assert np.abs((result.main.mean[0] - posterior.mean[0]) / sd).max() < 5 / np.sqrt(worth)
    # Discretisation and the clip add to it: the plan's own prediction is about 1.03.
    ratio = result.main.variance[0] / sd**2
    assert np.abs(ratio - 1.03).max() < 5 * np.sqrt(2 / worth) + 0.05
    assert "privacy of both" in str(result)
    assert "privacy, one chain" not in str(result)  # of the second stage alone
    assert "second of two stages" not in str(result)
    assert [each.code for each in result.main.plan.findings] == ["second-stage"]
    # Streams of both stages have nothing in common.
    assert result.main.seed == second_seed(2) != 2


def test_records_of_both_stages(model: flmc.LinearGaussian, tmp_path: Path) -> None:
    both = flmc.plan_two_stages(model, flmc.Ideal(), num_rounds=6000)
    result = flmc.run_two_stages(both, model, chains=2, out=tmp_path / "both", thin=5)
    assert np.array_equal(flmc.load(tmp_path / "both" / "main").draws, result.main.draws)
    assert len(flmc.load(tmp_path / "both" / "pilot").ledger) == 2000


def test_a_pilot_of_data_stays_one(model: flmc.LinearGaussian) -> None:
    both = flmc.plan_two_stages(model, flmc.Digital(), LIMITS, num_rounds=600)
    assert both.pilot.data_dependent
    white = flmc.whiten(model, scale=np.ones(3), smoothness=40.0, convexity=1.0)
    assert both.main(white, 40.0, 1.0).data_dependent
    assert "data dependent" in str(both)
    public = flmc.plan_two_stages(
        model,
        flmc.Digital(),
        LIMITS,
        num_rounds=600,
        public_smoothness=4e4,
        public_convexity=100.0,
    )
    assert not public.main(white, 40.0, 1.0).data_dependent


def test_refusals(model: flmc.LinearGaussian) -> None:
    plan = flmc.plan_two_stages
    adaptive = flmc.Limits(epsilon=8.0, scope="run", allocation="adaptive")
    with pytest.raises(InvalidSetting, match="one cap"):
        plan(model, flmc.Digital(), adaptive, num_rounds=100)
    with pytest.raises(InvalidSetting, match="at most num_rounds - 2 = 98, got 99"):
        plan(model, flmc.Digital(), num_rounds=100, pilot_rounds=99)
    with pytest.raises(InvalidSetting, match="at least 4, got 3"):
        plan(model, flmc.Digital(), num_rounds=3)
    short = plan(model, flmc.Digital(), num_rounds=60)
    with pytest.raises(RunFailed, match="use more pilot_rounds"):
        flmc.run_two_stages(short, model)
    other = flmc.LinearGaussian(flmc.data.draw_linear(seed=1, num_samples=40, num_devices=4))
    with pytest.raises(InvalidSetting, match="5 devices and dim 3"):
        short.main(other, 1.0, 1.0)


class InTurns(flmc.Scheduler):
    """Devices one after the other, each for 450 rounds: it begins with device 0 in every stage."""

    def draw(self, rng: np.random.Generator, rounds: range, fading: Array) -> Array:
        active = np.zeros((len(rounds), fading.shape[1]))
        active[np.arange(len(rounds)), np.array(rounds) // 450 % fading.shape[1]] = 1.0
        return active

    def most_rounds(self, num_rounds: int, num_devices: int) -> int:
        return min(num_rounds, 450 * -(-num_rounds // (450 * num_devices)))


def test_policies_that_begin_anew_are_refused(model: flmc.LinearGaussian) -> None:
    """Device 0 would transmit twice as often as the policy declares for all rounds."""
    with pytest.raises(InvalidSetting, match="begins anew in the second stage"):
        flmc.plan_two_stages(model, flmc.Digital(), LIMITS, num_rounds=1350, scheduler=InTurns())
    given = flmc.GivenDevices(np.ones((300, 5)))
    with pytest.raises(InvalidSetting, match="begins anew"):
        flmc.plan_two_stages(model, flmc.Digital(), num_rounds=300, scheduler=given)
    random = flmc.RandomDevices(3)
    both = flmc.plan_two_stages(model, flmc.Digital(), LIMITS, num_rounds=300, scheduler=random)
    assert both.pilot.scheduler == random


def test_what_the_second_stage_cannot_do_is_told_before_the_first(
    model: flmc.LinearGaussian,
) -> None:
    with pytest.raises(InvalidSetting, match="cannot clip single examples"):
        flmc.plan_two_stages(model, flmc.Digital(example_clip=1.0), num_rounds=300)
    with pytest.raises(InvalidSetting, match="coordinates of its own"):
        flmc.plan_two_stages(flmc.whiten(model, "prior"), flmc.Digital(), num_rounds=300)


@full_only
@pytest.mark.parametrize(
    "uplink",
    [
        flmc.Digital(link=flmc.Linear(), clip=20.0, example_clip=0.5),
        flmc.Analog(clip=20.0, clipping="norm", example_norm=1.0),
    ],
    ids=["entry", "norm"],
)
def test_single_examples_are_hidden_in_both_stages(uplink: flmc.Uplink) -> None:
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal((200, 2)), np.where(rng.random(200) < 0.6, 1.0, -1.0)
    data = flmc.data.FederatedData(x, y, (80, 70, 50))
    logistic = flmc.models.regressions.logistic(data)
    limits = flmc.Limits(epsilon=1e4, scope="run", neighbouring="example")
    both = flmc.plan_two_stages(logistic, uplink, limits, num_rounds=full(30_000, 6_000))
    result = flmc.run_two_stages(both, logistic, seed=1)
    assert result.cost is not None
    assert result.cost.epsilon <= 1e4
    assert result.main.plan.uplink == uplink


def test_curvature_of_coordinates_is_bounded() -> None:
    """Independent draws of a standard normal: the extreme curvatures in their coordinates lie
    within the stated ones, and these are not far off."""
    data = flmc.data.draw_linear(seed=1, num_samples=40, dim=20, num_devices=2)
    model = flmc.LinearGaussian(data)
    plan = flmc.plan(model, flmc.Ideal(), num_rounds=100, num_burn_in=40, forecast=False)
    result = flmc.run(plan, model, engine="numpy")
    for count in (120, 400):
        drawn = np.random.default_rng(count).standard_normal((1, 1, count, 20))
        found = read_pilot(replace(result, path=ChainPath.of_draws(drawn)))
        scale = found.coordinates.scale
        curvatures = np.linalg.eigvalsh(scale.T @ scale)
        assert found.convexity <= curvatures[0]
        assert curvatures[-1] <= found.smoothness
        assert found.smoothness < 4 * curvatures[-1]


def test_coordinates_stretch() -> None:
    here = Coordinates(np.ones(2), np.diag([2.0, 3.0]))
    there = here.stretched(4.0)
    np.testing.assert_allclose(there.to_model(np.ones(2)), [9.0, 13.0])
    assert there.unit == 0.25


def test_the_record_of_the_second_stage_has_its_answer(
    model: flmc.LinearGaussian, tmp_path: Path
) -> None:
    """With the model in its own coordinates, which are found again from the pilot's record; without
    that record, and for the directory of both stages, the answer is refused by name."""
    out = tmp_path / "both"
    both = flmc.plan_two_stages(model, flmc.Ideal(), num_rounds=6000)
    result = flmc.run_two_stages(both, model, seed=2, out=out)
    known, read = result.main.posterior(), flmc.load(out / "main").posterior(model)
    # Draws are recorded in the model's coordinates and turned back: rounding errors remain.
    np.testing.assert_allclose(read.mean, known.mean, rtol=1e-7)
    np.testing.assert_allclose(read.covariance, known.covariance, rtol=1e-6)
    with pytest.raises(InvalidSetting, match=r"holds the records of two stages.*main"):
        flmc.load(out)
    (out / "main").rename(tmp_path / "alone")
    with pytest.raises(InvalidSetting, match="no record of it"):
        flmc.load(tmp_path / "alone").posterior(model)
