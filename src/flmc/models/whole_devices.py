r"""Local costs from the log likelihood of a device as a whole, :math:`\ln p(D_k \mid \theta)`: of
a series, a state-space model, or anything else in which a device's examples depend on each other.

The user's function gets all arrays of one device, in their full length. JAX compiles for fixed
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
"""Error message for the settings ``example_clip`` and ``example_norm`` with a log likelihood of
whole devices: why they cannot apply, and what to do."""


class WholeDeviceCosts(DifferentiatedCosts):
    """Local costs from a log likelihood of all data of one device, and their gradients, as
    functions that JAX can trace. The argument ``data`` of the methods is the dictionary that
    :func:`rows_of_devices` returns."""

    def first_unit(self, data: Any) -> Any:
        """Arrays, by name, of one device that has data, with which the user's log likelihood is
        tried."""
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
            # A device without data has the rows of another device as a stand-in, whose derivative
            # may be NaN even though it is multiplied by 0: it is replaced by 0.
            jax.numpy.where(
                each["counts"][:, None] > 0, devices(theta, each["rows"], each["counts"]), 0.0
            )
            for each in data["groups"]
        ]
        return jax.numpy.concatenate(parts)[data["order"]] + jax.grad(self.prior_share)(theta)

    def bounded(self, example_bound: ExampleBound | None) -> Callable[[Any, Any], Any]:
        """The function :meth:`gradients`. Raises ``InvalidSetting`` if ``example_bound`` is not
        None, because a log likelihood of whole devices has no single examples to clip."""
        if example_bound is not None:
            raise InvalidSetting(NO_EXAMPLES)
        return self.gradients


def rows_of_devices(data: OnDevices) -> dict[str, Any]:
    """The data of all devices as a dictionary of ``groups``, each of devices with equally many
    examples, and ``order``.

    A group has ``devices``, the numbers of its devices; ``rows``, one array (device of the group,
    example, ...) for each name; and ``counts`` (device of the group), 1, or 0 for a device without
    data, whose rows are copies of another device's. ``order`` (device) is each device's position
    when the groups are put one after the other."""
    sizes, rows = np.array(data.device_sizes), data.rows()
    ends = np.cumsum(sizes)
    groups: list[dict[str, Any]] = []
    places = []
    for size in np.unique(sizes[sizes > 0]):
        devices = np.flatnonzero(sizes == size)
        if not groups:  # devices without data join the first group
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
