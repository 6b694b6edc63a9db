"""Local costs from log densities, and their gradients by JAX.

Everything is a function of theta and of the data, in the precision of both, so that an engine may
compile it into a loop of its own. Clipping single examples is exact: their gradients are found one
by one, in slices so that memory stays bounded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from flmc.data.federated import FederatedData

_AT_ONCE = 4_000_000
"""Numbers of single examples' gradients that are held at a time."""


class DifferentiatedCosts:
    """Local costs of devices and their gradients, as functions that JAX can trace.

    Parameters
    ----------
    jax
        The module.
    log_prior, log_likelihood
        Log densities of parameters, and of one example given them.
    parameters
        From one theta to parameters.
    num_devices
        Number K of devices, each of which has the share 1/K of the prior.
    """

    def __init__(
        self,
        jax: Any,
        log_prior: Callable[[Any], Any],
        log_likelihood: Callable[[Any, Any], Any],
        parameters: Callable[[Any], Any],
        num_devices: int,
    ) -> None:
        self._jax, self._parameters, self._num_devices = jax, parameters, num_devices
        self._log_prior, self._log_likelihood = log_prior, log_likelihood

    def _cost_of_example(self, theta: Any, row: Any, count: Any) -> Any:
        """Negative log likelihood of an example; 0 for one that only fills up."""
        value = -self._log_likelihood(self._parameters(theta), row)
        return self._jax.numpy.where(count > 0, value, 0.0)

    def prior_share(self, theta: Any) -> Any:
        """1/K of the negative log prior at one theta."""
        return -self._log_prior(self._parameters(theta)) / self._num_devices

    def _device_cost(self, theta: Any, rows: Any, counts: Any) -> Any:
        each = self._jax.vmap(self._cost_of_example, in_axes=(None, 0, 0))(theta, rows, counts)
        return each.sum() + self.prior_share(theta)

    def total(self, theta: Any, data: Any) -> Any:
        """Negative log posterior at one theta, up to a constant."""
        devices = self._jax.vmap(self._device_cost, in_axes=(None, 0, 0))
        return devices(theta, data["rows"], data["counts"]).sum()

    def gradients(self, theta: Any, data: Any) -> Any:
        """Local gradients at one theta, (device, dim)."""
        devices = self._jax.vmap(self._jax.grad(self._device_cost), in_axes=(None, 0, 0))
        return devices(theta, data["rows"], data["counts"])

    def clipped_gradients(self, theta: Any, data: Any, bound: Any, *, by_norm: bool) -> Any:
        """Local gradients at one theta with single examples clipped, (device, dim)."""
        jax = self._jax
        share = jax.grad(self.prior_share)(theta)
        num_devices, largest = data["counts"].shape
        size = min(largest, max(1, _AT_ONCE // (num_devices * len(theta))))

        def device(rows: Any, counts: Any) -> Any:
            def add(index: Any, total: Any) -> Any:
                # The last slice begins earlier, and leaves out what the one before it had.
                first = jax.numpy.minimum(index * size, largest - size)
                rows_of, counts_of = jax.tree.map(
                    lambda values: jax.lax.dynamic_slice_in_dim(values, first, size),
                    (rows, counts),
                )
                fresh = first + jax.numpy.arange(size) >= index * size
                found = self._clipped(theta, rows_of, counts_of * fresh, bound, by_norm=by_norm)
                return total + found

            return jax.lax.fori_loop(0, -(-largest // size), add, share)

        return jax.vmap(device)(data["rows"], data["counts"])

    def _clipped(self, theta: Any, rows: Any, counts: Any, bound: Any, *, by_norm: bool) -> Any:
        """Sum of the clipped gradients of some examples of a device, (dim)."""
        jax = self._jax
        numpy = jax.numpy
        each = jax.vmap(jax.grad(self._cost_of_example), in_axes=(None, 0, 0))
        found = numpy.nan_to_num(each(theta, rows, counts), nan=0.0, posinf=None, neginf=None)
        if by_norm:
            tiny = numpy.finfo(found.dtype).tiny
            # Relative to the largest entry: squares of large and of tiny numbers leave the range.
            largest = numpy.abs(found).max(axis=1, keepdims=True)
            unit = found / numpy.maximum(largest, tiny)
            norm = largest * numpy.sqrt(numpy.square(unit).sum(axis=1, keepdims=True))
            found = found * numpy.minimum(1.0, bound / numpy.maximum(norm, tiny))
        else:
            found = numpy.clip(found, -bound, bound)
        return numpy.where(counts[:, None] > 0, found, 0.0).sum(axis=0)


def padded_rows(data: FederatedData) -> dict[str, Any]:
    """Examples of every device as one array for each name, filled up to the largest device.

    What fills up repeats an example, so that a log likelihood is finite there as well.

    Parameters
    ----------
    data
        Examples of all devices.

    Returns
    -------
    dict
        ``rows``, (device, largest, ...) by name, and ``counts``, (device, largest): 1 for an
        example, 0 for what fills up.
    """
    largest = max(1, *data.device_sizes)
    ends = np.cumsum(data.device_sizes)
    index = np.zeros((data.num_devices, largest), dtype=np.intp)
    counts = np.zeros((data.num_devices, largest))
    for device, (end, size) in enumerate(zip(ends, data.device_sizes, strict=True)):
        index[device, :size] = np.arange(end - size, end)
        counts[device, :size] = 1.0
    return {
        "rows": {name: values[index] for name, values in data.rows().items()},
        "counts": counts,
    }
