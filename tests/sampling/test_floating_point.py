"""An attack on the low-order digits of what is received: it rules out hypotheses with certainty on
the plain sum of floating-point numbers, and never on the grid of a software channel."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flmc
from flmc.base.arrays import Array, IntArray
from flmc.base.errors import InvalidSetting
from flmc.privacy.safe_noise.entropy import SystemEntropy
from flmc.privacy.safe_noise.noise_grid import MOST_STEPS, NoiseGrid
from flmc.sampling import roles
from support import full

DEVICES, DIM = 20, 5
ROUNDS = full(40_000, 8_000)


@dataclass(frozen=True)
class Case:
    """An uplink, the gain of a round with what it is said to cost, and the shares of entries and of
    rounds in which the attack on the plain sum is certain."""

    uplink: flmc.Uplink
    gain: float
    epsilon: float
    entries: float
    rounds: float


CASES = {
    # The gain that flmc.plan gives the paper's problem by default. It is said to cost 1.59 a round.
    "digital": Case(flmc.Digital(), 0.27386, 1.59, 0.0926, 0.3854),
    # The devices' gradients are often clipped, as early in a run.
    "analog": Case(flmc.Analog(), 0.001, 0.147, 0.0947, 0.3923),
}
MEASURED = 400_000
"""Rounds, with other seeds, from which the shares in ``CASES`` are."""


def impossible(received: Array, mean: Array) -> npt.NDArray[np.bool_]:
    """Where no double z at all has fl(mean + z) = received.

    Let z0 be received - mean, rounded. Where doubles near z0 are at least as dense as near the
    received value, mean + z0 rounds to it. Where they are less dense, only z0 or a double beside it
    can be near enough. So it suffices to try z0 and two doubles on either side."""
    nearest = received - mean
    possible: npt.NDArray[np.bool_] = mean + nearest == received
    for direction in (-np.inf, np.inf):
        z = nearest
        for _ in range(2):
            z = np.nextafter(z, direction)
            possible |= mean + z == received
    return np.logical_not(possible)


def gradients(rng: np.random.Generator) -> Array:
    """Gradients of all devices in many rounds; the victim's, device 0, are at the clip."""
    values = rng.normal(scale=30.0, size=(ROUNDS, DEVICES, DIM))
    values[:, 0] = 30.0
    return values


def victim_flipped(shape: tuple[int, ...]) -> IntArray:
    """Factors that turn the sign of the victim's symbols and keep the others."""
    factors = np.ones(shape, dtype=np.int64)
    factors[:, 0] = -1
    return factors


@pytest.mark.parametrize("name", CASES)
def test_the_plain_sum_gives_the_victim_away(name: str) -> None:
    """The adversary knows the other devices' symbols, and asks which of the victim's are possible.

    The shares are held to five standard errors of the difference of the two measurements."""
    case = CASES[name]
    assert case.uplink.privacy_event([(case.gain, DIM)]).epsilon(0.01) == pytest.approx(
        case.epsilon, rel=0.01
    )
    rng = np.random.default_rng(20)
    gradient = gradients(rng)
    gain, fading = np.full(DIM, case.gain), np.ones((DEVICES, DIM))
    uniform = rng.random(gradient.shape)
    sent = roles.device(gradient, uniform, case.uplink, gain, fading)
    received = roles.air(sent, fading, rng.standard_normal((ROUNDS, DIM)))
    silence = np.zeros((ROUNDS, DIM))
    mean = roles.air(sent, fading, silence)
    turned = sent._replace(symbols=sent.symbols * victim_flipped(gradient.shape))
    rival = roles.air(turned, fading, silence)
    # The truth is never ruled out: a certainty of the attack is one.
    assert not impossible(received, mean).any()
    certain = impossible(received, rival)
    for share, expected, each in (
        (certain.mean(), case.entries, DIM),
        (certain.any(axis=-1).mean(), case.rounds, 1),
    ):
        variance = expected * (1 - expected) / each * (1 / ROUNDS + 1 / MEASURED)
        assert abs(share - expected) < 5 * np.sqrt(variance)


@pytest.mark.parametrize("name", CASES)
def test_the_grid_does_not(name: str) -> None:
    """The same attack by the same adversary, who has the received doubles."""
    case = CASES[name]
    rng = np.random.default_rng(21)
    grid = NoiseGrid(case.uplink.noise_power)
    gradient = gradients(rng)
    sent = roles.device_on_grid(gradient, case.uplink, grid, np.full(DIM, case.gain), rng)
    received = grid.values(roles.air_on_grid(sent, grid, rng))
    rival = sent * victim_flipped(sent.shape)
    assert (sent[:, 0] != rival[:, 0]).all()
    for symbols in (sent, rival):
        mean = grid.values(symbols.sum(axis=-2))
        assert not impossible(received, mean).any()
        # Whole steps of noise, each of which has a positive probability.
        noise = (received - mean) / grid.step
        np.testing.assert_array_equal(noise, np.rint(noise))


