"""Bytes of payloads: a header of eight bytes, then numbers, little-endian.

Header: ``F``, ``L``, version (one byte), kind (one byte), round (four bytes)."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import numpy.typing as npt

from flmc.wire.topics import WIRE_VERSION

_MAGIC = b"FL"
_HEADER = struct.Struct("<2sBBI")
MOST_BYTES = 64 * 2**20
"""Bytes of a payload that anybody reads, at most; a plan usually allows far fewer."""


class Malformed(Exception):  # noqa: N818 (says what a payload is)
    """A payload that is none: too short, too long, of another version, or out of bounds."""


class Writer:
    """Bytes of a payload, written from the front.

    Parameters
    ----------
    kind, round_number
        Kind of the payload, and the round that it is about, counted from 1.
    """

    def __init__(self, kind: int, round_number: int) -> None:
        self._parts = [_HEADER.pack(_MAGIC, WIRE_VERSION, kind, round_number)]

    def count(self, value: int) -> Writer:
        """Add a whole number from 0 to 2^32 - 1.

        Parameters
        ----------
        value
            The number.
        """
        self._parts.append(struct.pack("<I", value))
        return self

    def raw(self, value: bytes) -> Writer:
        """Add bytes as they are.

        Parameters
        ----------
        value
            The bytes.
        """
        self._parts.append(value)
        return self

    def numbers(self, values: npt.NDArray[Any], kind: str) -> Writer:
        """Add numbers of an array.

        Parameters
        ----------
        values, kind
            The numbers, and their type, as NumPy writes it: ``<f8`` for example.
        """
        self._parts.append(np.ascontiguousarray(values, dtype=kind).tobytes())
        return self

    def bits(self, values: npt.NDArray[Any]) -> Writer:
        """Add one bit for each value, the first in the lowest bit of the first byte.

        Parameters
        ----------
        values
            1 where a value is positive, else 0.
        """
        self._parts.append(np.packbits(np.asarray(values) > 0, bitorder="little").tobytes())
        return self

    def to_bytes(self) -> bytes:
        """The payload."""
        return b"".join(self._parts)


class Reader:
    """Numbers of a payload, read from the front; whatever does not fit is refused.

    Parameters
    ----------
    payload, kind
        The bytes, and the kind that they must have.

    Raises
    ------
    Malformed
        If the payload is not of this version and kind.
    """

    def __init__(self, payload: bytes, kind: int) -> None:
        if len(payload) < _HEADER.size:
            raise Malformed(f"a payload has at least {_HEADER.size} bytes, got {len(payload)}")
        magic, version, found, self.round = _HEADER.unpack_from(payload)
        if magic != _MAGIC:
            raise Malformed("this is no payload of flmc")
        if version != WIRE_VERSION:
            raise Malformed(f"wire version {version}, and this flmc speaks {WIRE_VERSION}")
        if found != kind:
            raise Malformed(f"a payload of kind {found} where {kind} belongs")
        self._payload, self._place = payload, _HEADER.size

    def raw(self, length: int) -> bytes:
        """The next bytes.

        Parameters
        ----------
        length
            How many.
        """
        if length < 0 or length > len(self._payload) - self._place:
            raise Malformed("the payload ends too early")
        self._place += length
        return self._payload[self._place - length : self._place]

    def count(self, highest: int, lowest: int = 0) -> int:
        """The next whole number, refused outside its bounds.

        Parameters
        ----------
        highest, lowest
            The bounds.
        """
        value = int(struct.unpack("<I", self.raw(4))[0])
        if not lowest <= value <= highest:
            raise Malformed(f"a count of {value} where {lowest} to {highest} is allowed")
        return value

    def numbers(self, count: int, kind: str) -> npt.NDArray[Any]:
        """The next numbers, as an array of their own.

        Parameters
        ----------
        count, kind
            How many, and of which type.
        """
        data = self.raw(count * np.dtype(kind).itemsize)
        return np.frombuffer(data, dtype=kind).astype(np.dtype(kind).newbyteorder("="))

    def bits(self, count: int) -> npt.NDArray[np.bool_]:
        """The next bits; those that fill the last byte must be 0.

        Parameters
        ----------
        count
            How many.
        """
        data = np.frombuffer(self.raw(-(-count // 8)), dtype=np.uint8)
        found = np.unpackbits(data, bitorder="little")
        if found[count:].any():
            raise Malformed("bits beyond the last one must be 0")
        return found[:count].astype(bool)

    def end(self) -> None:
        """Refuse a payload of which anything is left."""
        if self._place != len(self._payload):
            raise Malformed(f"{len(self._payload) - self._place} bytes too many")
