"""Standard normals from which the numba engine makes the starting points of chains, where these are
draws from the prior. Each chain has a random stream of its own for its starting point."""

from __future__ import annotations

import ctypes
from functools import cache, lru_cache

import numpy as np
import numpy.typing as npt

from flmc.base.randomness import Purpose
from flmc.sampling.compiled.arrangement import LANES, OWN, Arrangement, Blocks
from flmc.sampling.compiled.instructions import NUMBER, WIDTH, WORDS, Code, Value, emitted
from flmc.sampling.compiled.random_numbers import Generator, fill_normals, seed_generators

_CALL = ctypes.CFUNCTYPE(None, *[ctypes.c_uint64] * 8)
_FEW = 100_000
"""Largest number of standard normals, of all chains together, that are cached for the next run;
more are drawn anew for every run."""


def entropy_of(seed: int) -> npt.NDArray[np.uint32]:
    """The seed as words of 32 bits, lowest first, padded with zeros to at least four, as NumPy's
    ``SeedSequence`` splits it."""
    words = [seed >> shift & 0xFFFFFFFF for shift in range(0, max(seed.bit_length(), 128), 32)]
    return np.array(words, np.uint32)


def draw_starts(
    seed: int, num_experiments: int, num_chains: int, dim: int
) -> npt.NDArray[np.float32]:
    """Standard normals for the starting points of all chains, (experiment, chain, dim), read-only.
    Up to ``_FEW`` numbers are cached, because the runs of a study often start with the same
    arguments."""
    few = num_experiments * num_chains * dim <= _FEW
    draw = _drawn_once if few else _drawn_once.__wrapped__
    return draw(seed, num_experiments, num_chains, dim)


@lru_cache(maxsize=4)
def _drawn_once(
    seed: int, num_experiments: int, num_chains: int, dim: int
) -> npt.NDArray[np.float32]:
    """The normals of :func:`draw_starts`, (experiment, chain, dim), cached for the next run with
    the same arguments."""
    count, entropy = num_experiments * num_chains, entropy_of(seed)
    blocks = Blocks.of(Arrangement.of(OWN, dim), 0, count, num_chains)
    half = -(-dim // 2)
    normals = np.empty((len(blocks.firsts), 2 * half, LANES), np.float32)
    words, state = np.empty(2 * half * LANES, np.uint32), np.empty(4 * LANES, np.uint32)
    keys = blocks.keys
    _CALL(starts_of())(
        keys.ctypes.data, entropy.ctypes.data, normals.ctypes.data, len(entropy), len(normals),
        half, words.ctypes.data, state.ctypes.data,
    )  # fmt: skip
    chains = np.swapaxes(normals[:, :dim], 1, 2).reshape(-1, dim)[:count]
    starts = chains.reshape(num_experiments, num_chains, dim)
    starts.flags.writeable = False
    return starts


@cache
def starts_of() -> int:
    """The address of a machine-code function that makes standard normals for the starting points of
    chains. It works on blocks of eight chains, one in each lane (place) of a vector.

    Its arguments are, first, the addresses of the numbers of data set and chain of every lane,
    (block, 2, 8), of the seed's words, and of the array of normals to fill, (block, 2 half, 8).
    Then come the number of the seed's words, the number of blocks, and ``half``, which is half the
    number of normals of a chain. Last are the addresses of scratch memory for the random words of a
    block, and for the state of its random generators.
    """

    def body(code: Code, arguments: list[Value]) -> None:
        keys, entropy, target, num_entropy, blocks, half, words, state = arguments
        with code.loop(blocks) as n:
            place = keys + n * (2 * 4 * WIDTH)
            key = [
                code.words(int(Purpose.INIT)),
                *(code.load(place, i * WIDTH, WORDS) for i in (0, 1)),
                code.words(0),
            ]
            seed_generators(code, entropy, num_entropy, key, state)
            normals = target + n * half * (2 * 4 * WIDTH)
            fill_normals(code, Generator(code, state, WORDS), words, normals, half, half * WIDTH)

    return emitted("starts", body, [NUMBER] * 8)
