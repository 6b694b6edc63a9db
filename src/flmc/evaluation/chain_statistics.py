"""R-hat and effective sample sizes of chains, as Vehtari et al. (2021) define them.

flmc computes them itself: to import a library that does takes longer than most runs. Tests compare
them with arviz-stats."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from flmc.base.arrays import Array
from flmc.base.special import ndtri

FEWEST_DRAWS = 4
"""Draws at least: chains are cut into halves, and the variance of each needs two draws."""
TAILS = (0.05, 0.95)
"""The quantiles whose effective sample size is that of the tails."""


def rank_normalised_r_hat(draws: Array) -> float:
    """R-hat of the halves of all chains, the larger of that of ranks and that of folded ranks.

    Parameters
    ----------
    draws
        Draws of one quantity, (chain, draw), at least 4 a chain. One chain has two halves.

    Returns
    -------
    float
        About 1 where the halves agree in place and spread; NaN where draws do not vary or are not
        finite.
    """
    halves = _halves(draws)
    if not _varies(halves):
        return float("nan")
    folded = np.abs(halves - np.median(halves))
    return max(_r_hat(_normal_scores(halves)), _r_hat(_normal_scores(folded)))


def bulk_size(draws: Array) -> float:
    """Number of independent draws that would estimate the middle of the distribution as well.

    Parameters
    ----------
    draws
        Draws of one quantity, (chain, draw), at least 4 a chain.

    Returns
    -------
    float
        The effective size; NaN where draws do not vary or are not finite.
    """
    halves = _halves(draws)
    return _effective_size(_normal_scores(halves)) if _varies(halves) else float("nan")


def tail_size(draws: Array) -> float:
    """Number of independent draws that would estimate the 5 % and 95 % quantiles as well, the
    smaller of both.

    Parameters
    ----------
    draws
        Draws of one quantity, (chain, draw), at least 4 a chain.

    Returns
    -------
    float
        The effective size; NaN where draws do not vary or are not finite.
    """
    if not _varies(draws):
        return float("nan")
    quantiles = np.quantile(draws, TAILS)
    return min(_effective_size(_halves((draws <= q).astype(np.float64))) for q in quantiles)


def _varies(draws: Array) -> bool:
    """Whether draws are finite and not all the same."""
    spread = float(np.ptp(draws))
    return bool(np.isfinite(spread)) and spread > 0


def _halves(draws: Array) -> Array:
    """Both halves of every chain as chains of their own; a middle draw is left out."""
    half = draws.shape[1] // 2
    return np.concatenate([draws[:, :half], draws[:, -half:]])


@lru_cache(maxsize=4)
def _scores_without_ties(count: int) -> Array:
    """Normal scores of the ranks 1 to ``count``."""
    return ndtri(np.asarray((np.arange(1, count + 1) - 0.375) / (count + 0.25)))


def _normal_scores(draws: Array) -> Array:
    """Normal quantiles of the ranks of all draws together, equal draws with their mean rank."""
    values, place, counts = np.unique(draws, return_inverse=True, return_counts=True)
    if len(values) == draws.size:
        scores = _scores_without_ties(draws.size)
    else:
        ranks = np.cumsum(counts) - (counts - 1) / 2
        scores = ndtri((ranks - 0.375) / (draws.size + 0.25))
    return np.asarray(scores[place.reshape(draws.shape)])


def _r_hat(chains: Array) -> float:
    """Root of the variance of all chains together over the mean variance within chains."""
    length = chains.shape[1]
    within = float(chains.var(axis=1, ddof=1).mean())
    between = float(chains.mean(axis=1).var(ddof=1))
    if within == 0:
        return float("inf") if between > 0 else float("nan")
    return float(np.sqrt((length - 1) / length + between / within))


def _effective_size(chains: Array) -> float:
    """Size of the draws over their autocorrelation time, by Geyer's initial monotone sequence."""
    count, length = chains.shape
    if not _varies(chains):
        return float(chains.size)
    # Mean autocovariance of the chains, by Fourier transform with as many zeros as draws.
    deviation = chains - chains.mean(axis=1, keepdims=True)
    spectrum = np.fft.rfft(deviation, 2 ** int(np.ceil(np.log2(2 * length))), axis=1)
    covariance = np.fft.irfft(np.square(np.abs(spectrum)).mean(axis=0))[:length] / length
    within = covariance[0] * length / (length - 1)
    total = covariance[0] + (chains.mean(axis=1).var(ddof=1) if count > 1 else 0.0)
    correlation = 1.0 - (within - covariance) / total
    correlation[0] = 1.0
    # Sums of neighbours are positive and fall for a reversible chain; beyond the first that is
    # negative there is noise only. The even lag after that still counts, if it is positive.
    num_pairs = max(1, (length - 1) // 2)
    pairs = correlation[: 2 * num_pairs].reshape(num_pairs, 2).sum(axis=1)
    negative = np.flatnonzero(pairs < 0)
    last = int(negative[0]) if len(negative) else num_pairs - 1
    rest = max(0.0, float(correlation[2 * last])) if last else 0.0
    time = -1.0 + 2.0 * float(np.minimum.accumulate(pairs[: max(1, last)]).sum()) + rest
    # Chains that alternate can be better than independent draws; how much better is not told well.
    return float(chains.size / max(time, 1.0 / np.log10(chains.size)))
