"""The round is three roles. The NumPy engine is their composition, number by number; the compiled
engine is held to it statistically in tests/sampling; the audit calls the same functions."""

from __future__ import annotations

import ast
import inspect

import numpy as np
import pytest

import flmc
from contracts.registered import BURN_IN, DEVICES, DIM, ROUNDS, model, plan, plans
from flmc.base.arrays import Array
from flmc.base.randomness import ROUNDS_PER_BLOCK, Purpose, generator
from flmc.evaluation.audit import attack as auditing
from flmc.sampling import langevin, roles
from flmc.sampling.schedule import draw_schedule


def by_hand(planned: flmc.Plan, problem: flmc.Model, seed: int) -> Array:
    """Positions of one chain after kept rounds, from the three roles in a plain loop."""
    uplink = planned.uplink
    theta = problem.prior.draw(generator(seed, Purpose.INIT, 0, 0), DIM)
    kept = []
    for block in range(-(-ROUNDS // ROUNDS_PER_BLOCK)):
        schedule = draw_schedule(planned, seed, range(1), block)
        normal = generator(seed, Purpose.CHANNEL, 0, 0, block)
        uniform = generator(seed, Purpose.QUANTISER, 0, 0, block)
        for index in range(len(schedule)):
            active = None if schedule.active is None else schedule.active[0, index]
            gain, fading = schedule.gain[0, index], schedule.fading[0, index]
            random = uniform.random((DEVICES, DIM)) if uplink.randomised else None
            local = problem.gradient(theta[None, None])[0, 0]
            sent = roles.device(local, random, uplink, gain, fading, active)
            noise = np.sqrt(uplink.noise_power) * normal.standard_normal(DIM)
            met = fading if schedule.arriving is None else schedule.arriving[0, index]
            received = roles.air(sent, met, noise)
            step = float(schedule.step_sizes[index])
            count = float(schedule.num_active[0, index])
            theta = roles.server(theta, received, step, gain, DEVICES, count).theta
            if block * ROUNDS_PER_BLOCK + index >= BURN_IN:
                kept.append(theta)
    return np.array(kept)


@pytest.mark.parametrize("name", plans())
def test_the_engine_is_the_three_roles(name: str) -> None:
    problem = model()
    planned = plan(name, problem)
    result = flmc.run(planned, problem, seed=11, chains=1, engine="numpy")
    assert result.path is not None
    # Sums over devices may be taken in another order for one chain than for many: 1e-12.
    np.testing.assert_allclose(
        result.path.kept[0, 0], by_hand(planned, problem, 11), rtol=1e-9, atol=1e-12
    )


def test_a_silent_device_sends_nothing() -> None:
    gradient = np.full((2, DIM), 5.0)
    active = np.array([1.0, 0.0])
    sent = roles.device(
        gradient, None, flmc.Analog(), np.full(DIM, 0.1), np.full((2, DIM), 0.5), active
    )
    assert (sent.amplitude[1] == 0).all()
    received = roles.air(sent, np.full((2, DIM), 0.5), np.zeros(DIM))
    np.testing.assert_allclose(received, 0.5)


def test_channel_inversion_and_normalisation_give_the_sum_of_symbols() -> None:
    rng = np.random.default_rng(0)
    gradient, fading = rng.normal(size=(DEVICES, DIM)), rng.uniform(0.1, 2.0, (DEVICES, DIM))
    sent = roles.device(gradient, None, flmc.Analog(), np.full(DIM, 0.3), fading)
    received = roles.air(sent, fading, np.zeros(DIM))
    update = roles.server(np.zeros(DIM), received, 0.1, np.full(DIM, 0.3), DEVICES, DEVICES)
    np.testing.assert_allclose(update.estimate, gradient.sum(axis=0), rtol=1e-12)
    np.testing.assert_allclose(update.theta, -0.1 * gradient.sum(axis=0), rtol=1e-12)


@pytest.mark.parametrize("where", [auditing, langevin])
def test_nobody_else_writes_the_round(where: object) -> None:
    """The audit and the sampler call the roles, and nothing that the roles are made of."""
    names = {
        node.id if isinstance(node, ast.Name) else node.attr
        for node in ast.walk(ast.parse(inspect.getsource(where)))  # type: ignore[arg-type]
        if isinstance(node, ast.Name | ast.Attribute)
    }
    assert {"device", "air"} <= names
    assert not names & {"superpose_received", "invert_channel", "estimate_gradient"}
