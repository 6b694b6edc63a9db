"""Data of a linear regression: the examples of every device, or their sufficient statistics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from flmc.base import checks
from flmc.base.arrays import Array, one_blas_thread
from flmc.base.errors import InvalidSetting
from flmc.base.findings import Finding
from flmc.data.units import doubt_units


@dataclass(frozen=True)
class LinearData:
    """Examples of a linear regression, in device order, of one data set or several.

    Attributes
    ----------
    features
        Features u of every example, (sample, dim), or (experiment, sample, dim) for several data
        sets.
    targets
        Targets v, (sample) or (experiment, sample).
    device_sizes
        Number of examples of each device. Device 0 holds the first ``device_sizes[0]`` examples,
        device 1 the next ``device_sizes[1]``, and so on; all data sets are dealt alike. A device
        may hold none.
    findings
        Doubts about the data, such as units that differ among devices, which plans repeat; None:
        they are determined from the data.
    data_dependent
        Whether features were scaled by statistics of all devices' examples. These are not private,
        so no privacy statement holds for a deployment.
    feature_names, target_name, device_names
        Names of the features and of the devices, empty where they have none, and of the target.

    Raises
    ------
    InvalidSetting
        If the shapes do not fit, the sizes do not add up to the number of examples, or a number is
        not finite.

    Examples
    --------
    >>> data = flmc.LinearData(np.eye(4), np.arange(4.0), device_sizes=(3, 1))
    >>> data.to_statistics().gram.shape  # (experiment, device, dim, dim)
    (1, 2, 4, 4)
    """

    features: Array
    targets: Array
    device_sizes: tuple[int, ...]
    data_dependent: bool = False
    findings: tuple[Finding, ...] | None = None
    feature_names: tuple[str, ...] = ()
    target_name: str = "y"
    device_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        features = checks.finite_array("features", self.features)
        targets = checks.finite_array("targets", self.targets)
        object.__setattr__(self, "features", features)
        object.__setattr__(self, "targets", targets)
        if features.ndim not in (2, 3) or features.shape[:-1] != targets.shape:
            raise InvalidSetting(
                f"features (sample, dim) and targets (sample) must fit, got {features.shape},"
                f" {targets.shape}"
            )
        sizes = tuple(
            checks.at_least("each device's number of samples", size, 0)
            for size in self.device_sizes
        )
        if sum(sizes) != targets.shape[-1]:
            raise InvalidSetting(
                f"device_sizes must add up to {targets.shape[-1]} samples, got {sum(sizes)}"
            )
        object.__setattr__(self, "device_sizes", sizes)
        for name, given, count in (
            ("feature_names", self.feature_names, features.shape[-1]),
            ("device_names", self.device_names, len(sizes)),
        ):
            if given and len(given) != count:
                raise InvalidSetting(f"{name} must be {count} names, got {len(given)}")
        if self.findings is None:
            one = features if features.ndim == 2 else features[0]
            names, devices = (tuple(map(str, range(n))) for n in (one.shape[1], len(sizes)))
            object.__setattr__(self, "findings", doubt_units(one, sizes, names, devices))

    @one_blas_thread()
    def to_statistics(self) -> LinearStatistics:
        r"""Sufficient statistics of each device: the sums over its examples of :math:`u u^\top`,
        (experiment, device, dim, dim), and of :math:`u v`, (experiment, device, dim), with features
        u and targets v."""
        features = self.features.reshape(-1, *self.features.shape[-2:])
        targets = self.targets.reshape(len(features), -1)
        ends = np.cumsum(self.device_sizes)
        blocks = [slice(end - size, end) for end, size in zip(ends, self.device_sizes, strict=True)]
        gram = np.empty((len(features), len(blocks), *2 * features.shape[2:]))
        # Each device's matrix is written into the result, because a list and np.stack would hold
        # all matrices twice.
        for device, b in enumerate(blocks):
            gram[:, device] = np.swapaxes(features[:, b], 1, 2) @ features[:, b]
        moment = np.stack(
            [np.einsum("esm,es->em", features[:, b], targets[:, b]) for b in blocks], axis=1
        )
        return LinearStatistics(gram, moment)


@dataclass(frozen=True)
class LinearStatistics:
    r"""Sufficient statistics of linear regressions with features u and targets v: the posterior
    depends on nothing else.

    Attributes
    ----------
    gram
        Sum of :math:`u u^\top` over a device's examples, (experiment, device, dim, dim).
    moment
        Sum of :math:`u v` over a device's examples, (experiment, device, dim).

    Raises
    ------
    InvalidSetting
        If the shapes do not fit, or a number is not finite.
    """

    gram: Array
    moment: Array

    def __post_init__(self) -> None:
        gram, moment = (
            checks.finite_array("gram", self.gram),
            checks.finite_array("moment", self.moment),
        )
        object.__setattr__(self, "gram", gram)
        object.__setattr__(self, "moment", moment)
        if moment.ndim != 3 or gram.shape != (*moment.shape, moment.shape[2]):
            raise InvalidSetting(
                "gram (experiment, device, dim, dim) and moment (experiment, device, dim) must fit,"
                f" got {gram.shape} and {moment.shape}"
            )

    @property
    def num_experiments(self) -> int:
        """Number of data sets."""
        return len(self.moment)

    @property
    def num_devices(self) -> int:
        """Number of devices, those without data included."""
        return int(self.moment.shape[1])

    @property
    def dim(self) -> int:
        """Number of entries of theta."""
        return int(self.moment.shape[2])

    def rows(self, experiments: range) -> LinearStatistics:
        """Sufficient statistics of some of the data sets.

        Parameters
        ----------
        experiments
            Numbers of the data sets, consecutive and counted from 0.

        Returns
        -------
        LinearStatistics
            Their statistics, in the same order.
        """
        part = slice(experiments.start, experiments.stop)
        return LinearStatistics(self.gram[part], self.moment[part])


class StatisticsSource(Protocol):
    """Source of the sufficient statistics of many data sets, a few at a time.

    :class:`LinearStatistics` holds them in memory, :class:`~flmc.data.synthetic.DrawnStatistics`
    draws them."""

    @property
    def num_experiments(self) -> int:
        """Number of data sets."""

    @property
    def num_devices(self) -> int:
        """Number of devices, those without data included."""

    @property
    def dim(self) -> int:
        """Number of entries of theta."""

    def rows(self, experiments: range) -> LinearStatistics:
        """Sufficient statistics of some of the data sets.

        Parameters
        ----------
        experiments
            Numbers of the data sets, consecutive and counted from 0.

        Returns
        -------
        LinearStatistics
            Their statistics, in the same order.
        """
