"""Random words and normals for a block of lanes, in compiled code.

*Word*: 32 random bits, from one xoshiro128++ generator per lane and purpose, seeded like every
stream of this package."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from flmc.sampling.compiled.code_cache import compiled
from flmc.sampling.compiled.emitted.emission import ROUNDS_AT_ONCE
from flmc.sampling.compiled.emitted.generator import emit_words
from flmc.sampling.compiled.emitted.value import WIDTH
from flmc.sampling.compiled.link_curve import WORD_SCALE

_L, _AHEAD = np.uint64(WIDTH), np.uint64(ROUNDS_AT_ONCE)
_0, _2 = np.uint64(0), np.uint64(2)
u32, f32 = np.uint32, np.float32


@compiled
def seed_lane(entropy, key, state, lane):  # type: ignore[no-untyped-def]
    """Start the generator of a lane as ``SeedSequence(seed, spawn_key=key).generate_state(4)``
    would.

    Parameters
    ----------
    entropy
        The words of the seed, 32 bits each, lowest first, at least four.
    key
        The four words of the spawn key: purpose, data set, chain, block of rounds; behind them
        room for four words.
    state
        The generators of a block of lanes, four words each, (4 times lane); changed in place.
    lane
        Which lane to start.
    """
    # The constants and steps are those of NumPy's SeedSequence: mix the entropy into a pool of four
    # words, let every word of the pool and every further word act on all others, then hash the
    # pool.
    pool = key[4:]
    factor = u32(0x43B0D7E5)
    for i in range(4):
        value = u32(entropy[i] ^ factor)
        factor = u32(factor * u32(0x931E8875))
        value = u32(value * factor)
        pool[i] = u32(value ^ (value >> u32(16)))
    for source in range(len(entropy) + 4):
        for target in range(4):
            if source == target:
                continue
            if source < 4:
                value = pool[source]
            elif source < len(entropy):
                value = entropy[source]
            else:
                value = key[source - len(entropy)]
            value = u32(value ^ factor)
            factor = u32(factor * u32(0x931E8875))
            value = u32(value * factor)
            value = u32(value ^ (value >> u32(16)))
            mixed = u32(u32(u32(0xCA01F9DD) * pool[target]) - u32(u32(0x4973F715) * value))
            pool[target] = u32(mixed ^ (mixed >> u32(16)))
    factor = u32(0x8B51F9DD)
    for i in range(4):
        value = u32(pool[i] ^ factor)
        factor = u32(factor * u32(0x58F38DED))
        value = u32(value * factor)
        state[np.uint64(i) * _L + np.uint64(lane)] = u32(value ^ (value >> u32(16)))


@compiled
def fill_words(state, words, count):  # type: ignore[no-untyped-def]
    """Fill an array with ``count`` random words for every lane, by xoshiro128++.

    Parameters
    ----------
    state
        The generators of the lanes, (4 times lane); advanced in place.
    words
        Where the words go, (count times lane).
    count
        Words for each lane.
    """
    emit_words(state.ctypes.data, words.ctypes.data, count)  # type: ignore[call-arg]


@compiled
def _log(word):  # type: ignore[no-untyped-def]
    """Natural logarithm of (word + 1/2)/2^32, which is never that of 0."""
    bits = np.int32(np.float32(f32(word) + f32(0.5)).view(np.int32))
    # A float is 2^exponent times a mantissa. Less the bits of sqrt(1/2), the exponent field is that
    # of a mantissa in [0.7, 1.4], where log(mantissa) = 2 atanh(s) has a short series.
    exponent = np.int32(np.int32(bits - np.int32(0x3F3504F3)) >> np.int32(23))
    mantissa = np.float32(np.int32(bits - np.int32(exponent << np.int32(23))).view(np.float32))
    s = (mantissa - f32(1)) / (mantissa + f32(1))
    q = s * s
    series = s * (f32(2) + q * (f32(2 / 3) + q * (f32(2 / 5) + q * f32(2 / 7))))
    return series + f32(exponent - np.int32(32)) * f32(0.69314718)


@compiled
def _sine(t):  # type: ignore[no-untyped-def]
    """sin(pi t) for |t| <= 1/2."""
    q = t * t
    tail = f32(0.08214588661) + q * f32(-0.007370430945)
    return t * (
        f32(3.14159265)
        + q * (f32(-5.16771278) + q * (f32(2.550164039877) + q * (f32(-0.5992645293) + q * tail)))
    )


@compiled
def fill_normals(state, words, normals, count):  # type: ignore[no-untyped-def]
    """Fill an array with ``count`` standard normals for every lane, by Box and Muller.

    The first half of as many words makes radii, the second half angles; a radius and an angle make
    two normals.

    Parameters
    ----------
    state
        The generators of the lanes, (4 times lane); advanced in place.
    words
        Room for the words, (count times lane); overwritten.
    normals
        Where the normals go, (count times lane).
    count
        Normals for each lane, an even number.
    """
    fill_words(state, words, count)
    _make_normals(words, normals, count // _2 * _L)


@compiled
def _make_normals(words, normals, half):  # type: ignore[no-untyped-def]
    """Make two normals of each of the first ``half`` words and its partner, ``half`` behind."""
    for n in range(half):
        radius = f32(np.sqrt(f32(-2) * _log(words[n])))
        angle = f32(np.int32(words[half + n])) * f32(1 / WORD_SCALE)  # in units of pi, in [-1, 1]
        size = abs(angle)
        # With t the angle in units of pi: cos(pi t) = sin(pi (1/2 - |t|)), and sin(pi |t|) = sin(pi
        # (1 - |t|)), which folds |t| into [0, 1/2]. So one series on [-1/2, 1/2] serves both.
        folded = f32(0.5) - abs(size - f32(0.5))
        normals[n] = radius * _sine(f32(0.5) - size)
        normals[half + n] = radius * (_sine(folded) if angle > f32(0) else -_sine(folded))


@compiled
def fill_normals_alone(state, words, normals, count, chosen, made):  # type: ignore[no-untyped-def]
    """Make ``count`` standard normals for the first lane alone, those that :func:`fill_normals`
    makes for it.

    Parameters
    ----------
    state
        The generators of the lanes, (4 times lane); advanced in place.
    words
        Room for the words, (count times lane); overwritten.
    normals
        Where the normals go, (count times lane); other lanes are left as they are.
    count
        Normals, an even number.
    chosen, made
        Room for words, zero where it is used first, and for normals: twice as many as half of
        ``count``, rounded up to whole vectors, so that every normal is computed in the same way.
    """
    fill_words(state, words, count)
    half, apart = count // _2, np.uint64(len(chosen)) // _2
    for n in range(half):
        chosen[n] = words[n * _L]
        chosen[apart + n] = words[(half + n) * _L]
    _make_normals(chosen, made, apart)
    for n in range(half):
        normals[n * _L] = made[n]
        normals[(half + n) * _L] = made[apart + n]


@compiled
def draw_alone(state, words, normals, words_each, normals_each, blocks, rounds):  # type: ignore[no-untyped-def]
    """Draw the random numbers of a run and do nothing else: the limit of any engine that uses them,
    for benchmarks.

    Parameters
    ----------
    state
        The generators of the lanes, (4 times lane).
    words, normals
        Room for what is drawn.
    words_each, normals_each
        Words of one round, and normals of eight rounds, for each lane.
    blocks, rounds
        Blocks of lanes, and rounds of each.
    """
    for _ in range(blocks):
        for r in range(rounds):
            if r % _AHEAD == _0:
                fill_normals(state, words, normals, normals_each)
            fill_words(state, words, words_each)


def entropy_of(seed: int) -> npt.NDArray[np.uint32]:
    """The words of a seed as ``SeedSequence`` takes them beside a spawn key: 32 bits each, lowest
    first, at least four.

    Parameters
    ----------
    seed
        A whole number that is not negative.
    """
    words = [seed >> shift & 0xFFFFFFFF for shift in range(0, max(seed.bit_length(), 128), 32)]
    return np.array(words, np.uint32)
