"""The fadings that flmc brings: constant, a given array, and Rayleigh."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flmc.base import checks
from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.uplink.fading import Fading


@dataclass(frozen=True)
class ConstantFading(Fading):
    """The same path gain for every round, device and entry.

    Attributes
    ----------
    gain
        The path gain h, positive.
    """

    gain: float = 0.04
    constant = True
    independent = True

    def __post_init__(self) -> None:
        checks.positive("fading", self.gain)

    def draw(self, rng: np.random.Generator, rounds: range, num_devices: int, dim: int) -> Array:
        """The constant path gain, as an array of shape (1, 1, 1).

        Parameters
        ----------
        rng
            Not used: nothing is random.
        rounds, num_devices, dim
            Not used: one number stands for all rounds, devices and entries.

        Returns
        -------
        Array
            The path gain, (1, 1, 1).
        """
        return np.full((1, 1, 1), self.gain)


@dataclass(frozen=True)
class FixedFading(Fading):
    """Given path gains of each device, the same in every round.

    Attributes
    ----------
    gains
        Positive path gains, (device, dim), or (device, 1) for all entries alike.

    Raises
    ------
    InvalidSetting
        If the array has not two axes, or a number is not finite and positive.

    Examples
    --------
    >>> near_and_far = flmc.FixedFading(np.array([[0.08], [0.02]]))
    >>> near_and_far.draw_checked(np.random.default_rng(0), range(3), 2, 5).shape
    (3, 2, 5)
    """

    gains: Array
    constant = True
    independent = True

    def __post_init__(self) -> None:
        gains = checks.finite_array("fading", self.gains)
        if gains.ndim != 2 or (gains <= 0).any():
            raise InvalidSetting(
                f"fading must be a (device, dim) array of positive numbers, got shape {gains.shape}"
                f" with least value {gains.min(initial=np.inf):g}"
            )
        object.__setattr__(self, "gains", gains)

    def draw(self, rng: np.random.Generator, rounds: range, num_devices: int, dim: int) -> Array:
        """The given path gains, with a leading axis of length 1 for the round.

        Parameters
        ----------
        rng
            Not used: nothing is random.
        rounds, num_devices, dim
            Not used: the array is the same in all rounds.

        Returns
        -------
        Array
            Path gains, (1, device, dim) or (1, device, 1).
        """
        return self.gains[None]


@dataclass(frozen=True)
class RayleighFading(Fading):
    r"""Rayleigh fading: the magnitude of :math:`\text{scale} \cdot CN(0, 1)`.

    Path gains are independent over rounds and devices, and the same for all entries of a round:
    :math:`E[h^2] = \text{scale}^2`.

    Attributes
    ----------
    scale
        Root mean square of the path gain, positive.
    """

    scale: float = 0.04
    independent = True

    def __post_init__(self) -> None:
        checks.positive("fading scale", self.scale)

    def draw(self, rng: np.random.Generator, rounds: range, num_devices: int, dim: int) -> Array:
        r"""Path gains of some rounds, :math:`\text{scale}\sqrt{x}` with x exponential of mean 1.

        Parameters
        ----------
        rng
            Source of the random numbers.
        rounds
            The rounds that are drawn; only their number matters.
        num_devices
            Number of devices.
        dim
            Not used: all entries of a round share a path gain.

        Returns
        -------
        Array
            Path gains, (round, device, 1).
        """
        return self.scale * np.sqrt(rng.standard_exponential((len(rounds), num_devices, 1)))
