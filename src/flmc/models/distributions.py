"""Distributions: the interface of priors, the normal prior, and a posterior that is known exactly.

Correlated priors, and priors from a user's functions, are in :mod:`flmc.models.priors`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from flmc.base import checks
from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting


class Prior(ABC):
    """Interface of a prior: centre, spread, gradient of the negative log density, and draws.

    :class:`flmc.Normal`, :class:`flmc.CorrelatedNormal` and :class:`flmc.FunctionPrior` are such
    priors.
    """

    mean: float | Array
    """Centre of the prior: a number for all entries, or (dim)."""
    sd: float | Array
    """Marginal standard deviation of every entry: a number for all entries, or (dim)."""

    @abstractmethod
    def gradient(self, theta: Array) -> Array:
        """Gradient of the negative log density.

        Parameters
        ----------
        theta
            Parameters, (..., dim).

        Returns
        -------
        Array
            The gradient, (..., dim).
        """

    @abstractmethod
    def draw(self, rng: np.random.Generator, dim: int) -> Array:
        """One theta drawn from the prior.

        Parameters
        ----------
        rng
            Source of the random numbers.
        dim
            Number of entries.

        Returns
        -------
        Array
            The draw, (dim).
        """

    def curvature(self, theta: Array, directions: Array) -> Array:
        """Hessian of the negative log density times each direction, computed by central
        differences.

        Parameters
        ----------
        theta
            Parameters, (dim).
        directions
            Directions, (direction, dim).

        Returns
        -------
        Array
            Hessian times direction, (direction, dim).
        """
        # Steps of about a thousandth of the prior's standard deviation along each direction.
        reach = 1e-3 / np.sqrt(np.square(directions / self.sd).sum(axis=1, keepdims=True))
        up, down = self.gradient(np.stack([theta + reach * directions, theta - reach * directions]))
        return np.asarray((up - down) / (2 * reach))


@dataclass(frozen=True)
class Normal(Prior):
    """Normal prior with independent entries.

    Attributes
    ----------
    mean, sd
        Mean and standard deviation: a number for all entries, or (dim).

    Raises
    ------
    InvalidSetting
        If a number is not finite, or a standard deviation is not positive.

    Examples
    --------
    >>> prior = flmc.Normal(sd=2.0)
    >>> prior.gradient(np.array([4.0, -2.0])).tolist()
    [1.0, -0.5]
    """

    mean: float | Array = 0.0
    sd: float | Array = 1.0

    def __post_init__(self) -> None:
        checks.finite_array("prior mean", self.mean)
        if (checks.finite_array("prior sd", self.sd) <= 0).any():
            raise InvalidSetting(f"prior sd must be positive, got {self.sd!r}")

    def gradient(self, theta: Array) -> Array:
        r"""Gradient of the negative log density, :math:`(\theta - \text{mean})/\text{sd}^2`, (...,
        dim), at theta (..., dim)."""
        return (theta - self.mean) / np.square(self.sd)

    def draw(self, rng: np.random.Generator, dim: int) -> Array:
        """One theta, (dim), drawn from this normal distribution."""
        return self.mean + self.sd * rng.standard_normal(dim)

    def curvature(self, theta: Array, directions: Array) -> Array:
        r"""Hessian of the negative log density times each direction, (direction, dim): the
        directions divided by :math:`\text{sd}^2`, at any theta."""
        return directions * np.square(1.0 / np.asarray(self.sd))


_DECOMPOSED_AT_ONCE = 64
"""Largest number of entries for which the check that a covariance is positive definite computes
eigenvectors too, which cost little more than the eigenvalues and are kept for later; with more
entries it computes the eigenvalues alone."""


@dataclass(frozen=True)
class Gaussian:
    """Normal distribution for each data set, such as a posterior that is known exactly.

    Attributes
    ----------
    mean
        Means, (experiment, dim); for one data set (dim) is accepted too.
    covariance
        Positive definite covariances, (experiment, dim, dim); for one data set (dim, dim) is
        accepted too.

    Raises
    ------
    InvalidSetting
        If the shapes do not fit, a number is not finite, or a covariance is not positive definite.

    Examples
    --------
    >>> flmc.Gaussian(np.zeros(3), np.eye(3)).mean.shape  # one data set
    (1, 3)
    """

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
        object.__setattr__(self, "mean", mean)
        object.__setattr__(self, "covariance", covariance)
        small = mean.shape[1] <= _DECOMPOSED_AT_ONCE
        values = self.eigen[0] if small else np.linalg.eigvalsh(covariance)
        if values.min() <= 0:
            raise InvalidSetting(
                "covariance must be positive definite, got an eigenvalue that is not positive"
            )

    @cached_property
    def eigen(self) -> tuple[Array, Array]:
        """Eigenvalues (experiment, dim) and eigenvectors, as columns (experiment, dim, dim), of the
        covariances."""
        values, directions = np.linalg.eigh(self.covariance)
        return values, directions


def marginal_variances(precision: Array) -> Array:
    """Variance of each entry of a normal law, (dim), from its precision matrix (dim, dim)."""
    diagonal = np.diag(precision)
    # A diagonal matrix, as most precision matrices are, needs no inverse, which would take seconds
    # for a large matrix.
    if np.count_nonzero(precision) == len(diagonal):
        return np.asarray(1.0 / diagonal)
    return np.diag(np.linalg.inv(precision))
