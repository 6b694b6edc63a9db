r"""Metrics of draws against the exact posterior :math:`N(\mu, \Sigma)`.

The MSE is the mean over kept rounds of :math:`\|\theta - \mu\|^2`. Exact posterior samples have MSE
= trace(Sigma), *not* zero: a smaller MSE means a collapsed sampler, so it is never reported alone.
Squared W2 is of the Gaussian fitted to the draws of each data set, and given only where these are
worth enough independent draws. Standard errors are over data sets, or over batches of chains where
there is one data set.

Variance ratios have one estimator for any number of chains. Deviations :math:`d = \theta - \mu` are
from the exact posterior mean of each data set, so that their mean square S is unbiased for :math:`V
+ b b^\top`: V is the covariance of a chain's draws, b the shift of their mean. A chain's own mean
is never subtracted: a chain with memory hardly moves about it, and would look too narrow by an
unknown factor. Instead :math:`b b^\top` comes from pairs of *different* groups g, h, whose means m
are independent: :math:`E[m_g m_h^\top] = b b^\top`, whatever the memory of a chain.

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
"""The independent groups of draws whose comparison separates a shift of the draws' mean from their
spread."""


class Contributions(NamedTuple):
    """Variance ratios (variance of the draws over that of the posterior) of independent groups of
    draws, whose weighted mean is the estimate.

    Attributes
    ----------
    ratios
        Contribution of each group, (group, functional): the first is the ratio of the traces, the
        others are along the posterior's eigen-directions, smallest variance first.
    weights
        Share of each group in the mean, (group).
    shift_from
        The groups that separate the shift from the spread.
    """

    ratios: Array
    weights: Array
    shift_from: ShiftKnownFrom

    @property
    def mean(self) -> Array:
        """The estimated variance ratios, weighted means over groups, (functional)."""
        return np.asarray(self.weights @ self.ratios)

    @property
    def standard_error(self) -> Array:
        """Standard errors of the estimated variance ratios, (functional); NaN for a single
        group."""
        count = len(self.weights)
        if count == 1:
            return np.full(self.ratios.shape[1], np.nan)
        squares = np.square(self.weights[:, None] * (self.ratios - self.mean))
        return np.asarray(np.sqrt(squares.sum(axis=0) * count / (count - 1)))


def contributions(moments: Moments, values: Array, directions: Array) -> Contributions:
    """Variance ratios of draws to the exact posterior, with the contribution of every independent
    group: a data set, or a batch of chains where there is one data set. ``moments`` are about the
    exact posterior means; ``values`` (experiment, dim) and ``directions`` (experiment, dim, dim)
    are eigenvalues and eigenvectors of the posteriors' covariances."""
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
    """Variance of the draws of each data set along the eigenvectors of its posterior, (experiment,
    dim). The shift of the mean, which is no variance, is estimated from pairs of different batches
    of chains and subtracted."""
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
    # The same sum in the same order as an inner sum of each matrix, but for all groups at once:
    # NumPy sums an inner axis of many small matrices matrix by matrix, which is slower.
    total = turned[:, 0].copy()
    for row in range(1, dim):
        total += turned[:, row]
    return total


def _coordinates(vectors: Array, directions: Array | None) -> Array:
    """Components of vectors (group, dim) along the columns of ``directions`` (group, dim, dim), as
    (group, dim); None: the vectors themselves."""
    return vectors if directions is None else np.einsum("gif,gi->gf", directions, vectors)


