"""Parameters of a device: integrals and steps against exact laws, what a chain then samples, and
what is refused."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.linalg import solve_discrete_lyapunov
from scipy.special import logsumexp

import flmc
from flmc.base.arrays import Array
from flmc.base.errors import Interrupted, InvalidSetting
from flmc.data.examples import Examples
from flmc.models.local_parameters import _nodes
from support import full, full_only

jnp = pytest.importorskip("jax.numpy", reason="needs the extra jax")

# Levels of devices about a common mean, all normal: y = level + N(0, 1), level ~ N(mean,
# BETWEEN^2), mean ~ N(0, 1/PRIOR). A device with n examples says of the mean what one number of the
# variance BETWEEN^2 + 1/n would say.
BETWEEN, PRIOR, SIZES = 0.7, 0.1, np.array([1, 2, 5, 10, 40])


def levels_data() -> Examples:
    rng = np.random.default_rng(0)
    return flmc.data.from_arrays(
        [{"y": rng.standard_normal(n) + BETWEEN * rng.standard_normal()} for n in SIZES]
    )


@cache
def usual_levels() -> Any:
    """The model of the levels, with everything as declared: JAX traces it once for all tests."""
    return levels(local_steps=8)


def levels(**given: Any) -> Any:
    settings: dict[str, Any] = {
        "local": {"level": 0.0},
        "log_local_prior": lambda w, own: -0.5 * ((own["level"] - w["mean"]) / BETWEEN) ** 2,
    }
    return flmc.Model.from_log_density(
        lambda w: -0.5 * PRIOR * w["mean"] ** 2,
        lambda w, own, row: -0.5 * (row["y"] - own["level"]) ** 2,
        levels_data(),
        {"mean": 0.0},
        **{**settings, **given},
    )


def means() -> Array:
    """Mean of every device's data."""
    data = levels_data()
    return np.array([data.of_device(k).rows()["y"].mean() for k in range(len(SIZES))])


CURVATURE = PRIOR + (1 / (BETWEEN**2 + 1 / SIZES)).sum()
"""Of the marginal posterior of the mean; that of the joint one in the mean, given all levels, is
the next."""
COMPLETE = PRIOR + len(SIZES) / BETWEEN**2


def exact_mean() -> float:
    return float((means() / (BETWEEN**2 + 1 / SIZES)).sum() / CURVATURE)


def test_the_marginal_cost_is_exact_where_all_is_normal() -> None:
    model = usual_levels()
    at = 0.3
    expected = PRIOR * at / len(SIZES) + (at - means()) / (BETWEEN**2 + 1 / SIZES)
    found = model.gradient(np.full((1, 2, 1), at))[0, :, :, 0]
    np.testing.assert_allclose(found, [expected, expected], rtol=1e-10)
    assert model.convexity == pytest.approx(CURVATURE, rel=1e-8)
    # Louis' identity: what devices' randomness adds is the curvature that the levels take away.
    np.testing.assert_allclose(model.local_variance, (COMPLETE - CURVATURE) / 8, rtol=1e-8)
    # A given smoothness is kept, and what randomness adds is known all the same.
    given = levels(smoothness=7.0)
    assert given.smoothness == 7.0
    np.testing.assert_allclose(given.local_variance, model.local_variance, rtol=1e-8)
    # Coordinates of the mean leave the levels alone.
    scale = np.array([0.5])
    moved = model.whitened(scale=scale, centre=np.array([1.0]), smoothness=10.0)
    inner = (at - 1.0) / 0.5
    np.testing.assert_allclose(
        moved.gradient(np.full((1, 1, 1), inner))[0, 0, :, 0], 0.5 * expected, rtol=1e-10
    )


