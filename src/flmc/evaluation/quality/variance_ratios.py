r"""Variance of the draws over that of the posterior: one estimator for any number of chains.

Deviations :math:`d = \theta - \mu` are from the exact posterior mean of each data set, so that
their mean square :math:`S` is unbiased for :math:`V + b b^\top`: V is the covariance of a chain's
draws, b the shift of their mean. A chain's own mean is never subtracted, because a chain that
remembers its past hardly moves about it, and looks too narrow by a factor that is not known.
Instead :math:`b b^\top` is taken from pairs of *different* groups g, h, whose means m are
independent: :math:`E[m_g m_h^\top] = b b^\top`, whatever the memory of a chain.

With two or more chains a data set the groups are its batches of chains, and the ratio is unbiased.
With one chain a data set and several data sets the groups are the data sets: the shift that they
have in common is taken out, and what each has of its own counts as spread. One chain of one data
set leaves nothing to compare, so its whole shift counts as spread."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

from flmc.base.arrays import Array
from flmc.sampling.moments import Moments

ShiftKnownFrom = Literal["chains", "data sets", "nothing"]
"""Which independent groups told the shift of the mean from the spread of the draws."""


class Contributions(NamedTuple):
    """Variance ratios of independent groups, whose weighted mean is the estimate.

    Attributes
    ----------
    ratios
        What each group contributes, (group, functional): the first is the ratio of the traces, the
        others are along the posterior's eigen-directions, smallest variance first.
    weights
        Share of each group in the mean, (group).
    shift_from
        Which groups told the shift from the spread.
    """

    ratios: Array
    weights: Array
    shift_from: ShiftKnownFrom

    @property
    def mean(self) -> Array:
        """The ratios, (functional)."""
        return np.asarray(self.weights @ self.ratios)

    @property
    def standard_error(self) -> Array:
        """Standard errors of the ratios, (functional); NaN for a single group."""
        count = len(self.weights)
        if count == 1:
            return np.full(self.ratios.shape[1], np.nan)
        squares = np.square(self.weights[:, None] * (self.ratios - self.mean))
        return np.asarray(np.sqrt(squares.sum(axis=0) * count / (count - 1)))


def contributions(moments: Moments, values: Array, directions: Array) -> Contributions:
    """Variance ratios, with what every independent group contributes to them.

    Parameters
    ----------
    moments
        Sums over kept rounds about the exact posterior means.
    values, directions
        Eigenvalues (experiment, dim) and eigenvectors (experiment, dim, dim) of the posteriors'
        covariances.

    Returns
    -------
    Contributions
        Of the data sets, or of the batches of chains where there is one data set.
    """
    experiments, batches, _ = moments.sums.shape
    if experiments > 1 and batches > 1:
        along = _within_data_sets(moments, directions) / values
        of_trace = np.average(along, axis=1, weights=values)
        ratios = np.column_stack([of_trace, along])
        return Contributions(ratios, np.full(experiments, 1 / experiments), "chains")
    if batches > 1:  # the batches of the one data set are the groups
        sums, products, counts = moments.sums[0], moments.products[0], moments.counts
        shift_from: ShiftKnownFrom = "chains"
    else:
        sums, products = moments.sums[:, 0], moments.products[:, 0]
        counts = np.full(experiments, moments.counts[0])
        shift_from = "data sets" if experiments > 1 else "nothing"
    groups = _Groups(
        sums / counts[:, None], products / counts[:, None, None], counts / counts.sum()
    )
    frame = np.broadcast_to(directions, products.shape)
    along = groups.contributions(frame, values)
    of_trace = groups.contributions(None, values.sum(axis=1, keepdims=True)).sum(axis=1)
    return Contributions(np.column_stack([of_trace, along]), groups.weights, shift_from)


def _within_data_sets(moments: Moments, directions: Array) -> Array:
    """Variance of the draws of each data set along its eigen-directions, (experiment, dim), with
    the shift from pairs of different batches, each weighted by its draws."""
    counts = moments.counts
    second = _along(moments.products.sum(axis=1), directions) / counts.sum()
    sums = np.asarray(moments.sums @ directions)
    pairs = np.square(sums.sum(axis=1)) - np.square(sums).sum(axis=1)
    return np.asarray(second - pairs / (counts.sum() ** 2 - np.square(counts).sum()))


def _along(products: Array, directions: Array) -> Array:
    """Quadratic forms of matrices (group, dim, dim) along directions (group, dim, dim), whose
    columns they are; (group, dim)."""
    turned = np.asarray(products @ directions)
    turned *= directions
    groups, dim = turned.shape[:2]
    if groups <= dim:
        return np.asarray(turned.sum(axis=1))
    # The same sum, row after row, for all groups at once: NumPy would take them one by one.
    total = turned[:, 0].copy()
    for row in range(1, dim):
        total += turned[:, row]
    return total


def _coordinates(vectors: Array, directions: Array | None) -> Array:
    """Vectors (group, dim) along directions (group, dim, dim), whose columns they are; the vectors
    themselves along the axes."""
    return vectors if directions is None else np.einsum("gif,gi->gf", directions, vectors)


class _Groups(NamedTuple):
    """Independent groups of draws with a common shift.

    Attributes
    ----------
    means, seconds
        Mean deviation (group, dim) and mean product of deviations (group, dim, dim).
    weights
        Share of each group in all draws, (group).
    """

    means: Array
    seconds: Array
    weights: Array

    def contributions(self, directions: Array | None, scales: Array) -> Array:
        """What each group contributes to the variances along directions over their scales, (group,
        dim), without the shift.

        The square of the shift is the mean over groups of a group's mean times that of the others,
        and so each group stands in it twice: as itself and among the others. Both are its
        contribution; with the first alone the standard error would count a group's shift as if it
        stayed in the ratio.

        Parameters
        ----------
        directions
            Columns of matrices (group, dim, dim); None: the axes.
        scales
            What variances are divided by, (group or 1, dim or 1).
        """
        weights = self.weights[:, None]
        if directions is None:
            second = np.diagonal(self.seconds, axis1=1, axis2=2) / scales
        else:
            second = _along(self.seconds, directions) / scales
        if len(weights) == 1:
            return second
        others = (self.weights @ self.means - weights * self.means) / (1 - weights)
        mine, theirs = (_coordinates(each, directions) for each in (self.means, others))
        as_itself = mine * theirs / scales
        share = weights / (1 - weights)
        pulled = share * mine / scales
        if directions is None:
            pull = self.means * pulled.sum(axis=0)
        else:
            pull = self.means @ np.einsum("gif,gf->fi", directions, pulled).T
        among_others = pull - share * np.square(mine) / scales
        # Over all groups each of the two has the square of the shift as its mean, so that what is
        # left has it once.
        return np.asarray(second - as_itself - among_others + self.weights @ as_itself)
