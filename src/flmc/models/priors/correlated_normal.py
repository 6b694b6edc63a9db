"""Normal prior with correlated entries."""

from __future__ import annotations

import numpy as np

from flmc.base import checks
from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.models.distributions import Prior


class CorrelatedNormal(Prior):
    r"""Normal prior with a full covariance or precision matrix.

    Parameters
    ----------
    mean
        Mean, (dim).
    covariance, precision
        Covariance :math:`\Sigma`, or its inverse, (dim, dim), symmetric and positive definite: one
        of the two.

    Attributes
    ----------
    mean
        Mean, (dim).
    sd
        Standard deviation of every entry by itself, (dim).
    covariance, precision
        Both matrices, (dim, dim).

    Raises
    ------
    InvalidSetting
        If both matrices are given or none, shapes do not fit, or a matrix is not symmetric and
        positive definite.

    Examples
    --------
    >>> prior = flmc.CorrelatedNormal(np.zeros(2), covariance=[[2.0, 1.0], [1.0, 2.0]])
    >>> prior.gradient(np.array([3.0, 0.0])).round(12).tolist()
    [2.0, -1.0]
    """

    def __init__(
        self, mean: Array, *, covariance: Array | None = None, precision: Array | None = None
    ) -> None:
        self.mean: Array = checks.finite_array("prior mean", mean)
        if self.mean.ndim != 1 or not len(self.mean):
            raise InvalidSetting(
                f"prior mean must be (dim), one number an entry, got the shape {self.mean.shape}"
            )
        if (covariance is None) == (precision is None):
            given = "both" if precision is not None else "none"
            raise InvalidSetting(f"give covariance or precision of the prior, got {given}")
        name = "prior covariance" if precision is None else "prior precision"
        matrix = checks.precision(
            name, covariance if precision is None else precision, len(self.mean)
        )
        inverse = np.array(np.linalg.inv(matrix))
        both = (matrix, inverse) if precision is None else (inverse, matrix)
        self.covariance, self.precision = ((each + each.T) / 2 for each in both)
        self.sd: Array = np.sqrt(np.diag(self.covariance))
        self._root = np.linalg.cholesky(self.covariance)

    def gradient(self, theta: Array) -> Array:
        r"""Gradient of the negative log density, :math:`\Sigma^{-1}(\theta - \text{mean})`.

        Parameters
        ----------
        theta
            Where, (..., dim).

        Returns
        -------
        Array
            The gradient, (..., dim).
        """
        return np.asarray((theta - self.mean) @ self.precision)

    def draw(self, rng: np.random.Generator, dim: int) -> Array:
        """One theta drawn from the prior.

        Parameters
        ----------
        rng
            Source of the random numbers.
        dim
            Number of entries, that of the mean.

        Returns
        -------
        Array
            The draw, (dim).
        """
        return np.asarray(self.mean + self._root @ rng.standard_normal(dim))

    def curvature(self, theta: Array, directions: Array) -> Array:
        r"""The directions times :math:`\Sigma^{-1}`.

        Parameters
        ----------
        theta
            Not used: the curvature is the same everywhere.
        directions
            Directions, (direction, dim).

        Returns
        -------
        Array
            Changes of the gradient along the directions, (direction, dim).
        """
        return np.asarray(directions @ self.precision)
