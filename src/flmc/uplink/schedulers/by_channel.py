r"""Policies that follow the channel: devices in a deep fade are silent.

With channel inversion the weakest device decides how loudly all may transmit, so a round gains more
from silence of the weak than it loses. The strength of a device's channel is :math:`(\frac1m\sum_i
h_{k,i}^{-2})^{-1/2}`, to which its largest gain is proportional: h itself where entries share it.

Who transmits follows from the channel alone, which is public, and so reveals nothing of the data. A
round in which nobody's channel suffices is skipped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from flmc.base import checks
from flmc.base.arrays import Array, IntArray
from flmc.base.errors import InvalidSetting
from flmc.uplink.scheduler import Scheduler
from flmc.uplink.schedulers.simple import CountedDevices


def strength_of(fading: Array) -> Array:
    r"""Strength of every channel, :math:`(\frac1m\sum_i h_{k,i}^{-2})^{-1/2}`, (round, device).

    Parameters
    ----------
    fading
        Path gains (round, device, dim).
    """
    if fading.strides[-1] == 0 or fading.shape[-1] == 1:  # entries share a path gain
        return np.asarray(fading[..., 0])
    return np.asarray(np.mean(fading**-2.0, axis=-1) ** -0.5)


@dataclass(frozen=True)
class ThresholdDevices(Scheduler):
    """Truncated channel inversion: a device transmits if its channel is at least so strong.

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
    by_channel: ClassVar[bool] = True

    def __post_init__(self) -> None:
        checks.positive("threshold", self.threshold)

    def draw(self, rng: np.random.Generator, rounds: range, fading: Array) -> Array:
        """1 for devices whose channel is strong enough, (round, device).

        Parameters
        ----------
        rng, rounds, fading
            Only the path gains (round, device, dim) count.
        """
        return np.asarray(strength_of(fading) >= self.threshold, dtype=np.float64)


@dataclass(frozen=True)
class StrongestDevices(CountedDevices):
    """The devices with the strongest channels of a round, always as many.

    Attributes
    ----------
    count
        Devices in a round, at least 1.
    """

    by_channel: ClassVar[bool] = True
    counted: ClassVar[str] = "strongest"

    def draw(self, rng: np.random.Generator, rounds: range, fading: Array) -> Array:
        """1 for the ``count`` devices with the strongest channels, (round, device); among equals
        the first.

        Parameters
        ----------
        rng, rounds, fading
            Only the path gains (round, device, dim) count.
        """
        strength = strength_of(fading)
        return _strongest(strength, _descending(strength), np.full(len(strength), self.count))


@dataclass(frozen=True)
class PredecessorDevices(Scheduler):
    r"""The rule of wireless federated Langevin Monte Carlo with analog transmission.

    The n strongest devices transmit, where n minimises :math:`\frac{N_0 K^2}{P n^2 h_{(n)}^2} +
    4(K-n)^2`: noise at the server after the weakest of them, :math:`h_{(n)}`, was inverted, against
    what the silent devices' gradients would have added. :math:`P = m P_0` is the energy of a round.

    Attributes
    ----------
    snr_db
        :math:`P_0/N_0` in dB, as the uplink has it.
    """

    snr_db: float
    by_channel: ClassVar[bool] = True

    def __post_init__(self) -> None:
        checks.number("the SNR of the predecessor's rule", self.snr_db)
        if abs(self.snr_db) > 300:
            raise InvalidSetting(
                f"the SNR of the predecessor's rule must be within 300 dB, got {self.snr_db!r}"
            )

    def draw(self, rng: np.random.Generator, rounds: range, fading: Array) -> Array:
        """1 for the strongest devices, as many as minimise the rule's sum, (round, device).

        Parameters
        ----------
        rng, rounds, fading
            Only the path gains (round, device, dim) count.
        """
        devices, dim = fading.shape[1:]
        noise = 10.0 ** (-self.snr_db / 10.0) / dim  # N_0/P
        strength = strength_of(fading)
        weakest = _descending(strength)
        count = np.arange(1, devices + 1)
        cost = noise * np.square(devices / (count * weakest)) + 4.0 * np.square(devices - count)
        return _strongest(strength, weakest, np.argmin(cost, axis=1) + 1)


def _descending(strength: Array) -> Array:
    """Strengths of each round, the largest first, (round, device)."""
    return np.sort(strength, axis=1)[:, ::-1]


def _strongest(strength: Array, ordered: Array, count: IntArray) -> Array:
    """1 for so many of the strongest devices of each round, (round, device); among equals the
    first. ``ordered`` are the strengths in descending order."""
    least = np.take_along_axis(ordered, np.minimum(count, ordered.shape[1])[:, None] - 1, axis=1)
    active = strength >= least
    # To sort numbers is much faster than to find their order, which matters among equals only.
    tied = active.sum(axis=1) > count
    if tied.any():
        order = np.argsort(-strength[tied], axis=1, kind="stable")
        active[tied] = np.argsort(order, axis=1) < count[tied, None]
    return active.astype(np.float64)
