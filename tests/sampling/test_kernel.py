"""Parts of the compiled kernel: random words and normals, and the probabilities of bits."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import flmc
from flmc.base.arrays import Array
from flmc.sampling.compiled.arrangement import LANES
from flmc.sampling.compiled.instructions import NUMBER, WORD, WORDS, Code, Value, emitted
from flmc.sampling.compiled.link_curve import WORD_SCALE, fit
from flmc.sampling.compiled.random_numbers import Generator, fill_normals, seed_generators
from flmc.sampling.compiled.starts import entropy_of
from sampling.problems import Cauchy, Skewed, thresholds
from support import full

Words = npt.NDArray[np.uint32]
LINKS = [
    (flmc.Sigmoid(0.05), 30.0),
    (flmc.Sigmoid(0.011), 700.0),
    (flmc.Sigmoid(0.5), 30.0),
    (flmc.Probit(0.03), 30.0),
    (flmc.Probit(0.3), 30.0),
    (flmc.Linear(1.0), 30.0),
    (flmc.Linear(0.4), 8.0),
    (Cauchy(), 30.0),
    (Skewed(), 30.0),
]


def call(what: str, body: Callable[[Code, list[Value]], None], *arguments: Any) -> None:
    """Run emitted code with arrays, by their addresses, and numbers."""
    kind = ctypes.CFUNCTYPE(None, *[ctypes.c_uint64] * len(arguments))
    numbers = [getattr(value, "ctypes", None) for value in arguments]
    kind(emitted(what, body, [NUMBER] * len(arguments)))(
        *(
            value if found is None else found.data
            for value, found in zip(arguments, numbers, strict=True)
        )
    )


@given(number=st.integers(0, 2**200), key=st.tuples(*[st.integers(0, 2**32 - 1)] * 4))
def test_lanes_are_seeded_like_numpy(number: int, key: tuple[int, ...]) -> None:
    state, keys = np.zeros((4, LANES), np.uint32), np.zeros((4, LANES), np.uint32)
    keys[:, 5] = key
    keys[:, 2] = key[::-1]

    def body(code: Code, arguments: list[Value]) -> None:
        entropy, count, keys, state = arguments
        words = [code.load(keys, i * LANES, WORDS) for i in range(4)]
        seed_generators(code, entropy, count, words, state)

    entropy = entropy_of(number)
    call("seed", body, entropy, len(entropy), keys, state)
    for lane in (2, 5):
        spawn_key = tuple(int(word) for word in keys[:, lane])
        expected = np.random.SeedSequence(number, spawn_key=spawn_key).generate_state(4)
        np.testing.assert_array_equal(state[:, lane], expected)


def plain_xoshiro(state: list[int], count: int) -> list[int]:
    """xoshiro128++ in Python's whole numbers, from its published definition."""
    mask, s, out = 0xFFFFFFFF, list(state), []

    def turn(value: int, by: int) -> int:
        return (value << by | value >> (32 - by)) & mask

    for _ in range(count):
        out.append((turn((s[0] + s[3]) & mask, 7) + s[0]) & mask)
        t = s[1] << 9 & mask
        s[2] ^= s[0]
        s[3] ^= s[1]
        s[1] ^= s[2]
        s[0] ^= s[3]
        s[2] ^= t
        s[3] = turn(s[3], 11)
    return out


def test_words_are_those_of_xoshiro() -> None:
    state = np.random.default_rng(1).integers(0, 2**32, 4 * LANES, dtype=np.uint32)
    start = state.reshape(4, LANES).copy()
    words = np.zeros(50 * LANES, np.uint32)

    def body(code: Code, arguments: list[Value]) -> None:
        state, words = arguments
        generator = Generator(code, state, WORDS)
        with code.loop(code.number(50)) as n:
            code.store(words, n * LANES, generator())
        generator.save()

    call("words", body, state, words)
    for lane in (0, 1, 3, LANES - 1):
        expected = plain_xoshiro([int(word) for word in start[:, lane]], 50)
        np.testing.assert_array_equal(words.reshape(50, LANES)[:, lane], expected)


