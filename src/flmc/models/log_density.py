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
from flmc.models.differentiated_costs import DifferentiatedCosts
from flmc.models.distributions import Normal
from flmc.models.model import Model

LogPrior = Callable[[Any], Any]
LogLikelihood = Callable[[Any, Any], Any]
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
    ) -> None:
        jax = require_jax()
        from jax.flatten_util import ravel_pytree

        self._log_prior, self._log_likelihood = log_prior, log_likelihood
        self.data = data
        self.num_devices = data.num_devices
        with jax.enable_x64():
            doubled = jax.tree.map(lambda leaf: np.asarray(leaf, dtype=np.float64), start)
            flat, unravel = ravel_pytree(doubled)
            self._unravel: Callable[[Any], Any] = unravel
            self.layout = _layout(jax, doubled)
            self.start_point = np.array(flat)
            self.dim = checks.at_least("the number of parameters", len(self.start_point), 1)
            checks.finite_array("start", self.start_point)
            self._rows, counts = _padded(data)
            self._functions = DifferentiatedCosts(
                jax, log_prior, log_likelihood, unravel, self._rows, counts, self.dim
            )
            self._check_densities()
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
            Draws or positions, (..., dim).
        """
        jax = require_jax()
        with jax.enable_x64():
            flat = np.asarray(theta, dtype=np.float64).reshape(-1, self.dim)
            tree = jax.vmap(self._unravel)(flat)
            lead = theta.shape[:-1]

            def as_array(leaf: Any) -> Array:
                return np.array(leaf, dtype=np.float64).reshape(*lead, *leaf.shape[1:])

            return jax.tree.map(as_array, tree)

    def class_probabilities(self, theta: Array, data: FederatedData) -> Array:
        r"""Predictive probabilities of classes, :math:`\frac1n\sum_i p(y = c \mid x, \theta_i)`,
        (sample, class).

        The log likelihood must be that of a class given the features, so that it adds up to 1 over
        the classes.

        Parameters
        ----------
        theta
            Draws of the posterior, (draw, dim).
        data
            Examples to be predicted; their targets do not matter, but classes must be named.

        Raises
        ------
        InvalidSetting
            If the target has no classes, or the probabilities do not add up to 1.
        """
        count = len(data.classes)
        if count < 2:
            raise InvalidSetting(f"{data.target_name!r} has no classes to predict: name them")
        values = np.array([-1.0, 1.0]) if count == 2 else np.arange(float(count))
        jax = require_jax()
        with jax.enable_x64():

            def one(flat: Any) -> Any:
                parameters = self._unravel(flat)

                def of_class(x: Any, y: Any) -> Any:
                    return jax.numpy.exp(self._log_likelihood(parameters, {"x": x, "y": y}))

                over_classes = jax.vmap(of_class, in_axes=(None, 0))
                return jax.vmap(over_classes, in_axes=(0, None))(data.features, values)

            draws = np.asarray(theta, dtype=np.float64).reshape(-1, self.dim)
            total = jax.jit(lambda every: jax.lax.map(one, every).mean(axis=0))(draws)
        found = np.array(total)
        if not np.allclose(found.sum(axis=1), 1.0, atol=1e-6):
            raise InvalidSetting(
                "the likelihoods of all classes of an example must add up to 1, got"
                f" {found.sum(axis=1).min():.3g}: log_likelihood must be that of the class alone"
            )
        return found

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
            "log_likelihood": lambda: self._log_likelihood(parameters, one),
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
