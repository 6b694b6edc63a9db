"""Running sums of theta and of products of its entries over kept rounds. They give mean, variance
and covariance of theta in memory that does not grow with the number of rounds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.models.affine import Coordinates

MOST_BATCHES = 20
"""Largest number of batches into which the chains of a data set are pooled; up to so many chains
stay single. Standard errors are computed from the spread of the batches."""

MOST_ENTRIES, MOST_PRODUCTS = 2048, 1 << 30
"""Largest number of entries of theta, and largest number of products of two entries over all chains
of a data set (8 GB in double precision), for which products of all pairs of entries are summed;
beyond either limit only squares are."""


def keeps_covariance(dim: int, num_chains: int) -> bool:
    """Whether a run with ``num_chains`` chains of each data set sums the products of all pairs of
    entries, which the covariance needs; False: only squares."""
    return dim <= MOST_ENTRIES and num_chains * dim**2 <= MOST_PRODUCTS


@dataclass
class Moments:
    """Sums over kept rounds of the deviations of draws from a fixed theta (``centre``), and of
    products of their entries, for each data set and batch of chains.

    The fixed theta is the posterior mean where that is known: the squared errors of draws are then
    sums of squares, which lose no digits by cancellation.

    Attributes
    ----------
    centre
        The fixed theta of each data set, (experiment, dim).
    batch_size
        Number of chains in a batch; the last batch may have fewer.
    counts
        Number of kept rounds, summed over the chains of each batch, when the run is finished,
        (batch).
    sums
        Sums of deviations, (experiment, batch, dim).
    products
        Sums of outer products of deviations, (experiment, batch, dim, dim). Where these are too
        many numbers, sums of squared deviations, (experiment, batch, dim).
    """

    centre: Array
    batch_size: int
    counts: Array
    sums: Array
    products: Array

    @classmethod
    def empty(cls, centre: Array, num_chains: int, num_kept: int) -> Moments:
        """Moments with all sums zero, for deviations from ``centre`` (experiment, dim), where each
        of the ``num_chains`` chains is a batch. ``counts`` is set to ``num_kept``, the number of
        kept rounds of the finished run, for every chain."""
        experiments, dim = centre.shape
        counts = np.full(num_chains, float(num_kept))
        sums = np.zeros((experiments, num_chains, dim))
        shape = (*sums.shape, dim) if keeps_covariance(dim, num_chains) else sums.shape
        return cls(centre, 1, counts, sums, np.zeros(shape))

    @property
    def has_covariance(self) -> bool:
        """Whether products of all pairs of entries were summed; False: only squares."""
        return self.products.ndim == 4

    def add(self, theta: Array, experiments: slice, first_chain: int) -> None:
        """Add theta after one kept round to the sums, in place. ``theta`` (experiment, chain, dim)
        belongs to the data sets ``experiments`` and to consecutive chains from number
        ``first_chain`` on. Every batch must be a single chain."""
        deviation = theta - self.centre[experiments, None]
        chains = slice(first_chain, first_chain + theta.shape[1])
        self.sums[experiments, chains] += deviation
        if self.has_covariance:
            self.products[experiments, chains] += deviation[..., :, None] * deviation[..., None, :]
        else:
            self.products[experiments, chains] += np.square(deviation)

    def in_batches(self) -> Moments:
        """A copy of these moments with the chains pooled into at most ``MOST_BATCHES`` batches; the
        object itself if its chains are pooled already or are no more than ``MOST_BATCHES``."""
        if self.batch_size > 1 or len(self.counts) <= MOST_BATCHES:
            return self
        # A batch holds whole chains: chains are independent given the data, while the rounds of one
        # chain are not independent of each other.
        size = -(-len(self.counts) // MOST_BATCHES)
        starts = np.arange(0, len(self.counts), size)
        sums, products = (
            np.add.reduceat(array, starts, axis=1) for array in (self.sums, self.products)
        )
        return Moments(self.centre, size, np.add.reduceat(self.counts, starts), sums, products)

    def mapped(self, coordinates: Coordinates | None) -> Moments:
        """These moments after the affine map ``coordinates`` of theta to the coordinates of the
        model; unchanged if it is None. ``InvalidSetting`` if only squares were summed, because the
        map needs all products."""
        if coordinates is None:
            return self
        if not self.has_covariance:
            raise InvalidSetting(
                f"coordinates of {self.centre.shape[1]} entries need the covariance of the draws,"
                " which is not kept for so many; use fewer chains"
            )
        # The map to the model's coordinates is affine: it takes a deviation d to S d, with the
        # matrix S = ``scale``, and its constant term moves the centre only.
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
        # The second moment of the deviations minus the square of their mean: few digits cancel,
        # because the centre is close to the mean of theta.
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
