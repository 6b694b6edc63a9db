"""Quality of one chain by itself, against the exact posterior.

A deployment runs one chain, and the privacy of a run is that of one chain. The metrics of all
chains together describe the law of the sampler; the mean and variance of a single chain are farther
from the posterior's. Here every chain of every data set is judged alone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

import numpy as np

from flmc.base.arrays import Array
from flmc.evaluation.exact_posterior import ExactPosterior
from flmc.sampling.moments import Moments

_MOST_WORK = 1e9
"""Number of multiplications beyond which the squared W2 distances of single chains are not
computed: they would take some seconds."""


class Spread(NamedTuple):
    """A quantity of single chains: its mean, its standard deviation from chain to chain, and the
    standard error of the mean (NaN where it cannot be estimated).

    Attributes
    ----------
    mean
        Mean over chains and data sets.
    sd
        Standard deviation over chains and data sets.
    se
        Standard error of the mean: over data sets, else over chains.
    """

    mean: float
    sd: float
    se: float

    @classmethod
    def of(cls, values: Array) -> Spread:
        """Mean, standard deviation and standard error of values of independent chains, (experiment,
        chain)."""
        sd = float(values.std(ddof=1)) if values.size > 1 else math.nan
        groups = values.mean(axis=1) if len(values) > 1 else values[0]
        se = float(groups.std(ddof=1) / np.sqrt(len(groups))) if len(groups) > 1 else math.nan
        return cls(float(values.mean()), sd, se)

    def to_document(self) -> dict[str, float | None]:
        """The three numbers by name, for JSON; a number that is NaN is null."""
        return {
            name: None if math.isnan(value) else value for name, value in self._asdict().items()
        }


@dataclass(frozen=True)
class OneChain:
    """Quality of the kept rounds of a single chain against the exact posterior. Squared distances
    are divided by the trace of the posterior's covariance."""

    mean_error: Spread
    """Squared distance of the mean of the chain's draws from the posterior mean, over the trace of
    the posterior's covariance."""
    common_error: Spread
    """The part of ``mean_error`` that all chains of a data set have in common, a shift that more
    rounds do not remove: the inner product of the errors of two different chains' means, averaged
    over pairs, over the trace of the posterior's covariance. The estimate is unbiased, so it may be
    negative. Its ``sd`` is NaN; with one chain a data set, so are its mean and ``se``."""
    variance_ratio: Spread
    """Trace of the covariance of the chain's draws about their own mean, over the trace of the
    posterior's covariance."""
    wasserstein2: Spread | None
    """Squared 2-Wasserstein distance between the Gaussian fitted to the chain's draws and the
    posterior, over the trace of the posterior's covariance; None where computing it would take too
    long."""
    each: Mapping[str, Array] = field(default_factory=dict, repr=False, compare=False)
    """Means over the chains of each data set, (experiment), by the name of the field; without
    ``common_error``, and empty for one data set."""

    def to_document(self) -> dict[str, Any]:
        """All quantities by name, each with its mean, sd and se, or null where it was not computed,
        for JSON."""
        names = [each.name for each in fields(self) if each.name != "each"]
        spreads = {name: getattr(self, name) for name in names}
        return {name: each and each.to_document() for name, each in spreads.items()}


def measure_one_chain(moments: Moments, exact: ExactPosterior) -> OneChain | None:
    """Quality of single chains against the exact posterior: means over chains and data sets, and
    the standard deviation from chain to chain. ``moments`` are those of the draws' deviations from
    the posterior means; the result is None where they are sums over several chains."""
    if moments.batch_size > 1:
        return None
    trace = exact.trace[:, None]
    means = moments.sums / moments.counts[:, None]
    seconds = moments.products / moments.counts[:, None, None]
    squares = np.square(means).sum(axis=2)
    # Trace of the covariance about the chain's own mean: the mean square less the squared mean,
    # both of deviations from the posterior mean.
    spread = np.trace(seconds, axis1=2, axis2=3) - squares
    distances = _distance(exact, means, seconds)
    of_chains = {"mean_error": squares / trace, "variance_ratio": spread / trace}
    if distances is not None:
        of_chains["wasserstein2"] = distances
    several = len(means) > 1
    return OneChain(
        mean_error=Spread.of(of_chains["mean_error"]),
        common_error=_common(means, trace),
        variance_ratio=Spread.of(of_chains["variance_ratio"]),
        wasserstein2=None if distances is None else Spread.of(distances),
        each={name: every.mean(axis=1) for name, every in of_chains.items() if several},
    )


def _common(means: Array, trace: Array) -> Spread:
    """Squared error of the mean that the chains of a data set have in common, over ``trace``
    (experiment, 1), the trace of the posterior's covariance. It is the mean product of the mean
    deviations of two different chains, ``means`` (experiment, chain, dim)."""
    count = means.shape[1]
    if count == 1:
        return Spread(math.nan, math.nan, math.nan)
    # Each chain's mean times the mean of all other chains: the average over chains is the average
    # over all pairs.
    others = (means.sum(axis=1, keepdims=True) - means) / (count - 1)
    products = (means * others).sum(axis=2) / trace
    spread = Spread.of(products)
    # The products are dependent, because every chain is part of all of them. The standard error
    # over data sets is right all the same; over the chains of one data set, the mean of the
    # products varies twice as much as if the mean of the other chains were a constant, hence the
    # factor 2.
    return spread._replace(sd=math.nan, se=spread.se * (1 if len(means) > 1 else 2))


def _distance(exact: ExactPosterior, means: Array, seconds: Array) -> Array | None:
    """Squared 2-Wasserstein distances of single chains from the posterior, over the trace of its
    covariance, (experiment, chain); None where they would take too long. ``means`` (experiment,
    chain, dim) and ``seconds`` (experiment, chain, dim, dim) are a chain's mean deviation from the
    posterior mean, and the mean outer product of its deviations."""
    experiments, chains, dim = means.shape
    if experiments * chains * dim**3 > _MOST_WORK:
        return None
    distances = [
        exact.wasserstein2_squared(means[:, chain], seconds[:, chain]) / exact.trace
        for chain in range(chains)
    ]
    return np.stack(distances, axis=1)
