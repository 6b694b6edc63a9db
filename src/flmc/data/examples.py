"""Examples that lie on devices, as any number of named arrays: images, groups, offsets, weights.

:mod:`flmc.data.federated` has examples with features and one target, which can be dealt anew and
standardised; models from log densities take either."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.base.findings import Finding


class OnDevices(Protocol):
    """What a model from log densities asks of data."""

    @property
    def device_sizes(self) -> tuple[int, ...]:
        """Number of examples of each device, in order."""

    @property
    def num_devices(self) -> int:
        """Number of devices."""

    @property
    def num_samples(self) -> int:
        """Number of examples in all."""

    @property
    def data_dependent(self) -> bool:
        """Whether an example was changed by what other devices hold."""

    @property
    def findings(self) -> tuple[Finding, ...] | None:
        """Doubts about the data, which plans repeat."""

    def rows(self) -> dict[str, Array]:
        """Arrays of all examples by name, (sample, ...), in device order."""

    def of_device(self, device: int) -> OnDevices:
        """The examples of one device, from 0, as data of a federation with this device alone."""


@dataclass(frozen=True, eq=False)
class Examples:
    """Named arrays of examples in device order. Made by ``flmc.data.from_arrays``, which checks
    them.

    Attributes
    ----------
    arrays
        Arrays by name, (sample, ...); whole numbers stay whole numbers.
    device_sizes
        Number of examples of each device, in order.
    device_names
        Names of the devices.
    """

    arrays: Mapping[str, Array]
    device_sizes: tuple[int, ...]
    device_names: tuple[str, ...]

    data_dependent = False
    findings = None

    @property
    def num_devices(self) -> int:
        """Number of devices."""
        return len(self.device_sizes)

    @property
    def num_samples(self) -> int:
        """Number of examples in all."""
        return sum(self.device_sizes)

    def rows(self) -> dict[str, Array]:
        """The arrays by name, (sample, ...). A log likelihood of one example gets one row of
        each."""
        return dict(self.arrays)

    def of_device(self, device: int) -> Examples:
        """The examples of one device, as data of a federation with this device alone.

        Parameters
        ----------
        device
            Number of the device, from 0.
        """
        end = sum(self.device_sizes[: device + 1])
        own = slice(end - self.device_sizes[device], end)
        return Examples(
            {name: values[own] for name, values in self.arrays.items()},
            (self.device_sizes[device],),
            (self.device_names[device],),
        )


def from_arrays(devices: Mapping[str, Any] | Sequence[Any]) -> Examples:
    """Examples that are in memory: named arrays for each device.

    Parameters
    ----------
    devices
        For each device a mapping from names to arrays, (example, ...), or a data frame, whose
        columns are the arrays. The devices are a sequence, or a mapping from their names. All have
        the same names, and arrays that differ in the number of examples only.

    Raises
    ------
    InvalidSetting
        If there is no example, names or shapes differ, or a value is no finite number.

    Examples
    --------
    >>> north = {"dose": [0.1, 0.4], "ward": [0, 2], "cured": [0, 1]}
    >>> south = {"dose": [0.3], "ward": [1], "cured": [1]}
    >>> data = flmc.data.from_arrays({"north": north, "south": south})
    >>> data.device_sizes, data.rows()["ward"].tolist()
    ((2, 1), [0, 2, 1])
    """
    if not isinstance(devices, Mapping):
        devices = {str(number): each for number, each in enumerate(devices)}
    read = {
        device: {str(name): _checked(device, str(name), values) for name, values in given.items()}
        for device, given in devices.items()
    }
    names = list(next(iter(read.values()), {}))
    if not names:
        raise InvalidSetting("from_arrays needs a device with one array at least, got none")
    sizes = []
    for device, arrays in read.items():
        if set(arrays) != set(names):
            raise InvalidSetting(
                f"device {device!r} must have the arrays {', '.join(names)}, got"
                f" {', '.join(arrays) or 'none'}"
            )
        counts = {name: len(values) for name, values in arrays.items()}
        if len(set(counts.values())) > 1:
            raise InvalidSetting(
                f"the arrays of device {device!r} must have one row for each example, got {counts}"
            )
        sizes.append(counts[names[0]])
    whole = {}
    for name in names:
        shapes = {arrays[name].shape[1:] for arrays in read.values()}
        if len(shapes) > 1:
            raise InvalidSetting(
                f"one example of {name!r} must have the same shape on all devices, got"
                f" {' and '.join(map(str, sorted(shapes)))}"
            )
        whole[name] = np.concatenate([arrays[name] for arrays in read.values()])
    if not sum(sizes):
        raise InvalidSetting("there must be at least 1 example, got 0")
    return Examples(whole, tuple(sizes), tuple(map(str, read)))


def _checked(device: str, name: str, values: Any) -> Array:
    """The array ``name`` of a device, (example, ...), in double precision, or in whole numbers if
    it has them. Raises ``InvalidSetting`` for anything else."""
    where = f"the array {name!r} of device {device!r}"
    array = np.asarray(values)
    if array.dtype == np.bool_:
        array = array.astype(np.int64)
    if array.ndim == 0 or array.dtype.kind not in "iuf":
        raise InvalidSetting(
            f"{where} must hold numbers, a row for each example, got {array.dtype} in the shape"
            f" {array.shape}"
        )
    if array.dtype.kind == "f":
        array = array.astype(np.float64)
        bad = ~np.isfinite(array).all(axis=tuple(range(1, array.ndim)))
        if bad.any():
            raise InvalidSetting(
                f"{where} must hold finite numbers, and row {int(bad.argmax())} (from 0) does not:"
                " leave such examples out"
            )
    return array
