r"""Random numbers as functions of a key and a counter, which JAX compiles into the loop that uses
them.

The generator is Threefry-2x32 with 20 rounds (Salmon, Moraes, Dror and Shaw, "Parallel random
numbers: as easy as 1, 2, 3", 2011), the one that JAX itself uses: tests hold this one to it. JAX's
own call is a loop whose numbers go through memory, and takes half of them only; here both words are
used and stay in registers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from flmc.base.randomness import Purpose, check_seed

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA
_ROUNDS = 20


def chain_key(
    seed: int, purpose: Purpose, experiment: int, chain: int, block: int
) -> np.typing.NDArray[np.uint32]:
    """Key of one named stream: two words, from the place of the stream in the tree of the seed.

    Parameters
    ----------
    seed, purpose, experiment, chain, block
        As for :func:`flmc.base.randomness.generator`.
    """
    place = (int(purpose), experiment, chain, block)
    sequence = np.random.SeedSequence(check_seed(seed), spawn_key=place)
    return sequence.generate_state(2).astype(np.uint32)


def words(key: Any, entry: Any, counter: Any) -> tuple[Any, Any]:
    """Two words of 32 random bits for every entry.

    Parameters
    ----------
    key
        Keys, (..., 2), unsigned integers of 32 bits.
    entry, counter
        Number of the entry, (dim), and a counter for all of them, unsigned integers of 32 bits.

    Returns
    -------
    tuple of two arrays
        (..., dim) each, unsigned integers of 32 bits.
    """
    first, second = key[..., 0, None], key[..., 1, None]
    keys = (first, second, first ^ second ^ np.uint32(_PARITY))
    x, y = entry + keys[0], counter + keys[1]
    for index in range(_ROUNDS):
        turn = _ROTATIONS[index // 4 % 2][index % 4]
        x = x + y
        y = ((y << np.uint32(turn)) | (y >> np.uint32(32 - turn))) ^ x
        if index % 4 == 3:
            injection = index // 4 + 1
            x = x + keys[injection % 3]
            y = y + keys[(injection + 1) % 3] + np.uint32(injection)
    return x, y


def normals(numpy: Any, first: Any, second: Any) -> Any:
    r"""Standard normals from two words each, :math:`\sqrt{-2\ln u}\cos 2\pi v` (Box and Muller).

    The first word is taken with all its 32 bits, so that magnitudes reach 6.8.

    Parameters
    ----------
    numpy
        ``jax.numpy``.
    first, second
        Words of 32 random bits, in the same shape.
    """
    u = (first.astype(numpy.float32) + 0.5) * np.float32(2.0**-32)
    v = (second >> np.uint32(8)).astype(numpy.float32) * np.float32(2.0**-24)
    return numpy.sqrt(-2.0 * numpy.log(u)) * numpy.cos(np.float32(2.0 * math.pi) * v)