def test_noise_on_the_grid_does_not_hide_symbols_beside_it() -> None:
    """Symbols must be on the same grid: else what is left of a step after subtracting them tells
    which they were, although the noise is exact."""
    rng = np.random.default_rng(22)
    grid, gain = NoiseGrid(), 0.27386
    bits = np.where(rng.random((ROUNDS, DIM)) < 0.5, 1.0, -1.0)
    received = gain * bits + grid.values(grid.draw_noise((ROUNDS, DIM), rng))
    for sign, on_the_grid in ((1, True), (-1, False)):
        steps = (received - sign * gain * bits) / grid.step
        # Rounding of doubles below 8 is 2^-50, or 2^-30 steps.
        assert ((np.abs(steps - np.rint(steps)) < 1e-6) == on_the_grid).all()


@settings(max_examples=full(60, 20))
@given(
    st.sampled_from([flmc.Digital(noise_power=2.0), flmc.Analog(noise_power=2.0)]),
    st.integers(4, 24),
    st.floats(0.2, 3.0),
    st.integers(0, 2**32),
    st.integers(-1000, 1000),
)
def test_what_is_received_lies_on_the_grid_and_moves_with_the_symbols(
    uplink: flmc.Uplink, bits: int, gain: float, seed: int, shift: int
) -> None:
    rng = np.random.default_rng(seed)
    grid = NoiseGrid(2.0, bits)
    gradient = rng.normal(scale=40.0, size=(3, 4, 2))
    gradient[0, 0] = np.nan, np.inf
    gains = np.array([gain, gain / 2]) / uplink.peak
    active = np.array([1.0, 0.0, 1.0, 1.0])
    sent = roles.device_on_grid(gradient, uplink, grid, gains, rng, active)
    assert sent.dtype == np.int64
    assert not sent[:, 1].any()
    largest = [grid.peak_steps(float(value), uplink.peak) for value in gains]
    assert (np.abs(sent) <= largest).all()
    if uplink.randomised:
        assert (np.abs(sent[:, 0]) == largest).all()

    def received(steps: IntArray) -> IntArray:
        return roles.air_on_grid(steps, grid, np.random.default_rng(seed))

    moved = sent.copy()
    moved[:, 2] += shift
    np.testing.assert_array_equal(received(moved), received(sent) + shift)
    assert received(sent).shape == (3, 2)
    values = grid.values(received(sent))
    np.testing.assert_array_equal(np.rint(values / grid.step), received(sent))


@pytest.mark.parametrize("uplink", [flmc.Digital(), flmc.Analog()], ids=["digital", "analog"])
def test_a_round_on_the_grid_is_the_round(uplink: flmc.Uplink) -> None:
    """The server's estimate has the mean of the symbols' sum, and variance N_0/A^2 plus that of
    bits: five standard errors of each, that of a variance being sqrt(2/n) of it."""
    rng = np.random.default_rng(23)
    grid = NoiseGrid()
    planned = np.array([0.3, 0.5]) / uplink.peak
    gradient = np.array([[25.0, -50.0], [3.0, 4.0], [-10.0, 0.5]])
    count = full(200_000, 40_000)
    many = np.broadcast_to(gradient, (count, 3, 2))
    steps = roles.air_on_grid(roles.device_on_grid(many, uplink, grid, planned, rng), grid, rng)
    gain = grid.gain(planned, uplink.peak)
    estimate = roles.server(np.zeros(2), grid.values(steps), 1.0, gain, 3, 3.0).estimate
    expected = uplink.mean_symbol(gradient).sum(axis=0)
    spread = 1.0 / gain**2 + uplink.symbol_variance(gradient).sum(axis=0)
    assert (np.abs(estimate.mean(axis=0) - expected) < 5 * np.sqrt(spread / count)).all()
    assert (np.abs(estimate.var(axis=0) / spread - 1) < 5 * np.sqrt(2 / count)).all()


def test_refusals() -> None:
    grid, entropy, gain = NoiseGrid(), SystemEntropy(), np.array([0.1])
    gradient = np.zeros((2, 1))
    with pytest.raises(InvalidSetting, match="ideal uplink has symbols without a bound"):
        roles.device_on_grid(gradient, flmc.Ideal(), grid, gain, entropy)
    with pytest.raises(InvalidSetting, match="must have the uplink's noise power 2, got 1"):
        roles.device_on_grid(gradient, flmc.Digital(noise_power=2.0), grid, gain, entropy)
    with pytest.raises(InvalidSetting, match="use more bits than 20, or a larger gain"):
        roles.device_on_grid(gradient, flmc.Digital(), grid, np.array([1e-9]), entropy)
    for largest in (MOST_STEPS + 1, -MOST_STEPS - 1, np.iinfo(np.int64).min):
        with pytest.raises(InvalidSetting, match=f"at most {MOST_STEPS} steps, got"):
            roles.air_on_grid(np.array([[0], [largest]]), grid, entropy)
