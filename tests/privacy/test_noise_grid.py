"""The grid of a software channel: what arrives on it is never louder than accounted, its noise
never weaker, and the stated cost bounds the exact one, which is summed over the discrete law."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtr

import flmc
from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.privacy.gaussian import GaussianEvent
from flmc.privacy.safe_noise.noise_grid import MOST_STEPS, NoiseGrid

powers = st.floats(1e-30, 1e30)
bits_of_grids = st.integers(0, 30)
gains = st.floats(1e-6, 1e3)


@given(powers, bits_of_grids)
def test_the_noise_is_never_weaker_than_accounted(noise_power: float, bits: int) -> None:
    step = NoiseGrid(noise_power, bits).step
    assert (Fraction(step) * 2**bits) ** 2 >= Fraction(noise_power)
    below = Fraction(math.nextafter(step, 0.0))
    assert (below * 2**bits) ** 2 < Fraction(noise_power)


def test_the_step_is_a_power_of_two_where_it_can_be() -> None:
    assert NoiseGrid().step == 2.0**-20
    assert NoiseGrid(4.0, 10).step == 2.0**-9


@given(powers, bits_of_grids, gains, st.floats(1e-3, 1e3))
def test_the_largest_symbol_is_rounded_down(
    noise_power: float, bits: int, relative_gain: float, peak: float
) -> None:
    grid = NoiseGrid(noise_power, bits)
    gain = relative_gain * math.sqrt(noise_power) / peak
    if not grid.step * 2 < gain * peak < grid.step * MOST_STEPS / 2:
        return
    steps = grid.peak_steps(gain, peak)
    exact = Fraction(gain) * Fraction(peak) / Fraction(grid.step)
    assert steps <= exact < steps + 1
    arrives = float(grid.gain(np.array(gain), peak))
    assert arrives == pytest.approx(steps * grid.step / peak, rel=1e-14)
    # The gain that is stated for bits and whole devices is that of the grid, rounded up.
    stated = grid.accounted_gain(gain, peak)
    assert Fraction(stated) * Fraction(peak) >= steps * Fraction(grid.step)
    assert stated <= gain * (1 + 1e-15)


@given(
    st.integers(0, 12),
    st.floats(0.02, 2.0),
    st.floats(0.5, 40.0),
    st.lists(st.floats(allow_nan=True, width=64), min_size=2, max_size=2),
    st.floats(1e-3, 1.0),
    st.floats(0.0, 1.0),
)
def test_symbols_move_on_the_grid_by_no_more_than_accounted(
    bits: int, relative_gain: float, peak: float, values: list[float], share: float, place: float
) -> None:
    grid = NoiseGrid(1.0, bits)
    gain = (relative_gain + 1.0) / peak
    most = grid.peak_steps(gain, peak)
    symbols = np.array(values)[:, None]
    steps = grid.symbol_steps(symbols, np.array([gain]), peak)
    assert steps.dtype == np.int64
    assert np.abs(steps).max() <= most
    assert (steps[np.isnan(symbols)] == 0).all()
    # Symbols go to the nearest step.
    inside = np.clip(np.nan_to_num(symbols), -peak, peak)
    assert (np.abs(inside * (most / peak) - steps) <= 0.5).all()
    # A symbol anywhere, and one that lies a share of the whole way above it.
    move = 2 * peak * share
    low = -peak + (2 * peak - move) * place
    pair = grid.symbol_steps(np.array([[low], [min(low + move, peak)]]), np.array([gain]), peak)
    moved = int(pair[1, 0] - pair[0, 0])
    assert moved >= 0
    stated = Fraction(grid.accounted_gain(gain, peak, move)) * Fraction(move)
    assert moved * Fraction(grid.step) <= stated
    # Stated is at most a step and a half more than what moves in real numbers.
    assert stated <= Fraction(gain) * Fraction(move) + 2 * Fraction(grid.step)


def most_by_search(square: float, count: int, offset: float) -> int:
    """Largest sum of squares of whole numbers k of steps, each of which costs (k - offset)^2 of
    ``square``: all of them in turn, by dynamic programming over the number of entries."""
    best = {0.0: 0}
    top = math.floor(math.sqrt(square) + offset)
    for _ in range(count):
        following: dict[float, int] = {}
        for spent, total in best.items():
            for k in range(top + 1):
                cost = round(spent + max(0.0, k - offset) ** 2, 9)
                if cost <= square + 1e-12:
                    following[cost] = max(following.get(cost, -1), total + k * k)
        best = following
    return max(best.values())


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_the_move_of_a_norm_is_the_largest_that_rounding_allows(count: int) -> None:
    """Against a search over all whole numbers: never below, and above by less than the square of
    one more step in one entry, which the polygon of the proof interpolates."""
    for scaled in (0.0, 0.3, 0.5, 0.9, 1.0, 1.7, 2.0, 3.1, 4.5):
        pair = NoiseGrid.shared_move(1000, Fraction(scaled), count) ** 2
        found = most_by_search(scaled**2, count, 1.5)
        step = 2 * math.floor(scaled + 1.5) + 1
        assert found <= pair < found + step + 1e-6
    for steps in (1, 2, 3, 5):
        ball = NoiseGrid.shared_move(steps, Fraction(2 * steps), count, peak_of_norm=True) ** 2
        found = 4 * most_by_search(steps**2, count, 0.5)
        assert min(found, 4 * count * steps**2) <= ball < found + 4 * (2 * steps + 1) + 1e-6


def test_a_silent_round_reveals_nothing() -> None:
    assert NoiseGrid(bits=4).accounted_gain(0.0, 1.0, 0.1, sharing=5) == 0.0


def test_gains_by_entry() -> None:
    grid = NoiseGrid(1.0, 4)
    symbols = np.array([[1.0, -1.0, 1.0], [-1.0, 1.0, 1.0]])
    steps = grid.symbol_steps(symbols, np.array([0.5, 0.13, 0.0]), 1.0)
    assert steps.tolist() == [[8, -2, 0], [-8, 2, 0]]
    assert grid.values(steps)[0].tolist() == [0.5, -0.125, 0.0]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: NoiseGrid(0.0), "noise_power must be positive, got 0.0"),
        (lambda: NoiseGrid(1.0, 31), "bits must be at most 30, got 31; use a coarser grid"),
        (lambda: NoiseGrid(1.0, -1), "bits must be a whole number of at least 0, got -1"),
        (lambda: NoiseGrid().peak_steps(-1.0, 1.0), "gain must not be negative, got -1.0"),
        (lambda: NoiseGrid().peak_steps(math.nan, 1.0), "gain must be"),
        (lambda: NoiseGrid().peak_steps(1.0, 0.0), "peak must be positive, got 0.0"),
        (lambda: NoiseGrid(1.0, 4).peak_steps(0.01, 1.0), "one step of the grid, 0.0625, or above"),
        (lambda: NoiseGrid().peak_steps(1e7, 1.0), "got 1e.07; use fewer bits than 20"),
        (lambda: NoiseGrid().accounted_gain(1.0, 1.0, -2.0), "move must be positive, got -2.0"),
    ],
)
def test_refusals(call: object, message: str) -> None:
    assert callable(call)
    with pytest.raises(InvalidSetting, match=message):
        call()


def noise_law(bits: int) -> Array:
    """Probabilities of the noise at whole steps, to 9 standard deviations on either side, from
    differences of SciPy's distribution function in the lower tail."""
    reach = 9 * 2**bits
    half = ndtr(-(np.arange(reach + 1) - 0.5) / 2**bits) - ndtr(
        -(np.arange(reach + 1) + 0.5) / 2**bits
    )
    return np.concatenate([half[:0:-1], half])


