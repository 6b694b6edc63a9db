"""Examples that lie on devices, as any number of named arrays: images, groups, offsets, weights;
from arrays in memory.

:mod:`flmc.data.federated` has examples with features and one target, which can be dealt anew and
standardised; models from log densities take either."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from flmc.base import checks
from flmc.base.arrays import AnyArray, Array, BoolArray
from flmc.base.errors import InvalidSetting
from flmc.base.findings import Finding
from flmc.base.tables import Grid, Row
from flmc.data.columns import Holders, Missing, findings_of_dropped
from flmc.data.dealing import deal
from flmc.data.frame_tables import column_values, is_frame


class OnDevices(Protocol):
    """Interface of data for models that are made from a user's log densities: examples in device
    order, and what is known of them."""

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
        """Whether values of examples were computed from the data of other devices, as when all are
        standardised by their common mean."""

    @property
    def findings(self) -> tuple[Finding, ...] | None:
        """Doubts about the data, which plans repeat."""

    @property
    def labels(self) -> Mapping[str, Sequence[str]]:
        """Labels along named axes, by the name of the axis, for parameters of a model that have
        such an axis: names of features or classes, or the vocabulary of a column of words."""

    def rows(self) -> dict[str, Array]:
        """Arrays of all examples by name, (sample, ...), in device order."""

    def of_device(self, device: int) -> OnDevices:
        """The examples of the device with the number ``device``, from 0, as data of a federation
        with this device alone."""


@dataclass(frozen=True, eq=False)
class Examples:
    """Named arrays of examples in device order. Made by ``flmc.data.from_arrays`` and
    ``flmc.data.from_frames``, which check them.

    Attributes
    ----------
    arrays
        Arrays by name, (sample, ...); whole numbers stay whole numbers.
    device_sizes
        Number of examples of each device, in order.
    device_names
        Names of the devices.
    dropped
        Number of examples with missing values that were left out, of each device; empty if none
        were left out, or if it is not known on which devices they were.
    labels
        Labels by the name of an array: its vocabulary, if it holds categories, or the names of its
        columns, if it was made of several. In a model of NumPyro, an axis of a parameter takes
        these labels if it has the array's name and as many entries as there are labels.
    findings
        Doubts about the data, which plans repeat.
    """

    arrays: Mapping[str, Array] = field(repr=False)
    device_sizes: tuple[int, ...]
    device_names: tuple[str, ...]
    dropped: tuple[int, ...] = ()
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()

    data_dependent = False

    @property
    def num_devices(self) -> int:
        """Number of devices."""
        return len(self.device_sizes)

    @property
    def num_samples(self) -> int:
        """Number of examples in all."""
        return sum(self.device_sizes)

    def rows(self) -> dict[str, Array]:
        """The arrays by name, (sample, ...). A model's log likelihood of one example gets one row
        of each array."""
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
        return replace(
            self,
            arrays={name: values[own] for name, values in self.arrays.items()},
            device_sizes=(self.device_sizes[device],),
            device_names=(self.device_names[device],),
            dropped=self.dropped[device : device + 1],
        )

    def grid(self) -> Grid:
        """A table with a row for each device: the number of its examples, and of its examples that
        were left out. Names of the arrays, with the shape of one example, and findings are
        below."""
        header = ("device", "examples", *(("left out",) if self.dropped else ()))
        rows = tuple(
            (name, str(size), *map(str, self.dropped[number : number + 1]))
            for number, (name, size) in enumerate(
                zip(self.device_names, self.device_sizes, strict=True)
            )
        )
        arrays = (
            f"{name} {values.shape[1:]}" if values.ndim > 1 else name
            for name, values in self.arrays.items()
        )
        notes = (Row("arrays", ", ".join(arrays)), *(each.row for each in self.findings))
        return Grid(header, rows, f"{self.num_samples} examples", notes)

    def __str__(self) -> str:
        """The table of :meth:`grid` as text."""
        return str(self.grid())

    def split(
        self, num_devices: int, how: str = "iid", seed: int = 0, *, by: str | None = None
    ) -> Examples:
        """The same examples, dealt to devices anew.

        Parameters
        ----------
        num_devices
            Number of devices.
        how
            Way of dealing: ``iid``, ``label``, ``dirichlet:ALPHA`` or ``size:ALPHA``, as for
            :meth:`~flmc.data.federated.FederatedData.split`.
        seed
            Seed of the shuffling.
        by
            Name of the array, one number an example, by whose values ``label`` and ``dirichlet``
            deal.

        Raises
        ------
        InvalidSetting
            If there are more devices than examples, or ``how`` and ``by`` do not fit.

        Examples
        --------
        >>> data = flmc.data.from_arrays([{"ward": [1, 0, 1, 0], "stay": [2.0, 1.0, 4.0, 3.0]}])
        >>> data.split(2, "label", by="ward").rows()["ward"].tolist()
        [0, 0, 1, 1]
        """
        if by is None and how.partition(":")[0] in ("label", "dirichlet"):
            raise InvalidSetting(
                f"to deal by {how!r}, by must name an array, one of {', '.join(self.arrays)}"
            )
        values = np.zeros(self.num_samples)
        if by is not None:
            if by not in self.arrays or self.arrays[by].ndim != 1:
                raise InvalidSetting(
                    f"by must name an array with one number for each example, got {by!r}; arrays"
                    f" are {', '.join(self.arrays)}"
                )
            values = np.asarray(self.arrays[by], dtype=np.float64)
        groups = deal(values, num_devices, how, seed)
        order = np.concatenate(groups)
        return replace(
            self,
            arrays={name: each[order] for name, each in self.arrays.items()},
            device_sizes=tuple(len(group) for group in groups),
            device_names=tuple(map(str, range(num_devices))),
            dropped=(),
        )


def from_arrays(
    devices: Mapping[str, Any] | Sequence[Any], *, missing: Missing = "refuse"
) -> Examples:
    """Examples that are in memory: named arrays for each device.

    Parameters
    ----------
    devices
        For each device a mapping from names to arrays, (example, ...), or a data frame, whose
        columns are the arrays. The devices are a sequence, or a mapping from their names. All
        devices have arrays of the same names, whose shapes differ in the number of examples only.
    missing
        ``refuse``: a number that is missing, NaN, is an error; ``drop``: examples with one are left
        out, and counted for each device (``Examples.dropped``).

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
    if is_frame(devices):
        raise InvalidSetting("one data frame of all devices is for flmc.data.from_frames")
    checks.one_of("missing", missing, ("refuse", "drop"))
    if not isinstance(devices, Mapping):
        devices = {str(number): each for number, each in enumerate(devices)}
    read = {str(device): _arrays_of(str(device), given) for device, given in devices.items()}
    names = list(next(iter(read.values()), {}))
    if not names:
        raise InvalidSetting("from_arrays needs a device with one array at least, got none")
    sizes, dropped = [], []
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
        gone = np.zeros(counts[names[0]], dtype=bool)
        if missing == "drop":
            for values in arrays.values():
                gone |= _missing(values)
        for name, values in arrays.items():
            arrays[name] = _finite(device, name, values[~gone] if gone.any() else values)
        sizes.append(int((~gone).sum()))
        dropped.append(int(gone.sum()))
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
    holders = Holders(tuple(read), tuple(sizes), np.arange(sum(sizes)), tuple(dropped))
    return held_by(whole, holders, {})


