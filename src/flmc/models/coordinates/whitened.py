r"""A model in other coordinates: :math:`\nabla_\phi f_k(c + R\phi) = R^\top \nabla f_k`."""

from __future__ import annotations

import numpy as np

from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.models.coordinates.affine import START_SD, Coordinates
from flmc.models.distributions import Gaussian, Normal
from flmc.models.local_costs import ExampleBound, Quadratic, TracedCosts
from flmc.models.model import Model


class WhitenedModel(Model):
    """Any model, sampled in other coordinates; results are in the model's own.

    Single examples cannot be clipped: a bound of theirs in the model's own coordinates is none in
    those that are transmitted. A model from log densities can, see
    :meth:`flmc.models.log_density.LogDensityModel.whitened`.

    Parameters
    ----------
    base
        The model.
    coordinates
        The map to its coordinates.
    smoothness, convexity
        Curvatures in the new coordinates; None: those of the posterior where it is known.
    public
        Whether coordinates and given curvatures are public knowledge.
    """

    def __init__(
        self,
        base: Model,
        coordinates: Coordinates,
        smoothness: float | None = None,
        convexity: float | None = None,
        *,
        public: bool = False,
    ) -> None:
        if base.coordinates is not None:
            raise InvalidSetting("the model has coordinates of its own already: whiten it once")
        if coordinates.centre.shape != (base.dim,):
            raise InvalidSetting(
                f"the coordinates must have the model's {base.dim} entries, got"
                f" {len(coordinates.centre)}"
            )
        self.base, self.coordinates = base, coordinates
        self.dim, self.num_devices, self.num_experiments = (
            base.dim,
            base.num_devices,
            base.num_experiments,
        )
        self.layout, self.public = base.layout, public and smoothness is not None
        self.made_from_data = base.made_from_data or not public
        self.prior = Normal(np.zeros(base.dim), np.full(base.dim, START_SD * coordinates.unit))
        self.posterior = None if base.posterior is None else _seen(base.posterior, coordinates)
        if smoothness is None and self.posterior is not None:
            curvatures = 1.0 / np.linalg.eigvalsh(self.posterior.covariance)
            smoothness, convexity = float(curvatures.max()), float(curvatures.min())
        self.smoothness, self.convexity = smoothness, convexity

    def gradient(self, theta: Array, experiments: slice = slice(None)) -> Array:
        """Local gradients in the new coordinates, (experiment, chain, device, dim).

        Parameters
        ----------
        theta
            Where, in the new coordinates, (experiment, chain, dim).
        experiments
            The data sets that the first axis of ``theta`` is about; all by default.
        """
        there = self._coordinates.to_model(theta)
        return self.base.gradient(there, experiments) @ self._coordinates.scale

    @property
    def _coordinates(self) -> Coordinates:
        assert self.coordinates is not None
        return self.coordinates

    def quadratic(self, experiments: slice = slice(None)) -> Quadratic | None:
        """Local costs in the new coordinates, where they are quadratic.

        Parameters
        ----------
        experiments
            Which data sets; all by default.
        """
        costs = self.base.quadratic(experiments)
        if costs is None:
            return None
        scale, centre = self._coordinates.scale, self._coordinates.centre
        hessian = scale.T @ costs.hessian @ scale
        return Quadratic(hessian, (costs.offset - costs.hessian @ centre) @ scale)

    def traced(self, example_bound: ExampleBound | None = None) -> TracedCosts | None:
        """Local gradients in the new coordinates as JAX traces them, where the model has them.

        Parameters
        ----------
        example_bound
            None is given back where single examples are to be bounded.
        """
        costs = None if example_bound is not None else self.base.traced()
        if costs is None:
            return None
        coordinates = self._coordinates
        return TracedCosts(
            lambda phi, data: (
                costs.gradients(coordinates.to_model(phi), data)
                @ coordinates.scale.astype(phi.dtype)
            ),
            costs.data,
        )

    def predict(self, theta: Array, experiments: slice = slice(None)) -> Array | None:
        """What the model predicts.

        Parameters
        ----------
        theta
            Where, in the new coordinates, (experiment, chain, dim).
        experiments
            The data sets that the first axis of ``theta`` is about; all by default.
        """
        return self.base.predict(self._coordinates.to_model(theta), experiments)


def _seen(posterior: Gaussian, coordinates: Coordinates) -> Gaussian:
    """A posterior in the new coordinates."""
    inverse = np.linalg.inv(coordinates.scale)
    covariance = inverse @ posterior.covariance @ inverse.T
    return Gaussian(coordinates.from_model(posterior.mean), covariance)
