"""A release is one chain: what it is worth, what it costs, and what several would cost."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import flmc
from flmc.base.special import variance_of_mean
from flmc.base.tables import format_up
from flmc.planning.planner import what_if
from flmc.planning.plans.release import gaussian_mu
from flmc.planning.requirements import read_requirement
from flmc.privacy import gaussian
from flmc.uplink.example_clipping import shrink_factor
from support import full


def small(num_samples: int = 600) -> flmc.LinearGaussian:
    return flmc.LinearGaussian(
        flmc.data.draw_linear(seed=3, num_samples=num_samples, dim=3, num_devices=5)
    )


@pytest.mark.parametrize("memory", [-0.3, 0.0, 0.5, 0.99, 0.99999])
def test_the_variance_of_a_mean_is_that_of_the_covariances(memory: float) -> None:
    """The mean of all correlations r^|i - j|, summed one by one."""
    lag = np.abs(np.subtract.outer(np.arange(40), np.arange(40)))
    expected = np.mean(memory**lag)
    assert variance_of_mean(np.array(memory), 40) == pytest.approx(expected, rel=1e-6)


def test_effective_draws_of_the_longest_memory_are_one() -> None:
    for count in (1, 100, 10_000_000):
        assert variance_of_mean(np.array(1.0), count) == pytest.approx(1.0, rel=0.01)


@pytest.mark.parametrize(
    "uplink",
    [flmc.Analog(), flmc.Digital(link=flmc.Linear(0.9), clip=40.0)],
    ids=["analog", "bits"],
)
def test_planned_draws_are_those_of_simulated_chains(uplink: flmc.Uplink) -> None:
    """The variance of draws over that of a chain's mean, in the direction that a plan counts."""
    model = small()
    plan = flmc.plan(model, uplink, num_rounds=360, num_burn_in=300, start="zero")
    chains = full(2000, 400)
    result = flmc.run(plan, model, seed=2, chains=chains)
    assert result.chains is not None
    direction = np.linalg.eigh(model.posterior.covariance[0])[1][:, -1]
    draws = result.chains[0] @ direction
    measured = draws.var() / draws.mean(axis=1).var(ddof=1)
    # The variance of so many means has a relative standard error of sqrt(2/n); that of all draws is
    # known to about half of it.
    error = np.sqrt(2.5 / (chains - 1))
    assert plan.effective_draws == pytest.approx(measured, rel=5 * error)
    assert plan.effective_draws is not None
    assert 2 < plan.effective_draws < 30


def example_plan(
    uplink: flmc.Uplink, step_size: float, num_devices: int, draw_at: str = "auto"
) -> flmc.Plan:
    """A long plan at example level from public knowledge, for 20 000 examples; the gain is what the
    sampler's noise asks for."""
    model = flmc.LinearGaussian(
        flmc.data.draw_linear(seed=1, num_samples=20_000, dim=5, num_devices=num_devices)
    )
    return flmc.plan(
        model,
        uplink,
        flmc.Limits(neighbouring="example"),
        step_size=step_size,
        num_rounds=4000,
        num_burn_in=400,
        start="zero",
        public_smoothness=20_400.0,
        public_convexity=19_600.0,
        draw_at=draw_at,
        forecast=False,
    )


@pytest.mark.parametrize("draw_at", ["midpoints", "positions"])
@pytest.mark.parametrize("scheme", ["analog", "digital"])
def test_the_price_is_the_one_that_is_derived(scheme: str, draw_at: str) -> None:
    """mu^2 per draw is 4 m c^2/(lambda rho^2 (1 - f)), times Euler's factor 1 - q/2 at positions
    and all rounds over the kept ones; the smallest curvature lambda is public here."""
    c, rho, dim, convexity, num_devices, q = 4.0, shrink_factor(4.0), 5, 19_600.0, 100, 0.05
    clipping: dict[str, Any] = {"example_clip": c, "example_shrink": rho, "snr_db": 60.0}
    bits = flmc.Digital(link=flmc.Linear(0.9), clip=45.0, **clipping)
    uplink: flmc.Uplink = flmc.Analog(clip=200.0, **clipping) if scheme == "analog" else bits
    slope = 1.0 if scheme == "analog" else 0.9 / 45.0
    step = q / (slope * rho * convexity)
    share = step * num_devices / (2 * slope * rho) if scheme == "digital" else 0.0
    plan = example_plan(uplink, step, num_devices, draw_at=draw_at)
    assert plan.temperature == pytest.approx(1.0)
    euler = 1 - q / 2 if draw_at == "positions" else 1.0
    expected = 4 * dim * c**2 / (convexity * rho**2 * (1 - share)) * euler * 4000 / 3600
    # A chain of 92 draws is worth 1 % more than its rounds suggest: the formula counts the first
    # round like any other. What the accountant of bits adds at the worst place is below 15 %.
    price = plan.release().price
    assert price is not None
    assert 0.98 * expected < price < (1.02 if scheme == "analog" else 1.15) * expected


def test_mu_squared_is_exact_for_analog_and_adds_over_chains() -> None:
    plan = flmc.plan(small(), flmc.Analog(), flmc.Limits(epsilon=5))
    one, many = plan.release(), plan.release(40)
    assert plan.exposure is not None
    assert one.mu_squared == pytest.approx(plan.exposure.run.mu**2, rel=1e-6)
    assert many.mu_squared == pytest.approx(40 * plan.exposure.run.mu**2, rel=1e-6)
    assert one.price == pytest.approx(many.price, rel=1e-6)
    assert one.effective_draws is not None
    assert many.effective_draws == pytest.approx(40 * one.effective_draws)
    assert (one.num_chains, many.num_chains, one.kept_rounds) == (1, 40, 100)
    assert one.cost == plan.run_cost


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(0.0, 1e-5), (1.0, 1e-5), (142.0, 1e-5), (1e4, 0.01)]
)
def test_mu_of_a_cost_costs_that_much(epsilon: float, delta: float) -> None:
    assert gaussian.delta(epsilon, gaussian_mu(epsilon, delta)) == pytest.approx(delta, rel=1e-6)


