"""Clip, link, slope and rounds by rule: what is chosen, why, and what is refused."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import flmc
from flmc.base.errors import InvalidSetting
from support import full_only


@pytest.fixture(scope="module")
def model() -> flmc.LinearGaussian:
    return flmc.LinearGaussian(flmc.data.draw_linear(seed=1))


def notes(plan: flmc.Plan) -> dict[str, str]:
    return {each.code: each.message for each in plan.findings if each.code.startswith("chosen")}


def test_the_clip_leaves_gradients_near_the_posterior(model: flmc.LinearGaussian) -> None:
    """At draws from the posterior itself: less than 1 in 1000 entries is clipped, and the clip is
    not much wider than the largest of them."""
    plan = flmc.plan(model, flmc.Digital(), clip="auto", forecast=False)
    assert model.smoothness is not None
    assert plan.uplink.clip == pytest.approx(4.25 * math.sqrt(model.smoothness / 20), rel=0.01)
    rng = np.random.default_rng(0)
    root = np.linalg.cholesky(model.posterior.covariance[0])
    theta = model.posterior.mean[0] + rng.standard_normal((2000, 5)) @ root.T
    local = np.abs(model.gradient(theta[None]))
    assert (local > plan.uplink.clip).mean() < 1e-3
    assert local.max() > plan.uplink.clip / 2
    assert "sqrt(L/K)" in notes(plan)["chosen-clip"]
    assert plan.data_dependent


def sorted_deal(seed: int, num_devices: int = 8) -> flmc.LinearGaussian:
    """A regression whose examples are dealt in the order of their targets."""
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((800, 4))
    features[:, 0] = 1.0
    targets = features @ (2 * rng.standard_normal(4)) + rng.standard_normal(800)
    order = np.argsort(targets)
    sizes = (800 // num_devices,) * num_devices
    return flmc.LinearGaussian(flmc.LinearData(features[order], targets[order], sizes))


def clipped_share(model: flmc.Model, uplink: Any, posterior: flmc.LinearGaussian) -> float:
    """Share of gradients beyond the clip at draws from the exact posterior."""
    rng = np.random.default_rng(0)
    law = posterior.posterior
    root = np.linalg.cholesky(law.covariance[0])
    theta = law.mean[0] + rng.standard_normal((4000, model.dim)) @ root.T
    local = model.gradient(theta[None])
    size = np.linalg.norm(local, axis=-1) if uplink.clips_norm else np.abs(local)
    return float((size > uplink.clip).mean())


@pytest.mark.parametrize(
    "uplink",
    [flmc.Digital(link=flmc.Linear()), flmc.Analog(), flmc.Analog(clipping="norm")],
    ids=["digital", "analog", "norm"],
)
def test_the_clip_fits_devices_that_are_not_alike(uplink: Any) -> None:
    """Sorted deals, of which the rule for like devices cut 13 to 72 %. At most 0.5 % are beyond the
    clip by the places of the plan; 4000 draws know that to 0.11 %, if the entries of a draw all
    went together, so 5 standard errors end at 1.06 %."""
    words: dict[str, Any] = {"clip": "auto", "num_rounds": 3000, "num_burn_in": 1000}
    for seed in range(3):
        model = sorted_deal(seed)
        assert model.smoothness is not None
        spread = math.sqrt(model.smoothness / 8 * (4 if uplink.clips_norm else 1))
        rule = replace(uplink, clip=4.25 * spread)
        assert clipped_share(model, rule, model) > 0.015  # above 0.1 for most seeds and entries
        plan = flmc.plan(model, uplink, flmc.Limits(privacy="off"), **words)
        assert clipped_share(model, plan.uplink, model) < 0.0106
        assert plan.data_dependent
        # Not wider than it must be: with a tenth less, more is cut or the mean moves.
        less = replace(plan.uplink, clip=0.9 * plan.uplink.clip)
        shift = flmc.plan(model, less, flmc.Limits(privacy="off"), num_rounds=3000).prediction
        moved = 0.0 if shift is None else shift.mean_shift or 0.0
        assert clipped_share(model, less, model) > 0.004 or moved > 0.08
        assert plan.prediction is not None
        assert plan.prediction.mean_shift is not None
        assert plan.prediction.mean_shift < 0.25
        assert "not alike" in notes(plan)["chosen-clip"]


def test_the_price_of_a_large_clip_is_stated() -> None:
    """In rounds of an independent draw, as two plans with the two clips have them."""
    model, limits = sorted_deal(3), flmc.Limits(privacy="off")
    words: dict[str, Any] = {"num_rounds": 3000, "num_burn_in": 1000, "forecast": False}
    uplink = flmc.Digital(link=flmc.Linear())
    plan = flmc.plan(model, uplink, limits, clip="auto", **words)
    note = next(each for each in plan.findings if each.code == "chosen-clip")
    like = flmc.plan(model, uplink, limits, clip=note.numbers["clip_if_alike"], **words)
    assert like.effective_draws is not None
    assert plan.effective_draws is not None
    assert note.numbers["rounds_factor"] > 2
    # Draws of a chain are the kept rounds over (2 - s)/s with a small share s forgotten.
    assert like.effective_draws / plan.effective_draws == pytest.approx(
        note.numbers["rounds_factor"], rel=0.1
    )
    assert f"{note.numbers['rounds_factor']:.3g} times the rounds" in note.message


def test_one_odd_device_of_many_keeps_its_weight() -> None:
    """One device of 200 whose targets are far off: 0.5 % of the entries, and yet the mean."""
    rng = np.random.default_rng(4)
    features = np.ones((2000, 1))
    targets = rng.standard_normal(2000)
    targets[:10] += 20.0
    model = flmc.LinearGaussian(flmc.LinearData(features, targets, (10,) * 200))
    plan = flmc.plan(model, flmc.Analog(snr_db=40.0), flmc.Limits(privacy="off"), clip="auto")
    assert plan.prediction is not None
    assert plan.prediction.mean_shift is not None
    assert plan.prediction.mean_shift < 0.15


def test_a_public_plan_does_not_look_at_gradients() -> None:
    """The clip of a public plan is a function of public curvature alone, and the note says that
    it is for devices that are alike."""
    public: dict[str, Any] = {"public_smoothness": 1500.0, "public_convexity": 100.0}
    clips = set()
    for seed in (0, 1):
        plan = flmc.plan(sorted_deal(seed), flmc.Analog(), clip="auto", forecast=False, **public)
        clips.add(plan.uplink.clip)
        assert not plan.data_dependent
        assert "if devices are alike" in notes(plan)["chosen-clip"]
    assert clips == {58.2}  # 4.25 sqrt(1500/8)


@full_only
def test_logistic_regression_with_pure_labels() -> None:
    """Devices with one label each: no exact posterior, so a pilot finds it."""
    regressions = pytest.importorskip("flmc.models.regressions")
    pytest.importorskip("jax", reason="needs the extra jax")
    rng = np.random.default_rng(1)
    features = rng.standard_normal((400, 3))
    chances = 1 / (1 + np.exp(-(features @ [1.0, -1.0, 0.5])))
    targets = np.where(rng.random(400) < chances, 1.0, -1.0)
    order = np.argsort(targets, kind="stable")
    data = flmc.data.FederatedData(features[order], targets[order], (40,) * 10)
    model = regressions.logistic(data)
    plan = flmc.plan(model, flmc.Analog(), flmc.Limits(privacy="off"), clip="auto", forecast=False)
    mode, covariance = model.laplace()
    theta = mode + rng.standard_normal((500, 4)) @ np.linalg.cholesky(covariance).T
    local = np.abs(model.gradient(theta[None]))
    assert (local > 4.25 * math.sqrt(model.smoothness / 10)).mean() > 0.05
    # 0.5 % by the closest normal law, a little else by this one.
    assert (local > plan.uplink.clip).mean() < 0.01
    assert "not alike" in notes(plan)["chosen-clip"]


def test_public_curvature_keeps_a_plan_public(model: flmc.LinearGaussian) -> None:
    plan = flmc.plan(
        model,
        flmc.Digital(),
        clip="auto",
        num_rounds="auto",
        public_smoothness=1500.0,
        public_convexity=900.0,
    )
    assert not plan.data_dependent
    given = flmc.plan(model, flmc.Digital(), clip="auto", step_size=1e-3, forecast=False)
    assert given.data_dependent  # by its clip, though not by its step
    public: dict[str, Any] = {"public_smoothness": 1500.0, "public_convexity": 900.0}
    by_prediction = flmc.plan(model, flmc.Digital(), link="auto", forecast=False, **public)
    assert by_prediction.data_dependent  # the prediction looks at the posterior
    burn_in = flmc.plan(
        model, flmc.Digital(), flmc.Limits(langevin="paper"), num_burn_in="auto", forecast=False
    )
    assert burn_in.data_dependent  # its length follows from the data's convexity


def test_rounds_are_enough(model: flmc.LinearGaussian) -> None:
    plan = flmc.plan(model, flmc.Digital(), num_rounds="auto")
    assert plan.rounds_needed is not None
    assert plan.effective_draws is not None
    assert plan.num_burn_in >= plan.rounds_needed
    assert 380 < plan.effective_draws < 520
    assert str(plan.num_rounds) in notes(plan)["chosen-rounds"]


def test_a_budget_of_the_run_stops_the_search(model: flmc.LinearGaussian) -> None:
    """More rounds share the budget: they are not worth more draws, and are not asked for."""
    limits = flmc.Limits(epsilon=10.0, scope="run")
    plan = flmc.plan(model, flmc.Digital(), limits, num_rounds="auto")
    assert plan.num_rounds < 5000
    assert plan.run_cost is not None
    assert plan.run_cost.epsilon <= 10.0
    assert "share the budget" in notes(plan)["chosen-rounds"]


def test_links(model: flmc.LinearGaussian) -> None:
    by_prediction = flmc.plan(model, flmc.Digital(), link="auto", forecast=False)
    assert "by prediction" in notes(by_prediction)["chosen-link"]
    own = flmc.Model.from_gradient(
        lambda theta: theta[:, None] * np.ones((1, 4, 1)),
        prior=flmc.Normal(),
        dim=2,
        num_devices=4,
        smoothness=5.0,
        convexity=1.0,
    )
    straight = flmc.plan(own, flmc.Digital(), link="auto", clip=3.0, forecast=False)
    assert straight.uplink == flmc.Digital(link=flmc.Linear(1.0), clip=3.0)
    assert "straight" in notes(straight)["chosen-link"]
    assert "as long as their gradients are not clipped" in notes(straight)["chosen-link"]
    assert flmc.plan(
        own, flmc.Digital(), link=flmc.Probit(), forecast=False
    ).uplink == flmc.Digital(link=flmc.Probit())


@pytest.mark.parametrize("link", [flmc.Sigmoid(), flmc.Probit()])
def test_the_slope_fits_the_clip(model: flmc.LinearGaussian, link: flmc.Link) -> None:
    plan = flmc.plan(model, flmc.Digital(link=link, clip=20.0), slope="auto", forecast=False)
    assert isinstance(plan.uplink, flmc.Digital)
    assert type(plan.uplink.link) is type(link)
    assert plan.uplink.link.slope(20.0) * 20.0 == pytest.approx(0.5, rel=0.01)
    # A straight line through 0 would be 8 % above the mean bit at the clip.
    mean = 2 * plan.uplink.link.probability(np.array(20.0)) - 1
    assert mean == pytest.approx(0.5 * 0.92, rel=0.02)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"clip": "wide"}, "clip must be a value or 'auto', got 'wide'"),
        ({"num_rounds": "many"}, "num_rounds must be a value or 'auto'"),
        (
            {"slope": "auto", "uplink": flmc.Digital(link=flmc.Sign())},
            "sigmoid and probit, got Sign",
        ),
        ({"link": "auto", "uplink": flmc.Analog()}, "for the digital scheme, got 'analog'"),
        ({"link": flmc.Sign(), "uplink": flmc.Analog()}, "for the digital scheme, got 'analog'"),
    ],
)
def test_refusals(model: flmc.LinearGaussian, settings: dict[str, Any], words: str) -> None:
    uplink = settings.pop("uplink", flmc.Digital())
    with pytest.raises(InvalidSetting, match=words):
        flmc.plan(model, uplink, forecast=False, **settings)


def test_what_is_not_known_is_asked_for() -> None:
    own = flmc.Model.from_gradient(
        lambda theta: theta[:, None] * np.ones((1, 4, 1)),
        prior=flmc.Normal(),
        dim=2,
        num_devices=4,
    )
    with pytest.raises(InvalidSetting, match="needs the smoothness"):
        flmc.plan(own, flmc.Digital(), clip="auto", step_size=0.01)
    with pytest.raises(InvalidSetting, match="slope and convexity, which are not known"):
        flmc.plan(own, flmc.Digital(), num_rounds="auto", step_size=0.01, num_burn_in=3)
