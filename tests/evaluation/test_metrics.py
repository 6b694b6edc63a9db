"""Metrics of exact samples, and of samples that are wrong in a known way."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg

from flmc.base.arrays import Array
from flmc.evaluation.exact_posterior import ExactPosterior
from flmc.evaluation.metrics import Metrics, measure
from flmc.models.distributions import Gaussian
from flmc.sampling.moments import Moments

MEAN = np.array([1.0, -2.0, 0.5])
ROOT = np.array([[0.5, 0, 0], [0.2, 0.3, 0], [-0.1, 0.1, 0.2]])
POSTERIOR = Gaussian(MEAN[None], (ROOT @ ROOT.T)[None])


def measured(draws: Array, effective_step: float | None = None) -> Metrics:
    """Metrics of draws (chain, draw, dim) of one data set."""
    moments = Moments.empty(POSTERIOR.mean, len(draws), draws.shape[1])
    for index in range(draws.shape[1]):
        moments.add(draws[None, :, index], slice(0, 1), 0)
    return measure(moments.in_batches(), ExactPosterior(POSTERIOR), effective_step, len(draws))


def exact(rng: np.random.Generator, chains: int, kept: int) -> Array:
    return np.asarray(MEAN + rng.standard_normal((chains, kept, 3)) @ ROOT.T)


def test_exact_samples() -> None:
    metrics = measured(exact(np.random.default_rng(0), 200, 50))
    trace = np.trace(ROOT @ ROOT.T)
    assert metrics.posterior_trace == pytest.approx(trace)
    assert abs(metrics.mse.mean - trace) < 5 * metrics.mse.se
    assert abs(metrics.variance_ratio.mean - 1) < 5 * metrics.variance_ratio.se
    assert metrics.variance_ratio_smallest.mean < 1 < metrics.variance_ratio_largest.mean
    assert metrics.num_draws == 10_000


def test_standard_errors_are_honest() -> None:
    """Over many repeats the spread of an estimate is what its standard error says: 15 % is 5 sd of
    a sd of 600."""
    rng = np.random.default_rng(1)
    repeats = [measured(exact(rng, 100, 4)) for _ in range(600)]
    for name in ("mse", "variance_ratio"):
        spread = np.std([m.estimates[name].mean for m in repeats])
        claimed = np.sqrt(np.mean([m.estimates[name].se ** 2 for m in repeats]))
        assert claimed == pytest.approx(spread, rel=0.15)


def test_wasserstein_distance_and_its_floor() -> None:
    rng = np.random.default_rng(2)
    chains = 400
    repeats = [measured(exact(rng, chains, 1)) for _ in range(300)]
    values = np.array([m.wasserstein2_squared.mean for m in repeats])
    # First order in 1/n: the next term is smaller by about dim/n = 1 %.
    assert (
        abs(values.mean() - repeats[0].wasserstein2_floor)
        < 5 * values.std() / np.sqrt(300) + 0.02 * values.mean()
    )


def test_wasserstein_distance_by_another_formula() -> None:
    draws = exact(np.random.default_rng(3), 50, 20) * 1.3 + 0.1
    metrics = measured(draws)
    flat = draws.reshape(-1, 3)
    fitted, sigma = np.cov(flat.T, bias=True), ROOT @ ROOT.T
    root = scipy.linalg.sqrtm(sigma)
    cross = np.trace(scipy.linalg.sqrtm(root @ fitted @ root)).real
    expected = (
        np.sum((flat.mean(axis=0) - MEAN) ** 2) + np.trace(fitted) + np.trace(sigma) - 2 * cross
    )
    assert metrics.wasserstein2_squared.mean == pytest.approx(expected, rel=1e-9)
    assert metrics.mean_error_squared.mean == pytest.approx(np.sum((flat.mean(axis=0) - MEAN) ** 2))
    # 50 chains make 17 batches of 3 (the last of 2): the square of the shift is the mean product of
    # a batch's mean with that of all others.
    deviation = draws - MEAN
    product = sum(
        np.sum(
            deviation[b : b + 3].sum(axis=(0, 1))
            * np.delete(deviation, slice(b, b + 3), 0).mean(axis=(0, 1))
        )
        for b in range(0, 50, 3)
    )
    spread = np.sum(deviation**2) / 1000 - product / 1000
    assert metrics.variance_ratio.mean == pytest.approx(spread / np.trace(sigma))
    np.testing.assert_allclose(
        metrics.mse.mean, np.mean(np.sum((flat - MEAN) ** 2, axis=1)), rtol=1e-12
    )


def test_a_collapsed_sampler_has_a_small_mse_and_a_small_ratio() -> None:
    metrics = measured(np.broadcast_to(MEAN, (20, 5, 3)) + 1e-9)
    assert metrics.mse.mean < 1e-12
    assert metrics.variance_ratio.mean == pytest.approx(0.0, abs=1e-9)
    assert metrics.wasserstein2_squared.mean == pytest.approx(metrics.posterior_trace, rel=1e-6)


def test_independent_draws_of_an_autoregression() -> None:
    """Draws of an AR(1) chain are worth n (1 - rho)/(1 + rho): compare with the spread of chain
    means."""
    rng = np.random.default_rng(4)
    rho, kept = 0.8, 400
    noise = rng.standard_normal((2000, kept, 3))
    chain = np.empty_like(noise)
    chain[:, 0] = noise[:, 0]
    for s in range(1, kept):
        chain[:, s] = rho * chain[:, s - 1] + np.sqrt(1 - rho**2) * noise[:, s]
    unit = Gaussian(np.zeros((1, 3)), np.eye(3)[None])
    moments = Moments.empty(unit.mean, 2000, kept)
    claimed = measure(moments, ExactPosterior(unit), 1 - rho, 2000).independent_draws / 2000
    # A variance from 2000 chains times 3 entries has a standard error of sqrt(2/6000) = 1.8 %.
    assert claimed == pytest.approx(1 / chain.mean(axis=1).var(), rel=0.1)


def test_wasserstein_floor_of_chains_with_memory() -> None:
    """Exact autoregressions, a spectrum spread over a factor of 30: the floor is what they show on
    average."""
    rng = np.random.default_rng(6)
    variance, step, kept, chains = np.array([1.0, 5.0, 30.0]), 0.3, 60, 160
    rho = 1 - step / variance
    posterior = Gaussian(np.zeros((1, 3)), np.diag(variance)[None])
    values, floor = [], 0.0
    for _ in range(200):
        chain = np.empty((chains, kept, 3))
        chain[:, 0] = np.sqrt(variance) * rng.standard_normal((chains, 3))
        for s in range(1, kept):
            noise = np.sqrt(variance * (1 - rho**2)) * rng.standard_normal((chains, 3))
            chain[:, s] = rho * chain[:, s - 1] + noise
        moments = Moments.empty(posterior.mean, chains, kept)
        for s in range(kept):
            moments.add(chain[None, :, s], slice(0, 1), 0)
        metrics = measure(moments.in_batches(), ExactPosterior(posterior), step, chains)
        values.append(metrics.wasserstein2_squared.mean)
        floor = metrics.wasserstein2_floor
    # First order in 1/n: with about 180 independent draws the next order may be 5 %; 5 standard
    # errors are 12 %.
    assert np.mean(values) == pytest.approx(
        floor, rel=0.05 + 5 * float(np.std(values) / np.mean(values) / 200**0.5)
    )


def test_one_chain_has_no_standard_error() -> None:
    metrics = measured(exact(np.random.default_rng(5), 1, 100))
    assert np.isnan(metrics.mse.se)
