r"""Metrics of draws against the exact posterior :math:`N(\mu, \Sigma)`.

The MSE is the mean over kept rounds of :math:`\|\theta - \mu\|^2`. Exact posterior samples have MSE
= trace(Sigma), *not* zero: a smaller MSE means a collapsed sampler, so it is never reported alone.
Squared W2 is of the Gaussian fitted to the draws of each data set, and given only where these are
worth enough independent draws. Standard errors are over data sets, or over batches of chains where
there is one data set.

Variance ratios have one estimator for any number of chains. Deviations :math:`d = \theta - \mu` are
taken from the exact posterior mean of each data set, so that the mean of :math:`d d^\top` is
unbiased for :math:`V + b b^\top`: V is the covariance of a chain's draws, b the shift of their
mean. A chain's own mean is never subtracted: a chain whose successive draws are correlated stays
close to it, and would look too narrow by an unknown factor. Instead :math:`b b^\top` is estimated
from pairs of *different* groups of draws g and h, whose mean deviations m are independent:
:math:`E[m_g m_h^\top] = b b^\top`, however correlated a chain's draws are.

With two or more chains a data set the groups are its batches of chains, and the ratio is unbiased.
With one chain a data set and several data sets the groups are the data sets: their common shift is
taken out, and the shift of each by itself counts as spread. One chain of one data set has nothing
to compare with, so that its whole shift counts as spread."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np

from flmc.base.arrays import Array
from flmc.evaluation.data_sets import Middle, middles
from flmc.evaluation.exact_posterior import ExactPosterior, Statistic, second_trace
from flmc.models.distributions import Gaussian
from flmc.sampling.moments import Moments

ShiftKnownFrom = Literal["chains", "data sets", "nothing"]
"""Independent groups of draws that are compared to separate a shift of the draws' mean from their
spread: chains, data sets, or nothing where there is only one group."""


class Contributions(NamedTuple):
    """Variance ratios (variance of the draws over that of the posterior) of independent groups of
    draws, whose weighted mean is the estimate.

    Attributes
    ----------
    ratios
        Variance ratios by group, (group, 1 + dim): the first column is the ratio of the traces of
        both covariances, the others are the ratios along the eigenvectors of the posterior's
        covariance, in ascending order of its eigenvalues.
    weights
        Weight of each group in the mean, (group); they add up to 1.
    shift_from
        Kind of the groups that separate a shift of the draws' mean from their spread: ``chains``,
        ``data sets``, or ``nothing`` for a single group.
    """

    ratios: Array
    weights: Array
    shift_from: ShiftKnownFrom

    @property
    def mean(self) -> Array:
        """The estimated variance ratios, which are weighted means over groups, (1 + dim): that of
        the traces, then those along the posterior's eigenvectors."""
        return np.asarray(self.weights @ self.ratios)

    @property
    def standard_error(self) -> Array:
        """Standard errors of the estimated variance ratios, (1 + dim), from their scatter over
        groups; NaN for a single group."""
        count = len(self.weights)
        if count == 1:
            return np.full(self.ratios.shape[1], np.nan)
        squares = np.square(self.weights[:, None] * (self.ratios - self.mean))
        return np.asarray(np.sqrt(squares.sum(axis=0) * count / (count - 1)))


def contributions(moments: Moments, values: Array, directions: Array) -> Contributions:
    """Variance ratios of draws to the exact posterior, by independent group of draws: a data set,
    or a batch of chains where there is one data set. ``moments`` are those of the draws' deviations
    from the exact posterior means; ``values`` (experiment, dim) and ``directions`` (experiment,
    dim, dim) are eigenvalues and eigenvectors of the posteriors' covariances."""
    experiments, batches, _ = moments.sums.shape
    if experiments > 1 and batches > 1:
        along = _within_data_sets(moments, directions) / values
        of_trace = np.average(along, axis=1, weights=values)
        ratios = np.column_stack([of_trace, along])
        return Contributions(ratios, np.full(experiments, 1 / experiments), "chains")
    if batches > 1:  # one data set: the batches of its chains are the groups
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
    """Variance of the draws of each data set along the eigenvectors of its posterior's covariance,
    (experiment, dim): the mean square deviation from the posterior mean, less the squared shift of
    the draws' mean, which is estimated from pairs of different batches of chains."""
    counts = moments.counts
    second = _along(moments.products.sum(axis=1), directions) / counts.sum()
    sums = np.asarray(moments.sums @ directions)
    pairs = np.square(sums.sum(axis=1)) - np.square(sums).sum(axis=1)
    return np.asarray(second - pairs / (counts.sum() ** 2 - np.square(counts).sum()))


