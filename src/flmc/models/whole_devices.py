r"""Local costs from the log likelihood of a device as a whole, :math:`\ln p(D_k \mid \theta)`: of
a series, a state-space model, or anything else in which a device's examples depend on each other.

The user's function gets all arrays of one device, as long as they are there. JAX compiles for fixed
shapes; so devices with equally many examples are computed together, and the function is compiled
once for each number of examples that occurs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from flmc.base.errors import InvalidSetting
from flmc.data.examples import OnDevices
from flmc.models.differentiation import DifferentiatedCosts
from flmc.models.local_costs import ExampleBound

NO_EXAMPLES = (
    "example_clip and example_norm bound the gradient of one example, and the log likelihood of"
    " this model is that of a device as a whole (likelihood_of='device'), which has no such parts:"
    " leave them out and ask for the privacy of a device (neighbouring='device'), or give the log"
    " likelihood of one example"
)
"""Why no setting of single examples applies to such a model, and what to do."""


class WholeDeviceCosts(DifferentiatedCosts):
    """Local costs of devices, of which each has one log likelihood of all its data; as functions
    that JAX can trace. Data are those of :func:`rows_of_devices`."""

    def first_unit(self, data: Any) -> Any:
        """Arrays of the first device that has data."""
        return self._jax.tree.map(lambda values: values[0], data["groups"][0]["rows"])

    def _cost_of_data(self, theta: Any, rows: Any, count: Any) -> Any:
        """Negative log likelihood of the data of one device at one theta (dim), a number; 0 if
        ``count`` is 0, for a device without data."""
        value = -self._log_likelihood(self._parameters(theta), rows)
        return self._jax.numpy.where(count > 0, value, 0.0)

    def total(self, theta: Any, data: Any) -> Any:
        """Negative log posterior at one theta (dim), up to a constant: the sum of all devices'
        local costs."""
        devices = self._jax.vmap(self._cost_of_data, in_axes=(None, 0, 0))
        costs = [devices(theta, each["rows"], each["counts"]).sum() for each in data["groups"]]
        return sum(costs) + len(data["order"]) * self.prior_share(theta)

    def gradients(self, theta: Any, data: Any) -> Any:
        """Gradients of all devices' local costs at one theta (dim), (device, dim)."""
        jax = self._jax
        devices = jax.vmap(jax.grad(self._cost_of_data), in_axes=(None, 0, 0))
        parts = [
            # The derivative of another device's data, which stand in for data that are not there,
            # may be no number.
            jax.numpy.where(
                each["counts"][:, None] > 0, devices(theta, each["rows"], each["counts"]), 0.0
            )
            for each in data["groups"]
        ]
        return jax.numpy.concatenate(parts)[data["order"]] + jax.grad(self.prior_share)(theta)

    def bounded(self, example_bound: ExampleBound | None) -> Callable[[Any, Any], Any]:
        """The function :meth:`gradients`; ``InvalidSetting`` if examples are to be clipped, as
        there are none."""
        if example_bound is not None:
            raise InvalidSetting(NO_EXAMPLES)
        return self.gradients


def rows_of_devices(data: OnDevices) -> dict[str, Any]:
    """The data of all devices as ``groups`` of devices with equally many examples, and ``order``.

    A group has the numbers of its ``devices``, ``rows``, one array (device of the group, example,
    ...) for each name, and ``counts`` (device of the group), 0 for a device without data, whose
    rows are those of another.
    ``order`` (device) is the place of every device in the groups, one after the other."""
    sizes, rows = np.array(data.device_sizes), data.rows()
    ends = np.cumsum(sizes)
    groups: list[dict[str, Any]] = []
    places = []
    for size in np.unique(sizes[sizes > 0]):
        devices = np.flatnonzero(sizes == size)
        if not groups:  # those without data are in the first group
            devices = np.concatenate([devices, np.flatnonzero(sizes == 0)])
        source = np.where(sizes[devices] > 0, devices, devices[0])
        index = (ends[source] - size)[:, None] + np.arange(size)
        groups.append(
            {
                "rows": {name: values[index] for name, values in rows.items()},
                "counts": (sizes[devices] > 0).astype(np.float64),
                "devices": devices,
            }
        )
        places.append(devices)
    order = np.argsort(np.concatenate(places))
    return {"groups": groups, "order": order}
