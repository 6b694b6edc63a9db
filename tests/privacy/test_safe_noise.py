"""Noise of a software channel: its law is exact, whatever path the sampler takes; a source of
entropy that fails is noticed; probabilities of bits are those that were asked for."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import stats

from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting, RunFailed
from flmc.privacy.safe_noise import rounded_normal
from flmc.privacy.safe_noise.entropy import SystemEntropy, draw_uniform, draw_words
from flmc.privacy.safe_noise.rounded_normal import (
    density_bracket,
    draw_rounded_normal,
    exact_magnitude,
    tail_bracket,
)
from support import full

BITS = (0, 2, 10, 20, 30)


class Given:
    """A source of entropy that returns given words, and fails when it is asked for more."""

    def __init__(self, *words: int) -> None:
        self.words = list(words)

    def bytes(self, length: int, /) -> bytes:
        taken, self.words = self.words[: length // 8], self.words[length // 8 :]
        return b"".join(word.to_bytes(8, "little") for word in taken)


def real(x: Fraction) -> mpmath.mpf:
    return mpmath.mpf(x.numerator) / x.denominator


def reference_tail(x: Fraction) -> mpmath.mpf:
    """Pr(|n| > x) by another library, to 500 bits."""
    return mpmath.erfc(real(x) / mpmath.sqrt(2))


@pytest.fixture(autouse=True)
def precise() -> None:
    mpmath.mp.prec = 500


@given(numerator=st.integers(0, 20 << 31), bits=st.integers(0, 31), precision=st.integers(8, 250))
@example(numerator=0, bits=0, precision=8)
@example(numerator=19, bits=1, precision=71)
def test_brackets_hold_and_are_narrow(numerator: int, bits: int, precision: int) -> None:
    x = min(Fraction(numerator, 1 << bits), Fraction(20))
    density = mpmath.sqrt(2 / mpmath.pi) * mpmath.exp(-(real(x) ** 2) / 2)
    for bracket, value in (
        (tail_bracket(x, precision), reference_tail(x)),
        (density_bracket(x, precision), density),
    ):
        assert bracket.low <= value * mpmath.mpf(2) ** precision <= bracket.high
        assert bracket.high - bracket.low <= 3


@pytest.mark.parametrize("bits", BITS)
def test_margins_of_the_fast_path_cover_its_errors(bits: int) -> None:
    """At random thresholds, and half way between two nodes, where Taylor's series is worst."""
    rng = np.random.default_rng(bits)
    count = full(1000, 300)
    x = np.concatenate([rng.uniform(0, 9.4, count), (np.arange(600) + 0.5) / 64])
    odd = 2 * np.floor(x * 2**bits).astype(np.int64) + 1
    tails = [reference_tail(Fraction(int(o), 2 << bits)) * 2**63 for o in odd]
    # Digits close to the threshold, as where it matters, and anywhere.
    near = np.array([min(max(int(tail), 0), 2**63 - 1) for tail in tails], dtype=np.uint64)
    for digits in (near, rng.integers(0, 2**63, odd.size, dtype=np.uint64)):
        found = rounded_normal._bracket_thresholds(odd, digits, bits)
        for tail, digit, gap, margin in zip(tails, digits, found.gap, found.margin, strict=True):
            assert abs(float(tail - int(digit) - float(gap))) <= margin


