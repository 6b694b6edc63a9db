r"""How close the draws are to the exact posterior :math:`N(\mu, \Sigma)`.

The MSE is the mean over kept rounds of :math:`\|\theta - \mu\|^2`. Exact posterior samples have MSE = trace(Sigma),
*not* zero: a smaller MSE means a collapsed sampler, so it is never reported alone. Covariances are pooled over chains
and kept rounds about the pooled mean, per data set. Standard errors are over data sets, or a jackknife over batches of
chains where there is one."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from flmc.checks import Array
from flmc.model import Gaussian
from flmc.moments import Moments


class Estimate(NamedTuple):
    """A mean and its standard error (NaN where there is nothing to estimate it from)."""

    mean: float
    se: float

    def __str__(self) -> str:
        return f"{self.mean:.4g} ± {self.se:.2g}"


@dataclass(frozen=True)
class Metrics:
    """Quality of the draws; each with a standard error."""

    mse: Estimate
    variance_ratio: Estimate
    """trace(Cov)/trace(Sigma)"""
    variance_ratio_smallest: Estimate
    """Over the posterior's eigen-directions."""
    variance_ratio_largest: Estimate
    wasserstein2_squared: Estimate
    """Squared 2-Wasserstein distance from the Gaussian fitted to the draws to the posterior."""
    mean_error_squared: Estimate
    """Squared distance of the pooled mean from the posterior mean."""
    posterior_trace: float
    """trace(Sigma), averaged over data sets: the MSE of exact posterior samples."""
    num_draws: int
    """Draws per data set, chains times kept rounds."""
    independent_draws: float
    """How many independent draws they are worth, from the Langevin equation's own memory."""
    wasserstein2_floor: float
    """Expected squared distance of that many exact posterior samples: what no sampler beats."""

    @property
    def estimates(self) -> dict[str, Estimate]:
        """The metrics by name."""
        pairs = ((f.name, getattr(self, f.name)) for f in dataclasses.fields(self))
        return {name: value for name, value in pairs if isinstance(value, Estimate)}


def measure(moments: Moments, posterior: Gaussian, effective_step_size: float | None, num_chains: int) -> Metrics:
    """Compare the sums of a run with the posterior."""
    compare = _Comparison(posterior)
    estimates = {name: _estimate(moments, value) for name, value in compare.statistics().items()}
    num_draws = int(moments.counts.sum())
    independent = compare.independent_draws(num_chains, num_draws // num_chains, effective_step_size)
    return Metrics(
        **estimates,
        posterior_trace=float(compare.trace.mean()),
        num_draws=num_draws,
        independent_draws=independent,
        wasserstein2_floor=compare.floor(independent),
    )


Statistic = Callable[[Array, Array], Array]
"""Mean deviation (experiment, dim) and mean product of deviations (experiment, dim, dim) to one value per data set."""


class _Comparison:
    """The posterior in its eigen-directions."""

    def __init__(self, posterior: Gaussian) -> None:
        self.values, self.directions = np.linalg.eigh(posterior.covariance)
        self.trace = self.values.sum(axis=1)

    def statistics(self) -> dict[str, Statistic]:
        return {
            "mse": lambda shift, second: np.trace(second, axis1=1, axis2=2),
            "variance_ratio": lambda shift, second: (
                (np.trace(second, axis1=1, axis2=2) - np.square(shift).sum(axis=1)) / self.trace
            ),
            "variance_ratio_smallest": lambda shift, second: self._ratios(shift, second).min(axis=1),
            "variance_ratio_largest": lambda shift, second: self._ratios(shift, second).max(axis=1),
            "wasserstein2_squared": self._wasserstein2_squared,
            "mean_error_squared": lambda shift, second: np.square(shift).sum(axis=1),
        }

    def _rotated(self, shift: Array, second: Array) -> Array:
        """Covariance in the eigen-directions."""
        covariance = second - shift[:, :, None] * shift[:, None, :]
        return np.asarray(np.swapaxes(self.directions, 1, 2) @ covariance @ self.directions)

    def _ratios(self, shift: Array, second: Array) -> Array:
        return np.asarray(np.diagonal(self._rotated(shift, second), axis1=1, axis2=2) / self.values)

    def _wasserstein2_squared(self, shift: Array, second: Array) -> Array:
        r""":math:`\|\bar\theta - \mu\|^2 + \operatorname{tr}(C + \Sigma - 2(\Sigma^{1/2} C \Sigma^{1/2})^{1/2})`."""
        covariance = self._rotated(shift, second)
        root = np.sqrt(self.values)
        inner = np.linalg.eigvalsh(root[:, :, None] * covariance * root[:, None, :])
        cross = np.sqrt(np.maximum(inner, 0.0)).sum(axis=1)
        distance = np.square(shift).sum(axis=1) + np.trace(covariance, axis1=1, axis2=2) + self.trace - 2 * cross
        return np.asarray(np.maximum(distance, 0.0))

    def independent_draws(self, num_chains: int, num_kept: int, effective_step_size: float | None) -> float:
        r"""An autoregression with coefficient :math:`\rho_i = 1 - \eta_{\text{eff}}\lambda_i` makes n draws worth
        :math:`n(1-\rho_i)/(1+\rho_i)`; the mean over directions weighted by variance, at least one a chain."""
        if effective_step_size is None:
            return float(num_chains)
        memory = np.clip(1.0 - effective_step_size / self.values, -0.9, 1.0 - 1e-12)
        worth = np.average((1 - memory) / (1 + memory), axis=1, weights=self.values).mean()
        return float(num_chains * np.clip(num_kept * worth, 1.0, num_kept))

    def floor(self, num_draws: float) -> float:
        r"""Expected squared W2 of n exact draws to first order in 1/n, in the eigenvalues :math:`v` of Sigma:
        :math:`\frac1n\bigl[\sum_i v_i + \tfrac12\sum_{ij}\frac{v_i v_j}{v_i+v_j} + \tfrac14\sum_i v_i\bigr]`."""
        v = self.values
        pairs = (v[:, :, None] * v[:, None, :] / (v[:, :, None] + v[:, None, :])).sum(axis=(1, 2))
        return float(np.mean(1.25 * self.trace + 0.5 * pairs) / num_draws)


def _estimate(moments: Moments, statistic: Statistic) -> Estimate:
    sums, products, counts = moments.sums, moments.products, moments.counts
    total, total_sum, total_product = counts.sum(), sums.sum(axis=1), products.sum(axis=1)
    values = statistic(total_sum / total, total_product / total)
    if len(values) > 1:
        return Estimate(float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values))))
    batches = len(counts)
    if batches == 1:
        return Estimate(float(values[0]), float("nan"))
    left_out = [
        statistic(
            (total_sum - sums[:, b]) / (total - counts[b]), (total_product - products[:, b]) / (total - counts[b])
        )[0]
        for b in range(batches)
    ]
    return Estimate(float(values[0]), float(np.std(left_out) * np.sqrt(batches - 1)))
