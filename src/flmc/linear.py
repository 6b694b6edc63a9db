r"""Bayesian linear regression, :math:`v = u^\top\theta + \text{noise}`, held as sufficient statistics per device."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flmc import checks
from flmc.checks import Array
from flmc.errors import InvalidSetting
from flmc.model import Gaussian, Model, Normal


@dataclass(frozen=True)
class LinearData:
    """Examples in device order: ``features`` (..., sample, dim), ``targets`` (..., sample); device k holds the next
    ``device_sizes[k]`` samples. A leading axis holds several data sets."""

    features: Array
    targets: Array
    device_sizes: tuple[int, ...]

    def __post_init__(self) -> None:
        features = checks.finite_array("features", self.features)
        targets = checks.finite_array("targets", self.targets)
        object.__setattr__(self, "features", features)
        object.__setattr__(self, "targets", targets)
        if features.ndim not in (2, 3) or features.shape[:-1] != targets.shape:
            raise InvalidSetting(
                f"features (sample, dim) and targets (sample) must fit, got {features.shape}, {targets.shape}"
            )
        sizes = tuple(checks.at_least("each device's number of samples", size, 0) for size in self.device_sizes)
        if sum(sizes) != targets.shape[-1]:
            raise InvalidSetting(f"device_sizes must add up to {targets.shape[-1]} samples, got {sum(sizes)}")
        object.__setattr__(self, "device_sizes", sizes)

    def to_statistics(self) -> LinearStatistics:
        """Sums over each device's samples of u u' and u v."""
        features = self.features.reshape(-1, *self.features.shape[-2:])
        targets = self.targets.reshape(len(features), -1)
        ends = np.cumsum(self.device_sizes)
        blocks = [slice(end - size, end) for end, size in zip(ends, self.device_sizes, strict=True)]
        gram = np.stack([np.swapaxes(features[:, b], 1, 2) @ features[:, b] for b in blocks], axis=1)
        moment = np.stack([np.einsum("esm,es->em", features[:, b], targets[:, b]) for b in blocks], axis=1)
        return LinearStatistics(gram, moment)


@dataclass(frozen=True)
class LinearStatistics:
    """All that the posterior needs: ``gram`` (experiment, device, dim, dim) = sum of u u', ``moment`` (experiment,
    device, dim) = sum of u v."""

    gram: Array
    moment: Array


class LinearGaussian(Model):
    r"""Linear regression with known noise variance and a Gaussian prior.

    :math:`f_k(\theta) = \frac{1}{2\sigma^2}\sum_{n \in D_k}(v_n - u_n^\top\theta)^2 +
    \frac{1}{2K}(\theta-\theta_0)^\top\Lambda(\theta-\theta_0)`, so :math:`\nabla f_k = H_k\theta - b_k` with
    :math:`H_k = G_k/\sigma^2 + \Lambda/K`. The posterior is normal with precision :math:`\sum_k H_k`.
    ``prior_precision`` :math:`\Lambda` is a number, a vector or a positive definite matrix."""

    posterior: Gaussian
    smoothness: float
    convexity: float

    def __init__(
        self,
        data: LinearData | LinearStatistics,
        *,
        prior_precision: float | Array = 1.0,
        prior_mean: float | Array = 0.0,
        noise_variance: float = 1.0,
    ) -> None:
        statistics = data.to_statistics() if isinstance(data, LinearData) else data
        gram, moment = statistics.gram, statistics.moment
        self.num_experiments, self.num_devices, self.dim = moment.shape
        variance = checks.positive("noise_variance", noise_variance)
        precision = _as_matrix(prior_precision, self.dim)
        mean = np.broadcast_to(checks.finite_array("prior_mean", prior_mean), (self.dim,))
        self.hessian: Array = gram / variance + precision / self.num_devices
        """Curvature of each local cost, (experiment, device, dim, dim)."""
        self.offset: Array = moment / variance + precision @ mean / self.num_devices
        """The constant part b_k of each local gradient, (experiment, device, dim)."""
        total = self.hessian.sum(axis=1)
        covariance = np.linalg.inv(total)
        mean_of_posterior = np.linalg.solve(total, self.offset.sum(axis=1)[..., None])[..., 0]
        self.posterior = Gaussian(mean_of_posterior, (covariance + np.swapaxes(covariance, 1, 2)) / 2)
        eigenvalues = np.linalg.eigvalsh(total)
        self.smoothness, self.convexity = float(eigenvalues.max()), float(eigenvalues.min())
        # A start is drawn entry by entry; for a full precision matrix the marginal standard deviations serve.
        self.prior = Normal(mean, np.sqrt(np.diag(np.linalg.inv(precision))))
        # Laid out so that all devices of a data set are one matrix product.
        self._stacked = np.ascontiguousarray(
            np.moveaxis(self.hessian, 3, 1).reshape(self.num_experiments, self.dim, -1)
        )

    def gradient(self, theta: Array, experiments: slice = slice(None)) -> Array:
        """H_k theta - b_k for every device at once."""
        local: Array = (theta @ self._stacked[experiments]).reshape(*theta.shape[:2], self.num_devices, self.dim)
        local -= self.offset[experiments, None]
        return local


def _as_matrix(prior_precision: float | Array, dim: int) -> Array:
    precision = checks.finite_array("prior_precision", prior_precision)
    if precision.ndim < 2:
        precision = np.diag(np.broadcast_to(precision, (dim,)))
    if precision.shape != (dim, dim) or not np.allclose(precision, precision.T):
        raise InvalidSetting(
            f"prior_precision must be a number, {dim} numbers or a symmetric matrix, got {precision.shape}"
        )
    if np.linalg.eigvalsh(precision).min() <= 0:
        raise InvalidSetting("prior_precision must be positive definite, got an eigenvalue that is not positive")
    return precision
