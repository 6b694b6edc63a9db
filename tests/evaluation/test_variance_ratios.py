"""The variance ratio is the same number however chains are spread over data sets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import flmc
from flmc.base.arrays import Array
from flmc.evaluation.exact_posterior import ExactPosterior
from flmc.evaluation.metrics import Metrics, measure, variance_ratio_to
from flmc.models.distributions import Gaussian
from flmc.sampling.moments import Moments
from support import full

VARIANCE = np.array([1.0, 5.0, 30.0])
SHIFT = np.array([3.0, -2.0, 4.0])
RATIO, MEMORY, KEPT = 4.0, 0.95, 20


def chains_with_memory(rng: np.random.Generator, experiments: int, chains: int) -> Array:
    """Stationary autoregressions with RATIO times the posterior's variance about SHIFT, (draw,
    experiment, chain, dim)."""
    sd = np.sqrt(RATIO * VARIANCE)
    theta = sd * rng.standard_normal((experiments, chains, 3))
    found = []
    for _ in range(KEPT):
        found.append(theta + SHIFT)
        noise = sd * rng.standard_normal(theta.shape)
        theta = MEMORY * theta + np.sqrt(1 - MEMORY**2) * noise
    return np.array(found)


def measured(draws: Array) -> Metrics:
    """Metrics of draws (draw, experiment, chain, dim) against a posterior about zero."""
    kept, experiments, chains, dim = draws.shape
    posterior = Gaussian(
        np.zeros((experiments, dim)), np.broadcast_to(np.diag(VARIANCE), (experiments, dim, dim))
    )
    moments = Moments.empty(posterior.mean, chains, kept)
    for each in draws:
        moments.add(each, slice(0, experiments), 0)
    moments = moments.in_batches()
    metrics = measure(moments, ExactPosterior(posterior), 1 - MEMORY, chains)
    assert variance_ratio_to(posterior)(moments).mean == metrics.variance_ratio.mean
    return metrics


@pytest.mark.parametrize(
    ("experiments", "chains", "shift_from"),
    [
        (1, 2, "chains"),
        (1, 7, "chains"),
        (1, 45, "chains"),
        (5, 3, "chains"),
        (2, 1, "data sets"),
        (30, 1, "data sets"),
    ],
)
def test_unbiased_and_honest_whatever_the_chains(
    experiments: int, chains: int, shift_from: str
) -> None:
    """Means over repeats are within five of their standard errors. The claimed standard error has
    the spread of the repeats, to 15 % where there are many groups (5 sd of a sd of 600)."""
    rng = np.random.default_rng(1)
    count = full(600, 600 if chains < 45 else 200)
    repeats = [measured(chains_with_memory(rng, experiments, chains)) for _ in range(count)]
    assert {each.shift_from for each in repeats} == {shift_from}
    found = np.array([each.variance_ratio.mean for each in repeats])
    assert abs(found.mean() - RATIO) < 5 * found.std() / np.sqrt(600)
    if max(experiments, chains) >= 20:
        claimed = np.sqrt(np.mean([each.variance_ratio.se**2 for each in repeats]))
        assert claimed == pytest.approx(found.std(), rel=0.15)


def test_directions_are_pooled_over_data_sets_before_the_extremes() -> None:
    """All directions have the same ratio, so that their extremes go together as data sets are
    added: each is within five of its standard errors."""
    metrics = measured(chains_with_memory(np.random.default_rng(2), 2000, 1))
    for extreme in (metrics.variance_ratio_smallest, metrics.variance_ratio_largest):
        assert abs(extreme.mean - RATIO) < 5 * extreme.se
        assert extreme.se < 0.05 * RATIO


def test_one_chain_of_one_data_set_counts_its_shift() -> None:
    metrics = measured(chains_with_memory(np.random.default_rng(3), 1, 1))
    assert metrics.shift_from == "nothing"
    assert metrics.variance_ratio.mean == pytest.approx(metrics.mse.mean / VARIANCE.sum())
    assert np.isnan(metrics.variance_ratio.se)


def test_w2_is_given_only_with_enough_independent_draws() -> None:
    few = measured(chains_with_memory(np.random.default_rng(4), 3, 2))
    assert few.independent_draws < 20
    assert np.isnan(few.wasserstein2_squared.mean)
    assert str(few.wasserstein2_squared) == "-"
    enough = few.chains_for_wasserstein2
    assert enough is not None
    # One chain fewer than asked for is not enough.
    for chains, given in ((enough, True), (enough - 1, False)):
        metrics = measured(chains_with_memory(np.random.default_rng(5), 3, chains))
        assert np.isfinite(metrics.wasserstein2_squared.mean) == given
        assert (metrics.chains_for_wasserstein2 is None) == given


@pytest.mark.parametrize("settings", [{}, {"step_size": 1.5e-3}], ids=["travels", "hot"])
def test_one_chain_of_many_data_sets_and_many_chains_of_one_agree(
    settings: dict[str, Any],
) -> None:
    """At 0 dB, where the ratio is about 30: with the automatic step chains still travel and
    remember all of their past, and one chain about its own mean had a ratio of 0.17. With a large
    step they are hot."""
    found = []
    count = full(800, 200)
    for experiments, chains in ((count, 1), (1, count)):
        model = flmc.LinearGaussian(flmc.data.draw_linear(seed=5, num_experiments=experiments))
        plan = flmc.plan(model, flmc.Digital(snr_db=0), **settings)
        metrics = flmc.run(plan, model, seed=5, chains=chains, keep_draws=False).metrics
        assert metrics is not None
        found.append(metrics.variance_ratio)
    one_chain, one_data_set = found
    assert one_data_set.mean > 10
    # Five standard errors of the difference.
    error = np.hypot(one_chain.se, one_data_set.se)
    assert abs(one_chain.mean - one_data_set.mean) < 5 * error
    assert error < 0.15 * one_data_set.mean


def test_a_result_says_what_it_leaves_out(small: flmc.LinearGaussian) -> None:
    plan = flmc.plan(small, flmc.Digital(), num_rounds=40, num_burn_in=20)
    result = flmc.run(plan, small, chains=1)
    document = result.to_document()
    assert document["metrics"]["wasserstein2_squared"] == {"mean": None, "se": None}
    chains = result.metrics.chains_for_wasserstein2 if result.metrics else None
    for text in (str(result), " ".join(document["notes"])):
        assert f"use {chains} or more chains" in text
        assert "counts as spread" in text
    table = str(flmc.compare({"a": flmc.Digital()}, small, chains=1, num_rounds=40, num_burn_in=20))
    assert "or more chains" in table
