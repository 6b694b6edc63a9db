r"""How close the draws are to the exact posterior :math:`N(\mu, \Sigma)`.

The MSE is the mean over kept rounds of :math:`\|\theta - \mu\|^2`. Exact posterior samples have MSE
= trace(Sigma), *not* zero: a smaller MSE means a collapsed sampler, so it is never reported alone.
Covariances are pooled over chains and kept rounds about the pooled mean, per data set. Standard
errors are over data sets, or a jackknife over batches of chains where there is one."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from flmc.base.arrays import Array
from flmc.evaluation.comparison import Comparison, Statistic, second_trace
from flmc.models.distributions import Gaussian
from flmc.sampling.moments import Moments


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
        return f"{self.mean:.4g}" + ("" if np.isnan(self.se) else f" ± {self.se:.2g}")


@dataclass(frozen=True)
class Metrics:
    """Quality of the draws against the exact posterior, with standard errors."""

    mse: Estimate
    """Mean over kept rounds of the squared distance from the posterior mean."""
    variance_ratio: Estimate
    """trace(Cov)/trace(Sigma)."""
    variance_ratio_smallest: Estimate
    """Smallest ratio of variances over the posterior's eigen-directions."""
    variance_ratio_largest: Estimate
    """Largest ratio of variances over the posterior's eigen-directions."""
    wasserstein2_squared: Estimate
    """Squared 2-Wasserstein distance from the Gaussian fitted to the draws to the posterior."""
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

    @property
    def estimates(self) -> dict[str, Estimate]:
        """The metrics that have a standard error, by name."""
        pairs = ((f.name, getattr(self, f.name)) for f in dataclasses.fields(self))
        return {name: value for name, value in pairs if isinstance(value, Estimate)}


def measure(
    moments: Moments, posterior: Gaussian, effective_step_size: float | None, num_chains: int
) -> Metrics:
    """Compare the moments of a run with the exact posterior.

    Parameters
    ----------
    moments
        Sums over kept rounds about the posterior mean.
    posterior
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
    compare = Comparison(posterior)
    estimates = {name: _estimate(moments, value) for name, value in compare.statistics().items()}
    num_draws = int(moments.counts.sum())
    # Kept rounds so far: a checkpoint measures a run that is not finished.
    shape = (num_chains, num_draws // num_chains, compare.memory(effective_step_size))
    return Metrics(
        **estimates,
        posterior_trace=float(compare.trace.mean()),
        num_draws=num_draws,
        independent_draws=compare.independent_draws(*shape),
        wasserstein2_floor=compare.floor(*shape),
    )


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


def pooled_variance_ratios(moments: Moments, posterior: Gaussian) -> Array:
    """Variance of the draws over that of the posterior, about the exact posterior means.

    A single chain's variance about its own mean is too small; by how much depends on its memory. So
    deviations from the exact means are pooled over data sets, less the shift that all data sets
    have in common. This needs many data sets, and only then agrees with what ``variance_ratio``
    says of many chains on one data set.

    Parameters
    ----------
    moments
        Sums over kept rounds about the exact posterior means.
    posterior
        The exact posterior of every data set.

    Returns
    -------
    Array
        Values (experiment) whose mean is the ratio.
    """
    common = (moments.sums.sum(axis=1) / moments.counts.sum()).mean(axis=0)
    trace = np.trace(posterior.covariance, axis1=1, axis2=2).mean()
    return np.asarray((squared_errors(moments) - common @ common) / trace)


def _estimate(moments: Moments, statistic: Statistic) -> Estimate:
    """Mean and standard error of a statistic: over data sets, else a jackknife over batches of
    chains."""
    sums, products, counts = moments.sums, moments.products, moments.counts
    total, total_sum, total_product = counts.sum(), sums.sum(axis=1), products.sum(axis=1)
    values = statistic(total_sum / total, total_product / total)
    if len(values) > 1:
        return Estimate.over(values)
    batches = len(counts)
    if batches == 1:
        return Estimate(float(values[0]), float("nan"))
    # Jackknife: the statistic without each batch in turn. Its standard error is the root of
    # (b - 1)/b times the sum of squared deviations, which is sqrt(b - 1) times their root mean
    # square.
    left_out = [
        statistic(
            (total_sum - sums[:, b]) / (total - counts[b]),
            (total_product - products[:, b]) / (total - counts[b]),
        )[0]
        for b in range(batches)
    ]
    return Estimate(float(values[0]), float(np.std(left_out) * np.sqrt(batches - 1)))
