"""Two entries in a symbol, channel uses, and transmit energy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import exp1

import flmc
from flmc.uplink.fadings import PairedFading
from support import full, full_only


@pytest.mark.parametrize("dim", [1, 4, 5])
def test_entries_of_a_symbol_share_a_path_gain(dim: int) -> None:
    paired = PairedFading(flmc.SelectiveFading())
    gains = paired.draw_checked(np.random.default_rng(1), range(50), 3, dim)
    assert gains.shape == (50, 3, dim)
    np.testing.assert_array_equal(gains[..., 0 : dim - 1 : 2], gains[..., 1:dim:2])
    if dim > 2:
        assert (gains[..., 0] != gains[..., 2]).any()


@pytest.mark.parametrize("fading", [flmc.ConstantFading(), flmc.RayleighFading()])
@pytest.mark.parametrize("engine", ["numpy", "numba"])
def test_complex_symbols_halve_the_channel_uses_and_change_nothing_else(
    engine: str, fading: flmc.Fading, small: flmc.LinearGaussian
) -> None:
    """Where entries share a path gain anyway, every draw is the same to the bit."""
    plans = [
        flmc.plan(
            small,
            flmc.Digital(fading=fading, modulation=modulation),
            num_rounds=60,
            num_burn_in=20,
        )
        for modulation in ("real", "complex")
    ]
    real, complex_ = (plan.airtime for plan in plans)
    assert real is not None
    assert complex_ is not None
    assert (real.channel_uses, complex_.channel_uses) == (180, 120)  # three entries, two symbols
    assert real.energy == complex_.energy
    draws = [flmc.run(plan, small, seed=1, chains=2, engine=engine).draws for plan in plans]
    np.testing.assert_array_equal(draws[0], draws[1])
    assert plans[0].digest != plans[1].digest
    assert flmc.Plan.from_document(plans[1].to_document()).digest == plans[1].digest


def test_energy_of_a_constant_channel(model: flmc.LinearGaussian) -> None:
    """A^2 m/h^2 a round, for every device; of analog symbols with the clip, by entry or norm."""
    plan = flmc.plan(model, flmc.Digital(noise_power=2.0))
    assert plan.airtime is not None
    expected = 300 * 5 * (plan.typical_gain / 0.04) ** 2 / 2.0
    assert plan.airtime.energy == pytest.approx(expected)
    assert not plan.airtime.largest
    for clipping, entries in (("entry", 5), ("norm", 1)):
        analog = flmc.plan(model, flmc.Analog(clipping=clipping))
        assert analog.airtime is not None
        assert analog.airtime.largest
        expected = 300 * entries * (30.0 * analog.typical_gain / 0.04) ** 2
        assert analog.airtime.energy == pytest.approx(expected)
    assert flmc.plan(model, flmc.Ideal()).airtime is None


def test_energy_under_truncation(model: flmc.LinearGaussian) -> None:
    r"""Where the gain is the same in all rounds, a device over Rayleigh fading with threshold t
    transmits A^2 m E[h^-2; h >= t] = A^2 m E_1(t^2/s^2)/s^2 a round. 1024 rounds of 20 devices are
    drawn; the standard error of the mean of h^-2 is below 1 %."""
    uplink = flmc.Digital(fading=flmc.RayleighFading(0.04), snr_db=60)
    plan = flmc.plan(
        model,
        uplink,
        flmc.Limits(langevin="off"),
        gain=0.1,
        step_size=1e-4,
        scheduler=flmc.ThresholdDevices(0.02),
    )
    assert plan.airtime is not None
    expected = 300 * 5 * 0.1**2 * exp1(0.25) / 0.04**2
    assert plan.airtime.energy == pytest.approx(expected, rel=0.05)


@full_only
def test_error_against_energy(model: flmc.LinearGaussian) -> None:
    """What a researcher plots: rows of a sweep have both."""
    rows = flmc.sweep(
        {"rounds": 60, "burn_in": 20, "chains": full(4, 2), "modulation": "complex"},
        vary={"snr_db": [5.0, 25.0]},
    ).rows
    assert [row["channel_uses"] for row in rows] == [180, 180]
    assert rows[0]["energy"] < rows[1]["energy"]
    assert all(row["wasserstein2_floor"] is not None for row in rows)
