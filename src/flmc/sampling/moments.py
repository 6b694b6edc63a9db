"""Running sums of theta and of its products over kept rounds: mean, variance and covariance in
memory that does not grow with the rounds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.models.affine import Coordinates

MOST_BATCHES = 20
"""Largest number of batches of chains of a data set; standard errors come from their spread."""

MOST_ENTRIES, MOST_PRODUCTS = 2048, 1 << 30
"""Largest number of entries of theta, and of products of entries of all chains of a data set (8 GB
in double precision), with which products are summed; beyond either, only squares are."""


def keeps_covariance(dim: int, num_chains: int) -> bool:
    """Whether a run sums the products of all pairs of entries, not squares alone."""
    return dim <= MOST_ENTRIES and num_chains * dim**2 <= MOST_PRODUCTS


@dataclass
class Moments:
    """Sums of deviations from a centre over kept rounds, for each data set and batch of chains.

    The centre is the posterior mean where that is known: then squared errors are sums of squares
    and lose no digits by cancellation.

    Attributes
    ----------
    centre
        Where deviations are measured from, (experiment, dim).
    batch_size
        Chains of a batch; the last batch may have fewer.
    counts
        Kept rounds of all chains of each batch in the finished run, (batch).
    sums
        Sums of deviations, (experiment, batch, dim).
    products
        Sums of outer products of deviations, (experiment, batch, dim, dim); where these are too
        many numbers, of squares alone, (experiment, batch, dim).
    """

    centre: Array
    batch_size: int
    counts: Array
    sums: Array
    products: Array

    @classmethod
    def empty(cls, centre: Array, num_chains: int, num_kept: int) -> Moments:
        """Moments about a centre (experiment, dim), each chain a batch of its own, with nothing
        summed yet; ``counts`` is already that of the finished run, ``num_kept`` for every chain."""
        experiments, dim = centre.shape
        counts = np.full(num_chains, float(num_kept))
        sums = np.zeros((experiments, num_chains, dim))
        shape = (*sums.shape, dim) if keeps_covariance(dim, num_chains) else sums.shape
        return cls(centre, 1, counts, sums, np.zeros(shape))

    @property
    def has_covariance(self) -> bool:
        """Whether products of different entries were summed, not squares alone."""
        return self.products.ndim == 4

    def add(self, theta: Array, experiments: slice, first_chain: int) -> None:
        """Add one kept round, theta (experiment, chain, dim) of the data sets ``experiments`` and
        the chains from ``first_chain`` on, in place. Every batch must be a single chain."""
        deviation = theta - self.centre[experiments, None]
        chains = slice(first_chain, first_chain + theta.shape[1])
        self.sums[experiments, chains] += deviation
        if self.has_covariance:
            self.products[experiments, chains] += deviation[..., :, None] * deviation[..., None, :]
        else:
            self.products[experiments, chains] += np.square(deviation)

    def in_batches(self) -> Moments:
        """A copy of these moments with the chains pooled to at most ``MOST_BATCHES`` batches; the
        moments themselves if they are pooled already, or have no more chains than that."""
        if self.batch_size > 1 or len(self.counts) <= MOST_BATCHES:
            return self
        # Batches hold whole chains, because chains are independent given the data, and rounds of
        # one chain are not.
        size = -(-len(self.counts) // MOST_BATCHES)
        starts = np.arange(0, len(self.counts), size)
        sums, products = (
            np.add.reduceat(array, starts, axis=1) for array in (self.sums, self.products)
        )
        return Moments(self.centre, size, np.add.reduceat(self.counts, starts), sums, products)

    def mapped(self, coordinates: Coordinates | None) -> Moments:
        """These moments in the coordinates of the model; unchanged if ``coordinates`` is None.
        ``InvalidSetting`` if only squares were summed."""
        if coordinates is None:
            return self
        if not self.has_covariance:
            raise InvalidSetting(
                f"coordinates of {self.centre.shape[1]} entries need the covariance of the draws,"
                " which is not kept for so many; use fewer chains"
            )
        # The map to the model's coordinates takes deviations d to S d, with its scale S; its offset
        # moves the centre only.
        scale = coordinates.scale
        return Moments(
            coordinates.to_model(self.centre),
            self.batch_size,
            self.counts,
            self.sums @ scale.T,
            scale @ self.products @ scale.T,
        )

    @property
    def mean(self) -> Array:
        """Mean of theta for each data set, over all chains and kept rounds, (experiment, dim)."""
        return np.asarray(self.centre + self.sums.sum(axis=1) / self.counts.sum())

    @property
    def covariance(self) -> Array:
        """Covariance of theta for each data set, over all chains and kept rounds about their common
        mean, (experiment, dim, dim); ``InvalidSetting`` if only squares were summed."""
        if not self.has_covariance:
            raise InvalidSetting(
                f"the covariance of {self.centre.shape[1]} entries was not kept, only variances:"
                f" dim^2 times chains must be at most {MOST_PRODUCTS}, and dim at most"
                f" {MOST_ENTRIES}; use variance"
            )
        # Second moment minus the squared mean: few digits cancel, because the centre is near the
        # mean.
        shift = self.sums.sum(axis=1) / self.counts.sum()
        return np.asarray(
            self.products.sum(axis=1) / self.counts.sum() - shift[:, :, None] * shift[:, None, :]
        )

    @property
    def variance(self) -> Array:
        """Variance of every entry of theta for each data set, over all chains and kept rounds,
        (experiment, dim)."""
        products = self.products.sum(axis=1) / self.counts.sum()
        second = np.diagonal(products, axis1=1, axis2=2) if self.has_covariance else products
        shift = self.sums.sum(axis=1) / self.counts.sum()
        return np.asarray(second - np.square(shift))
