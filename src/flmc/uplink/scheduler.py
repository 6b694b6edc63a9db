"""Scheduling: which devices transmit in a round.

A policy decides from public knowledge alone, that is from the channel and random numbers of its
own, so that who transmits reveals nothing of the data. It decides for each experiment, round and
device."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np

from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.base.randomness import Purpose, generator
from flmc.uplink.fading import Fading


class Scheduler(ABC):
    """Policy that says which devices transmit in each round. To write your own, derive a class with
    one method, ``draw``; class variables state what is known of the policy before the run.

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
    """Whether the choice of devices is random or follows from random path gains, so that two
    experiments may have different devices active in the same round."""
    everyone: ClassVar[bool] = False
    """Whether all devices transmit in every round."""
    independent: ClassVar[bool] = False
    """Whether the draws of all rounds are independent of each other, so that a run may ask for them
    in blocks of rounds; a policy that does not say so is asked once, for all rounds of a run, and
    may remember earlier rounds. It holds for the ``draw`` of the class that states it: a subclass
    with a ``draw`` of its own states it again."""
    by_channel: ClassVar[bool] = False
    """Whether who transmits follows from the path gains alone. Then as many transmit as the channel
    decides, which may be nobody: such a round is skipped. The gain of a round is chosen by the
    number of devices that transmit in it, and plans draw channels to know how many to expect."""

    @abstractmethod
    def draw(self, rng: np.random.Generator, rounds: range, fading: Array) -> Array:
        """Who transmits in some rounds.

        Parameters
        ----------
        rng
            The only source of randomness: one stream for each experiment or, for policies that are
            ``independent``, one for each experiment and block of rounds.
        rounds
            The rounds in question, counted from 0: all of a run, the first to the last, unless the
            policy is ``independent``.
        fading
            Path gains (round, device, dim) of these rounds.

        Returns
        -------
        Array
            1 for a device that transmits, else 0: (round, device).
        """

    @property
    def forgets(self) -> bool:
        """Whether the policy may be asked for any round without the rounds before it:
        ``independent`` is stated for the ``draw`` that this policy has, and not for one that a
        subclass has replaced."""
        for kind in type(self).__mro__:
            if "independent" in vars(kind):
                return bool(vars(kind)["independent"])
            if "draw" in vars(kind):
                return False
        return False

    def most_rounds(self, num_rounds: int, num_devices: int) -> int:
        """Upper bound of the number of rounds in which any one device transmits: all of them.

        The accountant charges it before the run; a subclass may know a smaller one.

        Parameters
        ----------
        num_rounds
            Number of rounds, from the first on, in which the device's transmissions are counted.
        num_devices
            Number of devices among which the policy chooses.
        """
        return num_rounds

    def chance(self, num_devices: int, fading: Fading) -> float | None:
        """Probability that a device transmits in a round, if that is the same for each device and
        every round, independently of other rounds; None: not known, as here.

        If it is known, a plan's delta is averaged over the sets of devices that may be drawn; else
        a device is charged for ``most_rounds`` rounds.

        Parameters
        ----------
        num_devices
            Number of devices among which the policy chooses.
        fading
            Law of the path gains.
        """
        return None

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
            If :func:`~flmc.uplink.scheduler.check_active` refuses the draw.
        """
        active = np.asarray(self.draw(rng, rounds, fading), dtype=np.float64)
        shape = (len(rounds), fading.shape[1])
        return check_active(active, shape, rounds.start, may_be_empty=self.by_channel)

    def draw_planned(self, num_rounds: int, num_devices: int) -> Array | None:
        """Devices that a plan expects to transmit.

        They are exact for a policy without randomness, else drawn once with a fixed seed, as if all
        path gains were 1.

        Parameters
        ----------
        num_rounds, num_devices
            Number of rounds and of devices of the plan.

        Returns
        -------
        Array or None
            1 for a device that transmits, else 0: (round, device). None: everybody, always.

        Raises
        ------
        InvalidSetting
            If a policy without randomness breaks its own bound ``most_rounds``.
        """
        fading = np.ones((num_rounds, num_devices, 1))
        # Another random stream than that from which a plan draws path gains, generator(0,
        # Purpose.PLANNING).
        rng = generator(0, Purpose.PLANNING, 1)
        active = self.draw_checked(rng, range(num_rounds), fading)
        # Only a policy without randomness is checked here: a random one will draw other devices in
        # the run, and may never meet the equal path gains that are assumed here. A run checks its
        # own draw.
        broken = None if self.random else self.why_broken(active.sum(axis=0).max(), *active.shape)
        if broken is not None:
            raise InvalidSetting(f"{broken}; return a bound that holds for certain")
        return active

    def why_broken(self, most: float, num_rounds: int, num_devices: int) -> str | None:
        """Message that says that the policy breaks its own bound; None if it keeps it.

        Parameters
        ----------
        most
            Largest number of rounds in which a device transmits.
        num_rounds, num_devices
            Number of rounds and of devices of the plan.
        """
        declared = self.most_rounds(num_rounds, num_devices)
        if most <= declared:
            return None
        return (
            f"{type(self).__name__} lets a device transmit in {int(most)} of {num_rounds} rounds,"
            f" and its most_rounds declares {declared} at most: the plan's privacy would not hold"
        )


def check_active(
    active: Array, shape: tuple[int, int], first_round: int = 0, *, may_be_empty: bool = False
) -> Array:
    """The array ``active`` itself, refused unless it holds 0 and 1 in the given shape (round,
    device), with at least one device in every round unless ``may_be_empty``. ``first_round``,
    counted from 0, is the number of the array's first round, for the error message."""
    if active.shape != shape or not np.isin(active, (0.0, 1.0)).all():
        raise InvalidSetting(
            f"active must hold 0 and 1, (round, device) = {shape}; got shape {active.shape}"
        )
    silent = np.flatnonzero(active.sum(axis=1) == 0)
    if silent.size and not may_be_empty:
        raise InvalidSetting(
            "active must have at least one device in every round, got none in round"
            f" {first_round + silent[0] + 1}"
        )
    return active
