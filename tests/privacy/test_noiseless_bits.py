"""Bits in noise that is not normal: only their own randomness is counted."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import partial
from itertools import product

import numpy as np
import pytest

import flmc
from flmc.base.arrays import Array
from flmc.privacy.bit_event import BitEvent
from flmc.privacy.noiseless_bits import NoiselessBitEvent


def exact_delta(epsilon: float, error: Fraction, count: int) -> Fraction:
    """Delta of so many responses, from all their patterns, in exact arithmetic but for exp."""
    right, factor = 1 - error, Fraction(math.exp(epsilon))
    total = Fraction(0)
    for pattern in product((True, False), repeat=count):
        one, other = Fraction(1), Fraction(1)
        for told in pattern:
            one *= right if told else error
            other *= error if told else right
        total += max(Fraction(0), one - factor * other)
    return total


@pytest.mark.parametrize("error", [Fraction(1, 100), Fraction(3, 10), Fraction(49, 100)])
@pytest.mark.parametrize("count", [1, 2, 7])
@pytest.mark.parametrize("epsilon", [0.0, 0.1, 1.0, 4.0])
def test_delta_is_that_of_all_patterns(error: Fraction, count: int, epsilon: float) -> None:
    event = NoiselessBitEvent(float(error), 1.0, ((0.3, count),))
    stated, exact = event.delta(epsilon), float(exact_delta(epsilon, error, count))
    assert stated >= exact * (1 - 1e-15)
    assert stated == pytest.approx(exact, rel=1e-8, abs=1e-20)


@pytest.mark.parametrize("count", [5, 500, 20_000])
@pytest.mark.parametrize("error", [0.182, 0.45])
def test_it_is_the_limit_of_bits_in_ever_less_normal_noise(count: int, error: float) -> None:
    """The other accountant adds losses on a grid, as bits of 14 standard deviations."""
    event = NoiselessBitEvent(error, 1.0, ((1.0, count),))
    loud = BitEvent(1.0 - error, error, 1.0, ((14.0, count),))
    for delta in (1e-2, 1e-5):
        assert event.epsilon(delta) == pytest.approx(loud.epsilon(delta), rel=1e-3)
    assert event.scaled(1e-6).epsilon(1e-5) == event.epsilon(1e-5)
    assert event.scaled(0.0).epsilon(1e-5) == 0.0


class Uniform(flmc.NoiseLaw):
    """Uniform noise of variance 1."""

    def draw(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        return rng.uniform(-(3**0.5), 3**0.5, shape)


class Bursts(flmc.NoiseLaw):
    """Normal noise, with a share of 0.02 seven times as wide."""

    def draw(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        numbers = rng.standard_normal((*shape, 2))
        width = np.where(np.abs(numbers[..., 1]) > 2.3263, 7.0, 1.0)
        return np.asarray(width * numbers[..., 0] / np.sqrt(0.98 + 0.02 * 49))


def of_uniform(epsilon: float, high: float, low: float, gain: float) -> float:
    """Delta of one bit with this gain in uniform noise, by integrating over received values."""
    half = 3**0.5
    y = np.linspace(-gain - half - 0.1, gain + half + 0.1, 400_001)
    up, down = (np.abs(y - sign * gain) <= half for sign in (1.0, -1.0))
    one = (high * up + (1 - high) * down) / (2 * half)
    other = (low * up + (1 - low) * down) / (2 * half)
    return float(np.maximum(0.0, one - math.exp(epsilon) * other).sum() * (y[1] - y[0]))


@pytest.mark.parametrize("gain", [0.1, 1.0, 3.0])
def test_no_noise_reveals_more(gain: float) -> None:
    """Received values are the bits and something free of the data: post-processing."""
    uplink = flmc.Digital(noise_law=Uniform())
    event = uplink.privacy_event([(gain, 1)])
    high, low = uplink.link.extremes(uplink.clip)
    for epsilon in (0.0, 0.5, 1.0, 1.4):
        # The integral misses at most two steps of the grid at each of four ends.
        assert of_uniform(epsilon, high, low, gain) <= event.delta(epsilon) + 1e-4
    # Uniform noise that the bits leave hides nothing: the bound is met.
    if gain > 3**0.5:
        assert of_uniform(0.5, high, low, gain) == pytest.approx(event.delta(0.5), abs=1e-4)


def test_a_budget_is_kept_by_bits_alone_or_refused_with_what_they_cost() -> None:
    model = flmc.LinearGaussian(flmc.data.draw_linear(seed=1, num_samples=200, num_devices=4))
    uplink = flmc.Digital(noise_law=Bursts())
    planned = partial(flmc.plan, model, num_rounds=60, num_burn_in=30)
    plan = planned(uplink, flmc.Limits(epsilon=8.0))
    assert plan.unknown_privacy is None
    assert plan.round_cost is not None
    # Five bits that are wrong with probability 1/(1 + e^1.5) cost at most 7.5, at any gain.
    assert 7.4 < plan.round_cost.epsilon < 7.5
    assert math.isinf(plan.gain_limits.privacy)
    assert "only the randomness of the bits is counted" in str(plan)
    with pytest.raises(flmc.errors.InvalidSetting, match=r"costs epsilon 7\.4\d* whatever"):
        planned(uplink, flmc.Limits(epsilon=5.0))
    normal = planned(flmc.Digital(), flmc.Limits(epsilon=8.0)).round_cost
    assert normal is not None
    assert normal.epsilon < plan.round_cost.epsilon


class Louder(flmc.Digital):
    """Bits of another law than those of the proof."""

    def symbols(self, gradient: Array, uniform: Array | None) -> Array:
        return np.where(gradient > 0, 1.0, -1.0)


@pytest.mark.parametrize(
    "uplink", [flmc.Analog(noise_law=Bursts()), Louder(noise_law=Bursts())], ids=["analog", "own"]
)
def test_nothing_else_is_claimed(uplink: flmc.Uplink) -> None:
    with pytest.raises(flmc.errors.InvalidSetting, match="no privacy guarantee is known"):
        uplink.event_of_rounds(np.ones((1, 1)), 5)
