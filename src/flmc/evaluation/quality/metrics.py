r"""How close the draws are to the exact posterior :math:`N(\mu, \Sigma)`.

The MSE is the mean over kept rounds of :math:`\|\theta - \mu\|^2`. Exact posterior samples have MSE
= trace(Sigma), *not* zero: a smaller MSE means a collapsed sampler, so it is never reported alone.
Variance ratios are about the exact posterior mean
(:mod:`flmc.evaluation.quality.variance_ratios`), and unbiased from two chains on. Squared W2 is of
the Gaussian fitted to the draws of each data set, and given only where these are worth enough
independent draws. Standard errors are over data sets, or
over batches of chains where there is one."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from flmc.base.arrays import Array
from flmc.evaluation.quality.against_posterior import Comparison, Statistic, second_trace
from flmc.evaluation.quality.variance_ratios import ShiftKnownFrom, contributions
from flmc.models.distributions import Gaussian
from flmc.sampling.moments import Moments

ENOUGH_DRAWS = 20.0
"""Independent draws of a data set below which a Gaussian fitted to them says little of what they
were drawn from: with 20 its variance is too small by 5 per cent."""


class Estimate(NamedTuple):
    """A mean and its standard error (NaN where there is nothing to estimate it from)."""

    mean: float
    se: float

    @classmethod
    def over(cls, values: Array) -> Estimate:
        """Mean and standard error from values of independent data sets.

        Parameters
        ----------
        values
            One for each data set, (experiment), at least two.
        """
        return cls(float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values))))

    def __str__(self) -> str:
        if math.isnan(self.mean):
            return "-"
        return f"{self.mean:.4g}" + ("" if math.isnan(self.se) else f" ± {self.se:.2g}")


@dataclass(frozen=True)
class Metrics:
    """Quality of the draws against the exact posterior, with standard errors."""

    mse: Estimate
    """Mean over kept rounds of the squared distance from the posterior mean."""
    variance_ratio: Estimate
    """trace(Cov)/trace(Sigma), averaged over data sets."""
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
    """Squared distance of the pooled mean from the posterior mean."""
    posterior_trace: float
    """trace(Sigma), averaged over data sets: the MSE of exact posterior samples."""
    num_draws: int
    """Draws per data set, chains times kept rounds."""
    independent_draws: float
    """How many independent draws would estimate the mean as well, from the memory of the Langevin
    equation."""
    wasserstein2_floor: float
    """Expected squared W2 distance of exact posterior samples with the same memory: a value at the
    floor cannot be told from perfect."""
    shift_from: ShiftKnownFrom = "chains"
    """Which independent groups told the shift of the mean from the spread in the variance ratios:
    ``chains``; ``data sets``, where a data set has one chain, and a shift of its own counts as
    spread; ``nothing`` for one chain of one data set, where all shift counts as spread."""
    chains_for_wasserstein2: int | None = None
    """Chains a data set from which on squared W2 is given, where these were too few; else None."""

    @property
    def estimates(self) -> dict[str, Estimate]:
        """The metrics that have a standard error, by name."""
        pairs = ((f.name, getattr(self, f.name)) for f in dataclasses.fields(self))
        return {name: value for name, value in pairs if isinstance(value, Estimate)}


def measure(
    moments: Moments, compare: Comparison, effective_step_size: float | None, num_chains: int
) -> Metrics:
    """Compare the moments of a run with the exact posterior.

    Parameters
    ----------
    moments
        Sums over kept rounds about the posterior mean.
    compare
        The exact posterior of every data set.
    effective_step_size
        The step eta kappa that the Langevin equation sees, for the memory of a chain; None if
        unknown.
    num_chains
        Chains of every data set.

    Returns
    -------
    Metrics
        Means over data sets, with standard errors.
    """
    num_draws = int(moments.counts.sum())
    # Kept rounds so far: a checkpoint measures a run that is not finished.
    shape = (num_chains, num_draws // num_chains, compare.memory(effective_step_size))
    independent = compare.independent_draws(*shape)
    enough = independent >= ENOUGH_DRAWS
    statistics = compare.statistics()
    estimates: dict[str, Any] = {}
    if not enough:  # it would not be given
        del statistics["wasserstein2_squared"]
        estimates["wasserstein2_squared"] = Estimate(math.nan, math.nan)
    estimates |= _estimates(moments, statistics)
    return Metrics(
        **estimates,
        **_variance_ratios(moments, compare),
        posterior_trace=float(compare.trace.mean()),
        num_draws=num_draws,
        independent_draws=independent,
        wasserstein2_floor=compare.floor(*shape),
        chains_for_wasserstein2=(
            None if enough else math.ceil(ENOUGH_DRAWS * num_chains / independent)
        ),
    )


def variance_ratio_to(posterior: Gaussian) -> Callable[[Moments], Estimate]:
    """What computes the variance of draws over that of a posterior, as ``Metrics.variance_ratio``
    has it; the posterior is decomposed once for all moments.

    Parameters
    ----------
    posterior
        The exact posterior of every data set.

    Returns
    -------
    Callable[[Moments], Estimate]
        From sums over kept rounds about the exact posterior means to the ratio.
    """
    compare = Comparison(posterior)

    def ratio(moments: Moments) -> Estimate:
        found: Estimate = _variance_ratios(moments, compare)["variance_ratio"]
        return found

    return ratio


def _variance_ratios(moments: Moments, compare: Comparison) -> dict[str, Any]:
    """The variance ratios by the names of their metrics, and what told shift from spread."""
    found = contributions(moments, compare.values, compare.directions)
    estimates = [
        Estimate(float(mean), float(se))
        for mean, se in zip(found.mean, found.standard_error, strict=True)
    ]
    along = estimates[1:]
    return {
        "variance_ratio": estimates[0],
        "variance_ratio_smallest": min(along, key=lambda each: each.mean),
        "variance_ratio_largest": max(along, key=lambda each: each.mean),
        "shift_from": found.shift_from,
    }


def squared_errors(moments: Moments) -> Array:
    """MSE of every data set, (experiment).

    It is the mean over chains and kept rounds of the squared distance from the centre of the
    moments, which is the posterior mean where that is known.

    Parameters
    ----------
    moments
        Sums over kept rounds.
    """
    return second_trace(moments.products.sum(axis=1) / moments.counts.sum())


def _estimates(moments: Moments, statistics: dict[str, Statistic]) -> dict[str, Estimate]:
    """Mean and standard error of statistics by name: over data sets, else a jackknife over batches
    of chains."""
    sums, products, counts = moments.sums, moments.products, moments.counts
    total, total_sum, total_product = counts.sum(), sums.sum(axis=1), products.sum(axis=1)
    means = total_sum / total, total_product / total
    found = {name: statistic(*means) for name, statistic in statistics.items()}
    batches = len(counts)
    if len(sums) > 1:
        return {name: Estimate.over(values) for name, values in found.items()}
    if batches == 1:
        return {name: Estimate(float(values[0]), math.nan) for name, values in found.items()}
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
            float(found[name][0]),
            float(np.std([statistic(*each)[0] for each in left_out]) * np.sqrt(batches - 1)),
        )
        for name, statistic in statistics.items()
    }
