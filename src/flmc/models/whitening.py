r"""A model in other coordinates :math:`\phi` with :math:`\theta = c + R\phi`, in which the gradient
of local cost :math:`f_k` is :math:`\nabla_\phi f_k(c + R\phi) = R^\top \nabla f_k`. The coordinates
are given, or come from the prior, a public sample, or draws."""

from __future__ import annotations

from typing import Literal

import numpy as np

from flmc.base import checks
from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.data.federated import FederatedData
from flmc.models.affine import START_SD, Coordinates
from flmc.models.batches import Batch
from flmc.models.distributions import Gaussian, Normal
from flmc.models.local_costs import ExampleBound, Quadratic, TracedCosts
from flmc.models.log_density import LogDensityModel
from flmc.models.model import Model
from flmc.models.pointwise import Pointwise


def whiten(
    model: Model,
    source: Literal["prior"] | FederatedData | None = None,
    *,
    draws: Array | None = None,
    scale: Array | None = None,
    centre: Array | None = None,
    smoothness: float | None = None,
    convexity: float | None = None,
) -> Model:
    r"""The model in coordinates :math:`\theta = c + R\phi` in which its posterior is round.

    A sampler then needs few rounds. Results come back in the model's own coordinates. R and c must
    not depend on the devices' data if a plan is to carry a privacy statement; for coordinates that
    follow from a pilot's draws and are accounted, see :func:`flmc.plan_two_stages`.

    Parameters
    ----------
    model
        Any model. One from log densities can clip single examples in the new coordinates too.
    source
        ``"prior"``: mean and standard deviations of the prior. Public examples of the same form as
        the devices' (for a model from log densities): mode and inverse curvature of their
        posterior, the latter divided by how many times more examples the devices hold.
    draws
        Draws of theta (..., dim), whose mean is c and whose covariance gives R; they count as not
        public.
    scale, centre
        The matrix R, (dim, dim), or (dim) for a diagonal one, and with it the centre c, (dim);
        None: c is 0.
    smoothness, convexity
        Largest and smallest curvature in the new coordinates from public knowledge.

    Returns
    -------
    Model
        The same model in other coordinates.

    Raises
    ------
    InvalidSetting
        If not exactly one of source, draws and scale is given, or shapes do not fit.

    Examples
    --------
    >>> model = flmc.LinearGaussian(flmc.data.draw_linear(seed=1, num_samples=400, num_devices=4))
    >>> exact = np.linalg.cholesky(model.posterior.covariance[0])
    >>> round_one = flmc.whiten(model, scale=exact, centre=model.posterior.mean[0])
    >>> round(round_one.smoothness, 9), round(round_one.convexity, 9)
    (1.0, 1.0)
    """
    if sum(given is not None for given in (source, draws, scale)) != 1:
        raise InvalidSetting(
            "whiten takes one of a source, draws or a scale, got"
            f" {sum(given is not None for given in (source, draws, scale))} of them"
        )
    public = draws is None
    if draws is not None:
        coordinates = Coordinates.of_draws(draws)
    elif scale is not None:
        middle = np.zeros(model.dim) if centre is None else centre
        coordinates = Coordinates(middle, np.asarray(scale, np.float64))
    elif isinstance(source, FederatedData):
        coordinates = _of_sample(model, source)
    else:
        checks.one_of("source", str(source), ("prior",))
        spread = np.broadcast_to(np.asarray(model.prior.sd, np.float64), (model.dim,))
        middle = np.broadcast_to(np.asarray(model.prior.mean, np.float64), (model.dim,))
        coordinates = Coordinates(middle, spread.copy())
    return in_coordinates(model, coordinates, smoothness, convexity, public=public)


def in_coordinates(
    model: Model,
    coordinates: Coordinates,
    smoothness: float | None,
    convexity: float | None,
    *,
    public: bool,
) -> Model:
    """The model, sampled in other ``coordinates``. ``smoothness`` and ``convexity`` are the largest
    and smallest curvature in those coordinates (smoothness None: computed from the data or the
    exact posterior if possible); ``public`` says whether coordinates and curvatures are public
    knowledge."""
    if isinstance(model, LogDensityModel):
        return model.in_coordinates(coordinates, smoothness, convexity, public=public)
    return WhitenedModel(model, coordinates, smoothness, convexity, public=public)


