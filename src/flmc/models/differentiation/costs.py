"""Local costs from log densities, and their gradients by JAX.

Everything is a function of theta and of the data, in the precision of both, so that an engine may
compile it into a loop of its own. Clipping single examples is exact: their gradients are found one
by one, in slices so that memory stays bounded."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from flmc.base.errors import InvalidSetting
from flmc.data.federated import FederatedData
from flmc.models.local_costs import ExampleBound

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
        jax = self._jax
        devices = jax.vmap(jax.grad(self._device_cost), in_axes=(None, 0, 0))
        found = devices(theta, data["rows"], data["counts"])
        # A device without examples has the prior's share, whatever fills it up.
        there = data["counts"].sum(axis=1, keepdims=True) > 0
        return jax.numpy.where(there, found, jax.grad(self.prior_share)(theta))

    def bounded(self, example_bound: ExampleBound | None) -> Callable[[Any, Any], Any]:
        """Local gradients as a function of theta and data, single examples bounded or not."""
        if example_bound is None:
            return self.gradients
        bound, by_norm = example_bound
        return partial(self.clipped_gradients, bound=bound, by_norm=by_norm)

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
            found = _bounded_by_norm(numpy, found, bound)
        # Entries too where norms are bounded: what follows must hold whatever rounding does.
        found = numpy.clip(found, -bound, bound)
        return numpy.where(counts[:, None] > 0, found, 0.0).sum(axis=0)


def _bounded_by_norm(numpy: Any, found: Any, bound: Any) -> Any:
    """Gradients of examples, (example, dim), scaled down to a norm of at most ``bound``.

    Huge entries are first cut down to a size whose square and inverse are ordinary numbers: near
    the end of the range compilers take an inverse for 0, and an example would pass as it is. An
    example whose norm is still no number counts as 0."""
    double = found.dtype == numpy.float64
    most, least = (1e140, 1e-140) if double else (1e14, 1e-14)
    found = numpy.clip(found, -most, most)
    largest = numpy.abs(found).max(axis=1, keepdims=True)
    unit = found / numpy.maximum(largest, least)
    norm = numpy.maximum(largest, least) * numpy.sqrt(numpy.square(unit).sum(axis=1, keepdims=True))
    factor = numpy.minimum(1.0, bound / numpy.maximum(norm, least * least))
    return numpy.where(numpy.isfinite(norm), found * factor, 0.0)


def padded_rows(data: FederatedData) -> dict[str, Any]:
    """Examples of every device as one array for each name, filled up to the largest device.

    What fills a device up repeats its own first example, so that nothing of another device is on
    it; a device without examples is filled up with any, and gradients leave them out.

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
        index[device] = end - size if size else 0
        index[device, :size] = np.arange(end - size, end)
        counts[device, :size] = 1.0
    return {
        "rows": {name: values[index] for name, values in data.rows().items()},
        "counts": counts,
    }


def check_densities(
    log_prior: Callable[[Any], Any],
    log_likelihood: Callable[[Any, Any], Any],
    parameters: Any,
    example: Any,
) -> None:
    """Refuse densities that are no finite number at the start, or not a single one.

    Parameters
    ----------
    log_prior, log_likelihood
        The densities.
    parameters, example
        Where they are tried.

    Raises
    ------
    InvalidSetting
        If one fails, or gives something else.
    """
    asked: dict[str, Callable[[], Any]] = {
        "log_prior": lambda: log_prior(parameters),
        "log_likelihood": lambda: log_likelihood(parameters, example),
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
