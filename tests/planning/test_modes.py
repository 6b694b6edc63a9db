"""Several modes of a posterior: found from wide starts, wherever chains begin, and told by name."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import flmc
from flmc.base.randomness import Purpose, generator
from flmc.planning.model_check import survey
from flmc.planning.modes import find_modes
from flmc.planning.pilot import Pilot
from support import full, full_only

_APART = 2.75


def _seen(seed: int, share: float) -> np.ndarray:
    """400 examples of the mixture, of which the first mean has about the given share."""
    rng = np.random.default_rng(seed)
    first = rng.random(400) < share
    return np.asarray(np.where(first, -_APART, _APART) + rng.standard_normal(400))


def _mixture(
    seed: int, *, share: float = 0.5, prior_sd: float = 5.0, at: float = -2.0
) -> flmc.Model:
    """The two means of a mixture of normal laws of unit variance, from 400 examples on four
    devices. Chains begin close to (at, -at), near one of two modes, which are equal for the
    ``share`` 1/2 of the first mean: exchanged, the means explain the data as well."""
    devices = _seen(seed, share).reshape(4, 100)

    def gradient(theta: np.ndarray) -> np.ndarray:
        away = theta[:, None, None, :] - devices[None, :, :, None]  # (chain, device, example, mean)
        log = np.log([share, 1.0 - share]) - 0.5 * np.square(away)
        weight = np.exp(log - log.max(axis=-1, keepdims=True))
        weight /= weight.sum(axis=-1, keepdims=True)
        return np.asarray((weight * away).sum(axis=2))

    centre = np.array([at, -at])
    prior = flmc.FunctionPrior(
        lambda theta: theta / prior_sd**2,
        lambda draw: centre + 0.1 * draw.standard_normal(2),
        mean=centre,
        sd=np.full(2, 0.1),
    )
    return flmc.Model.from_gradient(
        gradient, prior=prior, dim=2, num_devices=4, smoothness=260.0, convexity=100.0
    )


def _plan(model: flmc.Model) -> flmc.Plan:
    """Everything automatic, so that nothing but the modes speaks against the plan."""
    uplink = flmc.Analog(snr_db=40.0)
    return flmc.plan(model, uplink, flmc.Limits(privacy="off"), clip="auto", num_rounds="auto")


@pytest.mark.parametrize("seed", range(full(20, 1)))
def test_chains_that_begin_in_one_of_two_modes_never_look_good(seed: int) -> None:
    """Nothing else shows it: chains that begin at one point agree (R-hat), and Stein's identity
    holds within a mode."""
    model = _mixture(seed)
    plan = _plan(model)
    against = [each.code for each in plan.findings if each.severity != "note"]
    assert against == ["several-modes"]
    assert plan.verdict is not None
    assert not plan.verdict.good
    done = flmc.run(plan, model, seed=seed, chains=4)
    assert done.diagnostics is not None
    assert done.diagnostics.entries.r_hat < 1.05
    assert (done.draws[..., 0] < done.draws[..., 1]).all()  # half of the posterior was never seen
    assert done.verdict is not None
    assert not done.verdict.good
    # An answer states the mode that its chain saw, and doubts itself.
    assert "several-modes" in {each.code for each in done.posterior().doubts}


def test_the_mass_and_the_way_between_modes_are_those_of_the_density() -> None:
    """Unequal weights move the modes apart in mass: by quadrature of the density on a grid around
    each, and the cost on the line between them by the density itself."""
    model = _mixture(3, share=0.47)
    pilot = survey(model).pilot
    first, second = find_modes(model, pilot)
    cost = _cost(3, 0.47)
    assert second.cost == pytest.approx(cost(second.theta) - cost(first.theta), abs=1e-3)
    line = np.linspace(first.theta, second.theta, 2001)
    height = cost(line).max() - max(cost(first.theta), cost(second.theta))
    assert second.barrier == pytest.approx(height, rel=1e-3)
    masses = [_mass(cost, each.theta, float(cost(first.theta))) for each in (first, second)]
    # Laplace's approximation of a mass is relatively wrong by the order of 1/N with N = 400.
    assert np.exp(second.log_mass - first.log_mass) == pytest.approx(
        masses[1] / masses[0], rel=0.02
    )


def _cost(seed: int, share: float) -> Callable[[np.ndarray], np.ndarray]:
    """The cost of the mixture at values of theta (..., 2), written a second time: minus the
    logarithm of its density, whose gradient is what the model computes."""
    seen, prior_sd = _seen(seed, share), 5.0

    def cost(theta: np.ndarray) -> np.ndarray:
        away = theta[..., None, :] - seen[:, None]
        fit = np.log(np.exp(-0.5 * away**2) @ np.array([share, 1 - share])).sum(axis=-1)
        return np.asarray(0.5 * (theta**2).sum(axis=-1) / prior_sd**2 - fit)

    return cost


def _mass(cost: Callable[[np.ndarray], np.ndarray], mode: np.ndarray, least: float) -> float:
    """Mass of the density within half a unit of a mode, seven standard deviations, by the
    trapezoidal rule."""
    side = np.linspace(-0.5, 0.5, 41)
    places = mode + np.stack(np.meshgrid(side, side), axis=-1)
    return float(np.exp(least - cost(places)).sum() * (side[1] - side[0]) ** 2)


def test_a_mode_without_mass_is_no_finding() -> None:
    """Weights of 0.2 and 0.8: the mode with exchanged means has a cost that is higher by about 180,
    and e^-180 of the mass."""
    model = _mixture(1, share=0.2)
    assert len(find_modes(model, survey(model).pilot)) == 2
    assert [each.code for each in survey(model).findings] == []


def test_a_low_ridge_between_two_heaps_is_one_mode() -> None:
    """Chains cross where the density between two modes is at most e^3 times smaller: a double well
    with a barrier of 1 is no finding, and one with a barrier of 10 is."""
    for height, expected in ((1.0, []), (10.0, ["several-modes"])):

        def gradient(theta: np.ndarray, height: float = height) -> np.ndarray:
            return np.asarray((4.0 * height * (theta**3 - theta))[:, None])

        model = flmc.Model.from_gradient(
            gradient, prior=flmc.Normal(sd=10.0), dim=1, num_devices=1, smoothness=80.0
        )
        assert [each.code for each in survey(model).findings] == expected


def test_a_pilot_that_loses_its_way_sets_out_again() -> None:
    """A cost that is linear from the prior's mean on, up to a well far away: Newton's method has
    nothing to go by at first, and a descent arrives."""
    model = flmc.Model.from_gradient(
        lambda theta: np.where(theta < 3.0, -1.0, 50.0 * (theta - 3.0) - 1.0)[:, None],
        prior=flmc.Normal(sd=1e3),
        dim=1,
        num_devices=1,
        smoothness=51.0,
    )
    alone = Pilot(model, generator(0, Purpose.CHECK))
    alone.travel()
    assert not alone.arrived
    assert survey(model).pilot.arrived
    assert survey(model).pilot.theta[0] == pytest.approx(3.02, abs=0.02)


@full_only
def test_regressions_have_one_mode_and_take_one_batch_more() -> None:
    """A convex cost is seen on the lines to its mode, and no descent follows."""
    pytest.importorskip("jax")
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal((200, 2)), np.where(rng.random(200) < 0.5, -1.0, 1.0)
    model = flmc.models.regressions.logistic(flmc.data.FederatedData(x, y, (100, 100)))
    pilot = survey(model).pilot
    before = pilot.num_batches
    assert len(find_modes(model, pilot)) == 1
    assert pilot.num_batches == before + 1


@full_only
def test_ordered_means_have_one_mode_and_interchangeable_ones_two() -> None:
    """The same densities and data, with and without the support; starts are as narrow."""
    pytest.importorskip("jax")
    import jax.numpy as jnp

    rng = np.random.default_rng(5)
    seen = np.where(rng.random(200) < 0.5, -_APART, _APART) + rng.standard_normal(200)
    data = flmc.data.from_arrays([{"y": part} for part in seen.reshape(4, 50)])

    def log_prior(p: Any) -> Any:
        return -0.5 * (p["mu"] ** 2).sum() / 25.0

    def log_likelihood(p: Any, row: Any) -> Any:
        each = -0.5 * (row["y"] - p["mu"]) ** 2
        return jnp.logaddexp(each[0], each[1])

    middle = np.array([-2.0, 2.0])
    for mu, expected in (
        (flmc.Parameter(middle, flmc.supports.ordered), []),
        (middle, ["several-modes"]),
    ):
        model = flmc.Model.from_log_density(
            log_prior, log_likelihood, data, {"mu": mu}, start_sd=0.1
        )
        plan = _plan(model)
        assert [each.code for each in plan.findings if each.severity != "note"] == expected
        assert plan.verdict is not None
        assert plan.verdict.good == (not expected)
