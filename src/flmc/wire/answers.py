"""The payload of a device's answer, which travels sealed to the air."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flmc.base.arrays import Array
from flmc.wire.frames import Malformed, Reader, Writer
from flmc.wire.messages import DIGEST_BYTES, JOURNAL_BYTES, one_or

_ANSWER = 3
_BITS, _VALUES = 0, 1
"""How an answer holds its symbols: packed bits, or numbers of single precision."""


@dataclass(frozen=True, eq=False)
class Answer:
    """What a device transmits in a round; it travels sealed to the air.

    Attributes
    ----------
    round, device
        Number of the round, from 1, and of the device, from 0.
    journal
        Name of the device's journal, eight bytes that were drawn when it was made.
    epoch
        Entries of the journal, this one included.
    binding
        Digest of federation, round and theta that this is the answer to.
    symbols
        Bits in {-1, +1}, or clipped gradients, (dim).
    amplitude
        Transmit amplitude, (1 or dim).
    """

    round: int
    device: int
    journal: bytes
    epoch: int
    binding: bytes
    symbols: Array
    amplitude: Array

    def to_bytes(self, bits: bool) -> bytes:
        """The payload before it is sealed.

        Parameters
        ----------
        bits
            Whether symbols are bits, which are packed; else they are rounded to single precision.
        """
        writer = Writer(_ANSWER, self.round).count(self.device).raw(self.journal).count(self.epoch)
        writer.raw(self.binding).raw(bytes([_BITS if bits else _VALUES]))
        writer.count(len(self.symbols)).count(len(self.amplitude))
        writer.numbers(self.amplitude, "<f8")
        if bits:
            return writer.bits(self.symbols).to_bytes()
        return writer.numbers(self.symbols, "<f4").to_bytes()

    @classmethod
    def from_bytes(cls, payload: bytes, dim: int, bits: bool) -> Answer:
        """What a payload says. Values and amplitudes are numbers, amplitudes not negative.

        Parameters
        ----------
        payload, dim
            The opened bytes, and the number of entries.
        bits
            Whether symbols must be bits.

        Raises
        ------
        Malformed
            If it is no such payload.
        """
        reader = Reader(payload, _ANSWER)
        device, journal = reader.count(2**32 - 1), reader.raw(JOURNAL_BYTES)
        epoch, binding = reader.count(2**32 - 1), reader.raw(DIGEST_BYTES)
        if reader.raw(1)[0] != (_BITS if bits else _VALUES):
            raise Malformed("symbols of another scheme than the plan's")
        reader.count(dim, dim)
        amplitude = reader.numbers(one_or(reader, dim), "<f8")
        if not (np.isfinite(amplitude) & (amplitude >= 0)).all():
            raise Malformed("an amplitude must be a number from 0")
        if bits:
            symbols = np.where(reader.bits(dim), 1.0, -1.0)
        else:
            symbols = reader.numbers(dim, "<f4").astype(np.float64)
            if not np.isfinite(symbols).all():
                raise Malformed("a value must be a number")
        reader.end()
        return cls(reader.round, device, journal, epoch, binding, symbols, amplitude)


def largest_answer(dim: int) -> int:
    """Bytes of the largest answer before it is sealed.

    Parameters
    ----------
    dim
        Number of entries.
    """
    return 8 + 4 + JOURNAL_BYTES + 4 + DIGEST_BYTES + 1 + 8 + 12 * dim
