"""Running sums over the kept rounds: all that the metrics need, in memory that does not grow with
the rounds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flmc.base.arrays import Array

MOST_BATCHES = 20
"""Chains of a data set are summed in at most this many batches, from which standard errors are
computed."""


@dataclass
class Moments:
    """Sums of deviations from ``centre`` (experiment, dim) over kept rounds, per data set and batch
    of chains.

    ``counts`` (batch), ``sums`` (experiment, batch, dim), ``products`` (experiment, batch, dim,
    dim). The centre is the posterior mean where it is known, so that squared errors come without
    cancellation."""

    centre: Array
    batch_size: int
    counts: Array
    sums: Array
    products: Array

    @classmethod
    def empty(
        cls, centre: Array, num_chains: int, num_kept: int, most_batches: int = MOST_BATCHES
    ) -> Moments:
        """Nothing summed yet; the counts are those of the finished run."""
        experiments, dim = centre.shape
        size = -(-num_chains // most_batches)
        starts = np.arange(0, num_chains, size)
        counts = num_kept * np.minimum(size, num_chains - starts).astype(np.float64)
        sums = np.zeros((experiments, len(starts), dim))
        return cls(centre, size, counts, sums, np.zeros((*sums.shape, dim)))

    def add(self, theta: Array, experiments: slice, first_chain: int) -> None:
        """Add one round of a tile of chains (experiment, chain, dim); a tile begins and ends with a
        batch."""
        deviation = theta - self.centre[experiments, None]
        for start in range(0, theta.shape[1], self.batch_size):
            part = deviation[:, start : start + self.batch_size]
            batch = (first_chain + start) // self.batch_size
            self.sums[experiments, batch] += part.sum(axis=1)
            self.products[experiments, batch] += np.swapaxes(part, 1, 2) @ part

    def in_batches(self) -> Moments:
        """Sums of single chains put together to at most ``MOST_BATCHES`` batches."""
        if self.batch_size > 1 or len(self.counts) <= MOST_BATCHES:
            return self
        size = -(-len(self.counts) // MOST_BATCHES)
        starts = np.arange(0, len(self.counts), size)
        sums, products = (
            np.add.reduceat(array, starts, axis=1) for array in (self.sums, self.products)
        )
        return Moments(self.centre, size, np.add.reduceat(self.counts, starts), sums, products)

    @property
    def mean(self) -> Array:
        """Pooled mean per data set."""
        return np.asarray(self.centre + self.sums.sum(axis=1) / self.counts.sum())

    @property
    def covariance(self) -> Array:
        """Pooled covariance per data set, about the pooled mean."""
        shift = self.sums.sum(axis=1) / self.counts.sum()
        return np.asarray(
            self.products.sum(axis=1) / self.counts.sum() - shift[:, :, None] * shift[:, None, :]
        )
