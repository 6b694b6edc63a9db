"""Curvatures that are measured: against dense second derivatives at a mode that is found
independently, whatever the units, the start and the order of examples."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flmc
from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.data import FederatedData
from flmc.models.affine import Coordinates
from flmc.models.log_density import LogDensityModel
from support import full, full_only

jax = pytest.importorskip("jax", reason="needs the extra jax")
jnp = jax.numpy

POSTERIORS = Path(__file__).parents[3] / "shared" / "data" / "posteriordb"
with_posteriors = pytest.mark.skipif(
    not POSTERIORS.is_dir(), reason="needs ../shared/data/posteriordb, which is not committed"
)


def read(name: str) -> dict[str, Array]:
    values = json.loads((POSTERIORS / f"{name}.data.json").read_text())
    return {key: np.asarray(value, np.float64) for key, value in values.items()}


def dealt(features: Array, targets: Array, num_devices: int = 4) -> FederatedData:
    sizes = [len(part) for part in np.array_split(targets, num_devices)]
    return FederatedData(features, targets, tuple(sizes))


def made(*words: Any, **more: Any) -> LogDensityModel:
    model = flmc.Model.from_log_density(*words, **more)
    assert isinstance(model, LogDensityModel)
    return model


def eight_schools(order: Any) -> LogDensityModel:
    """The non-centred model with the schools, and so the rows, in some order."""
    data = read("eight_schools")
    features = np.column_stack([data["sigma"][order], np.eye(8)])

    def log_prior(w: Any) -> Any:
        tau = jnp.log1p(jnp.square(jnp.exp(w["log_tau"]) / 5)) - w["log_tau"]
        return -0.5 * jnp.sum(w["z"] ** 2) - 0.5 * (w["mu"] / 5) ** 2 - tau

    def log_likelihood(w: Any, row: Any) -> Any:
        effect = jnp.exp(w["log_tau"]) * (w["z"] @ row["x"][1:])
        return -0.5 * ((row["y"] - w["mu"] - effect) / row["x"][0]) ** 2

    start = {"mu": 0.0, "log_tau": 0.0, "z": np.zeros(8)}
    return made(log_prior, log_likelihood, dealt(features, data["y"][order], 8), start)


def ends_at_mode(cost: Callable[[Any], Any], near: Array) -> tuple[Array, Array]:
    """The mode and its curvatures, ascending, by plain Newton steps from a place near it."""
    with jax.enable_x64():
        gradient, hessian = jax.jit(jax.grad(cost)), jax.jit(jax.hessian(cost))
        theta = near
        for _ in range(20):
            theta = theta - np.linalg.solve(np.array(hessian(theta)), np.array(gradient(theta)))
        return theta, np.linalg.eigvalsh(np.array(hessian(theta)))


@full_only
@with_posteriors
def test_the_order_of_rows_does_not_matter() -> None:
    """Power iteration and plain descent gave a smoothness between 1.6 and 12.8."""
    orders = [np.arange(8), np.arange(8)[::-1]]
    orders += [np.random.default_rng(seed).permutation(8) for seed in range(full(4, 1))]
    found = [eight_schools(order) for order in orders]
    for each in found:
        assert each.smoothness == pytest.approx(12.02841, rel=1e-5)  # by SciPy, once
        assert each.convexity == pytest.approx(0.0408055, rel=1e-5)
        assert each.whitened().smoothness == pytest.approx(1.0, rel=1e-6)


@full_only
@with_posteriors
@pytest.mark.parametrize("log_sigma", [0.0, 4.0])
def test_raw_coordinates_of_a_regression(log_sigma: float) -> None:
    """Mothers' IQ of about 100 beside an intercept: curvatures from 0.03 to 13 000. A start with
    a spread that is far too small is no excuse."""
    data = read("kidiq")
    features = np.column_stack([np.ones(len(data["mom_iq"])), data["mom_iq"]])
    score = data["kid_score"]

    def log_prior(w: Any) -> Any:
        return w["log_sigma"] - jnp.log1p(jnp.square(jnp.exp(w["log_sigma"]) / 2.5))

    def log_likelihood(w: Any, row: Any) -> Any:
        gap = row["y"] - row["x"] @ w["b"]
        return -0.5 * jnp.square(gap * jnp.exp(-w["log_sigma"])) - w["log_sigma"]

    def cost(theta: Any) -> Any:
        sigma = jnp.exp(theta[2])
        gaps = (score - features @ theta[:2]) / sigma
        normal = 0.5 * jnp.sum(gaps**2) + len(score) * theta[2]
        return normal - theta[2] + jnp.log1p(jnp.square(sigma / 2.5))

    least = np.linalg.lstsq(features, score)[0]
    spread = np.log(np.std(score - features @ least))
    mode, true = ends_at_mode(cost, np.append(least, spread))
    start = {"b": np.zeros(2), "log_sigma": log_sigma}
    model = made(log_prior, log_likelihood, dealt(features, score), start)
    assert model.convexity is not None
    assert model.smoothness is not None
    # Largest over start and mode; smallest at the mode, or at a start that curves up everywhere.
    with jax.enable_x64():
        there = np.linalg.eigvalsh(jax.hessian(cost)(np.array([0.0, 0.0, log_sigma])))
    least_curved = min(true[0], there[0]) if there[0] > 0 else true[0]
    assert model.convexity == pytest.approx(least_curved, rel=1e-5)
    assert model.smoothness == pytest.approx(max(true[-1], np.abs(there).max()), rel=1e-5)
    assert model.convexity <= 0.0288
    found, covariance = model.laplace()
    np.testing.assert_allclose(found, mode, rtol=1e-6)
    assert np.linalg.eigvalsh(covariance)[-1] == pytest.approx(1 / true[0], rel=1e-5)
    white = model.whitened()
    assert white.smoothness == pytest.approx(1.0, rel=1e-6)
    assert white.convexity == pytest.approx(1.0, rel=1e-6)


def logistic(features: Array, targets: Array, prior_sd: Array) -> LogDensityModel:
    return made(
        lambda w: -0.5 * jnp.sum(jnp.square(w / prior_sd)),
        lambda w, row: -jnp.logaddexp(0.0, -row["y"] * (row["x"] @ w)),
        dealt(features, targets),
        np.zeros(features.shape[1]),
    )


def test_unlike_units() -> None:
    """Logistic regressions whose features have units that differ by up to a factor of 10^8, in any
    order: the mode is that in common units, and curvatures are those there."""
    for seed in range(full(8, 2)):
        rng = np.random.default_rng(seed)
        dim = int(rng.integers(2, 7))
        common = rng.standard_normal((120, dim)) @ rng.standard_normal((dim, dim))
        chances = 1 / (1 + np.exp(-common @ rng.standard_normal(dim)))
        targets = np.where(rng.random(120) < chances, 1.0, -1.0)
        units = 10.0 ** rng.uniform(-4, 4, dim)
        model = logistic(common * units, targets, 3.0 / units)
        # Newton's method by hand in common units, where it is well conditioned.
        theta, hessian = np.zeros(dim), np.eye(dim)
        for _ in range(100):
            share = 1 / (1 + np.exp(targets * (common @ theta)))
            slope = theta / 9 - common.T @ (targets * share)
            hessian = (common.T * (share * (1 - share))) @ common + np.eye(dim) / 9
            step = np.linalg.solve(hessian, slope)
            theta = theta - step / max(1.0, float(np.linalg.norm(step)))
        at_start = common.T @ common / 4 + np.eye(dim) / 9
        # The smallest curvature in raw units is one over the largest variance.
        covariance = np.linalg.inv(hessian) / np.outer(units, units)
        wider = np.linalg.inv(at_start) / np.outer(units, units)
        smallest = min(1 / np.linalg.eigvalsh(each)[-1] for each in (covariance, wider))
        largest = max(
            np.linalg.eigvalsh(each * np.outer(units, units))[-1] for each in (hessian, at_start)
        )
        assert model.smoothness == pytest.approx(largest, rel=1e-6)
        assert model.convexity == pytest.approx(smallest, rel=1e-6)
        np.testing.assert_allclose(model.laplace()[0] * units, theta, rtol=1e-5, atol=1e-7)
        white = model.whitened()
        assert white.smoothness == pytest.approx(1.0, abs=1e-5)
        assert white.convexity == pytest.approx(1.0, abs=1e-5)


@full_only
def test_many_entries_have_bounds_on_the_safe_side() -> None:
    """Above 300 entries: never below the largest and never above the smallest curvature."""
    rng = np.random.default_rng(2)
    dim = 320
    # A few large curvatures above many small ones, which power iteration underestimates.
    features = rng.standard_normal((400, dim)) * np.geomspace(1.0, 0.01, dim)
    targets = np.where(rng.random(400) < 0.5, 1.0, -1.0)
    model = logistic(features, targets, np.ones(dim))
    hessian = features.T @ features / 4 + np.eye(dim)
    true = np.linalg.eigvalsh(hessian)  # at 0, where curvatures of likelihoods are largest
    assert model.smoothness is not None
    assert true[-1] <= model.smoothness <= 1.03 * true[-1]
    # The smallest is that of the prior almost, in directions that no example is seen to have.
    assert model.convexity is None or model.convexity <= true[0] * (1 + 1e-9)


def test_no_mode_is_refused() -> None:
    """Labels that a plane separates, without a prior: the likelihood rises for ever."""
    rng = np.random.default_rng(1)
    features = rng.standard_normal((60, 2))
    with pytest.raises(InvalidSetting, match="finds no mode"):
        logistic(features, np.sign(features[:, 0]), np.full(2, 1e30))


def test_saddles_flat_directions_and_kinks() -> None:
    """A start on a saddle by symmetry; an entry that nothing depends on; a prior with a kink."""
    data = dealt(np.ones((8, 1)), np.full(8, 2.0))

    def saddle(w: Any, row: Any) -> Any:
        return -0.5 * (row["y"] - w[0] * w[1]) ** 2

    model = made(lambda w: -0.5 * jnp.sum(w**2) / 9, saddle, data, np.zeros(2))
    mode, _ = model.laplace()
    # Stationary: 8 (2 - ab) b = a/9 and the same for b, so a = b and ab = 2 - 1/72.
    np.testing.assert_allclose(np.abs(mode), np.sqrt(2 - 1 / 72), rtol=1e-6)

    flat = made(
        lambda w: -0.5 * w[0] ** 2,
        lambda w, row: -0.5 * (row["y"] - w[0]) ** 2,
        data,
        np.array([0.0, 1.0]),
        start_sd=1.0,
    )
    assert flat.smoothness == pytest.approx(9.0)
    assert flat.convexity is None
    with pytest.raises(InvalidSetting, match="flat in some direction"):
        flat.whitened()

    kink = made(
        lambda w: -30.0 * jnp.sum(jnp.abs(w)),
        lambda w, row: -0.5 * (row["y"] - w[0]) ** 2,
        data,
        np.full(1, 0.7),
        start_sd=1.0,
    )
    assert kink.smoothness == pytest.approx(8.0)


def test_only_a_missing_second_derivative_is_called_so() -> None:
    data = dealt(np.ones((8, 1)), np.full(8, 2.0))
    steep: Any = lambda w, row: -jnp.sum(jnp.abs(w) ** 1.5)  # noqa: E731
    with pytest.raises(InvalidSetting, match="no finite second derivative at the start"):
        made(lambda w: 0.0 * w[0], steep, data, np.zeros(1), start_sd=1.0)
    # Overflows on the way of a full Newton step, not at the start nor at the mode.
    far = made(
        lambda w: -0.5 * jnp.sum(w**2),
        lambda w, row: -jnp.sum(jnp.exp(-row["y"] * w) + 1e-3 * jnp.exp(w)),
        data,
        np.full(1, 40.0),
    )
    assert far.convexity is not None
    mode = far.laplace()[0][0]
    slope = mode - 16 * np.exp(-2 * mode) + 8e-3 * np.exp(mode)
    assert slope == pytest.approx(0.0, abs=1e-6)


def test_a_scale_in_unlike_units_is_invertible() -> None:
    scale = Coordinates(np.zeros(3), np.array([1e-9, 1.0, 1e9])).scale
    np.testing.assert_array_equal(np.diag(scale), [1e-9, 1.0, 1e9])
    with pytest.raises(InvalidSetting, match="must be invertible"):
        Coordinates(np.zeros(2), np.array([[1e-9, 1e-9], [1.0, 1.0]]))


def test_starts_from_a_prior_whose_entries_depend_on_each_other() -> None:
    """The spread of starts is one over the root of the diagonal, whatever else is in the matrix."""
    precision = np.array([[4.0, 1.9, 0.9], [1.9, 1.0, 0.4], [0.9, 0.4, 9.0]])
    model = made(
        lambda w: -0.5 * w @ (precision @ w),
        lambda w, row: -0.5 * jnp.sum((row["y"] - w) ** 2),
        dealt(np.ones((8, 1)), np.full(8, 2.0)),
        np.zeros(3),
    )
    np.testing.assert_allclose(model.prior.sd, [0.5, 1.0, 1 / 3], rtol=1e-9)
