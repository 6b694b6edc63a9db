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
from flmc.models.distributions import Normal
from flmc.models.model import Model

LogPrior = Callable[[Any], Any]
LogLikelihood = Callable[[Any, Any], Any]
_AT_ONCE = 4_000_000
"""Numbers of single examples' gradients that are held at a time, 32 MB."""
_POWER_STEPS = 60
"""Steps of the power iteration that measures a curvature."""
_DESCENT_STEPS = 300
"""Steps of gradient descent to where the curvature is measured a second time."""


def _jax() -> Any:
    """JAX, or a line that says how to get it."""
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
        jax = _jax()
        from jax.flatten_util import ravel_pytree

        self._log_prior, self._log_likelihood = log_prior, log_likelihood
        self.data = data
        self.num_devices = data.num_devices
        with jax.enable_x64():
            doubled = jax.tree.map(lambda leaf: np.asarray(leaf, dtype=np.float64), start)
            flat, self._unravel = ravel_pytree(doubled)
            self.layout = _layout(jax, doubled)
            self.start_point = np.array(flat)
            self.dim = checks.at_least("the number of parameters", len(self.start_point), 1)
            checks.finite_array("start", self.start_point)
            self._rows, self._counts = _padded(data)
            self._functions = _Functions(jax, self)
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
        jax = _jax()
        with jax.enable_x64():
            flat = np.reshape(theta, (-1, self.dim))
            tree = jax.vmap(self._unravel)(flat)
            lead = theta.shape[:-1]
            return jax.tree.map(lambda leaf: np.array(leaf).reshape(*lead, *leaf.shape[1:]), tree)

    def _evaluate(self, kind: str, theta: Array, bound: float) -> Array:
        """Local gradients of one kind, chains one after the other where they are many."""
        jax = _jax()
        with jax.enable_x64():
            local = self._functions.local[kind](theta.reshape(-1, self.dim), bound)
            return np.array(local).reshape(*theta.shape[:2], self.num_devices, self.dim)

    def _check_densities(self) -> None:
        """Refuse densities that are no finite number at the start, or not a single one."""
        parameters = self._unravel(self.start_point)
        one = {name: rows[0, 0] for name, rows in self._rows.items()}
        for name, call in (
            ("log_prior", lambda: self._log_prior(parameters)),
            ("log_likelihood", lambda: self._log_likelihood(parameters, one)),
        ):
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


class _Functions:
    """Compiled functions of a model, for arrays of thetas."""

    def __init__(self, jax: Any, model: LogDensityModel) -> None:
        self._jax, self._model = jax, model
        self.local = {
            "plain": jax.jit(self._plain),
            "entry": jax.jit(lambda thetas, bound: self._clipped(thetas, bound, by_norm=False)),
            "norm": jax.jit(lambda thetas, bound: self._clipped(thetas, bound, by_norm=True)),
        }
        self._product = jax.jit(self._hessian_product)

    def _cost_of_example(self, theta: Any, row: Any, count: Any) -> Any:
        """Negative log likelihood of an example; 0 for one that only fills up."""
        value = -self._model._log_likelihood(self._model._unravel(theta), row)
        return self._jax.numpy.where(count > 0, value, 0.0)

    def _prior_share(self, theta: Any) -> Any:
        """1/K of the negative log prior."""
        return -self._model._log_prior(self._model._unravel(theta)) / self._model.num_devices

    def _device_cost(self, theta: Any, rows: Any, counts: Any) -> Any:
        each = self._jax.vmap(self._cost_of_example, in_axes=(None, 0, 0))(theta, rows, counts)
        return each.sum() + self._prior_share(theta)

    def _plain(self, thetas: Any, bound: Any) -> Any:
        """Local gradients, (chain, device, dim)."""
        jax, model = self._jax, self._model
        devices = jax.vmap(jax.grad(self._device_cost), in_axes=(None, 0, 0))
        return jax.lax.map(lambda theta: devices(theta, model._rows, model._counts), thetas)

    def _clipped(self, thetas: Any, bound: Any, *, by_norm: bool) -> Any:
        """Local gradients with single examples clipped, slices of examples one after the other."""
        jax, model = self._jax, self._model
        numpy = jax.numpy
        each = jax.vmap(jax.grad(self._cost_of_example), in_axes=(None, 0, 0))
        size = max(1, _AT_ONCE // (model.num_devices * model.dim))

        def clipped(theta: Any, rows: Any, counts: Any) -> Any:
            found = numpy.nan_to_num(each(theta, rows, counts), nan=0.0, posinf=None, neginf=None)
            if by_norm:
                largest = numpy.abs(found).max(axis=1, keepdims=True)
                unit = found / numpy.maximum(largest, 1e-300)
                norm = largest * numpy.sqrt(numpy.square(unit).sum(axis=1, keepdims=True))
                found = found * numpy.minimum(1.0, bound / numpy.maximum(norm, 1e-300))
            else:
                found = numpy.clip(found, -bound, bound)
            return numpy.where(counts[:, None] > 0, found, 0.0).sum(axis=0)

        def device(theta: Any, rows: Any, counts: Any) -> Any:
            total = jax.grad(self._prior_share)(theta)
            for first in range(0, model._counts.shape[1], size):
                part = slice(first, first + size)
                some = {name: values[part] for name, values in rows.items()}
                total = total + clipped(theta, some, counts[part])
            return total

        devices = jax.vmap(device, in_axes=(None, 0, 0))
        return jax.lax.map(lambda theta: devices(theta, model._rows, model._counts), thetas)

    def _total(self, theta: Any) -> Any:
        """Negative log posterior up to a constant."""
        model = self._model
        devices = self._jax.vmap(self._device_cost, in_axes=(None, 0, 0))
        return devices(theta, model._rows, model._counts).sum()

    def _hessian_product(self, theta: Any, direction: Any) -> Any:
        return self._jax.jvp(self._jax.grad(self._total), (theta,), (direction,))[1]

    def curvatures(self, theta: Array) -> tuple[float, float]:
        """Largest and smallest eigenvalue of the Hessian, by power iteration."""
        with self._jax.enable_x64():
            largest = self._extreme(theta, 0.0)
            # The smallest is the one farthest from the largest.
            return largest, largest - self._extreme(theta, largest)

    def _extreme(self, theta: Array, shift: float) -> float:
        """Largest eigenvalue of the Hessian, or of a multiple of the identity less the Hessian."""
        vector = np.random.default_rng(0).standard_normal(len(theta))
        value = 0.0
        for _ in range(_POWER_STEPS):
            vector = vector / np.linalg.norm(vector)
            product = np.array(self._product(theta, vector))
            moved = shift * vector - product if shift else product
            value, vector = float(vector @ moved), moved
            if not np.isfinite(vector).all() or not vector.any():
                break
        if not np.isfinite(value):
            raise InvalidSetting(
                "the curvature cannot be measured: the log densities have no finite second"
                " derivative there; give smoothness"
            )
        # The iteration approaches from below; the last steps change little.
        return 1.02 * max(value, 1e-12) if not shift else max(value, 0.0)

    def prior_curvature(self, theta: Array) -> Array:
        """Diagonal of the Hessian of the negative log prior, (dim); exact where it is diagonal."""
        jax, model = self._jax, self._model
        with jax.enable_x64():
            gradient = jax.grad(lambda at: model.num_devices * self._prior_share(at))
            signs = np.where(np.random.default_rng(0).random((8, len(theta))) < 0.5, -1.0, 1.0)
            products = [np.array(jax.jvp(gradient, (theta,), (each,))[1]) * each for each in signs]
            return np.asarray(np.mean(products, axis=0))


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
