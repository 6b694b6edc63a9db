"""Server updates: what they declare holds, and Langevin's is what it was."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest

import flmc
from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.planning.server_update import LANGEVIN, Langevin
from flmc.sampling import langevin
from flmc.settings.registered import UPDATES
from flmc.wire.federation import Federation
from support import full, full_only


@pytest.fixture(scope="module")
def model() -> flmc.LinearGaussian:
    return flmc.LinearGaussian(
        flmc.data.draw_linear(seed=1, num_experiments=8, num_samples=400, num_devices=5)
    )


def variance_in_a_direction(relative: float, beta: float) -> float:
    """Variance of momentum over that of the posterior at temperature 1 by summing the impulse
    response of theta, a computation that knows nothing of the closed form."""
    step = np.array([[1.0 + beta - relative, -beta], [1.0, 0.0]])
    state, total = np.array([1.0, 0.0]), 0.0
    for _ in range(200_000):
        total += state[0] ** 2
        state = step @ state
    # Noise of variance 2 relative (1 - beta) in units of the posterior's variance: temperature 1.
    return total * 2.0 * relative * (1.0 - beta)


@full_only
@pytest.mark.parametrize("beta", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("relative", [0.01, 0.2])
def test_the_closed_form_of_momentum(beta: float, relative: float) -> None:
    closed = 1.0 / (1.0 - relative / (2.0 * (1.0 + beta)))
    assert variance_in_a_direction(relative, beta) == pytest.approx(closed, rel=1e-9)


@pytest.mark.parametrize("draw_at", ["midpoints", "positions"])
@pytest.mark.parametrize("beta", [0.5, 0.9])
def test_momentum_samples_at_the_declared_temperature(
    beta: float, draw_at: str, model: flmc.LinearGaussian
) -> None:
    settings: dict[str, Any] = {"num_rounds": 1300, "num_burn_in": 300, "draw_at": draw_at}
    plan = flmc.plan(model, flmc.Analog(), update=flmc.Momentum(beta), **settings)
    plain = flmc.plan(model, flmc.Analog(), **settings)
    assert plan.temperature == pytest.approx(1.0)
    assert plan.effective_step_size == pytest.approx(plain.effective_step_size)
    assert plan.gain == pytest.approx(plain.gain)
    metrics = flmc.run(plan, model, chains=full(50, 25), keep_draws=False).metrics
    assert metrics is not None
    ratio = metrics.variance_ratio
    # Clipping is negligible here; a = step times curvature, between those of the two ends.
    ends = [plan.step_size * each for each in (model.convexity, model.smoothness)]
    low, high = (1.0 / (1.0 - a / (2.0 * (1.0 + beta))) for a in ends)
    if draw_at == "midpoints":  # exact, as with Langevin's update
        low = high = 1.0
    assert low - 5 * ratio.se < ratio.mean < high + 5 * ratio.se


def test_momentum_without_memory_is_langevin(model: flmc.LinearGaussian) -> None:
    settings: dict[str, Any] = {"num_rounds": 150, "num_burn_in": 20}
    plain = flmc.plan(model, flmc.Digital(), **settings)
    same = flmc.plan(model, flmc.Digital(), **settings, update=flmc.Momentum(0.0))
    assert same.gain == pytest.approx(plain.gain)
    first = flmc.run(plain, model, chains=2, engine="numpy").draws
    np.testing.assert_allclose(flmc.run(same, model, chains=2).draws, first, rtol=1e-9, atol=1e-12)


def test_langevin_is_the_sampler_itself(model: flmc.LinearGaussian) -> None:
    settings: dict[str, Any] = {"num_rounds": 150, "num_burn_in": 20}
    plain = flmc.plan(model, flmc.Digital(), **settings)
    given = flmc.plan(model, flmc.Digital(), **settings, update=Langevin())
    assert given.digest == plain.digest
    assert "update" not in plain.to_document()
    np.testing.assert_array_equal(
        flmc.run(plain, model, chains=2).draws, flmc.run(given, model, chains=2).draws
    )


@dataclass(frozen=True)
class Walk(flmc.ServerUpdate):
    """Own noise alone, and a counter of the rounds in memory."""

    num_slots: ClassVar[int] = 1
    random: ClassVar[bool] = True

    def next(
        self, state: flmc.ServerState, estimate: Array, step_size: float, normal: Array | None
    ) -> flmc.ServerState:
        assert normal is not None
        return flmc.ServerState(state.theta + normal, state.memory + 1.0)


def test_own_noise_has_streams_of_its_own(model: flmc.LinearGaussian) -> None:
    limits = flmc.Limits(langevin="off")
    rounds: dict[str, Any] = {
        "num_rounds": 300,
        "num_burn_in": 0,
        "start": "zero",
        "step_size": 1e-4,
    }
    plan = flmc.plan(model, flmc.Analog(), limits, **rounds, update=Walk())
    draws = flmc.run(plan, model, chains=20).draws  # over three blocks of random numbers
    steps = np.diff(draws, axis=1, prepend=0.0).reshape(-1)
    # Five standard errors of a mean, and of a variance, of so many normal numbers.
    assert abs(steps.mean()) < 5 / math.sqrt(steps.size)
    assert abs(steps.var() - 1.0) < 5 * math.sqrt(2.0 / steps.size)
    lag = (steps[:-1] * steps[1:]).mean()
    assert abs(lag) < 5 / math.sqrt(steps.size)


def test_a_round_with_nobody_is_skipped() -> None:
    state = langevin.init(np.ones((1, 2, 3)), Walk())
    assert state.memory is not None
    this = langevin.Round(
        0.1, np.ones((1, 1, 3)), np.ones((1, 1, 2, 3)), np.zeros((1, 1, 2)), np.zeros((1, 1, 1))
    )
    normal = np.ones((1, 2, 3))
    noise = langevin.Noise(normal, None, normal)
    gradient = np.zeros((1, 2, 2, 3))
    after, _ = langevin.step(state, noise, this, lambda _: gradient, flmc.Analog(), Walk())
    np.testing.assert_array_equal(after.theta, state.theta)
    np.testing.assert_array_equal(after.memory, state.memory)
    assert after.round == 1


def test_a_wrong_shape_is_refused(model: flmc.LinearGaussian) -> None:
    class Wrong(flmc.ServerUpdate):
        def next(
            self, state: flmc.ServerState, estimate: Array, step_size: float, normal: Array | None
        ) -> flmc.ServerState:
            return flmc.ServerState(state.theta[..., :1], state.memory)

    plan = flmc.plan(model, flmc.Analog(), gain=0.01, step_size=1e-4, update=Wrong())
    with pytest.raises(InvalidSetting, match=r"Wrong must return theta of shape \(.*, 5\), got"):
        flmc.run(plan, model)


def test_who_takes_langevins_steps_refuses_another_update(model: flmc.LinearGaussian) -> None:
    plan = flmc.plan(model, flmc.Digital(), update=flmc.Momentum(0.5))
    for engine in ("numba", "jax"):
        with pytest.raises(InvalidSetting, match="the server's update is Momentum"):
            flmc.run(plan, model, engine=engine)
    with pytest.raises(InvalidSetting, match="the server's update is Momentum"):
        Federation.of("mine", plan)
    assert flmc.run(plan, model).engine == "numpy"


def test_privacy_does_not_depend_on_what_the_server_does(model: flmc.LinearGaussian) -> None:
    settings: dict[str, Any] = {"num_rounds": 60, "num_burn_in": 20, "gain": 0.1, "step_size": 1e-4}
    costs = [
        flmc.plan(model, flmc.Digital(), **settings, update=UPDATES.build(name)).run_cost
        for name in UPDATES.names
    ]
    assert len(costs) == 3
    assert len({None if cost is None else cost.epsilon for cost in costs}) == 1


@pytest.mark.parametrize("name", UPDATES.names)
def test_plans_with_an_update_are_read_back(name: str, model: flmc.LinearGaussian) -> None:
    settings: dict[str, Any] = {"gain": 0.1, "step_size": 1e-4}
    plan = flmc.plan(model, flmc.Digital(), **settings, update=UPDATES.build(name))
    again = flmc.Plan.from_document(plan.to_document())
    assert again.digest == plan.digest
    assert again.update == plan.update


def test_effective_step_of_an_update(model: flmc.LinearGaussian) -> None:
    plan = flmc.plan(model, flmc.Digital(), effective_step_size=3e-5, update=flmc.Momentum(0.75))
    assert plan.effective_step_size == pytest.approx(3e-5)
    assert plan.step_size == pytest.approx(3e-5 / 4.0 / flmc.Digital().slope)
    with pytest.raises(InvalidSetting, match="declares its step_factor"):
        flmc.plan(
            model, flmc.Digital(), gain=0.1, effective_step_size=3e-5, update=flmc.MajorityVote()
        )
    assert LANGEVIN.step_factor == 1.0


class Silent(flmc.Momentum):
    """Momentum that declares nothing of what it samples."""

    step_factor = None  # type: ignore[assignment]  # declared as a plain fact


def test_what_is_unknown_of_an_update_has_its_own_reason(model: flmc.LinearGaussian) -> None:
    settings: dict[str, Any] = {"gain": 0.1, "step_size": 1e-4, "num_burn_in": 100}
    undeclared = flmc.plan(model, flmc.Digital(), **settings, update=Silent(0.5))
    reason = "the server's update Silent declares no step_factor"
    assert undeclared.unknown_step == reason
    rows = {row.label: row.value for row in undeclared.listing().rows}
    assert rows["temperature"] == f"unknown: {reason}"
    assert f"needed for burn-in: unknown ({reason})" in rows["rounds"]
    assert reason in rows["release"]
    # The convexity of this model is known, so neither findings nor rows may ask for it.
    messages = [each.message for each in undeclared.findings]
    assert any(message.endswith(f"not known: {reason}") for message in messages)
    assert not any("convexity" in text for text in (*messages, *rows.values()))
    jump = flmc.plan(
        model,
        flmc.Digital(link=flmc.Sign()),
        flmc.Limits(langevin="off"),
        step_size=1e-4,
    )
    assert jump.unknown_step == "the link has no slope"
    texts = {row.label: row.value for row in jump.listing().rows}
    assert texts["temperature"] == "unknown: the link has no slope"
    assert flmc.plan(model, flmc.Digital(), **settings).unknown_step is None
