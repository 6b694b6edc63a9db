"""Gradients and curvatures of local costs from log densities, by JAX.

Clipping single examples is exact: their gradients are found one by one, in slices so that memory
stays bounded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting

_AT_ONCE = 4_000_000
"""Numbers of single examples' gradients that are held at a time, 32 MB."""
_NEWTON_STEPS = 100
"""Newton steps to the mode at most."""
_POWER_STEPS = 60
"""Steps of the power iteration that measures a curvature."""


class DifferentiatedCosts:
    """Gradients and curvatures of local costs, compiled, for arrays of thetas.

    Parameters
    ----------
    jax
        The module.
    log_prior, log_likelihood
        Log densities of parameters, and of one example given them.
    unravel
        From theta to parameters.
    rows, counts
        Examples of every device, (device, largest, ...), by name, and 1 for an example, 0 for what
        only fills up, (device, largest).
    dim
        Number of entries of theta.
    """

    def __init__(
        self,
        jax: Any,
        log_prior: Callable[[Any], Any],
        log_likelihood: Callable[[Any, Any], Any],
        unravel: Callable[[Any], Any],
        rows: Mapping[str, Array],
        counts: Array,
        dim: int,
    ) -> None:
        self._jax, self._rows, self._counts, self._dim = jax, rows, counts, dim
        self._log_prior, self._log_likelihood = log_prior, log_likelihood
        self._unravel, self._num_devices = unravel, len(counts)
        self.local = {
            "plain": jax.jit(self._plain),
            "entry": jax.jit(lambda thetas, bound: self._clipped(thetas, bound, by_norm=False)),
            "norm": jax.jit(lambda thetas, bound: self._clipped(thetas, bound, by_norm=True)),
        }
        self._product = jax.jit(self._hessian_product)

    def _cost_of_example(self, theta: Any, row: Any, count: Any) -> Any:
        """Negative log likelihood of an example; 0 for one that only fills up."""
        value = -self._log_likelihood(self._unravel(theta), row)
        return self._jax.numpy.where(count > 0, value, 0.0)

    def _prior_share(self, theta: Any) -> Any:
        """1/K of the negative log prior."""
        return -self._log_prior(self._unravel(theta)) / self._num_devices

    def _device_cost(self, theta: Any, rows: Any, counts: Any) -> Any:
        each = self._jax.vmap(self._cost_of_example, in_axes=(None, 0, 0))(theta, rows, counts)
        return each.sum() + self._prior_share(theta)

    def _plain(self, thetas: Any, bound: Any) -> Any:
        """Local gradients, (chain, device, dim)."""
        jax = self._jax
        devices = jax.vmap(jax.grad(self._device_cost), in_axes=(None, 0, 0))
        return jax.lax.map(lambda theta: devices(theta, self._rows, self._counts), thetas)

    def _clipped(self, thetas: Any, bound: Any, *, by_norm: bool) -> Any:
        """Local gradients with single examples clipped, slices of examples one after the other."""
        jax = self._jax
        numpy = jax.numpy
        each = jax.vmap(jax.grad(self._cost_of_example), in_axes=(None, 0, 0))
        size = max(1, _AT_ONCE // (self._num_devices * self._dim))

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
            for first in range(0, self._counts.shape[1], size):
                part = slice(first, first + size)
                some = {name: values[part] for name, values in rows.items()}
                total = total + clipped(theta, some, counts[part])
            return total

        devices = jax.vmap(device, in_axes=(None, 0, 0))
        return jax.lax.map(lambda theta: devices(theta, self._rows, self._counts), thetas)

    def _total(self, theta: Any) -> Any:
        """Negative log posterior up to a constant."""
        devices = self._jax.vmap(self._device_cost, in_axes=(None, 0, 0))
        return devices(theta, self._rows, self._counts).sum()

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

    def laplace(self, theta: Array) -> tuple[Array, Array]:
        """Mode of the posterior and the inverse of the curvature there, by damped Newton steps.

        Parameters
        ----------
        theta
            Where to begin, (dim).
        """
        jax = self._jax
        with jax.enable_x64():
            cost, slope = jax.jit(self._total), jax.jit(jax.grad(self._total))
            curvature = jax.jit(jax.hessian(self._total))
            for _ in range(_NEWTON_STEPS):
                pull = np.array(slope(theta))
                inverse = np.linalg.pinv(np.array(curvature(theta)), hermitian=True)
                step, now, length = inverse @ pull, float(cost(theta)), 1.0
                while not float(cost(theta - length * step)) <= now and length > 1e-6:
                    length /= 2.0
                theta = theta - length * step
                if float(step @ pull) < 1e-12:
                    break
            try:
                return theta, np.linalg.inv(np.array(curvature(theta)))
            except np.linalg.LinAlgError:
                raise InvalidSetting(
                    "the posterior is flat in some direction: give scale"
                ) from None

    def prior_curvature(self, theta: Array) -> Array:
        """Diagonal of the Hessian of the negative log prior, (dim); exact where it is diagonal."""
        jax = self._jax
        with jax.enable_x64():
            gradient = jax.grad(lambda at: self._num_devices * self._prior_share(at))
            signs = np.where(np.random.default_rng(0).random((8, len(theta))) < 0.5, -1.0, 1.0)
            products = [np.array(jax.jvp(gradient, (theta,), (each,))[1]) * each for each in signs]
            return np.asarray(np.mean(products, axis=0))