@pytest.mark.parametrize("dim", [1, 2, 3, 4, 5, 6, 9])
def test_nodes_integrate_squares(dim: int) -> None:
    """Second moments of the standard normal law, which gradients of scales need, and its mass."""
    places, logs = _nodes(dim)
    weights = np.exp(logs - 0.5 * dim * np.log(2 * np.pi))
    assert weights.sum() == pytest.approx(1.0)
    np.testing.assert_allclose(weights @ places, 0.0, atol=1e-12)
    second = np.einsum("n,ni,nj->ij", weights, places, places)
    np.testing.assert_allclose(second, np.eye(dim), atol=1e-12)
    assert len(places) <= 250


def counts_model(**given: Any) -> Any:
    """Counts with a rate of each device's own: the conditional law of its logarithm is not
    normal, where a device saw nothing least of all."""
    data = flmc.data.from_arrays([{"y": [0, 0]}, {"y": [3]}, {"y": [9, 14, 11]}])
    return flmc.Model.from_log_density(
        lambda w: -0.5 * (w["mean"] ** 2 + jnp.log(w["sd"]) ** 2),
        lambda w, own, row: row["y"] * own["log_rate"] - jnp.exp(own["log_rate"]),
        data,
        {"mean": 0.0, "sd": flmc.Parameter(1.0, flmc.supports.positive)},
        local={"log_rate": 0.0},
        log_local_prior=lambda w, own: (
            -0.5 * ((own["log_rate"] - w["mean"]) / w["sd"]) ** 2 - jnp.log(w["sd"])
        ),
        **given,
    )


def on_a_grid(mean: float, log_sd: float) -> tuple[Array, Array, Array]:
    """Of every device of the counts: the negative log of the marginal likelihood, and conditional
    mean and standard deviation of its log rate, by sums over a fine grid."""
    grid = np.linspace(-15.0, 12.0, 20_001)
    found = []
    for y in ([0, 0], [3], [9, 14, 11]):
        log_density = sum(y) * grid - len(y) * np.exp(grid)
        log_density = log_density - 0.5 * ((grid - mean) / np.exp(log_sd)) ** 2 - log_sd
        total = logsumexp(log_density)
        share = np.exp(log_density - total)
        centre = share @ grid
        found.append((-total, centre, np.sqrt(share @ np.square(grid - centre))))
    nothing, centre, spread = np.array(found).T
    return nothing, centre, spread


def test_the_marginal_cost_of_counts_is_that_of_a_grid() -> None:
    """Derivatives by differences of sums over a grid; integrals of 15 nodes are within 1e-3."""
    model, (mean, log_sd), step = counts_model(), (0.4, 0.2), 1e-4
    found = model.gradient(np.array([[[mean, log_sd]]]))[0, 0]
    found = found - model.prior_share(np.array([[[mean, log_sd]]]))[0]
    for entry, away in enumerate(np.eye(2) * step):
        high, low = (on_a_grid(mean + s * away[0], log_sd + s * away[1])[0] for s in (1, -1))
        # The Jacobian of the sd's support belongs to the prior, and is in its share.
        np.testing.assert_allclose(found[:, entry], (high - low) / (2 * step), atol=2e-3)


