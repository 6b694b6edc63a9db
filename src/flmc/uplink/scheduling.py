"""Scheduling: which devices transmit in a round.

A policy decides from public knowledge alone, that is from the channel and random numbers of its
own, so that who transmits reveals nothing of the data. It decides for each experiment, round and
device."""

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
    """Policy that says who transmits. Your own is a class with one method, ``draw``.

    Examples
    --------
    >>> class StrongerHalf(flmc.Scheduler):
    ...     def draw(self, rng, rounds, fading):
    ...         strength = fading.mean(axis=2)  # (round, device)
    ...         return (strength >= np.median(strength, axis=1, keepdims=True)).astype(float)
    >>> fading = np.array([[[0.1], [0.2], [0.3], [0.4]]])
    >>> StrongerHalf().draw_checked(np.random.default_rng(0), range(1), fading).tolist()
    [[0.0, 0.0, 1.0, 1.0]]
    """

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
            Path gains (round, device, dim) of these rounds.

        Returns
        -------
        Array
            1 for a device that transmits, else 0: (round, device).
        """

    def most_rounds(self, num_rounds: int) -> int:
        """Upper bound of the number of rounds in which any one device transmits: all of them.

        The accountant charges it before the run; a subclass may know a smaller one.

        Parameters
        ----------
        num_rounds
            The first rounds, among which the device's are counted.
        """
        return num_rounds

    def check(self, num_rounds: int, num_devices: int) -> None:  # noqa: B027 (most policies fit every plan)
        """Refuse a plan for which this policy makes no sense; the base class accepts every plan.

        Parameters
        ----------
        num_rounds, num_devices
            Number of rounds and of devices of the plan.
        """

    def draw_checked(self, rng: np.random.Generator, rounds: range, fading: Array) -> Array:
        """Who transmits in some rounds, (round, device) with 1 and 0, refused unless the draw is
        valid.

        Parameters
        ----------
        rng
            Source of randomness, passed to :meth:`draw`.
        rounds
            The rounds in question, counted from 0.
        fading
            Path gains (round, device, dim) of these rounds.

        Raises
        ------
        InvalidSetting
            If :func:`~flmc.uplink.scheduling.check_active` refuses the draw.
        """
        active = np.asarray(self.draw(rng, rounds, fading), dtype=np.float64)
        shape = (len(rounds), fading.shape[1])
        return check_active(active, shape, first_round=rounds.start)

    def draw_planned(self, num_rounds: int, num_devices: int) -> Array | None:
        """Who is expected to transmit, as a plan counts on it.

        It is exact for a policy without randomness, else drawn with a fixed seed and equal path
        gains.

        Parameters
        ----------
        num_rounds, num_devices
            Number of rounds and of devices of the plan.

        Returns
        -------
        Array or None
            1 for a device that transmits, else 0: (round, device). None: everybody, always.
        """
        fading = np.ones((num_rounds, num_devices, 1))
        # Another stream than that of the planned fading, which is experiment 0 of the same purpose.
        return self.draw_checked(generator(0, Purpose.PLANNING, 1), range(num_rounds), fading)


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
    >>> flmc.GivenDevices(np.tile([[1, 0], [0, 1]], (150, 1))).most_rounds(300)
    150
    """

    active: Array
    random: ClassVar[bool] = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "active", np.asarray(self.active, dtype=np.float64))

    def check(self, num_rounds: int, num_devices: int) -> None:
        """Refuse a plan that the array does not fit, as
        :func:`~flmc.uplink.scheduling.check_active` says.

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

    def most_rounds(self, num_rounds: int) -> int:
        """Number of rounds of the device that transmits most often.

        Parameters
        ----------
        num_rounds
            The first rounds, among which they are counted.
        """
        return int(self.active[:num_rounds].sum(axis=0).max())


@dataclass(frozen=True)
class RandomDevices(Scheduler):
    """Policy that draws ``count`` devices in every round, all sets of them being equally likely.

    Before the run a device is charged as if it transmitted in every round, because no bound below
    that holds for certain. The ledger counts the rounds in which it did.

    Attributes
    ----------
    count
        Devices in a round, at least 1.
    """

    count: int

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "count", checks.at_least("the number of random devices", self.count, 1)
        )

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
                f"the number of random devices must not exceed the devices, {num_devices}; got"
                f" {self.count}"
            )

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


def check_active(active: Array, shape: tuple[int, int], first_round: int = 0) -> Array:
    """The array of active devices, refused unless it is valid.

    Parameters
    ----------
    active
        Who transmits, (round, device).
    shape
        Number of rounds and of devices that it must have.
    first_round
        Number of its first round, from 0, for the error message.

    Raises
    ------
    InvalidSetting
        If the array has another shape or other values than 0 and 1, or nobody transmits in some
        round.
    """
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
