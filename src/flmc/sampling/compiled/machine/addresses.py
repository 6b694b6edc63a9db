"""Addresses of arrays, as emitted code takes them."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt


def address_of(array: npt.NDArray[Any]) -> int:
    """Where the numbers of a contiguous array are in memory.

    Parameters
    ----------
    array
        The caller keeps it alive as long as the address is used.

    Returns
    -------
    int
        The address; 0 for an array without numbers.
    """
    if not array.size:
        return 0
    # A quarter of what ``array.ctypes`` takes, which a short call notices; it cannot be had of
    # arrays that may not be written to.
    if array.flags.writeable:
        buffer: Any = array  # arrays are buffers, which their type says from Python 3.12 on
        return ctypes.addressof(ctypes.c_char.from_buffer(buffer))
    return int(array.ctypes.data)


class Room:
    """Room that emitted code writes to and reads again: one array for all, because many arrays cost
    more than a short call; zero at first.

    Parameters
    ----------
    **sizes
        Bytes by name.
    """

    _LINE = 64
    """Bytes of a line of the cache: every part begins with one, counted from the first."""

    def __init__(self, **sizes: int) -> None:
        starts = [0]
        for size in sizes.values():
            starts.append(starts[-1] + -(-size // self._LINE) * self._LINE)
        self._array = np.zeros(starts[-1], np.uint8)
        first = address_of(self._array)
        self.addresses = {name: first + start for name, start in zip(sizes, starts, strict=False)}
        """Where each part is, by name, as long as this lives."""
