"""Encoding of payloads: a header of eight bytes followed by little-endian numbers, or one JSON
object.

Header: ``F``, ``L``, version (one byte), kind (one byte), round (four bytes). Readers raise
:class:`Malformed` for a payload that is too short, too long or out of bounds, and check sizes
before they allocate memory.
"""

from __future__ import annotations

import json
import struct
from typing import Any

import numpy as np
import numpy.typing as npt

from flmc.wire.topics import WIRE_VERSION

_MAGIC = b"FL"
_HEADER = struct.Struct("<2sBBI")
MOST_BYTES = 64 * 2**20
"""Size of the largest payload that any role reads, in bytes; a plan usually allows far less."""


class Malformed(Exception):  # noqa: N818 (says what a payload is)
    """Raised for a payload that is too short, too long, of another version or kind, or that holds
    numbers out of bounds."""


class Writer:
    """Writer of one binary payload from front to back, with its kind (theta, announcement, answer
    or received signal) and its round (from 1) in the header; its methods return the writer, for
    chaining."""

    def __init__(self, kind: int, round_number: int) -> None:
        self._parts = [_HEADER.pack(_MAGIC, WIRE_VERSION, kind, round_number)]

    def count(self, value: int) -> Writer:
        """Append a whole number from 0 to 2^32 - 1, in four bytes."""
        self._parts.append(struct.pack("<I", value))
        return self

    def raw(self, value: bytes) -> Writer:
        """Append bytes unchanged."""
        self._parts.append(value)
        return self

    def numbers(self, values: npt.NDArray[Any], kind: str) -> Writer:
        """Append the numbers of an array, converted to a NumPy type such as ``<f8``."""
        self._parts.append(np.ascontiguousarray(values, dtype=kind).tobytes())
        return self

    def bits(self, values: npt.NDArray[Any]) -> Writer:
        """Append one bit for each value, 1 if the value is positive, from the lowest bit of the
        first byte on; unused bits of the last byte are 0."""
        self._parts.append(np.packbits(np.asarray(values) > 0, bitorder="little").tobytes())
        return self

    def to_bytes(self) -> bytes:
        """The payload written so far, header included."""
        return b"".join(self._parts)


class Reader:
    """Reader of one binary payload from front to back; the constructor raises ``Malformed`` unless
    the header names this wire version and the expected ``kind``, and keeps the header's round in
    ``round``."""

    def __init__(self, payload: bytes, kind: int) -> None:
        if len(payload) < _HEADER.size:
            raise Malformed(f"a payload has at least {_HEADER.size} bytes, got {len(payload)}")
        magic, version, stated, self.round = _HEADER.unpack_from(payload)
        if magic != _MAGIC:
            raise Malformed("this is no payload of flmc")
        if version != WIRE_VERSION:
            raise Malformed(f"wire version {version}, and this flmc speaks {WIRE_VERSION}")
        if stated != kind:
            raise Malformed(f"a payload of kind {stated} where {kind} belongs")
        self._payload, self._place = payload, _HEADER.size

    def raw(self, length: int) -> bytes:
        """The next ``length`` bytes; raises ``Malformed`` if fewer are left."""
        if length < 0 or length > len(self._payload) - self._place:
            raise Malformed("the payload ends too early")
        self._place += length
        return self._payload[self._place - length : self._place]

    def count(self, highest: int, lowest: int = 0) -> int:
        """The next whole number, of four bytes; raises ``Malformed`` if it is below ``lowest`` or
        above ``highest``."""
        value = int(struct.unpack("<I", self.raw(4))[0])
        if not lowest <= value <= highest:
            raise Malformed(f"a count of {value} where {lowest} to {highest} is allowed")
        return value

    def numbers(self, count: int, kind: str) -> npt.NDArray[Any]:
        """The next ``count`` numbers of a NumPy type such as ``<f8``, as a writable array (count)
        in the machine's byte order; raises ``Malformed`` if fewer are left."""
        data = self.raw(count * np.dtype(kind).itemsize)
        return np.frombuffer(data, dtype=kind).astype(np.dtype(kind).newbyteorder("="))

    def bits(self, count: int) -> npt.NDArray[np.bool_]:
        """The next ``count`` bits as booleans, (count); raises ``Malformed`` if fewer are left, or
        if an unused bit of the last byte is not 0."""
        data = np.frombuffer(self.raw(-(-count // 8)), dtype=np.uint8)
        unpacked = np.unpackbits(data, bitorder="little")
        # One meaning has only one encoding: otherwise a device could hide data in the padding bits
        # of an answer.
        if unpacked[count:].any():
            raise Malformed("bits beyond the last one must be 0")
        return unpacked[:count].astype(bool)

    def end(self) -> None:
        """Raise ``Malformed`` if the payload has bytes that were not read."""
        if self._place != len(self._payload):
            raise Malformed(f"{len(self._payload) - self._place} bytes too many")


def read_object(payload: bytes, most_bytes: int) -> dict[str, object]:
    """The JSON object in a payload; raises ``Malformed`` if the payload has more than
    ``most_bytes`` bytes or holds anything else."""
    if len(payload) > most_bytes:
        raise Malformed(f"{len(payload)} bytes where {most_bytes} are allowed")
    try:
        document = json.loads(payload)
    # json recurses: a payload of nothing but opening brackets raises a RecursionError.
    except (ValueError, RecursionError) as error:
        raise Malformed("this is not JSON") from error
    if not isinstance(document, dict):
        raise Malformed("this is not a JSON object")
    return document
