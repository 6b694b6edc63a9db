"""Temperatures of single runs on random channels, and what is said where they differ."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import flmc
from flmc.base.arrays import Array
from support import full

SETTINGS: dict[str, Any] = {"num_rounds": 900, "num_burn_in": 400}
LIMITS = flmc.Limits(privacy="off")


@pytest.fixture(scope="module")
def model() -> flmc.LinearGaussian:
    return flmc.LinearGaussian(flmc.data.draw_linear(seed=1))


def _temperatures(plan: flmc.Plan, factor: float, num_runs: int) -> Array:
    """Temperatures of drawn runs over Rician fading, computed anew: analog symbols, one path gain
    for all entries of a device."""
    rng = np.random.default_rng(7)
    kept = plan.num_rounds - plan.num_burn_in
    shape = (num_runs, kept, plan.num_devices)
    sight, spread = np.sqrt(factor / (factor + 1)), np.sqrt(0.5 / (factor + 1))
    both = rng.standard_normal((2, *shape)) * spread
    h = 0.04 * np.hypot(sight + both[0], both[1])
    gain = np.minimum(plan.gain.max(), np.sqrt(10**2.5) / 30.0 * h.min(axis=2))
    return np.asarray(plan.step_size / 2.0 * (gain**-2.0).mean(axis=1))


def test_deep_fades_decide_single_runs(model: flmc.LinearGaussian) -> None:
    """The mean over the rounds on which the plan counts is one draw of a law without a mean; the
    median of the runs is known, and is that of an independent simulation."""
    uplink = flmc.Analog(fading=flmc.RicianFading(0.04, 1.0))
    plan = flmc.plan(model, uplink, LIMITS, **SETTINGS)
    runs = plan.over_runs
    assert runs is not None
    assert runs.uneven
    drawn = np.sort(_temperatures(plan, 1.0, full(2000, 400)))
    # The median of n = 39 runs is at a rank that is normal about a half with the standard deviation
    # 0.5/sqrt(n), of which five are taken.
    error = 5 * 0.5 / np.sqrt(runs.num_runs)
    low, high = np.quantile(drawn, (max(0.0, 0.5 - error), min(1.0, 0.5 + error)))
    assert low < runs.median < high
    assert runs.low < np.quantile(drawn, 0.3)
    assert runs.high > np.quantile(drawn, 0.7)
    (finding,) = [each for each in plan.findings if each.code == "deep-fades"]
    assert finding.numbers["median"] == runs.median
    rows = {row.label: row.value for row in plan.listing().rows}
    assert f"of single runs: {runs}" in rows["temperature"]
    assert "of single runs: median" in rows["predicted variance ratio"]
    # Half of the power buys no steadier runs with an automatic step, so it is no cure.
    (heat,) = [each for each in plan.findings if each.code == "temperature"]
    assert "let devices in them be silent, or use more SNR at this step" in heat.message


def test_silent_devices_in_deep_fades_are_the_cure(model: flmc.LinearGaussian) -> None:
    """Where all runs have one temperature, it is that of the plan to the 3 % that differ between
    two draws of 500 rounds."""
    uplink = flmc.Analog(fading=flmc.RicianFading(0.04, 1.0))
    for policy in (flmc.ThresholdDevices(0.01), flmc.StrongestDevices(15)):
        plan = flmc.plan(model, uplink, LIMITS, scheduler=policy, **SETTINGS)
        assert plan.over_runs is not None
        assert not plan.over_runs.uneven
        assert plan.over_runs.median == pytest.approx(plan.temperature, rel=0.03)
        assert not {each.code for each in plan.findings} & {"deep-fades", "temperature"}


def test_known_path_gains_have_one_temperature(model: flmc.LinearGaussian) -> None:
    assert flmc.plan(model, flmc.Analog(), LIMITS, **SETTINGS).over_runs is None


def test_a_usual_data_set_is_compared_where_tails_are_heavy(model: flmc.LinearGaussian) -> None:
    """Mean and standard error of 40 channels show nothing (2.7 ± 0.7 has been seen); their median
    does, and it is what was predicted."""
    many = flmc.LinearGaussian(flmc.data.draw_linear(seed=0, num_experiments=40))
    uplink = flmc.Analog(fading=flmc.RicianFading(0.04, 1.0))
    plan = flmc.plan(many, uplink, LIMITS, num_rounds=2000, num_burn_in=500)
    result = flmc.run(plan, many, chains=5, keep_draws=False)
    assert result.metrics is not None
    assert plan.over_runs is not None
    middle = result.metrics.middles["variance_ratio"]
    assert middle.heavy
    # Quarters of the data sets lie on either side of the middle half, so that its ends bracket the
    # predicted median unless 30 of 40 or more are on one side of it: 1 in 1000.
    assert middle.low < plan.over_runs.median * 1.01 < middle.high
    codes = [each.code for each in result.findings]
    assert "measured-variance" in codes
    assert "prediction-missed" not in codes
    assert "predicted for half of all runs" in str(result)


def test_a_prediction_that_is_missed_is_a_finding(model: flmc.LinearGaussian) -> None:
    plan = flmc.plan(model, flmc.Analog(), LIMITS, **SETTINGS)
    assert plan.prediction is not None
    wrong = replace(plan, prediction=replace(plan.prediction, variance_ratio=1.5))
    found = []
    for planned, missed in ((plan, False), (wrong, True)):
        result = flmc.run(planned, model, chains=200, keep_draws=False)
        found = [each for each in result.findings if each.code == "prediction-missed"]
        assert bool(found) == missed
    assert "1.5: a burn-in too short" in found[0].message
    assert "deep fades" not in found[0].message  # the channel is constant
