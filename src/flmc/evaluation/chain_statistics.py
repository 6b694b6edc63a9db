"""R-hat and effective sample sizes of chains, as Vehtari et al. (2021) define them.

flmc computes them itself, because importing a library for them takes longer than most runs; tests
compare them with arviz-stats."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from flmc.base.arrays import Array
from flmc.base.special import ndtri

FEWEST_DRAWS = 4
"""Smallest number of draws of a chain with which R-hat and effective sample sizes are computed:
chains are cut into halves, and the variance of each half needs two draws."""
TAILS = (0.05, 0.95)
"""The two quantiles for which the effective sample size of the tails, ``ess_tail``, is computed."""


class ChainStatistics(NamedTuple):
    """R-hat and effective sample sizes, an array (quantity) each; NaN where the draws of a quantity
    do not vary or are not finite.

    Attributes
    ----------
    r_hat
        R-hat of the halves of all chains: the larger of its value for the draws' ranks and for the
        ranks of their distances from the median. About 1 where the halves agree in mean and spread.
    ess_bulk
        Number of independent draws that would estimate the middle of the distribution with the same
        error.
    ess_tail
        Number of independent draws that would estimate the 5 % or the 95 % quantile with the same
        error; the smaller of the two numbers.
    """

    r_hat: Array
    ess_bulk: Array
    ess_tail: Array


def chain_statistics(draws: Array) -> ChainStatistics:
    """R-hat and effective sample sizes of several quantities, from draws (quantity, chain, draw)
    with at least 4 draws a chain; of a single chain the two halves are compared."""
    statistics = ChainStatistics(*np.full((3, len(draws)), np.nan))
    flat = draws.reshape(len(draws), -1)
    spread = flat.max(axis=1) - flat.min(axis=1)
    known = np.isfinite(spread) & (spread > 0)
    if not known.any():
        return statistics
    draws, flat = draws[known], flat[known]
    halves = _halves(draws)
    scores = _normal_scores(halves)
    middle = np.median(halves.reshape(len(halves), -1), axis=1)[:, None, None]
    folded = _normal_scores(np.abs(halves - middle))
    statistics.r_hat[known] = np.fmax(_r_hat(scores), _r_hat(folded))
    statistics.ess_bulk[known] = _effective_size(scores)
    low, high = np.quantile(flat, TAILS, axis=1)[:, :, None, None]
    below = (_effective_size(_halves((draws <= edge).astype(np.float64))) for edge in (low, high))
    statistics.ess_tail[known] = np.minimum(*below)
    return statistics


def effective_size_of_mean(draws: Array) -> Array:
    """Number of independent draws whose mean would vary as little as that of these correlated
    draws, (quantity), from draws (quantity, chain, draw), at least 4 a chain."""
    return _effective_size(_halves(draws))


def _halves(draws: Array) -> Array:
    """The first and the second half of every chain as chains of their own, (quantity, 2 chains,
    draw), from draws (quantity, chain, draw); the middle one of an odd number of draws is left
    out."""
    half = draws.shape[2] // 2
    return np.concatenate([draws[..., :half], draws[..., -half:]], axis=1)


@lru_cache(maxsize=4)
def _scores_of_ranks(count: int) -> Array:
    """Standard normal quantiles of the ranks 1 to ``count`` among ``count`` values, (rank). Only
    the lower half is computed: the upper half is its mirror image with the other sign."""
    lower = _score(np.arange(1.0, count // 2 + 1), count)
    return np.concatenate([lower, np.zeros(count % 2), -lower[::-1]])


def _score(ranks: Array, count: int) -> Array:
    """Standard normal quantiles of ``ranks`` r among ``count`` values n, in the shape of ``ranks``,
    at Blom's plotting positions (r - 3/8)/(n + 1/4)."""
    return ndtri(np.asarray((ranks - 0.375) / (count + 0.25)))


