r"""The schedulers that flmc brings, which say who transmits in a round: all devices, a given array,
some at random, and policies by channel, which decide from the devices' path gains h.

Policies by channel silence the devices in a deep fade. With channel inversion the weakest active
device limits the gain of all, so a larger gain can outweigh the loss of the silent devices. The
strength of a channel is :math:`(\frac1m\sum_i h_{k,i}^{-2})^{-1/2}`, to which the largest gain of
the device is proportional: h itself where all entries share it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from flmc.base import checks
from flmc.base.arrays import Array, IntArray
from flmc.base.errors import InvalidSetting
from flmc.uplink.fading import Fading
from flmc.uplink.scheduler import Scheduler, check_active

__all__ = [
    "AllDevices",
    "GivenDevices",
    "PredecessorDevices",
    "RandomDevices",
    "StrongestDevices",
    "ThresholdDevices",
]


@dataclass(frozen=True)
class AllDevices(Scheduler):
    """Every device transmits in every round."""

    random: ClassVar[bool] = False
    independent: ClassVar[bool] = True
    everyone: ClassVar[bool] = True

    def draw(self, rng: np.random.Generator, rounds: range, fading: Array) -> Array:
        """Ones (round, device): every device transmits."""
        return np.ones((len(rounds), fading.shape[1]))

    def draw_planned(self, num_rounds: int, num_devices: int) -> Array | None:
        """None, which means that all devices transmit in all rounds."""
        return None


@dataclass(frozen=True)
class GivenDevices(Scheduler):
    """Policy given as an array before the run.

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
    independent: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "active", np.asarray(self.active, dtype=np.float64))

    def check(self, num_rounds: int, num_devices: int) -> None:
        """Raise ``InvalidSetting`` if the array does not fit the plan's number of rounds or of
        devices; :func:`~flmc.uplink.scheduler.check_active` says how."""
        check_active(self.active, (num_rounds, num_devices))

    def draw(self, rng: np.random.Generator, rounds: range, fading: Array) -> Array:
        """Who transmits in ``rounds``, (round, device) with 1 and 0: the part of the given array
        ``active`` for these rounds."""
        return self.active[rounds.start : rounds.stop]

    def draw_planned(self, num_rounds: int, num_devices: int) -> Array | None:
        """The given array (round, device), on which a plan counts."""
        return self.active

    def most_rounds(self, num_rounds: int, num_devices: int) -> int:
        """Largest number of rounds, among the first ``num_rounds``, in which any one device
        transmits, counted in the given array ``active``."""
        return int(self.active[:num_rounds].sum(axis=0).max())


@dataclass(frozen=True)
class CountedDevices(Scheduler):
    """Base of the policies with a fixed number of active devices in every round.

    Attributes
    ----------
    count
        Number of devices that transmit in a round, at least 1.
    """

    count: int
    counted: ClassVar[str] = "chosen"
    """Word for the active devices of this policy in messages, such as ``chosen``."""

    def __post_init__(self) -> None:
        name = f"the number of {self.counted} devices"
        object.__setattr__(self, "count", checks.at_least(name, self.count, 1))

    def check(self, num_rounds: int, num_devices: int) -> None:
        """Refuse a plan with fewer than ``count`` devices."""
        if self.count > num_devices:
            raise InvalidSetting(
                f"the number of {self.counted} devices must not exceed the devices, {num_devices};"
                f" got {self.count}"
            )


@dataclass(frozen=True)
class RandomDevices(CountedDevices):
    """Policy that draws ``count`` devices in every round; all sets of so many devices are equally
    likely.

    A plan averages delta over the schedules that may be drawn. A device of a deployment sees one
    schedule only, so it charges itself for every round. The ledger counts the rounds in which it
    transmitted.

    Attributes
    ----------
    count
        Number of devices that transmit in a round, at least 1.
    """

    independent: ClassVar[bool] = True
    counted: ClassVar[str] = "random"

    def draw(self, rng: np.random.Generator, rounds: range, fading: Array) -> Array:
        """1 for ``count`` devices chosen at random (those with the smallest random numbers), else
        0, (round, device)."""
        place = np.argsort(rng.random((len(rounds), fading.shape[1])), axis=1)
        # The order of an order is a rank: the first argsort lists devices by their numbers, the
        # second says at which place each device is.
        return np.asarray(np.argsort(place, axis=1) < self.count, dtype=np.float64)

    def chance(self, num_devices: int, fading: Fading) -> float | None:
        """The probability ``count`` / ``num_devices`` with which each device transmits in a round,
        whatever the channel; None for a subclass with a ``draw`` of its own."""
        if type(self).draw is not RandomDevices.draw:
            return None
        return self.count / num_devices


