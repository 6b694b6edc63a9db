r"""A model from log densities: gradients by automatic differentiation, with JAX.

The log likelihood is that of ONE example. The local cost of device k is :math:`f_k(\theta) =
-\sum_{n \in D_k} \ln p(x_n \mid \theta) - \tfrac1K \ln p(\theta)`. Devices of unequal size are
filled up with examples that count for nothing, so that all are one array."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from flmc.base import checks
from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting, MissingExtra
from flmc.data.federated import FederatedData
from flmc.models.coordinates import Coordinates
from flmc.models.differentiated_costs import DifferentiatedCosts
from flmc.models.distributions import Normal
from flmc.models.model import Model

LogPrior = Callable[[Any], Any]
LogLikelihood = Callable[[Any, Any], Any]
_WHITENED_START = 2.0
"""Standard deviation of starts in coordinates in which the posterior's is about 1."""
_DESCENT_STEPS = 300
"""Steps of gradient descent to where the curvature is measured a second time."""


def require_jax() -> Any:
    """JAX, or a line that says how to get it.

    Raises
    ------
    MissingExtra
        If it is not installed.
    """
    try:
        import jax
    except ImportError as error:
        raise MissingExtra("log densities need JAX: pip install 'flmc[jax]'") from error
    return jax


class LogDensityModel(Model):
    """Model of one data set from log densities; made by :meth:`flmc.Model.from_log_density`.

    Chains start from a normal distribution about ``start``, with the spread that the log prior has
    there. Curvatures that are not given are measured from the data, and so are not public.

    Parameters
    ----------
    log_prior, log_likelihood, data, start, smoothness, convexity, start_sd
        As for :meth:`flmc.Model.from_log_density`.

    Attributes
    ----------
    layout
        Name and shape of every parameter, in the order in which they lie in theta.
    log_likelihood, to_parameters
        The log likelihood of one example, and the map from one theta to parameters.
    """

    def __init__(
        self,
        log_prior: LogPrior,
        log_likelihood: LogLikelihood,
        data: FederatedData,
        start: Any,
        smoothness: float | None = None,
        convexity: float | None = None,
        start_sd: float | Array | None = None,
        coordinates: Coordinates | None = None,
    ) -> None:
        jax = require_jax()
        from jax.flatten_util import ravel_pytree

        self._log_prior, self.log_likelihood = log_prior, log_likelihood
        self.data = data
        self.num_devices = data.num_devices
        with jax.enable_x64():
            doubled = jax.tree.map(lambda leaf: np.asarray(leaf, dtype=np.float64), start)
            flat, unravel = ravel_pytree(doubled)
            self.to_parameters: Callable[[Any], Any] = unravel
            self.layout = _layout(jax, doubled)
            self._start = checks.finite_array("start", np.array(flat))
            self.dim = checks.at_least("the number of parameters", len(self._start), 1)
            self.coordinates = coordinates
            # Where coordinates were chosen, their centre is nearer to the posterior than the start.
            self.start_point = self._start if coordinates is None else np.zeros(self.dim)
            self._rows, counts = _padded(data)
            self._functions = DifferentiatedCosts(
                jax, log_prior, log_likelihood, self._unravel, self._rows, counts, self.dim
            )
            self._check_densities()
        if coordinates is not None and start_sd is None:
            start_sd = _WHITENED_START
        self.prior = Normal(self.start_point, self._spread(start_sd))
        self.public = smoothness is not None and not data.data_dependent
        if smoothness is None:
            smoothness, measured = self._measure_curvature()
            convexity = measured if convexity is None else convexity
        self.smoothness = checks.positive("smoothness", smoothness)
        self.convexity = None if convexity is None else checks.positive("convexity", convexity)
        if self.convexity is not None and self.convexity > self.smoothness:
            raise InvalidSetting(
                f"convexity must not exceed smoothness {self.smoothness:g}, got {self.convexity:g}"
            )

    def _unravel(self, theta: Any) -> Any:
        """Parameters from one theta in the sampler's coordinates."""
        if self.coordinates is not None:
            theta = self.coordinates.to_model(theta)
        return self.to_parameters(theta)

    def whitened(
        self,
        draws: Array | None = None,
        *,
        scale: Array | None = None,
        centre: Array | None = None,
        smoothness: float | None = None,
        convexity: float | None = None,
    ) -> LogDensityModel:
        """The same model, sampled in coordinates in which its posterior is round.

        Parameters
        ----------
        draws
            Draws of a pilot, (..., dim), whose mean and covariance decide the coordinates; they
            are for simulation, unless they are of public data: what a pilot reveals is not added.
        scale, centre
            R and c from public knowledge in place of draws: (dim) or (dim, dim), and (dim), which
            is ``start`` if it is not given. Without any of them mode and curvature of the posterior
            decide, which is for simulation too.
        smoothness, convexity
            Curvatures in the new coordinates from public knowledge; None: measured.
        """
        if draws is not None:
            coordinates = Coordinates.of_draws(draws)
        elif scale is not None:
            coordinates = Coordinates(
                self._start if centre is None else centre, np.asarray(scale, np.float64)
            )
        else:
            mode, covariance = self._functions.laplace(self.start_point)
            coordinates = Coordinates(mode, np.array(np.linalg.cholesky(covariance)))
        whitened = LogDensityModel(
            self._log_prior,
            self.log_likelihood,
            self.data,
            self.to_parameters(self._start),
            smoothness,
            convexity,
            coordinates=coordinates,
        )
        whitened.public = whitened.public and scale is not None
        return whitened

    def gradient(self, theta: Array, experiments: slice = slice(None)) -> Array:
        """Local gradients, (experiment, chain, device, dim).

        Parameters
        ----------
        theta
            Where, (experiment, chain, dim).
        experiments
            Not used: there is one data set.
        """
        return self._evaluate("plain", theta, math.inf)

    def clipped_gradient(
        self, theta: Array, example_clip: float, experiments: slice = slice(None)
    ) -> Array:
        """Local gradients with every entry of an example's gradient clipped before the sum.

        Parameters
        ----------
        theta
            Where, (experiment, chain, dim).
        example_clip
            Largest magnitude of an entry of one example's gradient; NaN counts as 0.
        experiments
            Not used: there is one data set.
        """
        return self._evaluate("entry", theta, example_clip)

    def norm_clipped_gradient(
        self, theta: Array, example_norm: float, experiments: slice = slice(None)
    ) -> Array:
        """Local gradients with the norm of every example's gradient bounded before the sum.

        Parameters
        ----------
        theta
            Where, (experiment, chain, dim).
        example_norm
            Largest Euclidean norm of one example's gradient; NaN counts as 0.
        experiments
            Not used: there is one data set.
        """
        return self._evaluate("norm", theta, example_norm)

    def parameters(self, theta: Array) -> Any:
        """Parameters in the form of ``start``, from theta (..., dim), with its leading axes.

        Parameters
        ----------
        theta
            Draws as results have them, in the model's own coordinates, (..., dim).
        """
        jax = require_jax()
        with jax.enable_x64():
            flat = np.asarray(theta, dtype=np.float64).reshape(-1, self.dim)
            tree = jax.vmap(self.to_parameters)(flat)
            lead = theta.shape[:-1]

            def as_array(leaf: Any) -> Array:
                return np.array(leaf, dtype=np.float64).reshape(*lead, *leaf.shape[1:])

            return jax.tree.map(as_array, tree)

    def _evaluate(self, kind: str, theta: Array, bound: float) -> Array:
        """Local gradients of one kind, chains one after the other where they are many."""
        jax = require_jax()
        with jax.enable_x64():
            local = self._functions.local[kind](theta.reshape(-1, self.dim), bound)
            return np.array(local).reshape(*theta.shape[:2], self.num_devices, self.dim)

    def _check_densities(self) -> None:
        """Refuse densities that are no finite number at the start, or not a single one."""
        parameters = self._unravel(self.start_point)
        one = {name: rows[0, 0] for name, rows in self._rows.items()}
        asked: dict[str, Callable[[], Any]] = {
            "log_prior": lambda: self._log_prior(parameters),
            "log_likelihood": lambda: self.log_likelihood(parameters, one),
        }
        for name, call in asked.items():
            try:
                value = np.asarray(call())
            except Exception as error:  # a user's own function
                raise InvalidSetting(
                    f"{name} failed at the start: {type(error).__name__}: {error}"
                ) from error
            if value.shape != () or not np.isfinite(value):
                raise InvalidSetting(
                    f"{name} must be one finite number at the start, got {value!r}; it is a log"
                    " density of one example, not of all"
                )

    def _spread(self, given: float | Array | None) -> Array:
        """Standard deviation of the starts, (dim): as given, or that of the prior at the start."""
        if given is not None:
            sd = checks.finite_array("start_sd", given)
            if sd.shape not in ((), (self.dim,)) or (sd <= 0).any():
                raise InvalidSetting(f"start_sd must be positive, a number or {self.dim} numbers")
            return np.broadcast_to(sd, (self.dim,))
        curvature = self._functions.prior_curvature(self.start_point)
        # A flat prior has no spread of its own.
        return np.where(curvature > 0, 1.0 / np.sqrt(np.maximum(curvature, 1e-12)), 1.0)

    def _measure_curvature(self) -> tuple[float, float | None]:
        """Largest and smallest curvature at the start and near the mode; None: not convex there."""
        largest, smallest = self._functions.curvatures(self.start_point)
        theta = self.start_point
        for _ in range(_DESCENT_STEPS):
            pull = self.gradient(theta[None, None])[0, 0].sum(axis=0)
            if not np.isfinite(pull).all():
                break
            theta = theta - pull / largest
        there = self._functions.curvatures(theta)
        largest, smallest = max(largest, there[0]), min(smallest, there[1])
        return largest, smallest if smallest > 0 else None


def _layout(jax: Any, start: Any) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Name and shape of every leaf of a tree of parameters, in the order of theta."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(start)
    found = []
    for path, leaf in leaves:
        name = ".".join(str(getattr(key, "key", getattr(key, "idx", key))) for key in path)
        found.append((name or "theta", tuple(int(n) for n in np.shape(leaf))))
    return tuple(found)


def _padded(data: FederatedData) -> tuple[Mapping[str, Array], Array]:
    """Rows of every device, (device, largest, ...), and 1 for an example, 0 for what fills up.

    What fills up repeats an example, so that a log likelihood is finite there as well."""
    largest = max(1, *data.device_sizes)
    ends = np.cumsum(data.device_sizes)
    index = np.zeros((data.num_devices, largest), dtype=np.intp)
    counts = np.zeros((data.num_devices, largest))
    for device, (end, size) in enumerate(zip(ends, data.device_sizes, strict=True)):
        index[device, :size] = np.arange(end - size, end)
        counts[device, :size] = 1.0
    return {name: values[index] for name, values in data.rows().items()}, counts
