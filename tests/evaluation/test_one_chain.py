"""What one chain delivers, against the same from its draws one by one."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg

import flmc
from flmc.evaluation.exact_posterior import ExactPosterior
from flmc.evaluation.one_chain import Spread, measure_one_chain
from flmc.models.distributions import Gaussian
from flmc.sampling.moments import Moments
from flmc.uplink.example_clipping import shrink_factor
from support import full


def test_numbers_of_single_chains_are_those_of_their_draws() -> None:
    data = flmc.data.draw_linear(
        seed=2, num_samples=90, dim=2, num_devices=3, num_experiments=2, theta=np.array([0.3, -0.2])
    )
    model = flmc.LinearGaussian(data)
    plan = flmc.plan(model, flmc.Digital(), num_rounds=60, num_burn_in=30, start="zero")
    result = flmc.run(plan, model, seed=1, chains=4, engine="numpy")
    draws, one = result.chains, result.one_chain
    assert draws is not None
    assert one is not None
    errors, ratios, distances, products = (np.empty((2, 4)) for _ in range(4))
    for e, c in np.ndindex(2, 4):
        sigma = model.posterior.covariance[e]
        away = draws[e].mean(axis=1) - model.posterior.mean[e]
        fitted = np.cov(draws[e, c].T, bias=True)
        root = scipy.linalg.sqrtm(sigma)
        cross = np.trace(scipy.linalg.sqrtm(root @ fitted @ root)).real
        errors[e, c] = away[c] @ away[c] / np.trace(sigma)
        ratios[e, c] = np.trace(fitted) / np.trace(sigma)
        distances[e, c] = errors[e, c] + 1 + ratios[e, c] - 2 * cross / np.trace(sigma)
        products[e, c] = away[c] @ np.delete(away, c, 0).mean(axis=0) / np.trace(sigma)
    assert one.wasserstein2 is not None
    for found, values in (
        (one.mean_error, errors),
        (one.variance_ratio, ratios),
        (one.wasserstein2, distances),
    ):
        assert found.mean == pytest.approx(values.mean(), rel=1e-6)
        assert found.sd == pytest.approx(values.std(ddof=1), rel=1e-6)
        # Two data sets: the standard error is half of their difference.
        assert found.se == pytest.approx(abs(np.diff(values.mean(axis=1))[0]) / 2, rel=1e-6)
    assert one.common_error.mean == pytest.approx(products.mean(), rel=1e-6)


def test_what_all_chains_share_is_told_from_chance() -> None:
    """Chains of independent draws with a shift of half a standard deviation in each of 3 entries:
    shared is 0.25, and a chain of 10 draws has 0.1 more."""
    rng = np.random.default_rng(1)
    chains, kept = 2000, 10
    posterior = Gaussian(np.zeros((1, 3)), np.eye(3)[None])
    moments = Moments.empty(posterior.mean, chains, kept)
    for _ in range(kept):
        moments.add(0.5 + rng.standard_normal((1, chains, 3)), slice(0, 1), 0)
    one = measure_one_chain(moments, ExactPosterior(posterior))
    assert one is not None
    assert abs(one.common_error.mean - 0.25) < 5 * one.common_error.se
    assert abs(one.mean_error.mean - 0.35) < 5 * one.mean_error.se
    # About its own mean a chain of n draws has a variance of 1 - 1/n.
    assert abs(one.variance_ratio.mean - 0.9) < 5 * one.variance_ratio.se
    assert one.common_error.se < 0.02
    assert measure_one_chain(moments.in_batches(), ExactPosterior(posterior)) is None


def test_one_chain_has_no_spread() -> None:
    spread = Spread.of(np.array([[2.0]]))
    assert spread.to_document() == {"mean": 2.0, "sd": None, "se": None}


def test_the_old_advertisement_was_of_many_chains() -> None:
    """Its epsilon of 0.51 paid for one chain, whose mean is off by half of the trace, where 2.7 %
    were shown; all 40 chains cost 3.9."""
    shrink = shrink_factor(4.0)
    uplink = flmc.Digital(
        link=flmc.Sigmoid(0.011), clip=700.0, snr_db=8.4, example_clip=4.0, example_shrink=shrink
    )
    limits = flmc.Limits(epsilon=1.0, scope="run", run_delta=1e-5, neighbouring="example")
    model = flmc.LinearGaussian(
        flmc.data.draw_linear(seed=100, num_samples=120_000, dim=5, num_devices=50)
    )
    plan = flmc.plan(
        model,
        uplink,
        limits,
        step_size=7.58e-5,
        start="zero",
        num_rounds=190,
        num_burn_in=130,
        num_fast=40,
        burn_in_step_factor=8.0,
        public_smoothness=150_000.0,
        public_convexity=90_000.0,
        forecast=False,
    )
    assert plan.effective_draws is not None
    assert 1 < plan.effective_draws < 2
    result = flmc.run(plan, model, seed=100, chains=full(40, 12), keep_draws=False)
    assert result.one_chain is not None
    assert abs(result.one_chain.mean_error.mean - 0.52) < 5 * result.one_chain.mean_error.se
    many = plan.release(40).cost
    assert many is not None
    assert 3.5 < many.epsilon < 4.1
    assert "of one chain; all" in str(result)
    assert f"all {full(40, 12)} chains together" in str(result)