def test_several_chains_of_bits_cost_what_their_composition_does() -> None:
    """Twice the chains are twice the rounds, for the accountant."""
    model = small()
    limits = flmc.Limits(epsilon=5)
    settings: dict[str, Any] = {"step_size": 2e-3, "gain": 0.2, "num_burn_in": 50}
    short, long = (
        flmc.plan(model, flmc.Digital(), limits, num_rounds=rounds, **settings)
        for rounds in (100, 200)
    )
    assert short.release(2).cost == long.run_cost


def test_documents_have_the_release_outside_the_digest() -> None:
    plan = flmc.plan(small(), flmc.Digital(), flmc.Limits(epsilon=5))
    document = json.loads(json.dumps(plan.to_document()))
    assert document["release"]["effective_draws"] == plan.effective_draws
    assert document["release"]["num_chains"] == 1
    assert document["release"]["epsilon"] == document["privacy"]["run"]["epsilon"]
    back = flmc.Plan.from_document(document)
    assert back.effective_draws == plan.effective_draws
    assert back.release().price == plan.release().price
    del document["release"]  # as plans were written before there were releases
    old = flmc.Plan.from_document(document)
    assert (old.digest, old.effective_draws) == (plan.digest, None)
    assert plan.to_document(with_run=False)["release"]["epsilon"] is None


def test_rows_and_requirements_name_the_release() -> None:
    plan = flmc.plan(small(), flmc.Digital(), flmc.Limits(epsilon=5))
    shown = str(plan)
    assert "one chain, 100 kept rounds, worth about" in shown
    assert "per effective draw, burn-in included" in shown
    assert read_requirement("effective_draws>=1").broken(plan) is None
    assert "is not met" in str(read_requirement("effective_draws>=100").broken(plan))
    assert "is not met" in str(read_requirement("price<=1e-9").broken(plan))


def test_a_chain_that_does_not_arrive_is_worth_no_draw_and_has_no_price() -> None:
    """Under a tiny budget of the run a chain stays where it starts: its one "draw" is none of the
    posterior, so a lower budget has no lower price."""
    model = small()
    for epsilon in (0.1, 1.0):
        limits = flmc.Limits(scope="run", epsilon=epsilon)
        plan = flmc.plan(model, flmc.Analog(), limits, num_rounds=300, num_burn_in=100)
        assert "burn-in" in [each.code for each in plan.findings if each.severity == "infeasible"]
        release = plan.release()
        assert release.effective_draws == 0.0
        assert release.price is None
        assert (release.mu_squared or 0.0) > 0
        assert "worth no draw of the posterior" in str(plan)
        assert plan.to_document()["release"]["price"] is None
        assert flmc.Plan.from_document(plan.to_document()) == plan
    arrives = flmc.plan(model, flmc.Analog(), num_rounds=300, num_burn_in=100).release()
    assert (arrives.effective_draws or 0.0) > 1


def test_what_is_not_known_is_not_stated() -> None:
    """Without a prediction or a convexity there are no effective draws; without privacy there is
    no price."""
    own = flmc.Model.from_gradient(
        lambda theta: np.stack([theta, 3 * theta], axis=1),
        prior=flmc.Normal(),
        dim=3,
        num_devices=2,
        smoothness=5.0,
    )
    piloted = flmc.plan(own, flmc.Digital(), flmc.Limits(epsilon=5))
    assert piloted.release().effective_draws is not None
    plan = flmc.plan(own, flmc.Digital(), flmc.Limits(epsilon=5), forecast=False)
    assert plan.release().effective_draws is plan.release().price is None
    assert "effective draws: unknown" in str(plan)
    ideal = flmc.plan(small(), flmc.Ideal())
    assert ideal.effective_draws is not None
    assert ideal.release().cost is None
    assert ideal.release().price is None


def test_epsilons_beside_a_plan_are_rounded_up() -> None:
    """What relaxing would bring, what is not met, and the tables of sweeps and comparisons."""
    model = small()
    settings: dict[str, Any] = {"num_rounds": 60, "num_burn_in": 20}
    plan = flmc.plan(model, flmc.Digital(), flmc.Limits(epsilon=5), **settings)
    relaxed = what_if(plan, model, settings)
    grid = relaxed.grid()
    stated = [cell for row in grid.rows for cell in row[-2:] if "delta" not in cell]
    costs = [
        cost.epsilon
        for each in relaxed.plans.values()
        for cost in (each.round_cost, each.run_cost)
        if cost is not None and cost.delta_at_zero is None
    ]
    assert len(stated) == len(costs) > 5
    for cell, epsilon in zip(stated, costs, strict=True):
        assert epsilon * (1 - 1e-8) <= float(cell) <= epsilon * 1.01
    assert plan.run_cost is not None
    broken = str(read_requirement("run.epsilon<=0.1").broken(plan))
    assert broken.endswith(format_up(plan.run_cost.epsilon))
    compared = flmc.compare({"digital": flmc.Digital()}, model, chains=2, **settings)
    column = compared.plans().header.index("eps run")
    assert compared["digital"].plan.run_cost is not None
    epsilon = compared["digital"].plan.run_cost.epsilon
    assert compared.plans().rows[0][column] == format_up(epsilon)
