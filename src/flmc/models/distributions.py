"""Normal distributions: the prior of a model, and a posterior that is known exactly."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flmc.base import checks
from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting


@dataclass(frozen=True)
class Normal:
    """Independent normal prior: ``mean`` and ``sd`` (standard deviation) are numbers or one value
    per entry."""

    mean: float | Array = 0.0
    sd: float | Array = 1.0

    def __post_init__(self) -> None:
        checks.finite_array("prior mean", self.mean)
        if (checks.finite_array("prior sd", self.sd) <= 0).any():
            raise InvalidSetting(f"prior sd must be positive, got {self.sd!r}")

    def gradient(self, theta: Array) -> Array:
        """Gradient of the negative log density."""
        return (theta - self.mean) / np.square(self.sd)

    def draw(self, rng: np.random.Generator, dim: int) -> Array:
        """One theta from the prior."""
        return self.mean + self.sd * rng.standard_normal(dim)


@dataclass(frozen=True)
class Gaussian:
    """A normal distribution per data set: ``mean`` (experiment, dim), ``covariance`` (experiment,
    dim, dim); for one data set the first axis may be left out."""

    mean: Array
    covariance: Array

    def __post_init__(self) -> None:
        mean, covariance = (
            checks.finite_array("mean", self.mean),
            checks.finite_array("covariance", self.covariance),
        )
        mean = mean[None] if mean.ndim == 1 else mean
        covariance = covariance[None] if covariance.ndim == 2 else covariance
        if mean.ndim != 2 or covariance.shape != (*mean.shape, mean.shape[1]):
            raise InvalidSetting(
                f"mean (dim) and covariance (dim, dim) must fit, got {mean.shape} and"
                f" {covariance.shape}"
            )
        if np.linalg.eigvalsh(covariance).min() <= 0:
            raise InvalidSetting(
                "covariance must be positive definite, got an eigenvalue that is not positive"
            )
        object.__setattr__(self, "mean", mean)
        object.__setattr__(self, "covariance", covariance)
