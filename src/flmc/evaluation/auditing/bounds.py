"""Lower confidence bounds of epsilon, from a statistic in two worlds."""

from __future__ import annotations

import math

import numpy as np

from flmc.base.arrays import Array

CONFIDENCE = 0.999
"""Probability with which a lower bound of epsilon holds, unless told."""
_SHARE_FOR_THRESHOLD = 0.2
_THRESHOLDS = 400


def lower_bound(first: Array, second: Array, delta: float, confidence: float = CONFIDENCE) -> float:
    """Lower confidence bound of epsilon, at least 0, from the statistic (trial) in two worlds,
    which tends to be larger in the first."""
    # Two directions with two rates each share the error probability (union bound).
    error = (1.0 - confidence) / 4
    split = int(_SHARE_FOR_THRESHOLD * len(first))
    found = 0.0
    for high, low in ((first, second), (-second, -first)):
        # From trials that are not counted: else the best of many thresholds flatters the rates.
        threshold = _best_threshold(high[:split], low[:split], delta, error)
        right, false = (int((part[split:] > threshold).sum()) for part in (high, low))
        count = len(first) - split
        at_least, at_most = _rate_below(right, count, error), _rate_above(false, count, error)
        if at_least > delta:
            found = max(found, math.log((at_least - delta) / at_most))
    return found


def _best_threshold(high: Array, low: Array, delta: float, error: float) -> float:
    """The threshold at which the bound would be about largest on these trials."""
    candidates = np.unique(
        np.quantile(np.concatenate([high, low]), np.linspace(0, 1, _THRESHOLDS + 2)[1:-1])
    )
    count = len(high)
    right = (count - np.searchsorted(np.sort(high), candidates, side="right")) / count
    false = (count - np.searchsorted(np.sort(low), candidates, side="right")) / count
    # About the half width of the confidence bounds; any threshold gives a valid bound.
    wide = math.sqrt(-2 * math.log(error) / count)
    value = np.maximum(right - delta - wide * np.sqrt(right * (1 - right)), 1e-12)
    rate = false + wide * np.sqrt(false * (1 - false)) + wide**2
    return float(candidates[int(np.argmax(np.log(value) - np.log(rate)))])


def _rate_below(hits: int, count: int, error: float) -> float:
    """Clopper and Pearson's lower bound of a rate, which fails with probability ``error`` at
    most."""
    from scipy.special import betaincinv  # imported in a tenth of the time of scipy.stats

    return 0.0 if hits == 0 else float(betaincinv(hits, count - hits + 1, error))


def _rate_above(hits: int, count: int, error: float) -> float:
    """Clopper and Pearson's upper bound of a rate, which fails with probability ``error`` at
    most."""
    from scipy.special import betainccinv

    return 1.0 if hits == count else float(betainccinv(hits + 1, count - hits, error))