@pytest.mark.parametrize("bits", BITS)
def test_both_paths_draw_the_same(bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    shape = (2, full(400, 60))
    fast = draw_rounded_normal(shape, bits, np.random.default_rng(5))
    monkeypatch.setattr(rounded_normal, "_proven", lambda k, *_: np.zeros(k.shape, dtype=bool))
    monkeypatch.setattr(rounded_normal, "_guess", lambda digits, _: np.zeros(digits.shape, int))
    np.testing.assert_array_equal(fast, draw_rounded_normal(shape, bits, np.random.default_rng(5)))


def test_a_wrong_guess_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """SciPy's quantile is trusted with nothing: if it errs by one the draws do not change."""
    right = draw_rounded_normal((40,), 20, np.random.default_rng(6))
    guess = rounded_normal._guess
    for error in (1, -1):
        with monkeypatch.context() as patch:
            patch.setattr(rounded_normal, "_guess", lambda d, b, e=error: guess(d, b) + e)
            np.testing.assert_array_equal(
                right, draw_rounded_normal((40,), 20, np.random.default_rng(6))
            )


@pytest.mark.parametrize("k", [1, 2, 300_000, 2**20, 7 * 2**20])
@pytest.mark.parametrize("sign", [0, 1])
def test_ties_are_decided_by_more_bits(k: int, sign: int) -> None:
    """63 digits that hold a threshold in their midst: the next 64 decide, or the 64 after them."""
    scaled = reference_tail(Fraction(2 * k - 1, 2 << 20)) * mpmath.mpf(2) ** (63 + 128)
    digits, second, third = (
        int(scaled) >> 128,
        int(scaled) >> 64 & (2**64 - 1),
        int(scaled) & (2**64 - 1),
    )
    word = digits << 1 | sign
    signed = -1 if sign else 1
    for extra, expected in (
        ((second - 1,), k),
        ((second + 1,), k - 1),
        ((second, third - 1), k),
        ((second, third + 1), k - 1),
    ):
        source = Given(word, *extra)
        assert draw_rounded_normal((1,), 20, source)[0] == signed * expected
        assert not source.words
    # Two digits away nothing more is needed.
    for step, expected in ((-2, k), (2, k - 1)):
        found = exact_magnitude(digits + step, 63, 20, Given())
        assert found == expected


def test_the_far_tail() -> None:
    """63 zeros are followed by more digits: a draw beyond nine standard deviations, and exact."""
    source = Given(0, 1 << 40)
    found = int(draw_rounded_normal((), 20, source))
    v = Fraction(1 << 40, 1 << 127)
    low, high = (reference_tail(Fraction(2 * found + side, 2 << 20)) for side in (1, -1))
    assert low <= real(v) < high
    assert found > 9.5 * 2**20


def probabilities(bits: int, reach: int) -> Array:
    """Probabilities of the steps from -reach to reach, the ends with all that lies beyond."""
    edges = (np.arange(-reach, reach) + 0.5) / 2**bits
    below = [mpmath.ncdf(edge) for edge in edges]
    return np.array([float(b - a) for a, b in zip([0, *below], [*below, 1], strict=True)])


@pytest.mark.parametrize(("bits", "reach"), [(0, 4), (2, 13), (4, 50)])
def test_the_law_of_the_draws(bits: int, reach: int) -> None:
    """Chi-square at 10^-6, five standard deviations, with a fixed seed."""
    count = full(2_000_000, 300_000)
    draws = draw_rounded_normal((count,), bits, np.random.default_rng(12))
    counts = np.bincount(np.clip(draws, -reach, reach) + reach, minlength=2 * reach + 1)
    expected = count * probabilities(bits, reach)
    assert expected.min() > 5
    assert stats.chisquare(counts, expected).pvalue > 1e-6


def test_the_law_at_the_default_grid() -> None:
    """At 20 bits the draws look normal, their lowest bits uniform, and neighbours independent."""
    count = full(1_000_000, 200_000)
    draws = draw_rounded_normal((count,), 20, np.random.default_rng(13))
    assert stats.kstest(draws / 2**20, "norm").pvalue > 1e-6
    assert stats.chisquare(np.bincount(draws & 63, minlength=64)).pvalue > 1e-6
    # A mean of products of independent standard normal numbers has a standard error of n^-1/2.
    assert abs(np.mean(draws[1:] / 2**20 * (draws[:-1] / 2**20))) < 5 / math.sqrt(count)


@given(
    words=st.lists(st.integers(0, 2**64 - 1), min_size=20, max_size=20), zeros=st.integers(0, 19)
)
@example(words=[2**52 - 1] * 20, zeros=0)
@example(words=[2**52] * 20, zeros=0)
@example(words=[2**64 - 1] * 20, zeros=0)
@example(words=[1] * 20, zeros=16)
@example(words=[0] * 20, zeros=0)
@settings(max_examples=300)
def test_uniform_numbers_are_rounded_down(words: list[int], zeros: int) -> None:
    """The double is the largest that does not exceed the real number, so that every comparison
    with a double is the comparison of the real number."""
    words = [0] * zeros + words[zeros:]
    exact = sum((Fraction(word, 1 << 64 * place) for place, word in enumerate(words, 1)))
    found = float(draw_uniform((1,), Given(*words))[0])
    assert Fraction(found) <= exact < Fraction(math.nextafter(found, 2.0))


@pytest.mark.parametrize("p", [0.0, 2.0**-1074, 1e-25, 2.0**-60 / 3, 0.1, 0.5, 1 - 2.0**-53, 1.0])
def test_a_bit_has_the_probability_that_was_asked_for(p: float) -> None:
    """The digits of p itself are not below p; those just before them are."""
    scaled = int(Fraction(p) * 2**1088)

    def digits(number: int) -> Given:
        return Given(*(number >> 64 * place & (2**64 - 1) for place in reversed(range(17))))

    if p < 1:
        assert not draw_uniform((1,), digits(scaled))[0] < p
    if p > 0:
        assert draw_uniform((1,), digits(scaled - 1))[0] < p


def test_uniform_numbers_of_many() -> None:
    draws = draw_uniform((full(400_000, 100_000), 2), np.random.default_rng(3)).ravel()
    assert stats.kstest(draws, "uniform").pvalue > 1e-6
    assert ((draws >= 0) & (draws < 1)).all()


def test_broken_sources_are_refused() -> None:
    with pytest.raises(RunFailed, match="must return 80 bytes, got 8"):
        draw_words(Given(7), 10)
    with pytest.raises(RunFailed, match="4095 random bits did not decide"):
        draw_rounded_normal((1,), 20, Given(*[0] * 200))
    with pytest.raises(InvalidSetting, match="bits must be at most 30, got 31; use a coarser grid"):
        draw_rounded_normal((1,), 31, SystemEntropy())
    with pytest.raises(InvalidSetting, match="bits must be a whole number of at least 0, got -1"):
        draw_rounded_normal((1,), -1, SystemEntropy())


def test_the_operating_system_gives_other_bytes_every_time() -> None:
    first, second = (draw_rounded_normal((4,), 30, SystemEntropy()) for _ in range(2))
    # Eight draws of 30 bits: equal with a probability far below 2^-100.
    assert (first != second).any()
