"""The check values of the design, section 2: computed, not fitted."""

from __future__ import annotations

import numpy as np
import pytest

import flmc
from flmc.planning.temperature import calibrated_gain, paper_gain, temperature
from flmc.uplink.power import planned_power_limit


def test_power_limit() -> None:
    assert planned_power_limit(flmc.Digital(), 20, 5) == pytest.approx(0.71131, abs=5e-6)
    assert planned_power_limit(flmc.Analog(), 20, 5) == pytest.approx(0.023710, abs=5e-7)


def test_langevin_limit_of_the_paper() -> None:
    assert paper_gain(flmc.Digital(), 8.28e-3, 20) == pytest.approx(0.064343, abs=5e-7)
    assert paper_gain(flmc.Analog(), 1.28e-4, 20) == pytest.approx(0.0080000, abs=5e-8)


def test_calibrated_gain_and_temperature() -> None:
    digital = flmc.Digital()
    assert calibrated_gain(digital, 1.5e-3, 20) == pytest.approx(0.27386, abs=5e-6)
    assert temperature(digital, 8.28e-3, paper_gain(digital, 8.28e-3, 20), 20) == pytest.approx(
        43.3, abs=0.05
    )


def test_auto_step(model: flmc.LinearGaussian) -> None:
    assert flmc.plan(model, flmc.Digital()).step_size == pytest.approx(1.5e-3)
    analog = flmc.plan(model, flmc.Analog())
    assert analog.step_size == pytest.approx(0.4 / model.smoothness)
    assert analog.temperature == pytest.approx(1.0)
    there = flmc.plan(model, flmc.Analog(), draw_at="positions")
    assert there.step_size == pytest.approx(0.4 / (model.smoothness + model.convexity))
    assert there.temperature == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("uplink", "gain", "step_size", "mse", "mse_se"),
    [
        (flmc.Digital(), 0.06, 8.28e-3, 0.279, 0.001),
        (flmc.Analog(), 0.008, 1.28e-4, 0.004535, 0.00001),
    ],
    ids=["digital", "analog"],
)
def test_mse(
    many: flmc.LinearGaussian,
    uplink: flmc.Uplink,
    gain: float,
    step_size: float,
    mse: float,
    mse_se: float,
) -> None:
    plan = flmc.plan(
        many,
        uplink,
        flmc.Limits(langevin="off"),
        gain=gain,
        step_size=step_size,
        draw_at="positions",  # as the check values are
    )
    result = flmc.run(plan, many, seed=1, keep_draws=False)
    assert result.metrics is not None
    # Both values carry a standard error: ours over data sets, the design's as stated.
    assert abs(result.metrics.mse.mean - mse) < 5 * np.hypot(result.metrics.mse.se, mse_se)