def fill(state: Words, words: Words, normals: npt.NDArray[np.float32], count: int) -> None:
    """Make ``count`` normals for every lane."""

    def body(code: Code, arguments: list[Value]) -> None:
        state, words, normals, half = arguments
        generator = Generator(code, state, WORDS)
        fill_normals(code, generator, words, normals, half, half * LANES)
        generator.save()

    call("normals", body, state, words, normals, count // 2)


def test_normals() -> None:
    count = full(2_000_000, 200_000) // LANES // 2 * 2
    state = np.random.default_rng(2).integers(0, 2**32, 4 * LANES, dtype=np.uint32)
    words, normals = np.zeros(count * LANES, np.uint32), np.zeros(count * LANES, np.float32)
    fill(state, words, normals, count)
    first, second = words.reshape(2, -1)
    radius = np.sqrt(-2 * np.log((first.astype(np.float64) + 0.5) / 2**32))
    signed = second.view(np.int32) * np.pi / 2**31
    expected = np.concatenate([radius * np.cos(signed), radius * np.sin(signed)])
    # Single precision: 6e-8 of up to 6.8, a few times; near u = 1 the radius, below 0.002, is
    # coarse.
    np.testing.assert_allclose(normals.reshape(expected.shape), expected, atol=4e-4)
    assert np.quantile(np.abs(normals.reshape(expected.shape) - expected), 0.999) < 3e-6
    z = normals.astype(np.float64)
    # Five standard errors of the first four moments of a standard normal.
    for power, mean, variance in ((1, 0.0, 1.0), (2, 1.0, 2.0), (3, 0.0, 15.0), (4, 3.0, 96.0)):
        assert abs((z**power).mean() - mean) < 5 * np.sqrt(variance / len(z))
    assert stats.kstest(z, "norm").pvalue > 1e-6


@pytest.mark.parametrize("count", [2, 8, 40, 136, 400])
def test_normals_of_one_lane_are_those_of_the_block(count: int) -> None:
    """To the bit: a run may not depend on whether its chain had neighbours."""
    state = np.random.default_rng(3).integers(0, 2**32, 4 * LANES, dtype=np.uint32)
    again = state.copy()
    words, block = np.zeros(count * LANES, np.uint32), np.zeros(count * LANES, np.float32)
    fill(state, words, block, count)
    apart = -(-count // 2 // LANES) * LANES + LANES
    alone = np.zeros(2 * apart, np.float32)

    def body(code: Code, arguments: list[Value]) -> None:
        state, words, normals, half, apart = arguments
        fill_normals(code, Generator(code, state, WORD), words, normals, half, apart)

    call("normals alone", body, again, np.zeros(2 * apart, np.uint32), alone, count // 2, apart)
    expected = block[::LANES].reshape(2, -1)
    np.testing.assert_array_equal(alone.reshape(2, apart)[:, : count // 2], expected)


@pytest.mark.parametrize(("link", "clip"), LINKS, ids=lambda value: str(value))
def test_probabilities_are_the_link_s(link: flmc.Link, clip: float) -> None:
    """|implemented probability - Phi| <= 1e-6 over the clip range, rounding included."""
    link = link.bound_to(clip)
    curve = fit(link, clip)
    assert curve is not None
    g = np.linspace(-1, 1, full(200_001, 20_001)).astype(np.float32)
    implemented = np.clip(0.5 + 0.5 * thresholds(g, curve) / WORD_SCALE, 0, 1)
    # A word is rounded to 24 bits before the comparison: a threshold is as if moved by up to 64 of
    # 2^32 words.
    resolution = 64 / 2**32
    assert (
        np.abs(implemented - link.probability(clip * g.astype(np.float64))).max() + resolution
        <= 1e-6
    )


def test_links_that_cannot_be_tabulated() -> None:
    class Jump(flmc.Link):
        def probability(self, g: Array) -> Array:
            return np.where(g > 1.234567, 0.9, 0.1)

    assert fit(Jump(), 30.0) is None
    assert fit(flmc.Sign(), 30.0) is not None
