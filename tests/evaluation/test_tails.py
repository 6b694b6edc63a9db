"""The shape of draws: bursts are seen, and normal draws are left alone."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import kurtosis, kurtosistest

from flmc.base.arrays import Array
from flmc.evaluation.diagnostics import judge_mixing
from flmc.evaluation.tails import judge_shape, kurtosis_score
from support import full, full_only


def noted(chains: Array) -> tuple[bool, bool]:
    """Whether the tails of draws (chain, draw, dim) are judged, which takes 200 effective draws of
    the entry with fewest; and whether they are noted."""
    every = chains[None]
    mixing = judge_mixing(every)
    assert mixing is not None
    return mixing.entries.ess_bulk >= 200.0, bool(judge_shape(every, mixing))


@pytest.mark.parametrize("count", [20, 200, 5000])
def test_the_score_is_that_of_scipy(count: int) -> None:
    numbers = np.random.default_rng(count).standard_t(6, count)
    score = kurtosis_score(float(kurtosis(numbers)), count)
    assert score == pytest.approx(kurtosistest(numbers).statistic, rel=1e-9)


@full_only
@pytest.mark.parametrize("shape", [(1, 400, 400), (4, 100, 5), (10, 400, 1)])
def test_normal_draws_are_left_alone(shape: tuple[int, int, int]) -> None:
    """With five standard deviations of a kurtosis in the place of the score, about one in eight of
    the first shape were warned of."""
    rng, trials = np.random.default_rng(7), full(400, 100)
    judged, alarms = np.sum([noted(rng.standard_normal(shape)) for _ in range(trials)], axis=0)
    assert judged > trials / 2
    # One in a thousand is allowed; five standard errors of a count of mean 0.4 are 3.2.
    assert alarms <= 3


@pytest.mark.parametrize("shape", [(4, 500, 5), (20, 200, 2), (1, 4000, 50)])
def test_heavy_tails_are_seen(shape: tuple[int, int, int]) -> None:
    """Draws of a Student law whose excess kurtosis 6/(nu - 4) is 2.16."""
    rng = np.random.default_rng(8)
    every = [noted(rng.standard_t(4.0 + 6.0 / 2.16, shape)) for _ in range(20)]
    assert np.all(every)
