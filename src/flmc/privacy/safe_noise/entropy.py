"""Sources of random bytes: the operating system for a deployment, any seeded generator for a
test."""

from __future__ import annotations

import builtins
import os
from typing import Protocol

import numpy as np
import numpy.typing as npt

from flmc.base.errors import RunFailed

WORD_BITS = 64
"""Random bits in a word."""


class Entropy(Protocol):
    """A source of independent, uniform random bytes.

    :class:`SystemEntropy` is the one for a deployment. A ``np.random.Generator`` is one too, for
    tests and simulations: whoever knows its seed knows all its bytes."""

    def bytes(self, length: int, /) -> builtins.bytes:
        """So many random bytes.

        Parameters
        ----------
        length
            Number of bytes.
        """
        ...


class SystemEntropy:
    """Random bytes of the operating system, meant for cryptography."""

    def bytes(self, length: int, /) -> builtins.bytes:
        """So many bytes from ``os.urandom``.

        Parameters
        ----------
        length
            Number of bytes.
        """
        return os.urandom(length)


def draw_words(entropy: Entropy, count: int) -> npt.NDArray[np.uint64]:
    """Random words of 64 bits.

    Parameters
    ----------
    entropy
        Source of the bytes; the first of a word is its lowest.
    count
        Number of words.

    Returns
    -------
    np.ndarray
        Independent words, each uniform from 0 to 2^64 - 1, (count,).

    Raises
    ------
    RunFailed
        If the source returns another number of bytes than it was asked for.
    """
    wanted = count * WORD_BITS // 8
    found = entropy.bytes(wanted)
    if len(found) != wanted:
        raise RunFailed(f"the source of entropy must return {wanted} bytes, got {len(found)}")
    return np.frombuffer(found, dtype="<u8").astype(np.uint64)


def extend(bits: int, entropy: Entropy) -> int:
    """A binary fraction with 64 more random bits behind those that it has.

    Parameters
    ----------
    bits
        The bits so far, as a whole number, the first of the fraction on top.
    entropy
        Source of the bits that follow.

    Returns
    -------
    int
        The old bits and the new ones behind them.
    """
    return bits << WORD_BITS | int(draw_words(entropy, 1)[0])
