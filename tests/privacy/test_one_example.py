"""One example is replaced: the worst centre bounds every centre, and one example costs less than a
device."""

from __future__ import annotations

import math
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flmc
from flmc.base.errors import InvalidSetting
from flmc.privacy.bit_event import BitEvent
from flmc.privacy.bit_pairs import PairHull, hull_of_moves
from support import full

EXAMPLE = flmc.Digital(link=flmc.Sigmoid(0.011), clip=700.0, example_clip=4.0)


@pytest.mark.parametrize("amplitude", [1e-9, 0.03, 0.3, 1.5, 8.0])
@pytest.mark.parametrize(
    ("p", "q"), [(0.6, 0.45), (0.9, 0.2), (0.50001, 0.49999), (0.3, 1e-12), (1 - 1e-12, 0.4)]
)
def test_divergences_of_two_bits(p: float, q: float, amplitude: float) -> None:
    """Against the integral of the densities' difference, computed with 40 digits."""
    with mpmath.workdps(40):
        gap = mpmath.mpf(p) - mpmath.mpf(q)
        a = mpmath.mpf(amplitude)
        hull = PairHull.of([(q, 1.0 - p)])
        low, high = hull.loss_range(amplitude)
        for share in (-0.3, -0.05, 0.0, 0.02, 0.2):
            epsilon = share * (-low if share < 0 else high)
            c = mpmath.expm1(epsilon)
            # The threshold by bisection on the likelihood ratio, not by its closed form.
            found = float(hull.excess(np.array([epsilon]), amplitude)[0])

            def ratio(w: Any, a: Any = a, gap: Any = gap) -> Any:
                v = mpmath.exp(2 * a * w)
                return gap * (v - 1) / (1 + mpmath.mpf(q) * (v - 1))

            left, right = mpmath.mpf(-40) - a, mpmath.mpf(40) + a
            for _ in range(140):
                middle = (left + right) / 2
                left, right = (middle, right) if ratio(middle) < c else (left, middle)
            side = 1 if epsilon >= 0 else -1
            tails = [mpmath.ncdf(side * (s * a - left)) for s in (1, -1)]
            beyond = mpmath.mpf(q) * tails[0] + (1 - mpmath.mpf(q)) * tails[1]
            exact = float(side * gap * (tails[0] - tails[1]) - abs(c) * beyond)
            assert found == pytest.approx(exact, rel=1e-9, abs=1e-300)
            assert found >= exact * (1 - 1e-12)


@pytest.mark.parametrize(
    "link", [flmc.Sigmoid(0.011), flmc.Probit(0.007), flmc.Linear(0.9), flmc.Linear(1.0)], ids=str
)
@pytest.mark.parametrize("amplitude", [0.1, 1.0, 5.0])
@pytest.mark.parametrize("shift", [1e-3, 8.0, 700.0])
def test_the_polygon_bounds_every_centre(link: flmc.Link, amplitude: float, shift: float) -> None:
    bound = link.bound_to(700.0)
    hull = hull_of_moves(bound, 700.0, shift)
    low, high = hull.loss_range(amplitude)
    epsilon = np.linspace(0.3 * low, 0.3 * high, 60)
    profile = hull.excess(epsilon, amplitude)
    centres = np.linspace(-700, 700 - shift, full(2001, 401))
    pairs = bound.moved(centres, shift)
    every = PairHull(pairs.low, pairs.gap, pairs.miss)
    mirrored = PairHull(pairs.miss, pairs.gap, pairs.low)
    attained = np.maximum(every.excess(epsilon, amplitude), mirrored.excess(epsilon, amplitude))
    assert (profile >= attained * (1 - 1e-11) - 1e-15).all()
    assert (profile <= 1.015 * attained + 1e-9 * attained.max()).all()


@pytest.mark.parametrize("link", [flmc.Sigmoid(0.05), flmc.Probit(0.03), flmc.Linear(0.9)], ids=str)
@pytest.mark.parametrize("shift", [1e-9, 1e-3, 3.0, 40.0])
def test_how_a_move_changes_bits(link: flmc.Link, shift: float) -> None:
    """Gaps, misses and slopes of every link against 40 digits: what the polygon is made of."""
    x = np.array([-29.0, -3.0, -1e-3, 0.0, 4.0, 19.0])
    x = x[x + shift <= 30.0]
    bound = link.bound_to(30.0)
    found = bound.moved(x, shift)
    with mpmath.workdps(40):

        def probability(value: Any) -> Any:
            if isinstance(link, flmc.Sigmoid):
                return 1 / (1 + mpmath.exp(-mpmath.mpf(link.slope_parameter) * value))
            if isinstance(link, flmc.Probit):
                return mpmath.ncdf(mpmath.mpf(link.slope_parameter) * value)
            return mpmath.mpf(1) / 2 + mpmath.mpf(0.9) * value / 60

        for i, place in enumerate(x):
            before, after = probability(mpmath.mpf(place)), probability(mpmath.mpf(place) + shift)
            assert found.low[i] == pytest.approx(float(before), rel=1e-13)
            assert found.gap[i] == pytest.approx(float(after - before), rel=1e-12)
            assert found.miss[i] == pytest.approx(float(1 - after), rel=1e-12)
            ratio = mpmath.diff(probability, mpmath.mpf(place) + shift) / mpmath.diff(
                probability, mpmath.mpf(place)
            )
            assert found.slope[i] == pytest.approx(float(ratio - 1), rel=1e-8, abs=1e-14)
    assert (np.diff(found.slope) <= 1e-12 * shift).all()  # log-concave: the slope never rises


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