@pytest.mark.parametrize("steps", [pytest.param(1, marks=full_only), 4])
def test_steps_leave_the_conditional_law_as_it_is(steps: int) -> None:
    """Local parameters moved for many rounds at one theta, and the mean of what is sent. Errors
    from 40 batches of rounds, which are long beside the memory of the steps."""
    model, theta = counts_model(local_steps=steps), np.array([0.4, 0.2])
    rng, own = np.random.default_rng(5), model.local_start()
    rounds, batches = full(20_000, 4000), 40
    places, sent = [], []
    for _ in range(rounds):
        own, gradient = model.moved(theta, own, rng)
        places.append(own[:, 0])
        sent.append(gradient)
    _, centre, spread = on_a_grid(*theta)
    for values, expected in (
        (np.array(places), centre),
        (np.square(np.array(places) - centre), spread**2),
        (np.array(sent), model.gradient(theta[None, None])[0, 0]),
    ):
        parts = values.reshape(batches, -1, *values.shape[1:]).mean(axis=1)
        error = parts.std(axis=0, ddof=1) / np.sqrt(batches)
        # The integral at the nodes is within 2e-3.
        assert (np.abs(parts.mean(axis=0) - expected) < 5 * error + 2e-3).all()
    # Draws for given draws of theta have the same law.
    draws = model.local_draws(np.tile(theta, (2, full(4000, 1000), 1)), seed=3)["log_rate"]
    assert draws.shape == (2, full(4000, 1000), 3)
    error = spread / np.sqrt(draws.shape[0] * draws.shape[1])
    assert (np.abs(draws.mean(axis=(0, 1)) - centre) < 5 * error).all()
    # 5 standard errors of a standard deviation, with room for a kurtosis of up to 6.
    assert (np.abs(draws.std(axis=(0, 1)) / spread - 1) < 5 * np.sqrt(5 / 4) * error / spread).all()


def law_of_the_chain(step: float, steps: int) -> tuple[float, float]:
    """Variance of positions and of midpoints of the mean over the exact one, where levels are drawn
    anew: an autoregression of mean and levels, solved by Lyapunov's equation."""
    count = len(SIZES)
    away, own = -np.full(count, 1 / BETWEEN**2), 1 / BETWEEN**2 + SIZES
    slope = COMPLETE + away @ (-away / own)
    # theta' = (1 - step slope) theta - step away . noise / sqrt(own steps) + sqrt(2 step) z
    variance = 2 * step + step**2 * (away**2 / own).sum() / steps
    matrix = np.array([[1 - step * slope]])
    at = float(solve_discrete_lyapunov(matrix, np.array([[variance]]))[0, 0])
    return at * CURVATURE, at * (1 + matrix[0, 0]) / 2 * CURVATURE


@full_only
@pytest.mark.parametrize("steps", [1, 8])
def test_the_law_of_a_chain_is_that_of_the_derivation(steps: int) -> None:
    """A large step, 0.4 over the curvature, so that what levels add is seen: 10 % of the variance
    for one local step, 1.25 % for eight. Chains are independent."""
    model = levels(local_steps=steps)
    step = 0.4 / CURVATURE
    plan = flmc.plan(
        model,
        flmc.Analog(clip=60.0, snr_db=60.0),
        num_rounds=6200,
        num_burn_in=200,
        step_size=step,
    )
    _, expected = law_of_the_chain(step, steps)
    assert expected == pytest.approx(1 + step * (COMPLETE - CURVATURE) / 2 / steps, rel=1e-9)
    assert plan.prediction is not None
    assert plan.prediction.variance_ratio == pytest.approx(expected, rel=1e-6)
    assert plan.num_local == 1
    assert plan.dim == 1
    assert plan.airtime is not None
    assert plan.airtime.channel_uses == plan.num_rounds  # of the mean alone
    result = flmc.run(plan, model, seed=1, chains=64)
    squares = np.square(result.draws - exact_mean()).mean(axis=(1, 2)) * CURVATURE
    error = squares.std(ddof=1) / 8
    assert abs(squares.mean() - expected) < 5 * error
    centre = result.draws.mean(axis=(1, 2))
    assert abs(centre.mean() - exact_mean()) < 5 * centre.std(ddof=1) / 8


@full_only
def test_the_same_by_devices_as_a_whole() -> None:
    """With the likelihood of all data of a device at once."""

    def of_device(w: Any, own: Any, device: Any) -> Any:
        return -0.5 * ((device["y"] - own["level"]) ** 2).sum()

    settings: dict[str, Any] = {
        "local": {"level": 0.0},
        "log_local_prior": lambda w, own: -0.5 * ((own["level"] - w["mean"]) / BETWEEN) ** 2,
    }
    model: Any = flmc.Model.from_log_density(
        lambda w: -0.5 * PRIOR * w["mean"] ** 2,
        of_device,
        levels_data(),
        {"mean": 0.0},
        likelihood_of="device",
        **settings,
    )
    at = np.full((1, 1, 1), 0.3)
    np.testing.assert_allclose(model.gradient(at), usual_levels().gradient(at), rtol=1e-10)
    both = [each.moved(at[0, 0], each.local_start(), np.random.default_rng(2))
            for each in (model, usual_levels())]  # fmt: skip
    for one, other in zip(*both, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-8)


