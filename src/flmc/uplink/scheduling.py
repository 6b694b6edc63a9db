"""Scheduling: which devices transmit in a round.

A policy decides from public knowledge alone, the channel and random numbers of its own, so that who
transmits reveals nothing of the data. It decides for each experiment, round and device."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from flmc.base import checks
from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.base.randomness import Purpose, generator


class Scheduler(ABC):
    """A policy that says who transmits. Your own is a class with one method, ``draw``."""

    random: ClassVar[bool] = True
    """Whether two experiments may have different devices active in the same round."""
    everyone: ClassVar[bool] = False
    """Whether all devices transmit in every round."""

    @abstractmethod
    def draw(self, rng: np.random.Generator, rounds: range, fading: Array) -> Array:
        """Who transmits in some rounds.

        Parameters
        ----------
        rng
            The only source of randomness: one stream for each experiment and block of rounds.
        rounds
            The rounds in question, counted from 0.
        fading
            Path gains (round, device, entry) of these rounds.

        Returns
        -------
        Array
            1 for a device that transmits, else 0: (round, device).
        """

    def most_rounds(self, num_rounds: int) -> int:
        """Upper bound of the number of rounds, among the first ``num_rounds``, in which any one
        device transmits: what the accountant charges beforehand."""
        return num_rounds

    def check(self, num_rounds: int, num_devices: int) -> None:  # noqa: B027 (most policies fit every plan)
        """Refuse a plan for which this policy makes no sense."""

    def draw_checked(self, rng: np.random.Generator, rounds: range, fading: Array) -> Array:
        """A draw, refused if it is not 0 or 1 for every round and device, or silent in a round."""
        active = np.asarray(self.draw(rng, rounds, fading), dtype=np.float64)
        shape = (len(rounds), fading.shape[1])
        return check_active(active, shape, first_round=rounds.start)

    def draw_planned(self, num_rounds: int, num_devices: int) -> Array | None:
        """Who transmits, (round, device), as a plan counts on it: exact for a policy without
        randomness, else drawn with a fixed seed and equal path gains. None where everybody does,
        always."""
        fading = np.ones((num_rounds, num_devices, 1))
        return self.draw_checked(generator(0, Purpose.PLANNING, 1), range(num_rounds), fading)


@dataclass(frozen=True)
class AllDevices(Scheduler):
    """Every device transmits in every round."""

    random: ClassVar[bool] = False
    everyone: ClassVar[bool] = True

    def draw(self, rng: np.random.Generator, rounds: range, fading: Array) -> Array:
        """Ones."""
        return np.ones((len(rounds), fading.shape[1]))

    def draw_planned(self, num_rounds: int, num_devices: int) -> Array | None:
        """Everybody, always."""
        return None


@dataclass(frozen=True)
class GivenDevices(Scheduler):
    """Who transmits is given beforehand: ``active`` (round, device) holds 1 and 0."""

    active: Array
    random: ClassVar[bool] = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "active", np.asarray(self.active, dtype=np.float64))

    def check(self, num_rounds: int, num_devices: int) -> None:
        """The array must fit the plan."""
        check_active(self.active, (num_rounds, num_devices))

    def draw(self, rng: np.random.Generator, rounds: range, fading: Array) -> Array:
        """The rows of these rounds."""
        return self.active[rounds.start : rounds.stop]

    def draw_planned(self, num_rounds: int, num_devices: int) -> Array | None:
        """The given array."""
        return self.active

    def most_rounds(self, num_rounds: int) -> int:
        """Of the device that transmits most often."""
        return int(self.active[:num_rounds].sum(axis=0).max())


@dataclass(frozen=True)
class RandomDevices(Scheduler):
    """In every round ``count`` devices, drawn without replacement, all sets being equally likely.

    Before the run a device is charged as if it transmitted in every round: no bound below that
    holds for certain. The ledger counts the rounds in which it did."""

    count: int

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "count", checks.at_least("the number of random devices", self.count, 1)
        )

    def check(self, num_rounds: int, num_devices: int) -> None:
        """There must be so many devices."""
        if self.count > num_devices:
            raise InvalidSetting(
                f"the number of random devices must not exceed the devices, {num_devices}; got"
                f" {self.count}"
            )

    def draw(self, rng: np.random.Generator, rounds: range, fading: Array) -> Array:
        """The devices with the smallest of as many uniform numbers."""
        place = np.argsort(rng.random((len(rounds), fading.shape[1])), axis=1)
        return np.asarray(np.argsort(place, axis=1) < self.count, dtype=np.float64)


def check_active(active: Array, shape: tuple[int, int], first_round: int = 0) -> Array:
    """Refuse an array of another shape, with other values than 0 and 1, or with a round in which
    nobody transmits."""
    if active.shape != shape or not np.isin(active, (0.0, 1.0)).all():
        raise InvalidSetting(
            f"active must hold 0 and 1, (round, device) = {shape}; got shape {active.shape}"
        )
    silent = np.flatnonzero(active.sum(axis=1) == 0)
    if silent.size:
        raise InvalidSetting(
            "active must have at least one device in every round, got none in round"
            f" {first_round + silent[0] + 1}"
        )
    return active
