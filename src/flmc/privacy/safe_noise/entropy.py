"""Sources of random bytes (the operating system for a deployment, any seeded generator for a test),
and uniform numbers whose comparison with a probability has exactly that probability."""

from __future__ import annotations

import builtins
import math
import os
from typing import Protocol

import numpy as np
import numpy.typing as npt

from flmc.base.arrays import Array
from flmc.base.errors import RunFailed

WORD_BITS = 64
"""Number of random bits in a word."""
_MANTISSA = 53
"""Number of significant bits of a double."""
_SMALLEST_EXPONENT = 1074
"""Number of binary places of the smallest positive double, 2^-1074."""


class Entropy(Protocol):
    """A source of independent, uniform random bytes.

    :class:`SystemEntropy` is the one for a deployment. A ``np.random.Generator`` is one too, for
    tests and simulations: whoever knows its seed knows all its bytes."""

    def bytes(self, length: int, /) -> builtins.bytes:
        """``length`` random bytes."""
        ...


class SystemEntropy:
    """Source of random bytes from the operating system, fit for cryptography."""

    def bytes(self, length: int, /) -> builtins.bytes:
        """``length`` bytes from ``os.urandom``."""
        return os.urandom(length)


def draw_words(entropy: Entropy, count: int) -> npt.NDArray[np.uint64]:
    """Independent random words, each uniform from 0 to 2^64 - 1, (count,); the first byte of a word
    is its lowest. Raises ``RunFailed`` if the source returns another number of bytes than asked."""
    wanted = count * WORD_BITS // 8
    drawn = entropy.bytes(wanted)
    if len(drawn) != wanted:
        raise RunFailed(f"the source of entropy must return {wanted} bytes, got {len(drawn)}")
    # "<u8" fixes the order of bytes: the same source gives the same words on every machine.
    return np.frombuffer(drawn, dtype="<u8").astype(np.uint64)


def extend(bits: int, entropy: Entropy) -> int:
    """Binary digits of a random fraction with 64 more random digits appended. The old digits,
    ``bits``, and the result are whole numbers, whose binary digits are those of the fraction."""
    return bits << WORD_BITS | int(draw_words(entropy, 1)[0])


def draw_uniform(shape: tuple[int, ...], entropy: Entropy) -> Array:
    r"""Uniform real numbers in [0, 1), each rounded *down* to a double.

    Let :math:`u` be the real number and :math:`u'` the largest double that does not exceed it. For
    every double :math:`p`, :math:`u' < p` is the same event as :math:`u < p`, because :math:`p` is
    itself a double: so :math:`\Pr(u' < p) = p` exactly. Bits that :meth:`flmc.Uplink.symbols` makes
    from these numbers are +1 with exactly the probability that the link returns as a double, down
    to the smallest. (The numbers of ``np.random.Generator.random`` are multiples of
    :math:`2^{-53}`; with them a probability is rounded up to such a multiple.)
    """
    words = draw_words(entropy, math.prod(shape))
    # A word of at least 2^52 holds all 53 significant bits of a double: its leading 1 and the 52
    # bits that follow. Lower bits are cleared, so that the conversion to a double is exact and does
    # not round up.
    lowest = np.uint64(1 << (_MANTISSA - 1))
    surplus = np.zeros(words.shape, dtype=np.uint64)
    for width in range(1, WORD_BITS - _MANTISSA + 1):
        surplus += words >> np.uint64(_MANTISSA - 1 + width) != 0
    uniform = np.ldexp((words >> surplus << surplus).astype(np.float64), -WORD_BITS)
    for place in np.flatnonzero(words < lowest):
        uniform[place] = _round_down(int(words[place]), entropy)
    return uniform.reshape(shape)


def _round_down(bits: int, entropy: Entropy) -> float:
    """The largest double that does not exceed a random fraction in [0, 1), whose first 64 binary
    digits are ``bits``. Fewer than 53 of these are significant, because the leading ones are 0, so
    the missing digits are drawn from ``entropy``."""
    length = WORD_BITS
    while bits.bit_length() < _MANTISSA and length < _SMALLEST_EXPONENT:
        bits, length = extend(bits, entropy), length + WORD_BITS
    # Number of low digits to drop: those after 53 significant digits, or those beyond 2^-1074, the
    # place where doubles below the smallest normal one end.
    surplus = max(bits.bit_length() - _MANTISSA, length - _SMALLEST_EXPONENT)
    return math.ldexp(bits >> surplus, surplus - length)
