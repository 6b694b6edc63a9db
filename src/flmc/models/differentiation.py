"""Differentiation of log densities by JAX: local gradients, with single examples clipped or not.
:mod:`flmc.models.curvature` measures curvatures with it, and :mod:`flmc.models.log_density` builds
a model on it.

Parameters are a tree of arrays for the user's functions, and one vector theta everywhere else
(:mod:`flmc.models.parameters`). JAX is optional, and imported where it is used."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from flmc.base.errors import InvalidSetting, MissingExtra
from flmc.data.examples import OnDevices
from flmc.models.local_costs import ExampleBound

_AT_ONCE = 4_000_000
"""Largest count of numbers that the gradients of single examples may take in memory at a time: if
there are more, they are computed for slices of each device's examples, one after the other."""


def require_jax() -> Any:
    """The module jax; raises ``MissingExtra``, with how to install it, if it is missing."""
    try:
        import jax
    except ImportError as error:
        raise MissingExtra("log densities need JAX: pip install 'flmc[jax]'") from error
    return jax


class DifferentiatedCosts:
    """Local costs of devices and their gradients, as functions that JAX can trace.

    They are functions of theta and of the data, in the precision of both, so that an engine can
    compile them into a loop of its own. ``log_prior`` takes parameters, ``log_likelihood``
    parameters and one example. ``parameters`` turns one theta into parameters, and ``log_jacobian``
    is the logarithm of that map's Jacobian determinant at theta. The sum of log prior and log
    Jacobian is shared equally by K devices, ``num_devices``. The argument ``data`` of the methods
    is the dictionary that :func:`padded_rows` returns."""

    def __init__(
        self,
        jax: Any,
        log_prior: Callable[[Any], Any],
        log_likelihood: Callable[..., Any],
        parameters: Callable[[Any], Any],
        log_jacobian: Callable[[Any], Any],
        num_devices: int,
    ) -> None:
        self._jax, self._parameters, self._num_devices = jax, parameters, num_devices
        self._log_jacobian = log_jacobian
        self._log_prior, self._log_likelihood = log_prior, log_likelihood

    def _cost_of_example(self, theta: Any, row: Any, count: Any) -> Any:
        """Negative log likelihood of one example at one theta (dim), a number; 0 if ``count`` is 0,
        which marks padding."""
        value = -self._log_likelihood(self._parameters(theta), row)
        return self._jax.numpy.where(count > 0, value, 0.0)

    def first_unit(self, data: Any) -> Any:
        """Arrays of the first device's first example, by name, with which the user's log likelihood
        is tried."""
        return self._jax.tree.map(lambda values: values[0, 0], data["rows"])

    def prior_share(self, theta: Any) -> Any:
        """The share of the prior in one device's local cost: the negative log density of theta
        (dim) before the data, the Jacobian included, divided by the number K of devices."""
        log_density = self._log_prior(self._parameters(theta)) + self._log_jacobian(theta)
        return -log_density / self._num_devices

    def _device_cost(self, theta: Any, rows: Any, counts: Any) -> Any:
        """Local cost of one device at one theta (dim), a number: the negative log likelihood of its
        examples plus 1/K of the negative log prior."""
        each = self._jax.vmap(self._cost_of_example, in_axes=(None, 0, 0))(theta, rows, counts)
        return each.sum() + self.prior_share(theta)

    def total(self, theta: Any, data: Any) -> Any:
        """Negative log posterior at one theta (dim), up to a constant: the sum of all devices'
        local costs."""
        devices = self._jax.vmap(self._device_cost, in_axes=(None, 0, 0))
        return devices(theta, data["rows"], data["counts"]).sum()

    def gradients(self, theta: Any, data: Any) -> Any:
        """Gradients of all devices' local costs at one theta (dim), (device, dim)."""
        jax = self._jax
        devices = jax.vmap(jax.grad(self._device_cost), in_axes=(None, 0, 0))
        gradients = devices(theta, data["rows"], data["counts"])
        # The gradient of a device without examples is the prior's share alone. It is set
        # explicitly: where the cost of the padding is not finite, its derivative is NaN, although
        # ``where`` replaces the cost by 0 (0 times infinity).
        has_examples = data["counts"].sum(axis=1, keepdims=True) > 0
        return jax.numpy.where(has_examples, gradients, jax.grad(self.prior_share)(theta))

    def bounded(self, example_bound: ExampleBound | None) -> Callable[[Any, Any], Any]:
        """A function of theta (dim) and data that returns the gradients of all devices' local
        costs, (device, dim); each example's gradient is clipped as ``example_bound`` says, or not
        at all if that is None."""
        if example_bound is None:
            return self.gradients
        bound, by_norm = example_bound
        return partial(self.clipped_gradients, bound=bound, by_norm=by_norm)

    def of_batch(self, example_bound: ExampleBound | None) -> Callable[..., Any]:
        """A function of theta (dim), the rows of chosen examples (device, size, ...), counts
        (device, size), 1 for a row that belongs to a batch and else 0, and weights (device), which
        returns the gradients of all devices' local costs from their batches, (device, dim)."""
        jax, gradients = self._jax, self.bounded(example_bound)

        def gradient(theta: Any, rows: Any, counts: Any, weights: Any) -> Any:
            share = jax.grad(self.prior_share)(theta)
            # The prior's share is in the gradient of a batch once, and is not weighted.
            likelihood = gradients(theta, {"rows": rows, "counts": counts}) - share
            return weights[:, None] * likelihood + share

        return gradient

    def clipped_gradients(self, theta: Any, data: Any, bound: Any, *, by_norm: bool) -> Any:
        """Gradients of all devices' local costs at one theta (dim), (device, dim), where each
        example's gradient is clipped to ``bound``, by entry or by norm, before the sum."""
        # The gradient of every example is formed exactly, in slices so that memory stays bounded.
        jax = self._jax
        share = jax.grad(self.prior_share)(theta)
        num_devices, largest = data["counts"].shape
        size = min(largest, max(1, _AT_ONCE // (num_devices * len(theta))))

        def device(rows: Any, counts: Any) -> Any:
            def add(index: Any, total: Any) -> Any:
                # Compiled code needs slices of one size. So the last slice begins earlier, to end
                # with the data, and leaves out the examples that the slice before it has added
                # already.
                first = jax.numpy.minimum(index * size, largest - size)
                rows_of, counts_of = jax.tree.map(
                    lambda values: jax.lax.dynamic_slice_in_dim(values, first, size),
                    (rows, counts),
                )
                fresh = first + jax.numpy.arange(size) >= index * size
                part = self._clipped(theta, rows_of, counts_of * fresh, bound, by_norm=by_norm)
                return total + part

            return jax.lax.fori_loop(0, -(-largest // size), add, share)

        return jax.vmap(device)(data["rows"], data["counts"])

    def _clipped(self, theta: Any, rows: Any, counts: Any, bound: Any, *, by_norm: bool) -> Any:
        """Sum over some examples of one device of their gradients, (dim), each clipped to ``bound``
        by entry or by norm; padding, whose count is 0, adds nothing."""
        jax = self._jax
        numpy = jax.numpy
        each = jax.vmap(jax.grad(self._cost_of_example), in_axes=(None, 0, 0))
        # A NaN counts as 0 and affects its own example only; infinity becomes the largest finite
        # number, which is clipped below.
        gradients = numpy.nan_to_num(each(theta, rows, counts), nan=0.0, posinf=None, neginf=None)
        if by_norm:
            gradients = _bounded_by_norm(numpy, gradients, bound)
        # Entries are clipped too where norms are bounded: privacy must not depend on the rounding
        # of a norm.
        gradients = numpy.clip(gradients, -bound, bound)
        return numpy.where(counts[:, None] > 0, gradients, 0.0).sum(axis=0)


def _bounded_by_norm(numpy: Any, gradients: Any, bound: Any) -> Any:
    """Gradients of examples, (example, dim), scaled down to a norm of at most ``bound``.

    Huge entries are first cut down to a size whose square and inverse are ordinary numbers: near
    the end of the range compiled code may replace an inverse by 0, and an example would pass
    unclipped. An example whose norm is still nan counts as 0."""
    double = gradients.dtype == numpy.float64
    most, least = (1e140, 1e-140) if double else (1e14, 1e-14)
    gradients = numpy.clip(gradients, -most, most)
    largest = numpy.abs(gradients).max(axis=1, keepdims=True)
    unit = gradients / numpy.maximum(largest, least)
    norm = numpy.maximum(largest, least) * numpy.sqrt(numpy.square(unit).sum(axis=1, keepdims=True))
    factor = numpy.minimum(1.0, bound / numpy.maximum(norm, least * least))
    return numpy.where(numpy.isfinite(norm), gradients * factor, 0.0)


def padded_rows(data: OnDevices) -> dict[str, Any]:
    """Examples as ``rows``, one array (device, largest, ...) for each name, and ``counts`` (device,
    largest), 1 for an example and 0 for padding; largest is the number of examples of the device
    that has most of them.

    Padding repeats the device's own first example, so that no device holds another's data; on a
    device without examples it is the first of all examples, which gradients leave out."""
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
    log_likelihood: Callable[..., Any],
    parameters: tuple[Any, ...],
    unit: Any,
    likelihood_of: str,
    log_local_prior: Callable[[Any, Any], Any] | None = None,
) -> None:
    """Raise ``InvalidSetting`` unless each of the user's log densities returns one finite number at
    the start. ``parameters`` holds the global parameters and, if there are any, those of a device;
    ``unit`` holds the data for which the log likelihood is evaluated, of one example or of one
    device, as ``likelihood_of`` says."""
    # Converted to JAX's arrays, because a user's function may index them with values that vmap or
    # scan traces, which NumPy's arrays do not accept.
    jax = require_jax()
    parameters, unit = jax.tree.map(jax.numpy.asarray, (parameters, unit))
    asked: dict[str, tuple[Callable[[], Any], str]] = {
        "log_prior": (lambda: log_prior(parameters[0]), "it is a log density of the parameters"),
        "log_likelihood": (
            lambda: log_likelihood(*parameters, unit),
            "it is a log density of one example, not of all; for that of a device's data as a whole"
            " say likelihood_of='device'"
            if likelihood_of == "example"
            else "it is a log density of all data of one device",
        ),
    }
    if log_local_prior is not None:
        asked["log_local_prior"] = (
            lambda: log_local_prior(*parameters),
            "it is a log density of one device's parameters, given the global ones",
        )
    for name, (call, what) in asked.items():
        try:
            value = np.asarray(call())
        except Exception as error:  # a user's function may raise anything
            raise InvalidSetting(
                f"{name} failed at the start: {type(error).__name__}: {error}"
            ) from error
        if value.shape != () or not np.isfinite(value):
            raise InvalidSetting(
                f"{name} must be one finite number at the start, got {value!r}; {what}"
            )
