"""A noise law of your own: bursts, as of a machine that is switched now and then."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

import flmc
from flmc.base.arrays import Array


@dataclass(frozen=True)
class Bursts(flmc.NoiseLaw):
    """Normal noise of which a ``share`` of all numbers is ``loudness`` times as wide."""

    share: float = 0.02
    loudness: float = 7.0

    def draw(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        """Numbers of mean 0 and variance 1, (round, entry)."""
        # In pairs, so that rounds drawn one by one give the same numbers as all at once.
        drawn = rng.standard_normal((*shape, 2))
        rare = np.abs(drawn[..., 1]) > NormalDist().inv_cdf(1.0 - self.share / 2.0)
        width = np.where(rare, self.loudness, 1.0)
        variance = 1.0 - self.share + self.share * self.loudness**2
        return np.asarray(width * drawn[..., 0] / np.sqrt(variance))
