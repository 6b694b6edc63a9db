"""A scheme of your own: one of four levels for each entry, unbiased between the clips."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from flmc.base.arrays import Array
from flmc.uplink.quantised import Quantised
from flmc.uplink.symbol_format import SymbolFormat


@dataclass(frozen=True)
class Quaternary(Quantised):
    """The levels -1, -1/3, 1/3 and 1; the mean symbol is the clipped gradient over the clip."""

    scheme: ClassVar[str] = "quaternary"

    @property
    def symbol_format(self) -> SymbolFormat:
        """The alphabet: engines, audit and wire ask for it."""
        return SymbolFormat((-1.0, -1 / 3, 1 / 3, 1.0))

    def level_probabilities(self, gradient: Array) -> Array:
        """For clipped entries of any shape: the weights of the two levels beside the gradient, with
        one more axis for the levels."""
        # 0 at the first level, 3 at the last.
        place = 1.5 * (np.asarray(gradient) / self.clip + 1.0)
        return np.maximum(0.0, 1.0 - np.abs(place[..., None] - np.arange(4.0)))

    # Optional. Without it the mean symbol is differenced.
    @property
    def slope(self) -> float:
        """Factor by which the mean symbol scales a small gradient."""
        return self.example_shrink / self.clip

    # Optional: `privacy_event(transmissions, neighbouring, relation)`. Without it the two extreme
    # levels are accounted, which no pair of data sets can exceed. Here that is exact: at the clips
    # these levels are certain.


uplink = Quaternary(clip=30.0)
