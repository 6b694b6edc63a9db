"""Messages of a round and their bytes: theta from the server, the air's announcement, the devices'
answers (their symbols), and the air's received signal.

Sizes come from the plan, so that a reader never allocates more than the plan allows, whatever a
sender claims. docs/deployment.md specifies the bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from flmc.base.arrays import Array, IntArray
from flmc.uplink.symbol_format import SymbolFormat
from flmc.wire.encoding import Malformed, Reader, Writer

DIGEST_BYTES = 32
"""Number of bytes of a SHA-256 digest."""
JOURNAL_BYTES = 8
"""Number of bytes of a journal's name, which is drawn at random when the journal is made."""
_THETA, _ANNOUNCEMENT, _ANSWER, _RECEIVED = 1, 2, 3, 4
"""Codes of the four kinds of binary payloads, one of which stands in each payload's header."""
_STEPS, _REAL = 0, 1
"""Codes of the unit of a received signal: steps of the noise grid (64-bit integers), or values in
double precision."""
_CODES = {"bits": 0, "values": 1, "levels": 2}
"""Code of the symbol format in an answer: packed bits, values in single precision, or packed
numbers of levels."""


@dataclass(frozen=True, eq=False)
class Theta:
    """Position of the chain before a round, published by the server.

    Attributes
    ----------
    round
        Number of the round, from 1.
    digest
        Digest of the federation.
    theta
        Position, (dim).
    """

    round: int
    digest: bytes
    theta: Array

    def to_bytes(self) -> bytes:
        """The position as a binary payload: header with kind 1 and round, digest, dim, entries in
        double precision."""
        writer = Writer(_THETA, self.round).raw(self.digest).count(len(self.theta))
        return writer.numbers(self.theta, "<f8").to_bytes()

    @classmethod
    def from_bytes(cls, payload: bytes, dim: int) -> Theta:
        """The position of ``dim`` entries in a payload of ``to_bytes``; raises ``Malformed`` for
        any other payload. Entries may be infinite or NaN, which the caller has to check."""
        reader = Reader(payload, _THETA)
        digest = reader.raw(DIGEST_BYTES)
        theta = reader.numbers(reader.count(dim, dim), "<f8")
        reader.end()
        return cls(reader.round, digest, theta)


@dataclass(frozen=True, eq=False)
class Announcement:
    """Public facts of a round, published by the air before devices answer.

    Attributes
    ----------
    round, digest
        Number of the round, from 1, and digest of the federation.
    attempt
        Number of deadlines of the round that have passed without a quorum, since the air started.
    gain
        Amplitude A at which symbols should arrive, (1 or dim).
    scheduled
        Mask of the devices that should transmit, (device).
    answered
        Last closed round to which the answer of each device arrived, (device); 0: none. A device
        whose own journal ends before that round has lost a part of the journal.
    fading
        Path gain h of each device, (device, 1 or dim).
    journal
        Name of the air's journal, eight bytes. An air that lost its journal has forgotten what it
        published, and could add fresh noise to the same symbols.
    """

    round: int
    digest: bytes
    attempt: int
    gain: Array
    scheduled: npt.NDArray[np.bool_]
    answered: IntArray
    fading: Array
    journal: bytes = bytes(JOURNAL_BYTES)

    def to_bytes(self) -> bytes:
        """The announcement as a binary payload whose header names kind 2 and the round."""
        devices, wide = self.fading.shape
        writer = Writer(_ANNOUNCEMENT, self.round).raw(self.digest).count(self.attempt)
        writer.count(devices).count(len(self.gain)).count(wide)
        writer.numbers(self.gain, "<f8").bits(self.scheduled)
        writer.numbers(self.answered, "<u4").numbers(self.fading, "<f8")
        return writer.raw(self.journal).to_bytes()

    @classmethod
    def from_bytes(cls, payload: bytes, num_devices: int, dim: int) -> Announcement:
        """The announcement in a payload of ``to_bytes``; raises ``Malformed`` unless it has
        the plan's sizes and its gains and path gains are finite and positive."""
        reader = Reader(payload, _ANNOUNCEMENT)
        digest, attempt = reader.raw(DIGEST_BYTES), reader.count(2**32 - 1)
        reader.count(num_devices, num_devices)
        gains, wide = one_or(reader, dim), one_or(reader, dim)
        gain = _positive(reader.numbers(gains, "<f8"), "a gain")
        scheduled = reader.bits(num_devices)
        answered = reader.numbers(num_devices, "<u4").astype(np.int64)
        fading = _positive(reader.numbers(num_devices * wide, "<f8"), "a path gain")
        journal, paths = reader.raw(JOURNAL_BYTES), fading.reshape(-1, wide)
        reader.end()
        return cls(reader.round, digest, attempt, gain, scheduled, answered, paths, journal)