def _along(products: Array, directions: Array) -> Array:
    r"""Quadratic forms :math:`v^\top M v`, (group, dim), of matrices M (group, dim, dim) for the
    columns v of ``directions`` (group, dim, dim)."""
    turned = np.asarray(products @ directions)
    turned *= directions
    groups, dim = turned.shape[:2]
    if groups <= dim:
        return np.asarray(turned.sum(axis=1))
    # The sum over rows is written as a loop that adds all groups at once, in the order of ``sum``:
    # NumPy would sum many small matrices one by one, which is slower.
    total = turned[:, 0].copy()
    for row in range(1, dim):
        total += turned[:, row]
    return total


def _coordinates(vectors: Array, directions: Array | None) -> Array:
    """Components of vectors (group, dim) along the columns of ``directions`` (group, dim, dim), as
    (group, dim); None: the vectors themselves."""
    return vectors if directions is None else np.einsum("gif,gi->gf", directions, vectors)


class _Groups(NamedTuple):
    """Independent groups of draws whose expected mean differs from the posterior mean by a shift
    that all groups have in common.

    Attributes
    ----------
    means, seconds
        Mean over a group's draws of the deviation of theta from the posterior mean, (group, dim),
        and of its outer product with itself, (group, dim, dim).
    weights
        Share of each group in all draws, (group).
    """

    means: Array
    seconds: Array
    weights: Array

    def contributions(self, directions: Array | None, scales: Array) -> Array:
        """Values by group, (group, dim), whose mean with ``weights`` is the variance of the draws
        without the squared shift of their mean. Variances are along the columns of ``directions``
        (group, dim, dim), or along theta's entries (None), and divided by ``scales`` (group or 1,
        dim or 1)."""
        # The squared shift is estimated by the mean over groups of a group's mean times the mean of
        # all other groups, so a group contributes twice: by its own mean, and as one of the others.
        # If the first alone were counted, the standard error would treat a group's shift as if it
        # were not subtracted.
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
        # The means over groups of ``as_itself`` and of ``among_others`` are both the squared shift;
        # the mean of one is added back, so that the shift is subtracted once.
        return np.asarray(second - as_itself - among_others + self.weights @ as_itself)


ENOUGH_DRAWS = 20.0
"""Smallest number of independent draws of a data set with which the squared 2-Wasserstein distance
is computed: with 20 draws, the variance of the Gaussian fitted to them is too small by 5 per
cent."""


class Estimate(NamedTuple):
    """A mean and its standard error (NaN where there is nothing to estimate it from)."""

    mean: float
    se: float

    @classmethod
    def over(cls, values: Array) -> Estimate:
        """Mean of the values of at least two independent data sets or chains, (value), and its
        standard error."""
        return cls(float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values))))

    def __str__(self) -> str:
        if math.isnan(self.mean):
            return "-"
        return f"{self.mean:.4g}" + ("" if math.isnan(self.se) else f" ± {self.se:.2g}")


