"""Data of a linear regression: the examples of every device, or their sufficient statistics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from flmc.base import checks
from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting


@dataclass(frozen=True)
class LinearData:
    """Examples in device order: ``features`` (..., sample, dim), ``targets`` (..., sample); device
    k holds the next ``device_sizes[k]`` samples. A leading axis holds several data sets."""

    features: Array
    targets: Array
    device_sizes: tuple[int, ...]

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

    def to_statistics(self) -> LinearStatistics:
        """Sums over each device's samples of u u' and u v."""
        features = self.features.reshape(-1, *self.features.shape[-2:])
        targets = self.targets.reshape(len(features), -1)
        ends = np.cumsum(self.device_sizes)
        blocks = [slice(end - size, end) for end, size in zip(ends, self.device_sizes, strict=True)]
        gram = np.stack(
            [np.swapaxes(features[:, b], 1, 2) @ features[:, b] for b in blocks], axis=1
        )
        moment = np.stack(
            [np.einsum("esm,es->em", features[:, b], targets[:, b]) for b in blocks], axis=1
        )
        return LinearStatistics(gram, moment)


@dataclass(frozen=True)
class LinearStatistics:
    """All that the posterior needs: ``gram`` (experiment, device, dim, dim) = sum of u u',
    ``moment`` (experiment, device, dim) = sum of u v."""

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
        """How many data sets."""
        return len(self.moment)

    @property
    def num_devices(self) -> int:
        """How many devices hold data."""
        return int(self.moment.shape[1])

    @property
    def dim(self) -> int:
        """Entries of theta."""
        return int(self.moment.shape[2])

    def rows(self, experiments: range) -> LinearStatistics:
        """Some of the data sets."""
        part = slice(experiments.start, experiments.stop)
        return LinearStatistics(self.gram[part], self.moment[part])


class StatisticsSource(Protocol):
    """Sufficient statistics of many data sets, a few at a time."""

    @property
    def num_experiments(self) -> int:
        """How many data sets."""

    @property
    def num_devices(self) -> int:
        """How many devices hold data."""

    @property
    def dim(self) -> int:
        """Entries of theta."""

    def rows(self, experiments: range) -> LinearStatistics:
        """Some of the data sets."""
