"""Long-term power limits beside those of a round."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import exp1

import flmc
from flmc.base.errors import InvalidSetting
from flmc.sampling.schedule import draw_schedule
from flmc.uplink.power import DrawnRounds, average_limited_gain, largest_mean_power, power_scale
from support import full, full_only


@pytest.fixture(scope="module")
def model() -> flmc.LinearGaussian:
    return flmc.LinearGaussian(flmc.data.draw_linear(seed=1))


def test_truncated_rayleigh_has_a_closed_form() -> None:
    """A device with |h| >= t transmits A/|h|, so its mean power is A^2 E1(t^2/s^2)/s^2. The mean of
    n draws of 1/h^2 is within five standard errors, and the gain moves by half of that."""
    scale, threshold, count = 0.04, 0.02, full(40_000, 8000)
    rng = np.random.default_rng(1)
    fading = flmc.RayleighFading(scale).draw_checked(rng, range(count), 1, 5)
    active = flmc.ThresholdDevices(threshold).draw_checked(rng, range(count), fading)
    uplink = flmc.Digital(snr_db=200.0, average_snr_db=20.0)
    rounds = DrawnRounds(fading, active, np.arange(count), count)
    found = average_limited_gain(uplink, rounds)
    # What is returned is allowed, and a little more is not.
    assert largest_mean_power(uplink, np.full((1, 1), found), rounds) <= 100.0
    assert largest_mean_power(uplink, np.full((1, 1), 1.001 * found), rounds) > 100.0
    expected = math.sqrt(100.0 * scale**2 / exp1((threshold / scale) ** 2))
    inverse = active[:, 0] / fading[:, 0, 0] ** 2
    error = inverse.std() / inverse.mean() / math.sqrt(count)
    assert abs(found / expected - 1) < 5 * error / 2


@pytest.mark.parametrize("scheme", [flmc.Digital, flmc.Analog])
def test_the_run_keeps_the_limit(scheme: type[flmc.Digital], model: flmc.LinearGaussian) -> None:
    """Mean power of every device over the rounds of runs, as they are transmitted: the mean over
    devices and data sets is the limit, to five standard errors."""
    uplink = scheme(fading=flmc.RayleighFading(0.04), snr_db=30.0, average_snr_db=14.0)
    policy = flmc.ThresholdDevices(0.02)
    plan = flmc.plan(
        model, uplink, flmc.Limits(langevin="off"), step_size=1e-6, scheduler=policy, num_rounds=384
    )
    assert plan.binding == "power"
    powers = []
    for experiment in range(full(40, 10)):
        for block in range(3):
            drawn = draw_schedule(plan, 5, range(experiment, experiment + 1), block)
            assert drawn.active is not None
            used = np.square(uplink.peak * drawn.gain[0, :, None] / drawn.fading[0]).mean(axis=2)
            powers.append((used * drawn.active[0]).mean(axis=1))
    rounds = np.concatenate(powers)
    error = rounds.std() / math.sqrt(len(rounds))
    # The cap is that of the busiest of 20 devices over 1024 drawn rounds, so a little less.
    assert rounds.mean() < 10**1.4 + 5 * error
    assert rounds.mean() > 0.75 * 10**1.4


def test_a_constant_channel_has_the_smaller_of_both(model: flmc.LinearGaussian) -> None:
    """With everybody in every round the mean power is that of a round."""
    limits = flmc.Limits(langevin="off", privacy="off")
    for long, least in ((10.0, 10.0), (40.0, 25.0)):
        uplink = flmc.Digital(snr_db=25.0, average_snr_db=long)
        plan = flmc.plan(model, uplink, limits, step_size=1e-5)
        assert plan.typical_gain == pytest.approx(0.04 * 10 ** (least / 20), rel=1e-9)
    # Devices that transmit in every fourth round have four times the power in it.
    active = np.zeros((300, 20))
    active[np.arange(300), :] = (np.arange(20) % 4 == np.arange(300)[:, None] % 4).astype(float)
    uplink = flmc.Digital(snr_db=25.0, average_snr_db=10.0)
    plan = flmc.plan(model, uplink, limits, step_size=1e-5, active=active)
    assert plan.typical_gain == pytest.approx(0.04 * math.sqrt(4 * 10.0), rel=1e-9)


def test_a_gain_that_was_given_is_held_to_it(model: flmc.LinearGaussian) -> None:
    uplink = flmc.Digital(fading=flmc.RayleighFading(0.04), average_snr_db=10.0)
    policy = flmc.ThresholdDevices(0.02)
    plan = flmc.plan(model, uplink, scheduler=policy, forecast=False)
    with pytest.raises(InvalidSetting, match="must keep the long-term power limit of 10 dB"):
        flmc.plan(model, uplink, scheduler=policy, gain=4 * plan.gain_limits.power)
    with pytest.raises(InvalidSetting, match="average_snr_db must"):
        flmc.Digital(average_snr_db=1e6)
    assert flmc.Plan.from_document(plan.to_document()) == plan


@full_only
def test_rounds_count_alike_whenever_a_device_transmits(model: flmc.LinearGaussian) -> None:
    """A device that transmits late in the run is counted like one that does so early: the channel
    is all but constant, and 300 rounds do not divide the 1024 that are drawn."""
    gains = []
    for begin in (0, 100):
        active = np.zeros((300, 20))
        active[begin : begin + 200, 0] = 1.0
        active[np.arange(300), 1 + np.arange(300) % 19] = 1.0
        uplink = flmc.Digital(fading=flmc.RicianFading(0.04, 1e6), snr_db=25.0, average_snr_db=10.0)
        plan = flmc.plan(model, uplink, flmc.Limits(langevin="off"), step_size=1e-6, active=active)
        gains.append(plan.typical_gain)
    assert gains[0] == pytest.approx(gains[1], rel=1e-3)
    assert gains[0] == pytest.approx(0.04 * math.sqrt(10.0 / (200 / 300)), rel=1e-2)


def test_a_device_that_keeps_its_place_is_not_averaged_over_places(
    model: flmc.LinearGaussian,
) -> None:
    """Path gains that stay for a run: the limit is that of the worst device of the worst drawn run,
    not of a device that were at another place in every run."""
    fading = flmc.DistanceFading(5.0)
    uplink = flmc.Digital(fading=fading, snr_db=40.0, average_snr_db=10.0)
    plan = flmc.plan(model, uplink, flmc.Limits(langevin="off"), step_size=1e-6)
    # The farthest place has 0.2 5^-1.5: nobody spends more than there.
    worst = 0.2 * 5.0**-1.5
    assert worst * math.sqrt(10) <= plan.gain_limits.power < 1.1 * worst * math.sqrt(10)


def test_entries_with_gains_of_their_own(model: flmc.LinearGaussian) -> None:
    """The power of a given gain is that of its own entries."""
    uplink = flmc.Digital(snr_db=25.0, average_snr_db=10.0)
    largest = 0.04 * math.sqrt(10.0)
    alone = np.array([[largest * math.sqrt(5) * 0.999, 1e-9, 1e-9, 1e-9, 1e-9]])
    flmc.plan(model, uplink, step_size=1e-6, gain=alone)
    with pytest.raises(InvalidSetting, match="with which a device spends 10"):
        flmc.plan(model, uplink, step_size=1e-6, gain=1.01 * alone)


@pytest.mark.parametrize("clipping", ["entry", "norm"])
def test_devices_with_the_same_path_gains_are_computed_once(clipping: str) -> None:
    """Views without copies and full arrays give the same to the bit."""
    uplink = flmc.Analog(clipping=clipping)
    rng = np.random.default_rng(1)
    gain, each = rng.uniform(0.1, 1.0, (4, 7)), rng.uniform(0.01, 0.1, (4, 1, 7))
    view = np.broadcast_to(each, (4, 5, 7))
    active = (rng.random((4, 5)) < 0.5).astype(float)
    for who in (None, active):
        once, full_ = (power_scale(uplink, gain, h, who) for h in (view, view.copy()))
        np.testing.assert_array_equal(once, full_)