@full_only
def test_a_run_may_be_cut_anywhere(tmp_path: Path) -> None:
    """Local parameters are part of a checkpoint; where they are, no draw of theta says."""
    model = counts_model()
    plan = flmc.plan(model, flmc.Digital(), num_rounds=300, num_burn_in=100, step_size=0.01)
    whole = flmc.run(plan, model, seed=3, chains=3)
    asked = iter(range(100))
    record = tmp_path / "record"
    with pytest.raises(Interrupted):
        flmc.run(
            plan,
            model,
            seed=3,
            chains=3,
            out=record,
            checkpoint_rounds=70,
            stop=lambda: next(asked) > 2,
        )
    # The last checkpoint is not at the start, and the local parameters are in it.
    with np.load(record / "checkpoint.npz") as saved:
        assert 0 < saved["round"] < 300
        assert saved["local"].shape == (1, 3, 3, 1)
    resumed = flmc.resume(record, plan, model)
    np.testing.assert_array_equal(resumed.draws, whole.draws)
    # Another seed moves them by other numbers: streams are the seed's.
    other = flmc.run(plan, model, seed=4, chains=3)
    assert not np.array_equal(other.draws, whole.draws)


def test_what_does_not_apply_is_refused_by_name() -> None:
    model = usual_levels()
    for uplink in (flmc.Analog(example_norm=1.0), flmc.Digital(example_clip=1.0)):
        with pytest.raises(InvalidSetting, match=r"local parameters.*neighbouring='device'"):
            flmc.plan(model, uplink, num_rounds=300)
    with pytest.raises(InvalidSetting, match=r"aim 'answer'.*local parameters"):
        flmc.plan(model, flmc.Analog(), aim="answer", num_rounds=300)
    plan = flmc.plan(model, flmc.Analog(snr_db=50.0), num_rounds=300)
    with pytest.raises(InvalidSetting, match="local parameters, which only the jax engine"):
        flmc.run(plan, model, seed=1, engine="numpy")
    with pytest.raises(InvalidSetting, match=r"local parameters.*use the chain's draws"):
        flmc.run(plan, model, seed=1).posterior()
    with pytest.raises(InvalidSetting, match="local needs log_local_prior"):
        levels(log_local_prior=None)
    with pytest.raises(InvalidSetting, match="log_local_prior needs local"):
        levels(local=None)
    with pytest.raises(InvalidSetting, match="local_steps"):
        levels(local_steps=0)
    with pytest.raises(InvalidSetting, match="log_local_prior must be one finite number"):
        levels(log_local_prior=lambda w, own: jnp.full(2, own["level"]))
    empty = flmc.data.from_arrays([{"y": [1.0]}, {"y": []}])
    with pytest.raises(InvalidSetting, match=r"device 1 .* has none: leave it out"):
        model.on(empty)


def test_a_plan_says_that_there_are_local_parameters() -> None:
    """In its document and digest; plans without any are as before."""
    plan = flmc.plan(usual_levels(), flmc.Analog(snr_db=50.0), num_rounds=300)
    document = plan.to_document()
    assert document["num_local"] == 1
    again = flmc.Plan.from_document(document)
    assert again.num_local == 1
    assert again.digest == plan.digest
    linear = flmc.LinearGaussian(flmc.data.draw_linear(seed=1))
    assert "num_local" not in flmc.plan(linear, flmc.Analog()).to_document()
