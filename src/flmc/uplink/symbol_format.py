"""Alphabets of symbols (bits, a few levels, or any value), and how many bits a symbol takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from flmc.base.arrays import Array, IntArray
from flmc.base.errors import InvalidSetting

_MOST_LEVELS = 256
"""Largest number of levels; more raise ``InvalidSetting``, because such a symbol is better sent as
a value."""
_MOST_PARTS = 1000
"""Largest number of equal parts of the peak, of which all levels must be whole multiples; levels
without such a part raise ``InvalidSetting``."""


@dataclass(frozen=True)
class SymbolFormat:
    """Alphabet of the symbols that a device sends, before the transmit amplitude.

    Attributes
    ----------
    levels
        All symbols in ascending order, at most 256; None: any value up to the peak.

    Examples
    --------
    >>> from flmc.uplink.symbol_format import BITS, SymbolFormat
    >>> BITS.kind, BITS.width, SymbolFormat((-1.0, 0.0, 1.0)).width
    ('bits', 1, 2)
    """

    levels: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if self.levels is None:
            return
        if not 2 <= len(self.levels) <= _MOST_LEVELS:
            raise InvalidSetting(
                f"a symbol must have 2 to {_MOST_LEVELS} levels, got {len(self.levels)}"
            )
        if not (np.isfinite(self.levels).all() and (np.diff(self.levels) > 0).all()):
            raise InvalidSetting(f"levels must be numbers in ascending order, got {self.levels}")

    @property
    def kind(self) -> Literal["bits", "levels", "values"]:
        """Kind of the symbols: ``bits`` for the two levels -1 and +1, ``levels`` for other levels,
        ``values`` without levels."""
        if self.levels is None:
            return "values"
        return "bits" if self.levels == (-1.0, 1.0) else "levels"

    @property
    def width(self) -> int:
        """Number of bits in which one symbol is written: enough for the index of its level among
        all levels, or 32 for a format without levels."""
        return 32 if self.levels is None else (len(self.levels) - 1).bit_length()

    @property
    def parts(self) -> int:
        """Smallest number of equal parts of the peak of which all levels are whole multiples; 1 for
        bits and values. If the step of a grid of numbers divides the peak into a multiple of so
        many parts, every level lies on the grid."""
        if self.kind != "levels":
            return 1
        shares = np.array(self._known) / np.abs(self._known).max()
        for parts in range(1, _MOST_PARTS + 1):
            # Levels such as 1/3 are rounded doubles, so this compares with a tolerance, not
            # exactly.
            if np.abs(parts * shares - np.rint(parts * shares)).max() < 1e-9:
                return parts
        raise InvalidSetting(
            f"levels must be whole multiples of a part of the peak, at most {_MOST_PARTS} parts,"
            f" got {self.levels}"
        )

    @property
    def constant_energy(self) -> bool:
        """Whether all symbols have the same magnitude, so that each has the energy of the
        largest."""
        return self.levels is not None and len({abs(level) for level in self.levels}) == 1

    def places(self, symbols: Array) -> IntArray:
        """Index of the level nearest to each symbol, from 0, in the shape of ``symbols``."""
        levels = np.array(self._known)
        return np.searchsorted((levels[1:] + levels[:-1]) / 2, symbols)

    def at(self, places: IntArray) -> Array:
        """Symbols whose levels are given by their indices, from 0, in the shape of ``places``."""
        return np.array(self._known)[places]

    @property
    def _known(self) -> tuple[float, ...]:
        """All levels in ascending order; ``ValueError`` for a format without levels, whose symbols
        may have any value."""
        if self.levels is None:
            raise ValueError("values have no levels")
        return self.levels


BITS = SymbolFormat((-1.0, 1.0))
"""Format of symbols of one bit, -1 or +1."""
VALUES = SymbolFormat()
"""Format of symbols that may have any value up to the peak."""
