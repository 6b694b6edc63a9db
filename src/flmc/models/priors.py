"""Priors other than independent normal entries: correlated normal priors, and any prior that a
function for its gradient and one for its draws describe.

:meth:`flmc.Model.from_gradient` takes them. Each device adds 1/K of the prior's gradient to its
own, for K devices, and chains start from draws of the prior."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from flmc.base import checks
from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.models.distributions import Prior

__all__ = ["CorrelatedNormal", "FunctionPrior"]
_NUM_DRAWS = 2000
"""Number of draws from which centre and spread of a prior are estimated. The error of these
estimates, 3 %, hardly changes the length of the burn-in, for which they are used."""
_CENTRAL = 0.6827
"""Probability within one standard deviation of a normal distribution's mean."""


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
        Marginal standard deviation of every entry, (dim).
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
        # The computed inverse is symmetric only up to rounding. Its mean with its transpose is
        # exactly symmetric.
        self.covariance, self.precision = ((each + each.T) / 2 for each in both)
        self.sd: Array = np.sqrt(np.diag(self.covariance))
        self._root = np.linalg.cholesky(self.covariance)

    def gradient(self, theta: Array) -> Array:
        r"""Gradient of the negative log density, :math:`\Sigma^{-1}(\theta - \text{mean})`, (...,
        dim), at theta (..., dim), with the covariance :math:`\Sigma`."""
        return np.asarray((theta - self.mean) @ self.precision)

    def draw(self, rng: np.random.Generator, dim: int) -> Array:
        """One theta, (dim), drawn from this normal distribution."""
        return np.asarray(self.mean + self._root @ rng.standard_normal(dim))

    def curvature(self, theta: Array, directions: Array) -> Array:
        r"""Hessian of the negative log density times each direction, (direction, dim): the
        directions times the inverse covariance :math:`\Sigma^{-1}`, at any theta."""
        return np.asarray(directions @ self.precision)


class FunctionPrior(Prior):
    """Any prior, from a function for its gradient and one for its draws.

    Parameters
    ----------
    gradient
        ``gradient(theta)`` takes any number of thetas, (place, dim), and returns the gradient of
        the negative log density at each, (place, dim). It must not change ``theta``.
    draw
        ``draw(rng)`` returns one theta, (dim), with random numbers from the generator ``rng``
        alone: the same generator gives the same start, so that a run can be repeated.
    mean, sd
        Centre of the prior and spread of every entry, (dim), for the length of the burn-in. None:
        median, and half the width of the central 68 %, of 2000 draws, which are finite even for a
        prior with heavy tails.

    Raises
    ------
    InvalidSetting
        If a draw is not (dim) finite numbers, or a width is not positive.

    Examples
    --------
    A Laplace prior:

    >>> prior = flmc.FunctionPrior(np.sign, lambda rng: rng.laplace(size=3))
    >>> prior.gradient(np.array([[2.0, -1.0, 0.5]])).tolist()
    [[1.0, -1.0, 1.0]]
    >>> bool((abs(prior.sd - 1.15) < 0.1).all())  # 68 % are within -log(0.32)
    True
    """

    def __init__(
        self,
        gradient: Callable[[Array], Array],
        draw: Callable[[np.random.Generator], Array],
        *,
        mean: Array | None = None,
        sd: Array | None = None,
    ) -> None:
        self._gradient, self._draw = gradient, draw
        self._dim = 0
        # A fixed seed, so that centre and spread, and the plans made from them, are the same each
        # time.
        rng = np.random.default_rng(0)
        first = checks.finite_array("a draw of the prior", draw(rng))
        if first.ndim != 1 or not len(first):
            raise InvalidSetting(f"a draw of the prior must be (dim), got the shape {first.shape}")
        self._dim = len(first)
        if mean is None or sd is None:
            draws = np.stack([self.draw(rng, self._dim) for _ in range(_NUM_DRAWS)])
            edges = ((1 - _CENTRAL) / 2, 0.5, (1 + _CENTRAL) / 2)
            low, middle, high = np.quantile(draws, edges, axis=0)
            mean, sd = middle if mean is None else mean, (high - low) / 2 if sd is None else sd
        self.mean: Array = self._of_every_entry("prior mean", mean)
        self.sd: Array = self._of_every_entry("prior sd", sd)
        if (self.sd <= 0).any():
            raise InvalidSetting(
                "the prior's draws must vary in every entry: give sd, positive numbers (dim)"
            )

    def gradient(self, theta: Array) -> Array:
        """Gradient of the negative log density, (..., dim), at theta (..., dim), from the user's
        function. Raises ``InvalidSetting`` if that returns another shape."""
        batch = theta.reshape(-1, theta.shape[-1]).view()
        # The array is read-only, because the user's function must not change the state of chains.
        batch.flags.writeable = False
        gradient = np.asarray(self._gradient(batch), dtype=np.float64)
        if gradient.shape != batch.shape:
            raise InvalidSetting(
                f"the prior's gradient must return (place, dim) = {batch.shape}, got"
                f" {gradient.shape}"
            )
        return gradient.reshape(theta.shape)

    def draw(self, rng: np.random.Generator, dim: int) -> Array:
        """One theta, (dim), that the user's function draws from the prior with the generator
        ``rng``. Raises ``InvalidSetting`` unless it has ``dim`` finite entries."""
        drawn = checks.finite_array("a draw of the prior", self._draw(rng))
        if drawn.shape != (dim,):
            raise InvalidSetting(
                f"a draw of the prior must have dim = {dim} entries, got the shape {drawn.shape}"
            )
        return drawn

    def _of_every_entry(self, name: str, value: Array) -> Array:
        """The number ``value``, or (dim) numbers, as a new array (dim). Raises ``InvalidSetting``
        for other shapes; ``name`` names the setting in the message."""
        given = checks.finite_array(name, value)
        if given.shape not in ((), (self._dim,)):
            raise InvalidSetting(
                f"{name} must be a number or {self._dim} numbers, got the shape {given.shape}"
            )
        # the sum is a copy, which can be written to
        return np.broadcast_to(given, (self._dim,)) + 0.0
