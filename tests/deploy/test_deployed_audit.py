"""An attack on the deployed path: real device roles with the system's entropy, sealing and
journals, and a real air with its noise; two worst-case neighbours, and a device that forgets to
randomise.

Nothing here can be seeded, so a test must not fail by chance: bounds have a confidence of 1 - 1e-9,
means may deviate by 6.5 standard errors (a probability of 8e-11), and p-values may be as small as
1e-12, because their laws are those of many trials."""

from __future__ import annotations

import json
import math
from typing import NamedTuple

import numpy as np
import pytest
from scipy import stats

import flmc
from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.cli import main
from flmc.deploy.deployed_audit import Collected, DeployedUplink
from flmc.evaluation.audit.attack import log_ratio
from flmc.evaluation.audit.bounds import lower_bound
from flmc.evaluation.audit.scene import Scene, canary, neighbour
from support import full, full_only

pytestmark = full_only

TRIALS, BROKEN_TRIALS, COARSE_TRIALS = full(8_000, 1_500), full(2_000, 1_000), full(4_000, 1_000)
DIM, DEVICES = 2, 3
GAIN = 3.0
"""Loud: three deviations of the noise, so that randomised bits are nearly all that protects. A
device without them is then seen with certainty, and the adversary learns nearly every bit."""
DELTA = 1e-5
CONFIDENCE = 1 - 1e-9
ERRORS = 6.5
"""Standard errors that a mean may deviate by."""
P_VALUE = 1e-12


def make_plan(uplink: flmc.Uplink, gain: float | None = GAIN) -> flmc.Plan:
    """A plan of many rounds that looked at no data."""
    data = flmc.data.draw_linear(seed=1, num_devices=DEVICES, dim=DIM, num_samples=40)
    return flmc.plan(
        flmc.LinearGaussian(data),
        uplink,
        gain=gain,
        num_rounds=1000,
        num_burn_in=100,
        start="zero",
        public_smoothness=60.0,
        public_convexity=20.0,
    )


PLAN = make_plan(flmc.Digital(snr_db=45.0))
SCENE = Scene.of_plan(PLAN, 1)
SIGNS = np.sign(canary(SCENE))
HIGH = flmc.Digital(snr_db=45.0).link.extremes(PLAN.uplink.clip)[0]
"""Probability with which a bit has the sign of an extreme gradient."""
RANDOMISED_RESPONSE = DIM * math.log(HIGH / (1 - HIGH))
"""Epsilon of the bits themselves, at delta 0."""
MIDDLE = RANDOMISED_RESPONSE / 2
"""Threshold between both bits right and one of them: it is fixed before any trial."""


class Worlds(NamedTuple):
    """What went over the deployed path in both worlds."""

    first: Collected
    second: Collected


def worlds(uplink: DeployedUplink, trials: int) -> Worlds:
    return Worlds(
        uplink.collect(SCENE, canary(SCENE), trials),
        uplink.collect(SCENE, neighbour(SCENE), trials),
    )


@pytest.fixture(scope="module")
def honest() -> Worlds:
    return worlds(DeployedUplink(PLAN), TRIALS)


