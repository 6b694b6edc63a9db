"""Path gains that do not change: one for all, or a given array."""

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

    @property
    def mean_square(self) -> float:
        """The square of the path gain."""
        return self.gain**2

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

    @property
    def mean_square(self) -> float:
        """Mean of the squares of all path gains."""
        return float(np.mean(np.square(self.gains)))

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
