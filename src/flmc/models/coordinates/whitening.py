"""Where coordinates come from: given, from the prior, from a public sample, from draws."""

from __future__ import annotations

from typing import Literal

import numpy as np

from flmc.base import checks
from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.data.federated import FederatedData
from flmc.models.coordinates.affine import Coordinates
from flmc.models.coordinates.whitened import WhitenedModel
from flmc.models.log_density import LogDensityModel
from flmc.models.model import Model


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
        the devices' (for a model from log densities): mode and curvature of their posterior, with
        the likelihood weighted as if there were as many as the devices hold.
    draws
        Draws (..., dim), whose mean and covariance decide; not public unless they are of public
        data.
    scale, centre
        R, (dim) for a diagonal or (dim, dim), and c, (dim); zero if it is not given.
    smoothness, convexity
        Curvatures in the new coordinates from public knowledge.

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
    """A model in given coordinates.

    Parameters
    ----------
    model, coordinates
        The model, and the map to its coordinates.
    smoothness, convexity
        Curvatures in the new coordinates; None: measured or computed, if that is possible.
    public
        Whether coordinates and given curvatures are public knowledge.
    """
    if isinstance(model, LogDensityModel):
        return model.in_coordinates(coordinates, smoothness, convexity, public=public)
    return WhitenedModel(model, coordinates, smoothness, convexity, public=public)


def _of_sample(model: Model, sample: FederatedData) -> Coordinates:
    """Mode and root of the inverse curvature of the posterior that public examples would give."""
    if not isinstance(model, LogDensityModel):
        raise InvalidSetting(
            "a public sample is for models from log densities; for others give draws or a scale"
        )
    mode, covariance = model.on(sample).laplace()
    # As many examples as the devices hold would make it narrower.
    ratio = max(1.0, model.data.num_samples / max(1, sample.num_samples))
    return Coordinates(mode, np.array(np.linalg.cholesky(covariance / ratio)))