class AlwaysTheSame:
    """A source of entropy in which every uniform number is one half: bits are signs."""

    def bytes(self, length: int, /) -> bytes:
        return (bytes(7) + b"\x80") * (length // 8)


@pytest.fixture(scope="module")
def broken() -> Worlds:
    return worlds(DeployedUplink(PLAN, make_entropy=AlwaysTheSame), BROKEN_TRIALS)


def bound_from_y(found: Worlds) -> float:
    """What an adversary proves who sees y and knows the other devices' symbols."""
    grid = DeployedUplink(PLAN).federation.grid
    first, second = (
        log_ratio(SCENE, grid.values(w.received - w.others), canary(SCENE), neighbour(SCENE))
        for w in found
    )
    return lower_bound(first, second, DELTA, CONFIDENCE, MIDDLE)


def bound_from_bits(found: Worlds) -> float:
    """What air and server together prove, who see every bit."""
    each_bit = math.log(HIGH / (1 - HIGH))
    first, second = (each_bit * (w.symbols * SIGNS).sum(axis=(1, 2)) for w in found)
    return lower_bound(first, second, 0.0, CONFIDENCE, MIDDLE)


def test_what_is_received_stays_below_the_accountant(honest: Worlds) -> None:
    upper = SCENE.event.epsilon(DELTA)
    assert 0.5 * upper < bound_from_y(honest) <= upper


def test_bits_stay_below_randomised_response(honest: Worlds) -> None:
    assert 0.5 * RANDOMISED_RESPONSE < bound_from_bits(honest) <= RANDOMISED_RESPONSE


def test_a_device_that_forgets_to_randomise_is_caught(broken: Worlds) -> None:
    assert bound_from_y(broken) > SCENE.event.epsilon(DELTA)
    assert bound_from_bits(broken) > RANDOMISED_RESPONSE


def test_bits_have_the_probability_of_the_link(honest: Worlds) -> None:
    for found, sign in zip(honest, (1.0, -1.0), strict=True):
        agrees = (found.symbols[:, 0] * SIGNS * sign > 0).astype(float)  # (trial, entry)
        assert set(np.unique(found.symbols)) == {-1.0, 1.0}
        expected = stats.binom(agrees.size, HIGH)
        assert abs(agrees.sum() - expected.mean()) < ERRORS * expected.std()
        assert_unrelated(agrees - HIGH, HIGH * (1 - HIGH))


def own_noise(uplink: DeployedUplink, found: Collected) -> Array:
    """What was received less all symbols, in steps, (trial, entry)."""
    grid = uplink.federation.grid
    own = grid.symbol_steps(found.symbols, SCENE.gains[0], PLAN.uplink.peak)
    return np.asarray((found.received - found.others - own)[:, 0])


def test_what_is_received_is_the_sum_and_normal_noise(honest: Worlds) -> None:
    uplink = DeployedUplink(PLAN)
    noise = np.concatenate([own_noise(uplink, found) for found in honest])
    assert uplink.federation.grid.bits == 20  # so fine that the law is that of the normal variable
    assert stats.kstest(noise.ravel() / 2.0**20, "norm").pvalue > P_VALUE
    assert_unrelated(noise / 2.0**20, 1.0)


def test_noise_on_a_coarse_grid_is_the_rounded_normal() -> None:
    """Two steps to a standard deviation: every whole number has its own probability."""
    uplink = DeployedUplink(PLAN, grid_bits=1)
    noise = own_noise(uplink, uplink.collect(SCENE, canary(SCENE), COARSE_TRIALS)).ravel()
    values = np.arange(-5, 6)  # at the ends, all beyond them
    counts = [(np.clip(noise, -5, 5) == value).sum() for value in values]
    edges = np.concatenate([[-np.inf], values[:-1] + 0.5, [np.inf]])
    expected = len(noise) * np.diff(stats.norm.cdf(edges / 2))
    assert expected.min() > 5
    assert stats.chisquare(counts, expected).pvalue > P_VALUE


def assert_unrelated(values: Array, variance: float) -> None:
    """Entries of a round are unrelated, and so are rounds that follow each other: products of
    independent variables have the product of their variances."""
    for left, right in (
        (values[:, 0], values[:, 1]),
        (values[1:, 0], values[:-1, 0]),
        (values[1:, 1], values[:-1, 0]),
    ):
        assert abs((left * right).mean()) < ERRORS * variance / math.sqrt(len(left))


def test_the_command_attacks_real_roles(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["audit", "--deployed", "--trials", "1000", "--audit-rounds", "1", "--json"]
    assert main([*words, "--devices", "3", "--dim", "2"]) == 0
    found = json.loads(capsys.readouterr().out)
    [audit] = found["audits"]
    assert found["deployed"] is True
    assert audit["broken"] is False
    assert 0 < audit["lower"] < audit["upper"]


def test_rounds_must_have_one_gain_and_a_trial_must_fit_into_a_run() -> None:
    # Power decides the gain in some 7 % of the rounds, and the air draws its channel from the
    # system's entropy: all 1000 have one gain with probability 0.93**1000, or 1e-31.
    fading = make_plan(flmc.Digital(fading=flmc.RayleighFading(), snr_db=-10.0), None)
    with pytest.raises(InvalidSetting, match="change from round to round"):
        DeployedUplink(fading).collect(Scene.of_plan(fading, 1), canary(SCENE), 1000)
    long = Scene(PLAN.uplink, GAIN, DIM, DEVICES, 2000)
    with pytest.raises(InvalidSetting, match="1000 rounds, and a trial needs 2000"):
        DeployedUplink(PLAN).collect(long, canary(long), 1)
