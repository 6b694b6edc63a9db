"""Path gains of entries that travel in pairs, as the two parts of one complex symbol."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flmc.base.arrays import Array
from flmc.uplink.fading import Fading


@dataclass(frozen=True)
class PairedFading(Fading):
    """Path gains of complex symbols: the two entries of a symbol share one.

    Attributes
    ----------
    fading
        Law of the path gains of symbols, of which there are half as many as entries, rounded up.
    """

    fading: Fading

    @property
    def constant(self) -> bool:  # type: ignore[override]
        """Whether every draw gives the same values."""
        return self.fading.constant

    @property
    def independent(self) -> bool:  # type: ignore[override]
        """Whether rounds are independent draws."""
        return self.fading.independent

    @property
    def mean_square(self) -> float | None:
        """That of the symbols."""
        return self.fading.mean_square

    def draw(self, rng: np.random.Generator, rounds: range, num_devices: int, dim: int) -> Array:
        """Path gains of some rounds, each symbol's for both of its entries.

        Parameters
        ----------
        rng, rounds, num_devices, dim
            As for the law of the symbols; ``dim`` is the number of entries.
        """
        drawn = np.asarray(self.fading.draw(rng, rounds, num_devices, -(-dim // 2)))
        if drawn.ndim < 3 or drawn.shape[-1] == 1:  # all entries alike
            return drawn
        return np.repeat(drawn, 2, axis=-1)[..., :dim]