@dataclass(frozen=True)
class ThresholdDevices(Scheduler):
    """Truncated channel inversion: a device transmits if the strength of its channel reaches a
    threshold. The strength is the path gain h or, where entries differ, one over the root mean
    square of 1/h. A round in which no channel reaches the threshold is skipped.

    Attributes
    ----------
    threshold
        Least strength, in the unit of path gains, positive.

    Examples
    --------
    >>> fading = np.array([[[0.01], [0.05]], [[0.01], [0.02]]])
    >>> policy = flmc.ThresholdDevices(0.03)
    >>> policy.draw_checked(np.random.default_rng(0), range(2), fading).tolist()
    [[0.0, 1.0], [0.0, 0.0]]
    """

    threshold: float
    independent: ClassVar[bool] = True
    by_channel: ClassVar[bool] = True

    def __post_init__(self) -> None:
        checks.positive("threshold", self.threshold)

    def draw(self, rng: np.random.Generator, rounds: range, fading: Array) -> Array:
        """1 for devices whose channel strength is at least the threshold, else 0, (round,
        device)."""
        return np.asarray(strength_of(fading) >= self.threshold, dtype=np.float64)

    def chance(self, num_devices: int, fading: Fading) -> float | None:
        """Probability that a path gain reaches the threshold, if rounds are independent and the law
        of the path gains knows it; else None."""
        if not fading.independent or type(self).draw is not ThresholdDevices.draw:
            return None
        return fading.exceedance(self.threshold)


@dataclass(frozen=True)
class StrongestDevices(CountedDevices):
    """Policy under which the ``count`` devices with the strongest channels of each round transmit.

    Attributes
    ----------
    count
        Number of devices that transmit in a round, at least 1.
    """

    independent: ClassVar[bool] = True
    by_channel: ClassVar[bool] = True
    counted: ClassVar[str] = "strongest"

    def draw(self, rng: np.random.Generator, rounds: range, fading: Array) -> Array:
        """1 for the ``count`` devices with the strongest channels, else 0, (round, device); of
        equally strong ones those with the smallest numbers."""
        strength = strength_of(fading)
        return _strongest(strength, _descending(strength), np.full(len(strength), self.count))

    def chance(self, num_devices: int, fading: Fading) -> float | None:
        """The probability ``count`` / ``num_devices`` with which each device transmits in a round,
        if path gains are independent draws from one law that never gives equal ones; else None."""
        if not fading.independent or type(self).draw is not StrongestDevices.draw:
            return None
        # Of equally strong devices the first would be chosen more often, so that chances would
        # differ; a law whose ``exceedance`` is known never draws equal path gains.
        known = fading.alike and fading.exceedance(1.0) is not None
        return self.count / num_devices if known else None


@dataclass(frozen=True)
class PredecessorDevices(Scheduler):
    r"""The rule of wireless federated Langevin Monte Carlo with analog transmission.

    The n strongest of K devices transmit, where n minimises :math:`\frac{N_0 K^2}{P n^2 h_{(n)}^2}
    + 4(K-n)^2`: noise at the server after the path gain :math:`h_{(n)}` of the weakest of the n
    devices was inverted, against what the silent devices' gradients would have added. :math:`N_0`
    is the noise power, and :math:`P = m P_0` the energy of a round of m entries at the power limit
    :math:`P_0`.

    Attributes
    ----------
    snr_db
        :math:`P_0/N_0` in dB, as the uplink has it.
    """

    snr_db: float
    independent: ClassVar[bool] = True
    by_channel: ClassVar[bool] = True

    def __post_init__(self) -> None:
        checks.number("the SNR of the predecessor's rule", self.snr_db)
        if abs(self.snr_db) > 300:
            raise InvalidSetting(
                f"the SNR of the predecessor's rule must be within 300 dB, got {self.snr_db!r}"
            )

    def draw(self, rng: np.random.Generator, rounds: range, fading: Array) -> Array:
        """1 for the n devices with the strongest channels, else 0, (round, device); n minimises the
        noise after the inversion of the weakest of these channels plus what silent devices'
        gradients would have added."""
        devices, dim = fading.shape[1:]
        # N_0/P, where P = m P_0 is the energy of m entries
        noise = 10.0 ** (-self.snr_db / 10.0) / dim
        strength = strength_of(fading)
        weakest = _descending(strength)  # column n - 1 holds the weakest of the n strongest
        count = np.arange(1, devices + 1)
        cost = noise * np.square(devices / (count * weakest)) + 4.0 * np.square(devices - count)
        return _strongest(strength, weakest, np.argmin(cost, axis=1) + 1)


def strength_of(fading: Array) -> Array:
    r"""Strength of every channel, :math:`(\frac1m\sum_i h_{k,i}^{-2})^{-1/2}`, (round, device),
    from path gains (round, device, dim)."""
    # Where entries share a path gain h, the strength is h itself: a power and its inverse would
    # change its last bits, and with them who is active at a threshold of exactly h.
    if fading.strides[-1] == 0 or fading.shape[-1] == 1:
        return np.asarray(fading[..., 0])
    return np.asarray(np.mean(fading**-2.0, axis=-1) ** -0.5)


def _descending(strength: Array) -> Array:
    """Strengths of each round, the largest first, (round, device)."""
    return np.sort(strength, axis=1)[:, ::-1]


def _strongest(strength: Array, ordered: Array, count: IntArray) -> Array:
    """1 for the ``count`` (round) strongest devices of each round, else 0: (round, device); of
    equally strong devices those with the smallest numbers. ``strength`` is (round, device), and
    ``ordered`` holds the same numbers in descending order."""
    least = np.take_along_axis(ordered, np.minimum(count, ordered.shape[1])[:, None] - 1, axis=1)
    active = strength >= least
    # Sorting numbers is much faster than finding their order, so the order is found only in rounds
    # where equal strengths make more devices active than asked for.
    tied = active.sum(axis=1) > count
    if tied.any():
        order = np.argsort(-strength[tied], axis=1, kind="stable")
        active[tied] = np.argsort(order, axis=1) < count[tied, None]
    return active.astype(np.float64)
