r"""One seed, many independent streams.

A stream is named by what it is for (:class:`Purpose`), the data set, the chain and the block of
rounds it serves, and is the NumPy ``SeedSequence(seed, spawn_key=(purpose, experiment, chain,
block))``. So results depend neither on threads nor on the number of data sets handled at once, two
schemes run with one seed see the same data, fading and channel noise, and going on after an
interruption needs no generator state: only the number of the block."""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from flmc.base import checks

ROUNDS_PER_BLOCK = 128
"""Rounds that share a stream. Part of what a seed means: changing it changes every number."""


class Purpose(IntEnum):
    """What a stream is for."""

    DATA = 0
    INIT = 1
    FADING = 2
    QUANTISER = 3
    CHANNEL = 4
    PLANNING = 5
    SCHEDULING = 6


def generator(
    seed: int, purpose: Purpose, experiment: int = 0, chain: int = 0, block: int = 0
) -> np.random.Generator:
    """The generator of one stream. SFC64: the fastest that NumPy has, 256 bits of state."""
    key = (int(purpose), experiment, chain, block)
    return np.random.Generator(
        np.random.SFC64(np.random.SeedSequence(check_seed(seed), spawn_key=key))
    )


def check_seed(seed: int) -> int:
    """A seed is a whole number that is not negative."""
    return checks.at_least("seed", seed, 0)