@dataclass(frozen=True)
class Metrics:
    """Errors of the draws against the exact posterior with covariance Sigma, with standard errors
    over data sets, or over batches of chains where there is one data set."""

    mse: Estimate
    """Squared distance of theta from the posterior mean, averaged over chains, kept rounds and data
    sets."""
    variance_ratio: Estimate
    """Trace of the draws' covariance over trace(Sigma), the trace of the posterior's covariance,
    averaged over data sets."""
    variance_ratio_smallest: Estimate
    """Variance of the draws over the posterior's along the eigenvector of the posterior's
    covariance for which this ratio, averaged over data sets, is smallest."""
    variance_ratio_largest: Estimate
    """Variance of the draws over the posterior's along the eigenvector of the posterior's
    covariance for which this ratio, averaged over data sets, is largest."""
    wasserstein2_squared: Estimate
    """Squared 2-Wasserstein distance between the Gaussian fitted to a data set's draws and its
    posterior, averaged over data sets; NaN where a data set has fewer than 20 independent draws."""
    mean_error_squared: Estimate
    """Squared distance of the mean over a data set's chains and kept rounds from its posterior
    mean, averaged over data sets."""
    posterior_trace: float
    """Trace of the posterior's covariance, averaged over data sets: the value of ``mse`` for exact
    posterior samples."""
    num_draws: int
    """Number of draws of each data set: chains times kept rounds."""
    independent_draws: float
    """Number of independent draws whose mean would be as precise as that of a data set's draws,
    computed from the correlation of the sampler's successive rounds."""
    wasserstein2_floor: float
    """Expected ``wasserstein2_squared`` of as many exact draws of the posterior with the same
    correlation of successive draws: a distance this small shows no error of the sampler."""
    shift_from: ShiftKnownFrom = "chains"
    """Independent groups of draws that are compared to separate a shift of the mean from the spread
    in variance ratios. ``chains``: those of a data set; ``data sets``, where each has one chain, so
    that a shift of a single data set counts as spread; ``nothing`` for one chain of one data set,
    where any shift counts as spread."""
    chains_for_wasserstein2: int | None = None
    """Number of chains for each data set with which ``wasserstein2_squared`` could be computed, if
    this run has too few; else None."""
    each: Mapping[str, Array] = field(default_factory=dict, repr=False, compare=False)
    """Values of the metrics for single data sets, (experiment), by the metric's name; empty for one
    data set. The smallest and the largest variance ratio are left out: they are extremes of means
    over data sets, and have no values for single ones."""

    @cached_property
    def middles(self) -> dict[str, Middle]:
        """Median and quartiles over data sets of each metric, by its name; empty for one data
        set."""
        return middles(self.each)

    def in_words(self, name: str) -> str:
        """Text of the metric called ``name``: its mean with the standard error, and before it
        median and quartiles over data sets if its tails are heavy."""
        middle = self.middles.get(name)
        text = str(getattr(self, name))
        return f"{middle} of data sets; mean {text}" if middle and middle.heavy else text

    @property
    def estimates(self) -> dict[str, Estimate]:
        """The metrics that have a standard error, by name."""
        pairs = ((f.name, getattr(self, f.name)) for f in dataclasses.fields(self))
        return {name: value for name, value in pairs if isinstance(value, Estimate)}