def mixture(law: Array, shifts: tuple[int, ...], weights: tuple[float, ...], reach: int) -> Array:
    """Law of symbol plus noise: the noise's law, moved by each shift with its weight."""
    total = np.zeros(law.size + 2 * reach)
    for shift, weight in zip(shifts, weights, strict=True):
        total[reach + shift : reach + shift + law.size] += weight * law
    return total


def exact_delta(first: Array, second: Array, epsilon: float, entries: int) -> float:
    """Sum over all outcomes of what the first law of so many entries has above the second's."""
    p, q = first, second
    for _ in range(entries - 1):
        p, q = np.outer(p, first).ravel(), np.outer(q, second).ravel()
    return float(np.maximum(p - math.exp(epsilon) * q, 0.0).sum())


@pytest.mark.parametrize("epsilon", [0.0, 0.2, 0.6, 1.0])
@pytest.mark.parametrize(("bits", "entries", "slack"), [(1, 1, 0.1), (2, 3, 0.02), (6, 1, 5e-4)])
def test_the_stated_cost_of_bits_bounds_the_exact_one(
    epsilon: float, bits: int, entries: int, slack: float
) -> None:
    """The exact profile is below what is stated. It is close to it as well: the noise on the grid
    has a variance larger by 1/(12 * 4^bits), which is 2, 0.5 and 0.002 %; the slack leaves room for
    how delta magnifies that."""
    grid = NoiseGrid(2.0, bits)
    uplink = flmc.Digital(noise_power=2.0, link=flmc.Sigmoid(0.05), clip=30.0)
    planned = 0.9
    steps = grid.peak_steps(planned, uplink.peak)
    high, low = uplink.link.extremes(uplink.clip)
    law = noise_law(bits)
    p = mixture(law, (steps, -steps), (high, 1 - high), steps)
    q = mixture(law, (steps, -steps), (low, 1 - low), steps)
    exact = exact_delta(p, q, epsilon, entries)
    stated = uplink.privacy_event([(grid.accounted_gain(planned, uplink.peak), entries)]).delta(
        epsilon
    )
    assert exact <= stated + 1e-13
    assert stated <= exact * (1 + slack)
    # The plan's own statement, for the gain before it was rounded down, holds as well.
    assert stated <= uplink.privacy_event([(planned, entries)]).delta(epsilon)


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0])
def test_the_stated_cost_of_one_example_in_analog_bounds_the_exact_one(epsilon: float) -> None:
    """Rounding to the grid can move a symbol further than its gradient moved: the worst place is
    found by search. The gain of the grid alone would understate it, the accounted one does not."""
    grid = NoiseGrid(1.0, 3)
    uplink = flmc.Analog(clip=2.0, example_clip=0.3)
    planned, move = 0.5, 0.6
    x = np.linspace(-2.0, 2.0 - move, 2801)[:, None]
    gain = np.array([planned])
    moved = grid.symbol_steps(x + move, gain, 2.0) - grid.symbol_steps(x, gain, 2.0)
    shift = int(moved.max())
    arrives = float(grid.gain(gain, 2.0)[0])
    assert shift * grid.step > arrives * move
    law = noise_law(grid.bits)
    p, q = mixture(law, (shift,), (1.0,), shift), mixture(law, (0,), (1.0,), shift)
    exact = exact_delta(p, q, epsilon, 2)

    def stated(at: float) -> float:
        event = uplink.privacy_event([(at, 2)], "example")
        assert isinstance(event, GaussianEvent)
        return event.delta(epsilon)

    assert stated(arrives) < exact <= stated(grid.accounted_gain(planned, 2.0, move))