def held_by(
    whole: Mapping[str, Array], holders: Holders, labels: Mapping[str, tuple[str, ...]]
) -> Examples:
    """Examples made of the arrays ``whole`` by name, (sample, ...) in device order, on the devices
    of ``holders``; ``labels`` are those of :class:`Examples`."""
    return Examples(
        whole,
        holders.sizes,
        holders.names,
        holders.dropped if any(holders.dropped) else (),
        labels,
        findings_of_dropped(holders),
    )


def _arrays_of(device: str, given: Any) -> dict[str, Array]:
    """The checked arrays of one ``device`` by name, (example, ...), from what the user gave for it:
    a mapping or a data frame."""
    if is_frame(given):
        where = f"device {device!r}"
        given = {str(key): column_values(where, str(key), given[key]) for key in given.columns}
    elif not isinstance(given, Mapping):
        raise InvalidSetting(
            f"device {device!r} must have named arrays, or a data frame, got {type(given).__name__}"
        )
    return {str(name): _checked(device, str(name), values) for name, values in given.items()}


def _checked(device: str, name: str, values: Any) -> Array:
    """The array ``name`` of a device, (example, ...), in double precision, or in whole numbers if
    it has them. Raises ``InvalidSetting`` for anything else."""
    array = np.asarray(values)
    if array.dtype == np.bool_:
        array = array.astype(np.int64)
    if array.ndim == 0 or array.dtype.kind not in "iuf":
        raise InvalidSetting(
            f"the array {name!r} of device {device!r} must hold numbers, a row for each example,"
            f" got {array.dtype} in the shape {array.shape}; flmc.data.from_frames takes words with"
            " their vocabulary"
        )
    return array.astype(np.float64) if array.dtype.kind == "f" else array


def _missing(array: AnyArray) -> BoolArray:
    """Whether each row of an array has a missing number, NaN, (example)."""
    if array.dtype.kind != "f":
        return np.zeros(len(array), dtype=bool)
    return np.asarray(np.isnan(array).any(axis=tuple(range(1, array.ndim))))


def _finite(device: str, name: str, array: Array) -> Array:
    """The ``array`` itself, if all of its numbers are finite; else ``InvalidSetting``, whose
    message names the device, the array and the first row that is not finite, and says what to
    do."""
    bad = (
        ~np.isfinite(array).all(axis=tuple(range(1, array.ndim)))
        if array.dtype.kind == "f"
        else np.zeros(0, dtype=bool)
    )
    if bad.any():
        gone = int(_missing(array).sum())
        cure = f"missing='drop' leaves {gone} such examples out" if gone else "leave it out"
        raise InvalidSetting(
            f"the array {name!r} of device {device!r} must hold finite numbers, and row"
            f" {int(bad.argmax())} (from 0) does not: {cure}"
        )
    return array
