"""Values of single data sets: middle half, heavy tails, paired differences."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binom

import flmc
from flmc.evaluation.data_sets import Middle, PairedDifference
from support import full


def test_one_data_set_in_twenty_makes_tails_heavy() -> None:
    """The case that was met: 9.4 ± 7.7 over 20 data sets, where 19 are near 1.7."""
    values = np.r_[np.linspace(1.5, 1.9, 19), 155.7]
    mean, error = values.mean(), values.std(ddof=1) / math.sqrt(20)
    assert (round(mean, 1), round(error, 1)) == (9.4, 7.7)
    middle = Middle.of(values)
    assert middle.heavy
    assert 1.6 < middle.low < middle.median < middle.high < 1.9
    assert str(middle) == "median 1.711, middle half 1.61 to 1.82"
    # Fewer than 10 data sets do not show what their tails are.
    assert not Middle.of(np.r_[1.0, 1.1, 1.2, 1.3, 100.0]).heavy


def test_normal_values_have_no_heavy_tails() -> None:
    """With 20 normal values the mean is outside the middle half about once in ten thousand times
    (counted: 0.0001), so that 200 trials show none but by a chance of 2 %; the seed is fixed."""
    values = np.random.default_rng(1).standard_normal((200, 20))
    assert not any(Middle.of(each).heavy for each in values)


@pytest.mark.parametrize("count", [2, 5, 6, 7, 19, 20, 100])
def test_the_median_s_interval_holds_for_any_law(count: int) -> None:
    """The interval from one place to its mirror image misses the median if too few, or too many, of
    the values lie below it, whatever their law: the binomial law says how often."""
    differences = np.arange(float(count))
    paired = PairedDifference.of(differences, np.zeros(count))
    if count < 6:
        assert math.isnan(paired.median_low)
        assert 2 * 0.5**count > 0.05
        return
    place = int(paired.median_low)
    assert paired.median_high == count - 1 - place
    misses = 2 * binom.cdf(place, count, 0.5)
    assert misses <= 0.05 < 2 * binom.cdf(place + 1, count, 0.5)


def test_the_median_s_interval_covers_under_cauchy_tails() -> None:
    trials, count, rng = full(2000, 400), 20, np.random.default_rng(3)
    differences = 1.0 + rng.standard_cauchy((trials, count))
    found = [PairedDifference.of(each, np.zeros(count)) for each in differences]
    hits = sum(each.median_low <= 1.0 <= each.median_high for each in found)
    # 20 values: 6th to 15th, which hold in 95.9 % of cases; five standard errors.
    assert abs(hits / trials - 0.9586) < 5 * math.sqrt(0.9586 * 0.0414 / trials)


def test_metrics_have_the_values_of_every_data_set() -> None:
    """The mean over data sets is the metric, and its standard error comes from them."""
    data = flmc.data.draw_linear(seed=1, num_experiments=12, num_samples=80, dim=2, num_devices=4)
    model = flmc.LinearGaussian(data)
    plan = flmc.plan(model, flmc.Analog(), num_rounds=60, num_burn_in=20)
    for chains in (1, 3, 40):
        result = flmc.run(plan, model, chains=chains, engine="numpy", keep_draws=False)
        metrics, one = result.metrics, result.one_chain
        assert metrics is not None
        assert one is not None
        expected = {"mse", "variance_ratio", "mean_error_squared"}
        expected |= {"wasserstein2_squared"} if metrics.independent_draws >= 20 else set()
        assert set(metrics.each) == expected
        for name, values in metrics.each.items():
            stated = metrics.estimates[name]
            assert values.shape == (12,)
            assert values.mean() == pytest.approx(stated.mean, rel=1e-9)
            assert values.std(ddof=1) / math.sqrt(12) == pytest.approx(stated.se, rel=1e-9)
        for name, values in one.each.items():
            assert values.mean() == pytest.approx(getattr(one, name).mean, rel=1e-9)
        document = result.to_document()["over_data_sets"]
        assert document["mse"]["median"] == np.median(metrics.each["mse"])
    single = flmc.LinearGaussian(flmc.data.draw_linear(seed=1, num_samples=80, num_devices=4))
    plan = flmc.plan(single, flmc.Analog(), num_rounds=60, num_burn_in=20)
    alone = flmc.run(plan, single, chains=3, engine="numpy")
    assert alone.metrics is not None
    assert alone.metrics.each == {}
    assert alone.to_document()["over_data_sets"] is None
