"""Data of examples with features and a target, dealt to devices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from flmc.base import checks
from flmc.base.arrays import Array, IntArray
from flmc.base.errors import InvalidSetting
from flmc.base.findings import Finding
from flmc.base.tables import Grid, Row
from flmc.data.columns import MISSING_DROPPED
from flmc.data.dealing import deal
from flmc.data.linear_data import LinearData
from flmc.data.units import doubt_units


@dataclass(frozen=True)
class FederatedData:
    """Examples with features and a target, in device order. Made by :func:`flmc.data.reading.read`.

    Attributes
    ----------
    features
        Features x of every example, (sample, feature).
    targets
        Targets y, (sample): numbers; -1 and +1 for two classes; 0, 1, ... for more.
    device_sizes
        Number of examples of each device, in order.
    feature_names, target_name
        Names of the features, and of the target, as in the columns of the file.
    classes
        Names of the classes in the order of their numbers; empty if the target is a number.
    device_names
        Names of the devices.
    data_dependent
        Whether features were standardised by their own mean and standard deviation over all
        devices: these are not private, so no privacy statement holds for a deployment.
    findings
        Doubts about the data, such as units that differ among devices, which plans repeat; None:
        they are determined from the data. Data that are dealt anew or standardised keep their
        findings.
    dropped
        Number of examples with missing values that were left out, of each device; empty if none
        were left out, or if it is not known on which devices they were.

    Raises
    ------
    InvalidSetting
        If the shapes do not fit, or a number is not finite.

    Examples
    --------
    >>> data = flmc.data.FederatedData(np.eye(4), np.array([1.0, -1, 1, 1]), (3, 1))
    >>> data.num_devices, data.num_samples, data.rows()["x"].shape
    (2, 4, (4, 4))
    """

    features: Array
    targets: Array
    device_sizes: tuple[int, ...]
    feature_names: tuple[str, ...] = ()
    target_name: str = "y"
    classes: tuple[str, ...] = ()
    device_names: tuple[str, ...] = ()
    data_dependent: bool = False
    findings: tuple[Finding, ...] | None = None
    dropped: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        # LinearData makes the checks that are needed here: of shapes, sizes and finite numbers.
        checked = LinearData(
            self.features, self.targets, self.device_sizes, self.data_dependent, findings=()
        )
        if checked.features.ndim != 2:
            raise InvalidSetting(
                f"features must be (sample, feature), got the shape {checked.features.shape}"
            )
        names = self.feature_names or tuple(f"x{i}" for i in range(checked.features.shape[1]))
        devices = self.device_names or tuple(str(k) for k in range(len(checked.device_sizes)))
        for name, given, count in (
            ("feature_names", names, checked.features.shape[1]),
            ("device_names", devices, len(checked.device_sizes)),
        ):
            if len(given) != count:
                raise InvalidSetting(f"{name} must be {count} names, got {len(given)}")
        findings = self.findings
        if findings is None:
            findings = doubt_units(checked.features, checked.device_sizes, names, devices)
        for name, value in (
            ("features", checked.features),
            ("targets", checked.targets),
            ("device_sizes", checked.device_sizes),
            ("feature_names", tuple(names)),
            ("device_names", tuple(devices)),
            ("findings", findings),
            ("dropped", tuple(self.dropped) if any(self.dropped) else ()),
        ):
            object.__setattr__(self, name, value)

    @property
    def num_devices(self) -> int:
        """Number of devices."""
        return len(self.device_sizes)

    @property
    def num_samples(self) -> int:
        """Number of examples in all."""
        return len(self.targets)

    @property
    def num_given(self) -> int:
        """Number of examples in all before those with missing values were left out. Where the
        number of a device's examples is public, that of its complete ones need not be."""
        codes = (each for each in self.findings or () if each.code == MISSING_DROPPED)
        return self.num_samples + sum(int(each.numbers["dropped"]) for each in codes)

    @property
    def device_of(self) -> IntArray:
        """Index of the device that holds each example, (sample)."""
        return np.repeat(np.arange(self.num_devices), self.device_sizes)

    def of_device(self, device: int) -> FederatedData:
        """The examples of one device, as data of a federation with this device alone.

        Parameters
        ----------
        device
            Number of the device, from 0.
        """
        own = self._part(self.device_of == device)
        return replace(
            own,
            device_sizes=(own.device_sizes[device],),
            device_names=(self.device_names[device],),
            dropped=self.dropped[device : device + 1],
        )

    @property
    def labels(self) -> dict[str, tuple[str, ...]]:
        """Labels along axes of a model's parameters, by the name of the axis: ``feature`` has the
        names of the features, and ``class`` those of the classes, if the target has classes."""
        classes = {"class": self.classes} if self.classes else {}
        return {"feature": self.feature_names, **classes}

    def rows(self) -> dict[str, Array]:
        """Features ``x`` (sample, feature) and targets ``y`` (sample), by these names.

        A model's log likelihood of one example gets one row of each."""
        return {"x": self.features, "y": self.targets}

    def to_linear(self) -> LinearData:
        """The examples of these data, as data of a linear regression."""
        return LinearData(
            self.features,
            self.targets,
            self.device_sizes,
            self.data_dependent,
            self.findings,
            self.feature_names,
            self.target_name,
            self.device_names,
        )

    def split(self, num_devices: int, how: str = "iid", seed: int = 0) -> FederatedData:
        """The same examples, dealt to devices anew.

        Parameters
        ----------
        num_devices
            Number of devices.
        how
            ``iid``: at random, as evenly as possible; ``label``: sorted by target, then cut evenly;
            ``dirichlet:ALPHA``: the share of each class on each device is drawn, small ALPHA makes
            devices unlike; ``size:ALPHA``: at random, with drawn sizes.
        seed
            Seed of the shuffling.

        Returns
        -------
        FederatedData
            The examples in the new device order; every device has at least one.

        Raises
        ------
        InvalidSetting
            If there are more devices than examples, or ``how`` is none of these.

        Examples
        --------
        >>> data = flmc.data.FederatedData(np.eye(6), np.arange(6.0), (6,))
        >>> data.split(3, "label").targets.tolist()
        [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
        """
        groups = deal(self.targets, num_devices, how, seed)
        order = np.concatenate(groups)
        return replace(
            self,
            features=self.features[order],
            targets=self.targets[order],
            device_sizes=tuple(len(group) for group in groups),
            device_names=(),
            dropped=(),
        )

    def hold_out(self, share: float = 0.2, seed: int = 0) -> tuple[FederatedData, FederatedData]:
        """The data without a random share of each device's examples, and the data of these held-out
        examples alone.

        Parameters
        ----------
        share
            Share of every device's examples to hold out, between 0 and 1; at least one example of
            every device stays.
        seed
            Seed of the choice.

        Returns
        -------
        tuple of FederatedData
            Data to learn from, and data to predict. A device with one example has none to predict.
        """
        checks.between("share", share, 0.0, 1.0)
        rng = np.random.default_rng(seed)
        out = np.zeros(self.num_samples, dtype=bool)
        for begin, size in zip(
            np.cumsum((0, *self.device_sizes[:-1])), self.device_sizes, strict=True
        ):
            # For a device without examples ``count`` is -1, hence the maximum with 0 below.
            count = min(round(share * size), size - 1)
            out[begin + rng.permutation(size)[: max(count, 0)]] = True
        return self._part(~out), self._part(out)

    def _part(self, chosen: Array) -> FederatedData:
        """The data with only those examples that the mask ``chosen`` (sample) marks; a device that
        keeps no example stays in the data, with size 0."""
        counts = np.bincount(self.device_of[chosen], minlength=self.num_devices)
        return replace(
            self,
            features=self.features[chosen],
            targets=self.targets[chosen],
            device_sizes=tuple(int(count) for count in counts),
        )

    def standardised(self, constants: Mapping[str, tuple[float, float]] | None) -> FederatedData:
        """These data with each feature x replaced by (x - centre)/scale.

        Parameters
        ----------
        constants
            Centre and scale of each feature from public knowledge, by its name; features that are
            not named stay. None: mean and standard deviation of the data themselves, which makes
            the result ``data_dependent``.

        Raises
        ------
        InvalidSetting
            If a name is unknown, a scale is not positive, or a feature is constant.
        """
        if constants is None:
            centre, scale = self.features.mean(axis=0), self.features.std(axis=0)
            for name, spread in zip(self.feature_names, scale, strict=True):
                if spread == 0:
                    raise InvalidSetting(f"column {name!r} is constant: it has no scale")
        else:
            centre, scale = np.zeros(len(self.feature_names)), np.ones(len(self.feature_names))
            for name, (middle, spread) in constants.items():
                if name not in self.feature_names:
                    raise InvalidSetting(
                        f"there is no feature {name!r}: it must be one of"
                        f" {', '.join(self.feature_names)}"
                    )
                index = self.feature_names.index(name)
                centre[index] = checks.number(f"the centre of {name!r}", middle)
                scale[index] = checks.positive(f"the scale of {name!r}", spread)
        return replace(
            self,
            features=(self.features - centre) / scale,
            data_dependent=self.data_dependent or constants is None,
        )

    def grid(self) -> Grid:
        """A table with a row for each device: the number of its examples; if the target has
        classes, the number in each class; and, if there are any, the number that were left out."""
        values = np.unique(self.targets) if self.classes else np.zeros(0)
        labels = self.classes if len(self.classes) == len(values) else tuple(map(str, values))
        rows = []
        for number, name in enumerate(self.device_names):
            own = self.targets[self.device_of == number]
            counts = [int((own == value).sum()) for value in values]
            counts += self.dropped[number : number + 1]
            rows.append((name, str(len(own)), *map(str, counts)))
        title = f"{self.num_samples} examples, {len(self.feature_names)} features"
        notes = []
        if self.data_dependent:
            notes.append(Row("", "Standardised by their own mean and spread: for simulation only."))
        notes += [each.row for each in self.findings or ()]
        header = ("device", "examples", *labels, *(("left out",) if self.dropped else ()))
        return Grid(header, tuple(rows), title, tuple(notes))

    def __str__(self) -> str:
        """The table of :meth:`grid` as text."""
        return str(self.grid())
