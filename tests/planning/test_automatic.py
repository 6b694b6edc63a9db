"""Clip, link, slope and rounds by rule: what is chosen, why, and what is refused."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import flmc
from flmc.base.errors import InvalidSetting


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
