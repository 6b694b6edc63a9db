"""One seed, the same numbers, however the work is cut."""

from __future__ import annotations

import numpy as np
import pytest

import flmc
from flmc.base.arrays import Array
from flmc.sampling import numpy_engine as engine

UPLINKS = [
    flmc.Digital(),
    flmc.Analog(),
    flmc.Ideal(),
    flmc.Digital(fading=flmc.RayleighFading(0.04)),
]


def draws(
    model: flmc.Model, uplink: flmc.Uplink, seed: int, chains: int = 3, at_once: int | None = None
) -> Array:
    plan = flmc.plan(model, uplink, flmc.Limits(), num_rounds=150, num_burn_in=100)
    return flmc.run(plan, model, seed=seed, chains=chains, experiments_at_once=at_once).draws


@pytest.mark.parametrize("uplink", UPLINKS, ids=lambda u: f"{u.scheme}-{type(u.fading).__name__}")
def test_same_seed_same_numbers(small: flmc.LinearGaussian, uplink: flmc.Uplink) -> None:
    first = draws(small, uplink, 1)
    np.testing.assert_array_equal(first, draws(small, uplink, 1))
    assert not np.isclose(first, draws(small, uplink, 2)).any()


@pytest.mark.parametrize("uplink", UPLINKS, ids=lambda u: f"{u.scheme}-{type(u.fading).__name__}")
def test_chunks_change_nothing(
    small: flmc.LinearGaussian, uplink: flmc.Uplink, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = draws(small, uplink, 1, at_once=3)
    np.testing.assert_array_equal(whole, draws(small, uplink, 1, at_once=1))
    np.testing.assert_array_equal(whole, draws(small, uplink, 1, at_once=2))
    plan = flmc.plan(small, uplink, flmc.Limits(), num_rounds=150, num_burn_in=100)
    plain = flmc.run(plan, small, seed=1, chains=3, engine="numpy").draws
    monkeypatch.setattr(engine, "_BUFFER_NUMBERS", 500)
    np.testing.assert_array_equal(
        plain, flmc.run(plan, small, seed=1, chains=3, engine="numpy").draws
    )


def test_metrics_do_not_depend_on_chunks(small: flmc.LinearGaussian) -> None:
    plan = flmc.plan(small, flmc.Digital(), num_rounds=50, num_burn_in=10)
    results = [
        flmc.run(plan, small, seed=1, chains=41, experiments_at_once=n).to_document()
        for n in (1, 2, 3)
    ]
    for result in results:
        result.pop("seconds")
    assert results[0]["metrics"] == results[1]["metrics"] == results[2]["metrics"]


def test_draws_agree_with_moments(small: flmc.LinearGaussian) -> None:
    plan = flmc.plan(small, flmc.Digital(), num_rounds=50, num_burn_in=10)
    result = flmc.run(plan, small, seed=1, chains=23)
    assert result.chains is not None
    pooled = result.chains.reshape(3, -1, 3)
    np.testing.assert_allclose(result.mean, pooled.mean(axis=1), rtol=1e-10)
    for experiment in range(3):
        np.testing.assert_allclose(
            result.covariance[experiment], np.cov(pooled[experiment].T, bias=True), rtol=1e-8
        )


def test_data_sets_do_not_depend_on_their_number() -> None:
    few = flmc.data.draw_linear(seed=4, num_samples=30, num_devices=3, num_experiments=2)
    many = flmc.data.draw_linear(seed=4, num_samples=30, num_devices=3, num_experiments=5)
    one = flmc.data.draw_linear(seed=4, num_samples=30, num_devices=3)
    np.testing.assert_array_equal(few.features, many.features[:2])
    np.testing.assert_array_equal(one.features, many.features[0])
    source = flmc.data.draw_linear_statistics(
        seed=4, num_samples=30, num_devices=3, num_experiments=5
    )
    statistics = source.rows(range(5))
    np.testing.assert_array_equal(statistics.gram, many.to_statistics().gram)
    np.testing.assert_array_equal(statistics.moment, many.to_statistics().moment)


def test_schemes_see_the_same_channel_noise(small: flmc.LinearGaussian) -> None:
    """Two uplinks that differ in nothing but the quantiser's parameter start alike and get the same
    noise."""
    plans = [
        flmc.plan(
            small,
            flmc.Digital(link=flmc.Sigmoid(a)),
            flmc.Limits(langevin="off"),
            num_rounds=1,
            num_burn_in=0,
            step_size=0.01,
            gain=0.1,
        )
        for a in (1e-9, 2e-9)
    ]
    first, second = (flmc.run(plan, small, seed=1).draws for plan in plans)
    # Links so flat that both make the same fair bits from the same uniform numbers.
    np.testing.assert_allclose(first, second, atol=1e-12)


def test_memory_does_not_grow_with_rounds(small: flmc.LinearGaussian) -> None:
    import tracemalloc

    peaks = []
    for rounds in (200, 2000):
        plan = flmc.plan(small, flmc.Digital(), num_rounds=rounds, num_burn_in=100)
        tracemalloc.start()
        flmc.run(plan, small, seed=1, chains=5, keep_draws=False)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    # Only the list of step sizes may grow: 8 bytes a round, several temporaries.
    assert peaks[1] - peaks[0] < 200 * (2000 - 200)