@dataclass(frozen=True, eq=False)
class DeviceAnswer:
    """Symbols that a device transmits in a round; the payload travels encrypted to the air's key.

    Attributes
    ----------
    round, device
        Number of the round, from 1, and number of the device, from 0.
    journal
        Name of the device's journal, eight bytes drawn when it was made.
    epoch
        Number of the journal's entries, this answer included.
    binding
        SHA-256 of the federation's digest, the round and the theta for which the symbols are.
    symbols
        Bits in {-1, +1}, quantisation levels, or clipped gradients, (dim).
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

    def to_bytes(self, symbols: SymbolFormat) -> bytes:
        """The answer as a binary payload, not yet sealed (encrypted to the air's key), with symbols
        packed in the format of the plan's uplink."""
        writer = Writer(_ANSWER, self.round).count(self.device).raw(self.journal).count(self.epoch)
        writer.raw(self.binding).raw(bytes([_CODES[symbols.kind]]))
        writer.count(len(self.symbols)).count(len(self.amplitude))
        writer.numbers(self.amplitude, "<f8")
        if symbols.levels is not None:
            return writer.bits(_spread(symbols.places(self.symbols), symbols.width)).to_bytes()
        return writer.numbers(self.symbols, "<f4").to_bytes()

    @classmethod
    def from_bytes(cls, payload: bytes, dim: int, symbols: SymbolFormat) -> DeviceAnswer:
        """The answer in an unsealed payload, with symbols in the format of the plan's uplink;
        raises ``Malformed`` unless it has ``dim`` symbols, all symbols and amplitudes are finite,
        and no amplitude is negative."""
        reader = Reader(payload, _ANSWER)
        device, journal = reader.count(2**32 - 1), reader.raw(JOURNAL_BYTES)
        epoch, binding = reader.count(2**32 - 1), reader.raw(DIGEST_BYTES)
        if reader.raw(1)[0] != _CODES[symbols.kind]:
            raise Malformed("symbols of another scheme than the plan's")
        reader.count(dim, dim)
        amplitude = reader.numbers(one_or(reader, dim), "<f8")
        if not (np.isfinite(amplitude) & (amplitude >= 0)).all():
            raise Malformed("an amplitude must be a number from 0")
        sent = _symbols(reader, dim, symbols)
        reader.end()
        return cls(reader.round, device, journal, epoch, binding, sent, amplitude)


@dataclass(frozen=True, eq=False)
class Received:
    """Signal that the air received in a round (the sum of symbols plus noise), and its devices.

    Attributes
    ----------
    round, binding
        Number of the round, from 1; SHA-256 of the federation's digest, the round and theta.
    active
        Mask of the devices whose symbols are in the signal, (device).
    gain
        Announced amplitude A, (1 or dim).
    steps
        Signal in steps of the noise grid, (dim); None if a radio receiver measured values.
    values
        Signal measured by a radio receiver, (dim); None if it is in steps.
    """

    round: int
    binding: bytes
    active: npt.NDArray[np.bool_]
    gain: Array
    steps: IntArray | None = None
    values: Array | None = None

    def to_bytes(self) -> bytes:
        """The received signal as a binary payload whose header names kind 4 and the round."""
        writer = Writer(_RECEIVED, self.round).raw(self.binding)
        writer.raw(bytes([_REAL if self.steps is None else _STEPS]))
        signal = self.values if self.steps is None else self.steps
        assert signal is not None, "a received signal has steps or values"
        writer.count(len(self.active)).count(len(signal)).count(len(self.gain))
        writer.bits(self.active).numbers(self.gain, "<f8")
        return writer.numbers(signal, "<f8" if self.steps is None else "<i8").to_bytes()

    @classmethod
    def from_bytes(cls, payload: bytes, num_devices: int, dim: int) -> Received:
        """The received signal in a payload of ``to_bytes``; raises ``Malformed`` unless it has
        the plan's sizes, its values and gains are finite, and its gains are positive."""
        reader = Reader(payload, _RECEIVED)
        binding, unit = reader.raw(DIGEST_BYTES), reader.raw(1)[0]
        if unit not in (_STEPS, _REAL):
            raise Malformed(f"a received signal of unit {unit}")
        reader.count(num_devices, num_devices)
        reader.count(dim, dim)
        gains = one_or(reader, dim)
        active = reader.bits(num_devices)
        gain = _positive(reader.numbers(gains, "<f8"), "a gain")
        signal = reader.numbers(dim, "<i8" if unit == _STEPS else "<f8")
        reader.end()
        if unit == _STEPS:
            return cls(reader.round, binding, active, gain, steps=signal)
        if not np.isfinite(signal).all():
            raise Malformed("a received value must be a number")
        return cls(reader.round, binding, active, gain, values=signal)


def _symbols(reader: Reader, dim: int, symbols: SymbolFormat) -> Array:
    """The next ``dim`` symbols of a device's answer as numbers, (dim), decoded from the plan's
    format; raises ``Malformed`` for a level that the format does not have and for a value that is
    not finite."""
    if symbols.levels is None:
        values = reader.numbers(dim, "<f4").astype(np.float64)
        if not np.isfinite(values).all():
            raise Malformed("a value must be a number")
        return values
    bits = reader.bits(dim * symbols.width).reshape(dim, symbols.width)
    places = (bits << np.arange(symbols.width)).sum(axis=1)
    if (places >= len(symbols.levels)).any():
        raise Malformed(f"a level must be one of {len(symbols.levels)}, got {places.max()}")
    return symbols.at(places)


def _spread(places: IntArray, width: int) -> IntArray:
    """Binary digits of the whole numbers ``places`` (dim), each 0 or 1: ``width`` digits for each
    number, the lowest first, one number after the other in an array (dim * width)."""
    return np.asarray((places[:, None] >> np.arange(width)) & 1).ravel()


def largest_answer(dim: int) -> int:
    """Size in bytes of the largest answer (symbols of one device) for a theta of ``dim`` entries,
    before encryption."""
    # Bytes of header, device, journal, epoch, binding, format and two counts; then for each entry
    # at most a double, its amplitude, and a single, its symbol.
    return 8 + 4 + JOURNAL_BYTES + 4 + DIGEST_BYTES + 1 + 8 + 12 * dim


def one_or(reader: Reader, dim: int) -> int:
    """The next whole number of a payload, which says how many numbers follow for ``dim`` entries;
    raises ``Malformed`` unless it is ``dim``, or 1 (one number for all entries)."""
    length = reader.count(dim, 1)
    if length not in (1, dim):
        raise Malformed(f"{length} numbers where 1 or {dim} belong")
    return length


def _positive(values: Array, what: str) -> Array:
    """The ``values`` unchanged; raises ``Malformed`` unless all are finite and positive. ``what``
    names them in the error."""
    if not (np.isfinite(values) & (values > 0)).all():
        raise Malformed(f"{what} must be a positive number")
    return values


def in_short(values: Array) -> Array:
    """Numbers (..., dim), shortened to (..., 1) if all entries of the last axis are equal."""
    return values[..., :1] if (values == values[..., :1]).all() else values
