"""Random streams: one seed gives many independent generators, each with a name.

A stream is named by what it is for (:class:`Purpose`), and by the data set, the chain and the block
of rounds that it serves. It is seeded by NumPy's ``SeedSequence(seed, spawn_key=(purpose,
experiment, chain, block))``; a stream that several chains or blocks share, such as that of fading
drawn for a whole run, has 0 in place of their numbers. So results depend neither on threads nor on
the number of data sets handled at once, two schemes that run with one seed see the same data,
fading and channel noise, and a run that goes on after an interruption needs no generator state,
only the number of the block."""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from flmc.base import checks

ROUNDS_PER_BLOCK = 128
"""Number of consecutive rounds that draw from one random stream. It is part of what a seed means:
changing it changes every random number."""

_SECOND_STAGE = 1 << 20
"""Spawn key of ``SeedSequence`` from which the seed of a run's second stage is derived. It differs
from the keys of all random streams, because these have four numbers."""


class Purpose(IntEnum):
    """What a random stream is for, as a number. The numbers are part of what a seed means, so they
    never change."""

    DATA = 0
    INIT = 1
    FADING = 2
    QUANTISER = 3
    CHANNEL = 4
    PLANNING = 5
    SCHEDULING = 6
    CHECK = 7
    ESTIMATION = 8
    SERVER = 9
    LOCAL = 10
    BATCH = 11


def generator(
    seed: int, purpose: Purpose, experiment: int = 0, chain: int = 0, block: int = 0
) -> np.random.Generator:
    """Generator at the beginning of the stream of one purpose, data set, chain and block of
    ``ROUNDS_PER_BLOCK`` rounds, counted from 0; a stream that several of them share has 0 there.

    The generator is SFC64, with 256 bits of state: the fastest that NumPy has.
    """
    key = (int(purpose), experiment, chain, block)
    return np.random.Generator(
        np.random.SFC64(np.random.SeedSequence(check_seed(seed), spawn_key=key))
    )


def check_seed(seed: int) -> int:
    """The seed as an int; raises ``InvalidSetting`` if it is not a whole number of at least 0."""
    return checks.at_least("seed", seed, 0)


def second_seed(seed: int) -> int:
    """Seed of the second stage of a run in two stages, derived from the seed of the first; the
    random streams of the stages have nothing in common."""
    words = np.random.SeedSequence(check_seed(seed), spawn_key=(_SECOND_STAGE,)).generate_state(2)
    return int(words[0]) << 32 | int(words[1])  # two words of 32 bits make a seed of 64 bits
