r"""Coordinates in which a model is sampled: :math:`\theta = c + R\phi`.

A sampler is slow if the posterior is narrow in one direction and wide in another. If R is near a
root of the posterior's covariance and c near its mean, :math:`\phi` is near standard normal, and
few rounds suffice. R and c must be public, or the plan is for simulation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from flmc.base import checks
from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting

START_SD = 2.0
"""Ratio of the standard deviation of the chains' starts to that of the posterior, in the sampler's
coordinates."""


@dataclass(frozen=True)
class Coordinates:
    r"""An affine map :math:`\theta = c + R\phi`, with c = ``centre`` and R = ``scale``, from the
    coordinates :math:`\phi` in which the sampler moves to the parameters :math:`\theta` of the
    model; ``unit`` is about the posterior's standard deviation in :math:`\phi`. Raises
    ``InvalidSetting`` if shapes do not fit or R is not invertible."""

    centre: Array
    """Centre c of the map, (dim): the theta at which phi is 0."""
    scale: Array
    """Matrix R of the map, (dim, dim), invertible; (dim) is accepted for a diagonal."""
    unit: float = 1.0
    """Approximate standard deviation of the posterior of each entry of the sampler's coordinates
    phi."""

    def __post_init__(self) -> None:
        centre = checks.finite_array("centre", self.centre)
        scale = checks.finite_array("scale", self.scale)
        scale = np.diag(scale) if scale.ndim == 1 else scale
        if centre.ndim != 1 or scale.shape != (len(centre), len(centre)):
            raise InvalidSetting(
                f"centre (dim) and scale (dim, dim) must fit, got {centre.shape} and {scale.shape}"
            )
        # Rows are scaled to equal length before the rank is tested, so that a matrix is not refused
        # because entries of theta have unlike units.
        rows = np.abs(scale).max(axis=1, keepdims=True)
        if not rows.all() or np.linalg.matrix_rank(scale / rows) < len(centre):
            raise InvalidSetting("scale must be invertible: it has a direction without extent")
        object.__setattr__(self, "centre", centre)
        object.__setattr__(self, "scale", scale)

    @classmethod
    def of_draws(cls, draws: Array) -> Coordinates:
        """Coordinates in which the ``draws`` of theta (..., dim) have mean 0 and the identity as
        covariance. Raises ``InvalidSetting`` unless there are more than dim draws, and they vary in
        every direction."""
        flat = np.asarray(draws, dtype=np.float64).reshape(-1, np.shape(draws)[-1])
        if len(flat) <= flat.shape[1]:
            raise InvalidSetting(
                f"coordinates need more draws than entries, got {len(flat)} of {flat.shape[1]}"
            )
        return cls.of_law(
            flat.mean(axis=0),
            np.atleast_2d(np.cov(flat.T)),
            "the draws do not vary in some direction: more of them are needed",
        )

    @classmethod
    def of_law(cls, mean: Array, covariance: Array, otherwise: str) -> Coordinates:
        """Coordinates in which a law with this mean (dim) and covariance (dim, dim) has mean 0 and
        the identity as covariance; ``otherwise`` is the error message for a covariance that is not
        positive definite."""
        try:
            root = np.array(np.linalg.cholesky(covariance))
        except np.linalg.LinAlgError:
            raise InvalidSetting(otherwise) from None
        return cls(mean, root)

    def stretched(self, factor: float) -> Coordinates:
        """Coordinates with the same centre in which every phi is divided by ``factor``; gradients
        with respect to phi are thereby multiplied by it."""
        return Coordinates(self.centre, self.scale * factor, self.unit / factor)

    def to_model(self, phi: Any) -> Any:
        r"""The model's parameters :math:`\theta = c + R\phi`, (..., dim), with the ``centre`` c and
        the ``scale`` R of the map, at the sampler's coordinates ``phi`` (..., dim); theta and phi
        are arrays of NumPy, or of JAX."""
        # Centre and scale are converted to the precision of phi, because the model is evaluated in
        # the precision of the theta that this returns.
        centre, scale = (array.astype(phi.dtype) for array in (self.centre, self.scale))
        return centre + phi @ scale.T

    def from_model(self, theta: Array) -> Array:
        r"""The sampler's coordinates :math:`\phi = R^{-1}(\theta - c)`, (..., dim), of the model's
        parameters ``theta`` (..., dim)."""
        return np.asarray(np.linalg.solve(self.scale, (theta - self.centre)[..., None])[..., 0])
