"""One example is replaced: the worst centre bounds every centre, and one example costs less than a
device."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flmc
from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.privacy.bit_event import BitEvent
from flmc.privacy.bit_pair import BitPair
from flmc.privacy.worst_centre import convex_below, deltas, worst_profile
from support import full

EXAMPLE = flmc.Digital(link=flmc.Sigmoid(0.011), clip=700.0, example_clip=4.0)


def test_divergences_of_two_bits() -> None:
    """Against the exact formula of a pair, and against a sum over a fine grid of received
    values."""
    epsilon = np.linspace(-0.3, 0.5, 41)
    for p, q, amplitude in ((0.6, 0.45, 0.3), (0.9, 0.2, 1.5), (0.501, 0.499, 0.1)):
        found = deltas(np.full(41, p), np.full(41, q), amplitude, epsilon)
        np.testing.assert_allclose(found, BitPair(p, q, amplitude).delta(epsilon), atol=1e-14)
        y = np.linspace(-12, 12, 480_001)

        def density(share: float, amplitude: float = amplitude, y: Array = y) -> Array:
            plus, minus = np.exp(-0.5 * (y - amplitude) ** 2), np.exp(-0.5 * (y + amplitude) ** 2)
            return np.asarray((share * plus + (1 - share) * minus) / math.sqrt(2 * math.pi))

        for e, value in zip(epsilon[::10], found[::10], strict=True):
            grid = np.maximum(density(p) - math.exp(e) * density(q), 0).sum() * (y[1] - y[0])
            assert value == pytest.approx(grid, abs=1e-7)


@pytest.mark.parametrize(
    "link", [flmc.Sigmoid(0.011), flmc.Probit(0.007), flmc.Linear(0.9)], ids=str
)
@pytest.mark.parametrize("amplitude", [0.1, 1.0])
def test_the_worst_centre_bounds_every_centre(link: flmc.Link, amplitude: float) -> None:
    bound = link.bound_to(700.0)
    epsilon = np.linspace(-0.02, 0.09, 60)
    profile = worst_profile(bound, 700.0, 8.0, amplitude, epsilon)
    attained = np.zeros_like(epsilon)
    for x in np.linspace(-700, 692, full(2001, 401)):
        high, low = bound.probability(np.array([x + 8.0, x]))
        for p, q in ((high, low), (1 - low, 1 - high)):
            attained = np.maximum(
                attained, deltas(np.full(60, p), np.full(60, q), amplitude, epsilon)
            )
    assert (profile >= attained * (1 - 1e-12)).all()
    assert (profile <= 1.02 * attained + 1e-5).all()
    slopes = np.diff(profile) / np.diff(np.exp(epsilon))
    assert (np.diff(slopes) > -1e-9).all()  # convex, as connect-the-dots needs


def test_convex_below() -> None:
    x = np.array([1.0, 2.0, 3.0, 4.0])
    np.testing.assert_allclose(
        convex_below(x, np.array([0.5, 0.4, 0.1, 0.05])), [0.5, 0.3, 0.1, 0.05]
    )


def test_one_example_costs_less_than_a_device() -> None:
    sent = [(0.1054, 950)]
    example = EXAMPLE.privacy_event(sent, "example").epsilon(1e-5)
    device = EXAMPLE.privacy_event(sent).epsilon(1e-5)
    high, low = (float(p) for p in EXAMPLE.link.probability(np.array([4.0, -4.0])))
    middle = BitEvent(high, low, 1.0, ((0.1054, 950),)).epsilon(1e-5)
    assert middle <= example <= 1.03 * middle  # the middle is nearly the worst place here
    assert example < device / 10
    # The simpler bound of section 2.7: logits +-2 a c.
    p = 1 / (1 + math.exp(-2 * 0.011 * 4.0))
    assert example < BitEvent(p, 1 - p, 1.0, ((0.1054, 950),)).epsilon(1e-5) < 2.4 * example
    analog = flmc.Analog(clip=700.0, example_clip=4.0).privacy_event([(1e-3, 950)], "example")
    assert analog.mu == pytest.approx(8e-3 * math.sqrt(950))


@settings(max_examples=full(12, 1))
@given(
    a=st.floats(0.005, 0.05),
    c=st.floats(1.0, 20.0),
    gain=st.floats(0.02, 1.0),
    rounds=st.integers(1, 200),
    dim=st.integers(1, 5),
)
def test_monotone_for_one_example(a: float, c: float, gain: float, rounds: int, dim: int) -> None:
    """More noise, fewer rounds, a smaller example clip never cost more, up to the bound's own
    looseness."""

    def cost(c: float, gain: float, rounds: int) -> float:
        uplink = flmc.Digital(link=flmc.Sigmoid(a), clip=200.0, example_clip=c)
        return uplink.privacy_event([(gain, dim * rounds)], "example").epsilon(1e-5)

    most = cost(c, gain, rounds) * 1.01 + 1e-6
    assert cost(c, 0.8 * gain, rounds) <= most
    assert cost(0.8 * c, gain, rounds) <= most
    assert cost(c, gain, max(1, rounds // 2)) <= most


@settings(max_examples=full(60, 10))
@given(
    a=st.floats(0.01, 0.1),
    clip=st.floats(5, 60),
    gain=st.floats(0.01, 2),
    rounds=st.integers(1, 400),
    dim=st.integers(1, 20),
)
def test_monotone_for_a_device(a: float, clip: float, gain: float, rounds: int, dim: int) -> None:
    def cost(clip: float, gain: float, rounds: int, noise: float = 1.0) -> float:
        uplink = flmc.Digital(link=flmc.Sigmoid(a), clip=clip, noise_power=noise)
        return uplink.privacy_event([(gain, dim * rounds)]).epsilon(1e-5)

    most = cost(clip, gain, rounds) * (1 + 1e-4) + 1e-9
    assert cost(clip, gain, rounds, 1.5) <= most
    assert cost(0.9 * clip, gain, rounds) <= most
    assert cost(clip, 0.9 * gain, rounds) <= most
    assert cost(clip, gain, max(1, rounds // 2)) <= most


def test_the_gain_that_a_budget_of_examples_allows() -> None:
    unit = EXAMPLE.privacy_event([(1.0, 950)], "example")
    gain = unit.allowed_gain(1.0, 1e-5)
    spent = EXAMPLE.privacy_event([(gain, 950)], "example").delta(1.0)
    assert 0.9e-5 < spent <= 1e-5


def test_what_example_privacy_needs() -> None:
    with pytest.raises(InvalidSetting, match="needs example_clip"):
        flmc.Digital().privacy_event([(1.0, 5)], "example")
    with pytest.raises(InvalidSetting, match="needs privacy 'tight'"):
        EXAMPLE.privacy_event([(1.0, 5)], "example").delta(1.0, "tail", 20)
    model = flmc.LinearGaussian(flmc.data.draw_linear_statistics(1, num_experiments=1))
    with pytest.raises(InvalidSetting, match="example_clip needs examples"):
        flmc.plan(model, EXAMPLE, num_rounds=4, num_burn_in=1, forecast=False)
    # A whole device moves no further than twice the clip.
    wide = flmc.Digital(clip=30.0, example_clip=40.0)
    assert wide.privacy_event([(1.0, 5)], "example") == wide.privacy_event([(1.0, 5)])


def test_clipped_examples_by_hand() -> None:
    data = flmc.data.draw_linear(seed=2, num_samples=30, dim=3, num_devices=4, num_experiments=2)
    model = flmc.LinearGaussian(data, prior_precision=2.0, noise_variance=0.5)
    theta = np.random.default_rng(0).normal(size=(2, 3, 3))
    found = model.clipped_gradient(theta, 0.7)
    for e, c in np.ndindex(2, 3):
        start = 0
        for k, size in enumerate(data.device_sizes):
            total = 2.0 * theta[e, c] / 4
            for n in range(start, start + size):
                u, v = data.features[e, n], data.targets[e, n]
                total = total + np.clip(u * (u @ theta[e, c] - v) / 0.5, -0.7, 0.7)
            start += size
            np.testing.assert_allclose(found[e, c, k], total, atol=1e-12)
    np.testing.assert_allclose(model.clipped_gradient(theta, 1e9), model.gradient(theta), atol=1e-9)