def measure(
    moments: Moments,
    exact: ExactPosterior,
    effective_step_size: float | None,
    num_chains: int,
    *,
    midpoints: bool = False,
) -> Metrics:
    """Metrics of draws, averaged over data sets. ``moments`` are those of the draws' deviations
    from the exact posterior means, and the effective step tells how strongly successive rounds are
    correlated; with None for the step, each chain counts as one independent draw. ``midpoints``
    says that draws lie half way between the positions of successive rounds."""
    num_draws = int(moments.counts.sum())
    # The number of draws per chain is counted from the moments, because at a checkpoint the run is
    # not finished.
    memory = exact.memory(effective_step_size, least=-1.0 if midpoints else 0.0)
    shape = (num_chains, num_draws // num_chains, memory)
    independent = exact.independent_draws(*shape, midpoints=midpoints)
    enough = independent >= ENOUGH_DRAWS
    statistics = exact.statistics()
    estimates: dict[str, Any] = {}
    if not enough:  # no distance, which takes an eigenvalue problem for every data set
        del statistics["wasserstein2_squared"]
        estimates["wasserstein2_squared"] = Estimate(math.nan, math.nan)
    each = _of_data_sets(moments, statistics)
    estimates |= _estimates(moments, statistics, each)
    of_groups = contributions(moments, exact.values, exact.directions)
    if len(moments.sums) > 1:  # the groups are the data sets
        each["variance_ratio"] = of_groups.ratios[:, 0]
    return Metrics(
        **estimates,
        **_variance_ratios(of_groups),
        each=each if len(moments.sums) > 1 else {},
        posterior_trace=float(exact.trace.mean()),
        num_draws=num_draws,
        independent_draws=independent,
        wasserstein2_floor=exact.floor(*shape, midpoints=midpoints),
        chains_for_wasserstein2=(
            None if enough else math.ceil(ENOUGH_DRAWS * num_chains / independent)
        ),
    )


def variance_ratio_to(posterior: Gaussian) -> Callable[[Moments], Estimate]:
    """A function from moments about the exact posterior means to the field ``variance_ratio`` of
    :class:`Metrics`. The eigenvectors of the posterior are computed only once, here."""
    exact = ExactPosterior(posterior)

    def ratio(moments: Moments) -> Estimate:
        of_groups = contributions(moments, exact.values, exact.directions)
        estimate: Estimate = _variance_ratios(of_groups)["variance_ratio"]
        return estimate

    return ratio


def _variance_ratios(of_groups: Contributions) -> dict[str, Any]:
    """The fields of :class:`Metrics` that concern variance ratios, by name: the ratio of the
    traces, the smallest and the largest along an eigenvector, and ``shift_from``."""
    estimates = [
        Estimate(float(mean), float(se))
        for mean, se in zip(of_groups.mean, of_groups.standard_error, strict=True)
    ]
    along = estimates[1:]
    return {
        "variance_ratio": estimates[0],
        "variance_ratio_smallest": min(along, key=lambda each: each.mean),
        "variance_ratio_largest": max(along, key=lambda each: each.mean),
        "shift_from": of_groups.shift_from,
    }


def squared_errors(moments: Moments) -> Array:
    """Mean squared error of every data set, (experiment): the mean over chains and kept rounds of
    the squared distance of theta from the point about which the ``moments`` were taken, which is
    the posterior mean where that is known."""
    return second_trace(moments.products.sum(axis=1) / moments.counts.sum())


def _of_data_sets(moments: Moments, statistics: dict[str, Statistic]) -> dict[str, Array]:
    """Value of each statistic for every data set, over all its chains: arrays (experiment) by the
    statistic's name."""
    total = moments.counts.sum()
    means = moments.sums.sum(axis=1) / total, moments.products.sum(axis=1) / total
    return {name: statistic(*means) for name, statistic in statistics.items()}


def _estimates(
    moments: Moments, statistics: dict[str, Statistic], of_all: Mapping[str, Array]
) -> dict[str, Estimate]:
    """Mean and standard error of each statistic by its name, where ``of_all`` holds its values for
    every data set, (experiment). The standard error is over data sets; for one data set it is a
    jackknife over batches of chains, and NaN if there is one batch only."""
    sums, products, counts = moments.sums, moments.products, moments.counts
    total, total_sum, total_product = counts.sum(), sums.sum(axis=1), products.sum(axis=1)
    batches = len(counts)
    if len(sums) > 1:
        return {name: Estimate.over(values) for name, values in of_all.items()}
    if batches == 1:
        return {name: Estimate(float(values[0]), math.nan) for name, values in of_all.items()}
    # Jackknife: the statistic is computed without each of the b batches in turn. The standard error
    # is the root of (b - 1)/b times the sum of the values' squared deviations, that is sqrt(b - 1)
    # times their standard deviation.
    left_out = [
        (
            (total_sum - sums[:, b]) / (total - counts[b]),
            (total_product - products[:, b]) / (total - counts[b]),
        )
        for b in range(batches)
    ]
    return {
        name: Estimate(
            float(of_all[name][0]),
            float(np.std([statistic(*each)[0] for each in left_out]) * np.sqrt(batches - 1)),
        )
        for name, statistic in statistics.items()
    }
