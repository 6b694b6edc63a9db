"""Combinations that once broke or voided a statement of privacy, each found by a review."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

import flmc
from conftest import full
from flmc.audit import Scene, audit
from flmc.audit import transmit as really_transmit
from flmc.checks import Array
from flmc.errors import InvalidSetting
from flmc.ledger import entries as ledger_entries
from flmc.privacy.account import epsilon_of
from flmc.privacy.event import BitEvent, MovingBitEvent, event_of
from flmc.spent import spent_curve


def model_of() -> flmc.LinearGaussian:
    return flmc.LinearGaussian(flmc.data.draw_linear(seed=1))


def test_gains_allotted_by_the_data_s_curvature_are_said_to_depend_on_data() -> None:
    limits = flmc.Limits(epsilon=20.0, scope="run", allocation="adaptive")
    own = flmc.plan(model_of(), flmc.Digital(), limits, step_size=1e-3, forecast=False)
    public = flmc.plan(
        model_of(), flmc.Digital(), limits, step_size=1e-3, forecast=False, public_smoothness=1500.0,
        public_convexity=900.0,
    )  # fmt: skip
    assert own.data_dependent
    assert not public.data_dependent


@pytest.mark.parametrize("uplink", [flmc.Digital(), flmc.Analog()], ids=lambda u: u.scheme)
def test_units_do_not_change_the_cost(uplink: flmc.Uplink) -> None:
    costs = []
    for noise_power in (1e-24, 1.0, 1e24):
        same = flmc.uplink.replace(uplink, noise_power=noise_power)
        limits = flmc.Limits(epsilon=5.0, scope="run", langevin="off")
        plan = flmc.plan(model_of(), same, limits, gain=0.01 * math.sqrt(noise_power), step_size=1e-3, forecast=False)
        assert plan.run_cost is not None
        costs.append((plan.run_cost.epsilon, plan.affordable_rounds))
    assert costs[0] == pytest.approx(costs[1], rel=1e-9)
    assert costs[2] == pytest.approx(costs[1], rel=1e-9)


def test_one_example_that_is_not_a_number_silences_itself_only() -> None:
    data = flmc.data.draw_linear(seed=1, num_samples=40, num_devices=2, dim=2)
    features, targets = data.features.copy(), data.targets.copy()
    features[..., 0, :], targets[..., 0] = (1e-9, 0.0), 1e308
    odd = flmc.linear.LinearData(features, targets, data.device_sizes)
    theta = np.full((1, 1, 2), 3.0)
    plain, moved = (flmc.LinearGaussian(d, noise_variance=0.5).clipped_gradient(theta, 4.0) for d in (data, odd))
    assert np.isfinite(moved).all()
    assert np.abs(moved - plain).max() <= 8.0 + 1e-9


def test_norm_clipping_moves_entries_further_than_examples_do() -> None:
    class ByNorm(flmc.Digital):
        clips_norm = True

    event = event_of(ByNorm(example_clip=1.0), [(0.1, 5)], "example")
    assert isinstance(event, BitEvent)
    assert isinstance(event_of(flmc.Digital(example_clip=1.0), [(0.1, 5)], "example"), MovingBitEvent)


def test_a_user_s_version_of_a_link_is_not_proven() -> None:
    class Spiky(flmc.Sigmoid):
        def probability(self, g: Array) -> Array:
            return np.where(np.abs(g - 1.2345e-3) < 1e-6, 1.0, super().probability(g))

    link = Spiky(0.05)
    assert not link.proven
    assert link.bounded_probability(np.array([1.2345e-3]), 30.0) <= link.extremes(30.0)[0]
    assert isinstance(event_of(flmc.Digital(link=link, example_clip=1.0), [(0.1, 5)], "example"), BitEvent)

    class Unheld(flmc.Sigmoid):
        def bounded_probability(self, g: Array, clip: float) -> Array:
            return np.ones_like(g)

    class Unclipped(flmc.Digital):
        def clipped(self, gradient: Array) -> Array:
            return gradient

    for uplink in (flmc.Digital(link=Unheld(0.05)), Unclipped()):
        with pytest.raises(InvalidSetting, match="not proven"):
            event_of(uplink, [(0.1, 5)])


@pytest.mark.parametrize("delta", [1e-12, 1e-14, 1e-30, 1e-200])
def test_tiny_deltas_cost_more_for_louder_signals(delta: float) -> None:
    """Where the transform's rounding hides delta, Chernoff's bound takes over, whatever lies beyond the grid. For tiny
    gains the bits are as good as Gaussian, with a mean that moves by 2 A (2 p - 1)."""
    costs = [epsilon_of(event_of(flmc.Digital(), [(gain, 1500)]), delta) for gain in (1e-6, 1e-4, 1e-2, 0.1)]
    assert all(np.diff(costs) > 0)
    moved = 2 * (2 * flmc.Sigmoid(0.05).extremes(30.0)[0] - 1) * 1e-6
    gaussian = moved * math.sqrt(1500) * math.sqrt(-2 * math.log(delta))  # from Chernoff's bound, an upper one
    assert costs[0] < 1.05 * gaussian
    plan = flmc.plan(model_of(), flmc.Digital(), flmc.Limits(epsilon=1.0, scope="run", run_delta=delta))
    assert plan.run_cost is not None
    assert 0.99 < plan.run_cost.epsilon <= 1.0 + 1e-9


def test_devices_that_come_and_go_stay_within_the_budget() -> None:
    rng = np.random.default_rng(0)
    active = (rng.random((300, 20)) < 0.5).astype(np.float64)
    active[:, 0] = np.maximum(active[:, 0], active.sum(axis=1) == 0)
    plan = flmc.plan(model_of(), flmc.Digital(), flmc.Limits(epsilon=20.0, scope="run"), active=active, forecast=False)
    assert len(plan.gain) > 1
    assert plan.run_cost is not None
    assert plan.run_cost.epsilon <= 20.0 * (1 + 1e-9)
    for device in range(3):
        alone = event_of(plan.uplink, [(float(gain), 5) for gain in plan.gain[active[:, device] > 0, 0]])
        assert epsilon_of(alone, 1e-5) <= plan.run_cost.epsilon * (1 + 1e-3)


@pytest.mark.parametrize("link", [flmc.Sigmoid(1.0), flmc.Probit(0.3)], ids=str)
def test_saturated_links(link: flmc.Link) -> None:
    event = event_of(flmc.Digital(link=link, clip=60.0, example_clip=1.0), [(0.2, 50)], "example")
    assert event.largest_loss > 0
    assert 0 < epsilon_of(event, 1e-5) <= event.largest_loss


@pytest.mark.parametrize(("epsilon", "delta"), [(0.01, 0.01), (0.1, 0.1), (1e-6, 1e-5)])
def test_budgets_so_large_that_nothing_is_spent(epsilon: float, delta: float) -> None:
    limits = flmc.Limits(epsilon=epsilon, scope="run", run_delta=delta, allocation="adaptive")
    plan = flmc.plan(model_of(), flmc.Digital(), limits, step_size=1e-3, forecast=False)
    assert plan.run_cost is not None
    assert plan.run_cost.epsilon <= epsilon * (1 + 1e-9)


def test_a_gain_without_a_cap_is_in_the_ledger_as_a_number() -> None:
    uplink = flmc.Digital(fading=flmc.RayleighFading(0.04))
    plan = flmc.plan(
        model_of(), uplink, flmc.Limits(langevin="off", privacy="off"), step_size=1e-3, num_rounds=3, num_burn_in=1,
        forecast=False,
    )  # fmt: skip
    assert np.isinf(plan.gain).any()
    entries = ledger_entries(plan, 0, 3)
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
    def repeating(scene: Scene, gradient: Array, trials: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """The same noise in all entries, or in every other round."""
        received, known = really_transmit(scene, gradient, trials, rng)
        noise = rng.standard_normal(received.shape)
        fresh = noise.copy()
        if what == "entries":
            noise[:] = fresh[:, :, :1]
        else:
            noise[:, 2:] = fresh[:, : scene.num_rounds - 2]
        quiet = Scene(scene.uplink, scene.gain, scene.dim, scene.num_devices, scene.num_rounds)
        bits = np.where(rng.random(gradient.shape) < scene.uplink.link.probability(gradient), 1.0, -1.0)  # type: ignore[attr-defined]
        return known + quiet.gain * bits + noise, known

    found = audit(Scene(flmc.Digital(), 0.27, 5, 2, 4), 0.01, full(50_000, 20_000), 1, transmit=repeating)
    assert found.broken, found
