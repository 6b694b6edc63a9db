"""Combinations that once broke or voided a statement of privacy, each found by a review."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr

import flmc
from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.evaluation.audit.attack import audit
from flmc.evaluation.audit.attack import transmit as really_transmit
from flmc.evaluation.audit.scene import Scene
from flmc.privacy import composed_event, composed_loss, tilted_loss
from flmc.privacy.bit_event import BitEvent
from flmc.privacy.event import Event
from flmc.privacy.gaussian import GaussianEvent
from flmc.privacy.root_finding import largest_argument, largest_gain
from flmc.privacy.shifted_bit_event import ShiftedBitEvent
from flmc.runs.ledger import Ledger
from flmc.runs.ledger_cost import spent_curve
from support import full


def model_of() -> flmc.LinearGaussian:
    return flmc.LinearGaussian(flmc.data.draw_linear(seed=1))


def test_gains_allotted_by_the_data_s_curvature_are_said_to_depend_on_data() -> None:
    limits = flmc.Limits(epsilon=20.0, scope="run", allocation="adaptive")
    own = flmc.plan(model_of(), flmc.Digital(), limits, step_size=1e-3, forecast=False)
    public = flmc.plan(
        model_of(),
        flmc.Digital(),
        limits,
        step_size=1e-3,
        forecast=False,
        public_smoothness=1500.0,
        public_convexity=900.0,
    )
    assert own.data_dependent
    assert not public.data_dependent


@pytest.mark.parametrize("uplink", [flmc.Digital(), flmc.Analog()], ids=lambda u: u.scheme)
def test_units_do_not_change_the_cost(uplink: flmc.Uplink) -> None:
    costs = []
    for noise_power in (1e-24, 1.0, 1e24):
        same = flmc.replace(uplink, noise_power=noise_power)
        limits = flmc.Limits(epsilon=5.0, scope="run", langevin="off")
        plan = flmc.plan(
            model_of(),
            same,
            limits,
            gain=0.01 * math.sqrt(noise_power),
            step_size=1e-3,
            forecast=False,
        )
        assert plan.run_cost is not None
        costs.append((plan.run_cost.epsilon, plan.affordable_rounds))
    assert costs[0] == pytest.approx(costs[1], rel=1e-9)
    assert costs[2] == pytest.approx(costs[1], rel=1e-9)


def test_one_example_that_is_not_a_number_silences_itself_only() -> None:
    data = flmc.data.draw_linear(seed=1, num_samples=40, num_devices=2, dim=2)
    features, targets = data.features.copy(), data.targets.copy()
    features[..., 0, :], targets[..., 0] = (1e-9, 0.0), 1e308
    odd = flmc.LinearData(features, targets, data.device_sizes)
    theta = np.full((1, 1, 2), 3.0)
    plain, moved = (
        flmc.LinearGaussian(d, noise_variance=0.5).clipped_gradient(theta, 4.0) for d in (data, odd)
    )
    assert np.isfinite(moved).all()
    assert np.abs(moved - plain).max() <= 8.0 + 1e-9


def test_norm_clipping_moves_entries_further_than_examples_do() -> None:
    event = flmc.Digital(example_clip=1.0, clipping="norm").privacy_event([(0.1, 5)], "example")
    assert isinstance(event, BitEvent)
    assert isinstance(
        flmc.Digital(example_clip=1.0).privacy_event([(0.1, 5)], "example"), ShiftedBitEvent
    )


def test_a_user_s_version_of_a_link_is_not_proven() -> None:
    class Spiky(flmc.Sigmoid):
        def probability(self, g: Array) -> Array:
            return np.where(np.abs(g - 1.2345e-3) < 1e-6, 1.0, super().probability(g))

    link = Spiky(0.05)
    for fact in (link.monotone, link.odd, link.log_concave, link.accounts_moves):
        assert not fact
    assert link.with_slope(0.1, 30.0) is None
    assert link.curve(30.0) is None
    assert link.bounded_probability(np.array([1.2345e-3]), 30.0) <= link.extremes(30.0)[0]
    assert isinstance(
        flmc.Digital(link=link, example_clip=1.0).privacy_event([(0.1, 5)], "example"), BitEvent
    )

    class Unheld(flmc.Sigmoid):
        def bounded_probability(self, g: Array, clip: float) -> Array:
            return np.ones_like(g)

    class Unclipped(flmc.Digital):
        def clipped(self, gradient: Array) -> Array:
            return gradient

    for uplink in (flmc.Digital(link=Unheld(0.05)), Unclipped()):
        with pytest.raises(InvalidSetting, match="not proven"):
            uplink.privacy_event([(0.1, 5)])


@pytest.mark.parametrize("delta", [1e-12, 1e-14, 1e-30, 1e-200])
def test_tiny_deltas_cost_more_for_louder_signals(delta: float) -> None:
    """The tilt keeps any delta above the transform's rounding. For tiny gains the bits are as good
    as Gaussian, with a mean that moves by 2 A (2 p - 1)."""
    costs = [
        flmc.Digital().privacy_event([(gain, 1500)]).epsilon(delta)
        for gain in (1e-6, 1e-4, 1e-2, 0.1)
    ]
    assert all(np.diff(costs) > 0)
    moved = 2 * (2 * flmc.Sigmoid(0.05).extremes(30.0)[0] - 1) * 1e-6
    gaussian = (
        moved * math.sqrt(1500) * math.sqrt(-2 * math.log(delta))
    )  # from Chernoff's bound, an upper one
    assert costs[0] < 1.05 * gaussian
    plan = flmc.plan(
        model_of(), flmc.Digital(), flmc.Limits(epsilon=1.0, scope="run", run_delta=delta)
    )
    assert plan.run_cost is not None
    assert 0.99 < plan.run_cost.epsilon <= 1.0 + 1e-9


def test_devices_that_come_and_go_stay_within_the_budget() -> None:
    rng = np.random.default_rng(0)
    active = (rng.random((300, 20)) < 0.5).astype(np.float64)
    active[:, 0] = np.maximum(active[:, 0], active.sum(axis=1) == 0)
    plan = flmc.plan(
        model_of(),
        flmc.Digital(),
        flmc.Limits(epsilon=20.0, scope="run"),
        active=active,
        forecast=False,
    )
    assert len(plan.gain) > 1
    assert plan.run_cost is not None
    assert plan.run_cost.epsilon <= 20.0 * (1 + 1e-9)
    for device in range(full(3, 1)):
        alone = plan.uplink.privacy_event(
            [(float(gain), 5) for gain in plan.gain[active[:, device] > 0, 0]]
        )
        assert alone.epsilon(1e-5) <= plan.run_cost.epsilon * (1 + 1e-3)


@pytest.mark.parametrize("link", [flmc.Sigmoid(1.0), flmc.Probit(0.3)], ids=str)
def test_saturated_links(link: flmc.Link) -> None:
    event = flmc.Digital(link=link, clip=60.0, example_clip=1.0).privacy_event(
        [(0.2, 50)], "example"
    )
    assert event.largest_loss > 0
    assert 0 < event.epsilon(1e-5) <= event.largest_loss


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(0.01, 0.01), (0.1, 0.1), (1e-6, 1e-5)][: full(3, 1)]
)
def test_budgets_so_large_that_nothing_is_spent(epsilon: float, delta: float) -> None:
    limits = flmc.Limits(epsilon=epsilon, scope="run", run_delta=delta, allocation="adaptive")
    plan = flmc.plan(model_of(), flmc.Digital(), limits, step_size=1e-3, forecast=False)
    assert plan.run_cost is not None
    assert plan.run_cost.epsilon <= epsilon * (1 + 1e-9)


def test_a_gain_without_a_cap_is_in_the_ledger_as_a_number() -> None:
    uplink = flmc.Digital(fading=flmc.RayleighFading(0.04))
    plan = flmc.plan(
        model_of(),
        uplink,
        flmc.Limits(langevin="off", privacy="off"),
        step_size=1e-3,
        num_rounds=3,
        num_burn_in=1,
        forecast=False,
    )
    assert np.isinf(plan.gain).any()
    entries = Ledger(plan).entries(0, 3)
    assert all(math.isfinite(json.loads(entry)["gain"][0]) for entry in entries)
    curve = spent_curve(entries, uplink, flmc.Limits(), 20, 5)
    assert curve.points[-1][1] > 0
    assert spent_curve([], uplink, flmc.Limits(), 20, 5).points == [(0, 0.0)]


def test_the_most_exposed_device_is_not_the_most_talkative() -> None:
    entries = [json.dumps({"round": r, "gain": [0.01], "silent": [1]}) for r in range(1, 9)]
    entries += [json.dumps({"round": 9, "gain": [3.0], "silent": [0]})]
    curve = spent_curve(entries, flmc.Digital(), flmc.Limits(), 2, 5)
    assert curve.points[-1][1] == max(curve.devices) == curve.devices[1]


def test_the_audit_says_what_it_cannot_decide() -> None:
    found = audit(Scene(flmc.Digital(), 1.0, 5, 2, 4), 0.01, 5000, 1)
    assert found.most < found.upper
    assert "cannot decide" in str(found)


@pytest.mark.parametrize("what", ["entries", "pairs of rounds"])
def test_random_numbers_that_repeat_anywhere_are_found(what: str) -> None:
    def repeating(
        scene: Scene, gradient: Array, trials: int, rng: np.random.Generator
    ) -> tuple[Array, Array]:
        """The same noise in all entries, or in every other round."""
        received, known = really_transmit(scene, gradient, trials, rng)
        noise = rng.standard_normal(received.shape)
        fresh = noise.copy()
        if what == "entries":
            noise[:] = fresh[:, :, :1]
        else:
            noise[:, 2:] = fresh[:, : scene.num_rounds - 2]
        quiet = Scene(scene.uplink, scene.gain, scene.dim, scene.num_devices, scene.num_rounds)
        assert isinstance(scene.uplink, flmc.Digital)
        probability = scene.uplink.link.probability(gradient)
        bits = np.where(rng.random(gradient.shape) < probability, 1.0, -1.0)
        return known + quiet.gain * bits + noise, known

    found = audit(
        Scene(flmc.Digital(), 0.27, 5, 2, 4), 0.01, full(50_000, 20_000), 1, transmit=repeating
    )
    assert found.broken, found


@pytest.mark.parametrize(
    ("count", "p", "epsilon", "delta"),
    [
        (2000, 0.55, 58.0, 0.0679),
        (2000, 0.55, 84.78, 1.2e-6),
        (5000, 0.52, 35.8, 7e-4),
        (2000, 0.55, 57.9927, 0.18087),
    ],
)
def test_the_tail_of_many_entries_is_one_bound(
    count: int, p: float, epsilon: float, delta: float
) -> None:
    """The ladder's quick bound and the accountant agree: every gain up to the one that is allowed
    keeps the budget."""
    unit = BitEvent(p, 1 - p, 1.0, ((1.0, count),))
    allowed = unit.allowed_gain(epsilon, delta, "tail")
    for gain in np.geomspace(0.01, min(allowed, 20.0), full(40, 8)):
        assert replace(unit, transmissions=((float(gain), count),)).delta(
            epsilon, "tail"
        ) <= delta * (1 + 1e-6)


def test_loud_signals_take_no_longer() -> None:
    """Bits that are received without error cost the same, however loud they are."""
    found = {
        gain: BitEvent(0.6, 0.4, 1.0, ((gain, 20),)).delta(3.0, "tail")
        for gain in (50.0, 1e4, 1e6, 1e8)
    }
    assert max(found.values()) == pytest.approx(min(found.values()), rel=1e-9)
    loud, soft = (BitEvent(0.5278, 1 - 0.5278, 1.0, ((gain, 28),)) for gain in (1e4, 1.0))
    assert 1e4 * loud.allowed_gain(2.85, 5.7e-6, "tail") == pytest.approx(
        soft.allowed_gain(2.85, 5.7e-6, "tail"), rel=1e-6
    )


def test_losses_near_zero() -> None:
    """Probabilities next to one half: the loss must not be lost in rounding."""
    assert (
        BitEvent(0.5 + 3e-10, 0.5 - 3e-10, 1.0, ((1.0, 52),)).allowed_gain(2.7e-9, 1e-6, "tail") > 0
    )
    p, amplitude, epsilon = 0.5 + 3.27e-9, 1.19e-6, 5.2e-14
    # The loss is 2 (2p - 1) A w to first order, so that it exceeds epsilon either way where |w|
    # does epsilon over that.
    exact = 2 * float(ndtr(-epsilon / (2 * (2 * p - 1) * amplitude)))
    found = BitEvent(p, 1 - p, 1.0, ((amplitude, 1),)).delta(epsilon, "tail")
    assert exact * (1 - 1e-6) <= found <= exact * (1 + 1e-6)


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf])
def test_root_finding_with_what_is_not_finite(odd: float) -> None:
    """What is not a number keeps no bound."""
    assert largest_argument(lambda x: x - 0.5 if x < 0.8 else abs(odd), 0.0, 1.0) == pytest.approx(
        0.5
    )
    assert largest_argument(
        lambda x: -math.inf if x <= 0.3 else x - 0.3, 0.0, 1.0
    ) == pytest.approx(0.3)
    assert largest_gain(lambda gain: 1.0 if gain == math.inf else abs(odd), 0.1, 1.0) == 0.0
    found = largest_gain(lambda gain: min(1.0, gain / 10) if gain < 3 else abs(odd), 0.1, 1.0)
    assert found == pytest.approx(1.0)
    assert found <= 1.0


@settings(max_examples=full(60, 15), deadline=None)
@given(st.floats(0.501, 0.999), st.floats(0.05, 5.0), st.integers(1, 3000), st.floats(-12, -1))
def test_epsilon_and_delta_are_of_one_mind(p: float, gain: float, count: int, power: float) -> None:
    event = BitEvent(p, 1 - p, 1.0, ((gain, count),))
    assert event.delta(event.epsilon(10**power)) <= 10**power


def test_gains_far_from_one_are_the_same_events() -> None:
    """A unit event may be soft or loud: the gain that is allowed scales with it."""
    for make in (
        lambda gain: BitEvent(0.9, 0.2, 1.0, ((gain, 100),)),
        lambda gain: ShiftedBitEvent(flmc.Sigmoid(0.05), 100.0, 20.0, 1.0, ((gain, 100),)),
    ):
        soft, usual = (gain * make(gain).allowed_gain(3.0, 1e-3) for gain in (1e-9, 1.0))
        assert soft == pytest.approx(usual, rel=1e-3)
    assert BitEvent(0.7, 0.3, 1.0, ()).allowed_gain(1.0, 1e-5) == math.inf


def test_the_middle_allows_every_gain_but_the_edge_does_not() -> None:
    """The allowed gain is of the size of the noise, and keeps its budget."""
    unit = ShiftedBitEvent(flmc.Sigmoid(0.05), 200.0, 40.0, 1.0, ((1.0, 10),))
    gain = unit.allowed_gain(10.5, 1e-9)
    assert 0.1 < gain < 10
    assert replace(unit, transmissions=((gain, 10),)).delta(10.5) <= 1e-9


def test_huge_numbers_stay_bounds() -> None:
    """An epsilon whose rounding is larger than 1, and losses so rare and large that the grid must
    be coarse."""
    loud = GaussianEvent(1.0, 1.0, ((1e9, 1),))
    epsilon = loud.epsilon(1e-5)
    assert epsilon >= 0.5e18 + 4.26489e9 * (1 - 1e-6)  # mu^2/2 + mu times the quantile of 1e-5
    assert 0 < loud.delta(epsilon) <= 1e-5
    p = 1 - 1e-11
    assert BitEvent(p, 1 - p, 1.0, ((500.0, 10**6),)).delta(1.0) == 1.0
    p = 0.9999999534722611
    rare = BitEvent(p, 1 - p, 1.0, ((477.874187050493, 3234), (6.385164067344192e-06, 6)))
    assert rare.epsilon(4e-13, "tail") == pytest.approx(54600.3252594, rel=1e-8)


@pytest.mark.parametrize(
    "event",
    [
        BitEvent(0.8, 0.2, 1.0, ((0.3, 200),)),
        BitEvent(0.9, 0.3, 1.0, ((0.3, 200),)),
        ShiftedBitEvent(flmc.Sigmoid(0.05), 30.0, 8.0, 1.0, ((0.3, 200),)),
    ],
    ids=["symmetric", "asymmetric", "moving"],
)
def test_a_grid_that_does_not_fit_is_coarsened_and_says_so(
    event: Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A coarsened grid gives an upper bound for every kind of event: never an error, never less."""
    fine, coarse = event.solve_epsilon(1e-5)
    assert not coarse
    # Coarsened when the grid is chosen, and where no grid is small enough.
    for module, name, most in ((composed_loss, "_MOST_CELLS", 8), (tilted_loss, "MOST_POINTS", 2)):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, most)
            composed_event.composed_loss.cache_clear()
            looser, coarse = event.solve_epsilon(1e-5)  # not remembered
            composed_event.composed_loss.cache_clear()
        assert coarse
        assert fine * (1 - 1e-9) <= looser <= event.largest_loss


@pytest.mark.parametrize("link", [flmc.Sigmoid(1e4), flmc.Probit(5.0), flmc.Sigmoid(30.0)])
@pytest.mark.parametrize("settings", [{"example_clip": 1.0}, {"example_norm": 1.0}])
def test_a_link_that_is_all_but_a_jump_hides_an_example_like_a_device(
    link: flmc.Link, settings: dict[str, float]
) -> None:
    """Its probabilities vanish in double precision, and so would their ratios."""
    uplink = flmc.Digital(link=link, **settings)  # type: ignore[arg-type]
    gains = np.full((1, 1), 0.5)
    one = uplink.event_of_rounds(gains, 5, "example").epsilon(1e-3)
    assert one == uplink.event_of_rounds(gains, 5, "device").epsilon(1e-3)
    gentle = flmc.Digital(link=flmc.Sigmoid(1.0), **settings)  # type: ignore[arg-type]
    assert gentle.event_of_rounds(gains, 5, "example").epsilon(1e-3) < one