class WhitenedModel(Model):
    r"""Any model ``base``, sampled in other coordinates :math:`\phi` with :math:`\theta = c +
    R\phi`; the draws of a result are thetas of the original model.

    ``smoothness`` and ``convexity`` are the largest and smallest curvature in the new coordinates;
    without ``smoothness`` both are computed from the exact posterior if that is known. ``public``
    says whether coordinates and given curvatures are public knowledge.

    Single examples cannot be clipped: a bound of their gradients in the model's own coordinates
    does not bound what is transmitted. A model from log densities clips in the new coordinates, see
    :meth:`flmc.models.log_density.LogDensityModel.whitened`."""

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
        self.num_examples, self.device_sizes = base.num_examples, base.device_sizes
        self.prior = Normal(np.zeros(base.dim), np.full(base.dim, START_SD * coordinates.unit))
        self.posterior = None if base.posterior is None else _mapped(base.posterior, coordinates)
        if smoothness is None and self.posterior is not None:
            curvatures = 1.0 / np.linalg.eigvalsh(self.posterior.covariance)
            smoothness, convexity = float(curvatures.max()), float(curvatures.min())
        self.smoothness, self.convexity = smoothness, convexity

    def gradient(self, theta: Array, experiments: slice = slice(None)) -> Array:
        """Gradients of the devices' local costs with respect to the coordinates phi in which the
        model is sampled, (experiment, chain, device, dim); ``theta`` (experiment, chain, dim) is a
        position in these coordinates too."""
        own = self._coordinates.to_model(theta)
        # The chain rule: every gradient g becomes R^T g. Gradients are rows, so R stands on the
        # right.
        return self.base.gradient(own, experiments) @ self._coordinates.scale

    def batch_gradient(
        self,
        theta: Array,
        batch: Batch,
        example_bound: ExampleBound | None = None,
        experiments: slice = slice(None),
    ) -> Array:
        """Gradients of the devices' local costs with respect to the new coordinates phi,
        (experiment, chain, device, dim), at ``theta`` (experiment, chain, dim) in these
        coordinates, from the examples in ``batch`` alone. Raises ``InvalidSetting`` if single
        examples are to be clipped."""
        if example_bound is not None:
            return super().batch_gradient(theta, batch, example_bound, experiments)
        own = self._coordinates.to_model(theta)
        found = self.base.batch_gradient(own, batch, None, experiments)
        return found @ self._coordinates.scale

    def prior_share(self, theta: Array) -> Array:
        """Share of the prior in every device's local gradient, with respect to the coordinates phi
        in which the model is sampled, (experiment, chain, dim); ``theta`` (experiment, chain, dim)
        is a position in these coordinates too. The prior is that of the model ``base`` before its
        coordinates were changed, not the attribute ``prior``, which is the law of the chains'
        starts."""
        own = self._coordinates.to_model(theta)
        return np.asarray(self.base.prior_share(own) @ self._coordinates.scale)

    def pointwise(self) -> Pointwise | None:
        """Functions that compute log likelihoods and simulations of single examples, from the
        original model, for draws of theta in its own coordinates; None if that model has none."""
        return self.base.pointwise()

    @property
    def _coordinates(self) -> Coordinates:
        """Coordinates in which the model is sampled, which in this class are never None."""
        assert self.coordinates is not None
        return self.coordinates

    def quadratic(self, experiments: slice = slice(None)) -> Quadratic | None:
        """The devices' local costs as quadratic functions of the new coordinates; None if the
        original model's costs are not quadratic."""
        costs = self.base.quadratic(experiments)
        if costs is None:
            return None
        scale, centre = self._coordinates.scale, self._coordinates.centre
        hessian = scale.T @ costs.hessian @ scale
        return Quadratic(hessian, (costs.offset - costs.hessian @ centre) @ scale)

    def traced(self, example_bound: ExampleBound | None = None) -> TracedCosts | None:
        """The devices' local gradients in the new coordinates, as a function that JAX can compile;
        None if the original model has no such function, or if single examples are to be clipped."""
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
        """Predictions of the original model, (experiment, chain, prediction), at ``theta``
        (experiment, chain, dim), which is in the new coordinates; None if the model predicts
        nothing."""
        return self.base.predict(self._coordinates.to_model(theta), experiments)


def _mapped(posterior: Gaussian, coordinates: Coordinates) -> Gaussian:
    """The exact ``posterior`` of the model, as a normal distribution of the coordinates in which
    the sampler moves."""
    inverse = np.linalg.inv(coordinates.scale)
    covariance = inverse @ posterior.covariance @ inverse.T
    return Gaussian(coordinates.from_model(posterior.mean), covariance)


def _of_sample(model: Model, sample: FederatedData) -> Coordinates:
    """Coordinates from public examples, ``sample``: their centre is the mode of the posterior that
    the examples would give, and their scale a root of the inverse curvature at that mode, divided
    by how many times more examples the devices hold. Raises ``InvalidSetting`` for a model that is
    not from log densities."""
    if not isinstance(model, LogDensityModel):
        raise InvalidSetting(
            "a public sample is for models from log densities; for others give draws or a scale"
        )
    # The covariance of a posterior is about proportional to one over the number of examples. So the
    # covariance from the public sample is too large by the ratio of the numbers of examples.
    ratio = max(1.0, model.data.num_samples / max(1, sample.num_samples))
    # The smoothness is set to 1 arbitrarily: the coordinates do not need it, and measuring it takes
    # long.
    return model.on(sample, smoothness=1.0).laplace_coordinates(ratio)
