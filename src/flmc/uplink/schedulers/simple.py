"""Policies that do not look at the channel: all devices, a given array, and some at random."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from flmc.base import checks
from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.uplink.scheduler import Scheduler, check_active


@dataclass(frozen=True)
class AllDevices(Scheduler):
    """Every device transmits in every round."""

    random: ClassVar[bool] = False
    everyone: ClassVar[bool] = True

    def draw(self, rng: np.random.Generator, rounds: range, fading: Array) -> Array:
        """Ones (round, device): every device transmits.

        Parameters
        ----------
        rng, rounds, fading
            The generator is not used; rounds and path gains (round, device, dim) say how many.
        """
        return np.ones((len(rounds), fading.shape[1]))

    def draw_planned(self, num_rounds: int, num_devices: int) -> Array | None:
        """None, which stands for everybody in every round.

        Parameters
        ----------
        num_rounds, num_devices
            Not used.
        """
        return None


@dataclass(frozen=True)
class GivenDevices(Scheduler):
    """Policy that was given beforehand, as an array.

    Attributes
    ----------
    active
        Who transmits, (round, device) with 1 and 0; at least one device in every round.

    Examples
    --------
    >>> flmc.GivenDevices(np.tile([[1, 0], [0, 1]], (150, 1))).most_rounds(300, 2)
    150
    """

    active: Array
    random: ClassVar[bool] = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "active", np.asarray(self.active, dtype=np.float64))

    def check(self, num_rounds: int, num_devices: int) -> None:
        """Refuse a plan that the array does not fit, as
        :func:`~flmc.uplink.scheduler.check_active` says.

        Parameters
        ----------
        num_rounds, num_devices
            Number of rounds and of devices of the plan.
        """
        check_active(self.active, (num_rounds, num_devices))

    def draw(self, rng: np.random.Generator, rounds: range, fading: Array) -> Array:
        """Rows of the given array (round, device) that belong to some rounds.

        Parameters
        ----------
        rng, rounds, fading
            Only the rounds are used, counted from 0.
        """
        return self.active[rounds.start : rounds.stop]

    def draw_planned(self, num_rounds: int, num_devices: int) -> Array | None:
        """The given array (round, device), for a plan to count on.

        Parameters
        ----------
        num_rounds, num_devices
            Not used: ``check`` has compared them with the array.
        """
        return self.active

    def most_rounds(self, num_rounds: int, num_devices: int) -> int:
        """Number of rounds of the device that transmits most often.

        Parameters
        ----------
        num_rounds
            The first rounds, among which they are counted.
        num_devices
            Not used: the array has a column for each.
        """
        return int(self.active[:num_rounds].sum(axis=0).max())


@dataclass(frozen=True)
class CountedDevices(Scheduler):
    """Policy that has always as many devices in a round.

    Attributes
    ----------
    count
        Devices in a round, at least 1.
    """

    count: int
    counted: ClassVar[str] = "chosen"
    """How the devices are called in messages."""

    def __post_init__(self) -> None:
        name = f"the number of {self.counted} devices"
        object.__setattr__(self, "count", checks.at_least(name, self.count, 1))

    def check(self, num_rounds: int, num_devices: int) -> None:
        """Refuse a plan with fewer devices than are to be drawn.

        Parameters
        ----------
        num_rounds, num_devices
            Number of rounds, which is not used, and of devices of the plan.

        Raises
        ------
        InvalidSetting
            If there are fewer than ``count`` devices.
        """
        if self.count > num_devices:
            raise InvalidSetting(
                f"the number of {self.counted} devices must not exceed the devices, {num_devices};"
                f" got {self.count}"
            )


@dataclass(frozen=True)
class RandomDevices(CountedDevices):
    """Policy that draws ``count`` devices in every round, all sets of them being equally likely.

    Before the run a device is charged as if it transmitted in every round, because no bound below
    that holds for certain. The ledger counts the rounds in which it did.

    Attributes
    ----------
    count
        Devices in a round, at least 1.
    """

    counted: ClassVar[str] = "random"

    def draw(self, rng: np.random.Generator, rounds: range, fading: Array) -> Array:
        """1 for the ``count`` devices with the smallest uniform numbers, else 0: (round, device).

        Parameters
        ----------
        rng, rounds, fading
            Source of the random numbers; rounds and path gains (round, device, dim) say how many.
        """
        place = np.argsort(rng.random((len(rounds), fading.shape[1])), axis=1)
        # The order of an order is a rank: the first argsort lists devices by their numbers, the
        # second says at which place each device is.
        return np.asarray(np.argsort(place, axis=1) < self.count, dtype=np.float64)
