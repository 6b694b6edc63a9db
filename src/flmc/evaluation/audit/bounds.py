"""Lower confidence bounds of the privacy parameter epsilon, from a statistic that an attack
measured in two worlds, that is on two neighbouring data sets."""

from __future__ import annotations

import math

import numpy as np

from flmc.base.arrays import Array

CONFIDENCE = 0.999
"""Default probability with which a lower bound of epsilon holds."""
_SHARE_FOR_THRESHOLD = 0.2
"""Share of the trials that serves only to choose the threshold of the statistic above which the
attack guesses the first of two neighbouring worlds."""
_THRESHOLDS = 400
"""Number of thresholds of the attack's statistic that are compared, at evenly spaced quantiles of
its values in both worlds."""


def lower_bound(
    first: Array,
    second: Array,
    delta: float,
    confidence: float = CONFIDENCE,
    threshold: float | None = None,
) -> float:
    """Lower confidence bound of epsilon, at least 0, from the attack's statistic, (trial), measured
    in the ``first`` and in the ``second`` of two neighbouring worlds; it tends to be larger in the
    first. The attack guesses the first world above a threshold, which is chosen from a part of the
    trials. If a ``threshold`` was fixed beforehand, it is tried, too, and the larger bound
    counts."""
    error = error_of_a_rate(confidence, thresholds=1 if threshold is None else 2)
    split = int(_SHARE_FOR_THRESHOLD * len(first))
    bound = 0.0
    for high, low in ((first, second), (-second, -first)):
        # The threshold is chosen on trials that are not counted afterwards: on the same trials, the
        # best of many thresholds would make the rates look better than they are.
        chosen = _best_threshold(high[:split], low[:split], delta, error)
        bound = max(bound, _bound_at(chosen, high[split:], low[split:], delta, error))
        if threshold is not None:
            bound = max(bound, _bound_at(threshold, high, low, delta, error))
    return bound


def _bound_at(threshold: float, high: Array, low: Array, delta: float, error: float) -> float:
    """Lower bound of epsilon from the shares of trials whose statistic is above a threshold:
    ``high`` and ``low`` (trial) are the statistics in the first and the second of two neighbouring
    worlds. Each of the two shares has a confidence bound that fails with probability ``error``; 0
    where they prove nothing."""
    right, false = (int((part > threshold).sum()) for part in (high, low))
    at_least, at_most = _rate_below(right, len(high), error), _rate_above(false, len(low), error)
    return math.log((at_least - delta) / at_most) if at_least > delta else 0.0


def _best_threshold(high: Array, low: Array, delta: float, error: float) -> float:
    """The threshold of the attack's statistic with about the largest lower bound of epsilon on the
    given trials, whose statistics in the first and the second world are ``high`` and ``low``
    (trial); larger statistics speak for the first world. ``error`` is the probability with which
    each of the bound's two one-sided confidence bounds may fail."""
    candidates = np.unique(
        np.quantile(np.concatenate([high, low]), np.linspace(0, 1, _THRESHOLDS + 2)[1:-1])
    )
    count = len(high)
    right = (count - np.searchsorted(np.sort(high), candidates, side="right")) / count
    false = (count - np.searchsorted(np.sort(low), candidates, side="right")) / count
    # A normal approximation of the confidence bounds' half width suffices to choose the threshold,
    # because any threshold gives a valid bound of epsilon.
    wide = math.sqrt(-2 * math.log(error) / count)
    value = np.maximum(right - delta - wide * np.sqrt(right * (1 - right)), 1e-12)
    rate = false + wide * np.sqrt(false * (1 - false)) + wide**2
    return float(candidates[int(np.argmax(np.log(value) - np.log(rate)))])


def error_of_a_rate(confidence: float, thresholds: int = 1) -> float:
    """Probability with which the confidence bound of a single rate of alarms may fail if the bound
    of epsilon is to hold with ``confidence``. By the union bound it is 1 - ``confidence`` over the
    number of rates: two rates in each of two directions (either world may be the first) at each
    threshold."""
    return (1.0 - confidence) / (4 * thresholds)


def rates_below(hits: Array, count: int, error: float) -> Array:
    """Clopper and Pearson's lower confidence bounds of rates, in the shape of ``hits``, the counts
    of successes in ``count`` trials; each bound fails with probability ``error`` at most. Expected
    counts need not be whole."""
    # From scipy.special, because importing scipy.stats takes ten times as long.
    from scipy.special import betaincinv

    rates = betaincinv(np.maximum(hits, 1e-9), count - hits + 1, error)
    return np.where(hits <= 0, 0.0, rates)


def rates_above(hits: Array, count: int, error: float) -> Array:
    """Clopper and Pearson's upper confidence bounds of rates, in the shape of ``hits``, the counts
    of successes in ``count`` trials; each bound fails with probability ``error`` at most. Expected
    counts need not be whole."""
    from scipy.special import betainccinv

    rates = betainccinv(hits + 1, np.maximum(count - hits, 1e-9), error)
    return np.where(hits >= count, 1.0, rates)


def _rate_below(hits: int, count: int, error: float) -> float:
    """Clopper and Pearson's lower confidence bound of one rate of ``hits`` in ``count`` trials."""
    return float(rates_below(np.array(hits), count, error))


def _rate_above(hits: int, count: int, error: float) -> float:
    """Clopper and Pearson's upper confidence bound of one rate of ``hits`` in ``count`` trials."""
    return float(rates_above(np.array(hits), count, error))