class _Groups(NamedTuple):
    """Independent groups of draws whose means are all off the posterior mean by the same shift.

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
        """Contribution of each group to the variances of the draws, with the shift of their mean
        taken out, (group, dim). Variances are along the columns of ``directions`` (group, dim,
        dim), or along the axes (None), and divided by ``scales`` (group or 1, dim or 1)."""
        # The squared shift is the mean over groups of a group's mean times that of the others, so
        # each group enters it twice: by its own mean, and among the others. Both belong to its
        # contribution; with the own mean alone, the standard error would count a group's shift as
        # if it stayed in the ratio.
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
        # ``as_it`` and ``among_others`` each have the squared shift as their mean over groups; one
        # of them is added back, so that the shift is subtracted once.
        return np.asarray(second - as_itself - among_others + self.weights @ as_itself)


ENOUGH_DRAWS = 20.0
"""Independent draws of a data set below which the squared 2-Wasserstein distance is not given: with
20 the variance of the Gaussian fitted to the draws is too small by 5 per cent."""


class Estimate(NamedTuple):
    """A mean and its standard error (NaN where there is nothing to estimate it from)."""

    mean: float
    se: float

    @classmethod
    def over(cls, values: Array) -> Estimate:
        """Mean and standard error of values, (value), at least two, of independent data sets or
        chains."""
        return cls(float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values))))

    def __str__(self) -> str:
        if math.isnan(self.mean):
            return "-"
        return f"{self.mean:.4g}" + ("" if math.isnan(self.se) else f" ± {self.se:.2g}")


@dataclass(frozen=True)
class Metrics:
    """Quality of the draws against the exact posterior with covariance Sigma, with standard
    errors."""

    mse: Estimate
    """Mean over kept rounds of the squared distance from the posterior mean."""
    variance_ratio: Estimate
    """Trace of the draws' covariance over trace(Sigma), the trace of the posterior's covariance,
    averaged over data sets."""
    variance_ratio_smallest: Estimate
    """Smallest ratio of variances over the posterior's eigen-directions, each averaged over data
    sets."""
    variance_ratio_largest: Estimate
    """Largest ratio of variances over the posterior's eigen-directions, each averaged over data
    sets."""
    wasserstein2_squared: Estimate
    """Squared 2-Wasserstein distance from the Gaussian fitted to the draws to the posterior; NaN
    where a data set has fewer than 20 independent draws."""
    mean_error_squared: Estimate
    """Squared distance of the mean over all chains and kept rounds from the posterior mean."""
    posterior_trace: float
    """trace(Sigma), averaged over data sets: the MSE of exact posterior samples."""
    num_draws: int
    """Number of draws of each data set: chains times kept rounds."""
    independent_draws: float
    """Number of independent draws that would estimate the mean with the same error, computed from
    how long the Langevin sampler remembers its past."""
    wasserstein2_floor: float
    """Expected squared 2-Wasserstein distance of equally many exact posterior samples with the same
    memory: a value at the floor cannot be told from perfect."""
    shift_from: ShiftKnownFrom = "chains"
    """The independent groups that separate the shift of the mean from the spread in variance
    ratios: ``chains``; ``data sets``, where a data set has one chain, and a shift of its own counts
    as spread; ``nothing`` for one chain of one data set, where all shift counts as spread."""
    chains_for_wasserstein2: int | None = None
    """Number of chains for each data set with which the squared W2 distance could be given, where
    the run had fewer; else None."""
    each: Mapping[str, Array] = field(default_factory=dict, repr=False, compare=False)
    """Values of single data sets, (experiment), by name of the metric, whose mean the metric is;
    without the extremes over directions, which are of mean ratios, and empty for one data set."""

    @cached_property
    def middles(self) -> dict[str, Middle]:
        """Median and quartiles over data sets by name of the metric; empty for one data set."""
        return middles(self.each)

    def in_words(self, name: str) -> str:
        """The metric ``name`` with its standard error, and where tails are heavy with median and
        middle half of the data sets."""
        middle = self.middles.get(name)
        text = str(getattr(self, name))
        return f"{middle} of data sets; mean {text}" if middle and middle.heavy else text

    @property
    def estimates(self) -> dict[str, Estimate]:
        """The metrics that have a standard error, by name."""
        pairs = ((f.name, getattr(self, f.name)) for f in dataclasses.fields(self))
        return {name: value for name, value in pairs if isinstance(value, Estimate)}


def measure(
    moments: Moments, exact: ExactPosterior, effective_step_size: float | None, num_chains: int
) -> Metrics:
    """Metrics of draws, averaged over data sets, from their ``moments`` about the exact posterior
    means. The sampler's effective step says how long a chain remembers its past; None: unknown, and
    each chain counts as one independent draw."""
    num_draws = int(moments.counts.sum())
    # The draws per chain are counted from the moments: a checkpoint measures a run that is not
    # finished.
    shape = (num_chains, num_draws // num_chains, exact.memory(effective_step_size))
    independent = exact.independent_draws(*shape)
    enough = independent >= ENOUGH_DRAWS
    statistics = exact.statistics()
    estimates: dict[str, Any] = {}
    if not enough:  # else it is not computed: it takes an eigenvalue problem for every data set
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
        wasserstein2_floor=exact.floor(*shape),
        chains_for_wasserstein2=(
            None if enough else math.ceil(ENOUGH_DRAWS * num_chains / independent)
        ),
    )


def variance_ratio_to(posterior: Gaussian) -> Callable[[Moments], Estimate]:
    """A function from moments about the exact posterior means to ``Metrics.variance_ratio``; the
    posterior is decomposed only once."""
    exact = ExactPosterior(posterior)

    def ratio(moments: Moments) -> Estimate:
        of_groups = contributions(moments, exact.values, exact.directions)
        estimate: Estimate = _variance_ratios(of_groups)["variance_ratio"]
        return estimate

    return ratio


def _variance_ratios(of_groups: Contributions) -> dict[str, Any]:
    """The fields of :class:`Metrics` that concern variance ratios, by name."""
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
    """Value of every statistic for each data set, over all its chains, (experiment) by name."""
    total = moments.counts.sum()
    means = moments.sums.sum(axis=1) / total, moments.products.sum(axis=1) / total
    return {name: statistic(*means) for name, statistic in statistics.items()}


def _estimates(
    moments: Moments, statistics: dict[str, Statistic], of_all: Mapping[str, Array]
) -> dict[str, Estimate]:
    """Mean and standard error of statistics by name, given their values for each data set,
    ``of_all``: over data sets, else a jackknife over batches of chains."""
    sums, products, counts = moments.sums, moments.products, moments.counts
    total, total_sum, total_product = counts.sum(), sums.sum(axis=1), products.sum(axis=1)
    batches = len(counts)
    if len(sums) > 1:
        return {name: Estimate.over(values) for name, values in of_all.items()}
    if batches == 1:
        return {name: Estimate(float(values[0]), math.nan) for name, values in of_all.items()}
    # Jackknife: the statistic without each batch in turn. Its standard error is the root of
    # (b - 1)/b times the sum of squared deviations, which is sqrt(b - 1) times their root mean
    # square.
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