def _normal_scores(draws: Array) -> Array:
    """Each draw replaced by the normal quantile of its rank among all draws of its quantity, in the
    shape of ``draws`` (quantity, chain, draw); equal draws share their mean rank."""
    flat = draws.reshape(len(draws), -1)
    known, order = _scores_of_ranks(flat.shape[1]), np.argsort(flat, axis=1)
    scores = np.empty_like(flat)
    np.put_along_axis(scores, order, known[None], axis=1)
    ordered = np.take_along_axis(flat, order, axis=1)
    # Equal draws get the score of their mean rank, which may lie half way between two whole ranks.
    # They occur where a chain was stuck, and are rare, so only quantities that have some are
    # treated.
    for tied in np.flatnonzero((ordered[:, 1:] == ordered[:, :-1]).any(axis=1)):
        _, place, counts = np.unique(flat[tied], return_inverse=True, return_counts=True)
        ranks = np.cumsum(counts) - (counts - 1) / 2
        of_values = known[ranks.astype(int) - 1]
        between = ranks % 1 > 0
        of_values[between] = _score(ranks[between], flat.shape[1])
        scores[tied] = of_values[place.reshape(-1)]
    return scores.reshape(draws.shape)


def _r_hat(chains: Array) -> Array:
    """R-hat of every quantity, (quantity), from chains (quantity, chain, draw): the square root of
    a ratio, the variance of all draws together over the mean variance within a chain."""
    length = chains.shape[2]
    within = chains.var(axis=2, ddof=1).mean(axis=1)
    between = chains.mean(axis=2).var(axis=1, ddof=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.sqrt((length - 1) / length + between / within))


def _effective_size(chains: Array) -> Array:
    """Effective number of draws of every quantity, (quantity), from chains (quantity, chain, draw):
    the number of draws over their autocorrelation time, by Geyer's initial monotone sequence."""
    length, means = chains.shape[2], chains.mean(axis=2)
    # Autocovariances, averaged over chains, by Fourier transform; as many zeros as draws are
    # appended, so that the ends of a chain do not overlap.
    padded = 2 ** int(np.ceil(np.log2(2 * length)))
    spectrum = np.fft.rfft(chains - means[..., None], padded, axis=2)
    power = (np.square(spectrum.real) + np.square(spectrum.imag)).mean(axis=1)
    covariance = np.fft.irfft(power, axis=1)[:, :length] / length
    within = covariance[:, :1] * length / (length - 1)
    total = covariance[:, :1] + means.var(axis=1, ddof=1)[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        correlation = 1.0 - (within - covariance) / total
    correlation[:, 0] = 1.0
    times = np.array([_autocorrelation_time(each) for each in correlation])
    count = chains.shape[1] * length
    # The mean of antithetic chains can be more precise than that of as many independent draws, but
    # how much more is poorly estimated: effective draws are at most log10(count) times the draws,
    # as in arviz-stats. For a quantity that does not vary, such as an indicator that is never 1,
    # all draws count.
    sizes = count / np.maximum(times, 1.0 / np.log10(count))
    return np.where(total[:, 0] > 0, sizes, float(count))


def _autocorrelation_time(correlation: Array) -> float:
    """Autocorrelation time in draws, from the autocorrelations of one quantity by lag, (lag), from
    lag 0 on: their sum over positive and negative lags, cut off at the lag where they are only
    noise."""
    # For a reversible chain the sums of autocorrelations at two neighbouring lags are positive and
    # decreasing (Geyer): all lags from the first negative sum on are noise. The even lag of that
    # sum is still added if it is positive.
    num_pairs = max(1, (len(correlation) - 1) // 2)
    pairs = correlation[: 2 * num_pairs].reshape(num_pairs, 2).sum(axis=1)
    negative = np.flatnonzero(pairs < 0)
    last = int(negative[0]) if len(negative) else num_pairs - 1
    rest = max(0.0, float(correlation[2 * last])) if last else 0.0
    return -1.0 + 2.0 * float(np.minimum.accumulate(pairs[: max(1, last)]).sum()) + rest
