r"""Fading: the gain :math:`h` of each device's path to the server, per round, device and entry.

Only the magnitude matters, because each device knows its channel and inverts it. Values are positive.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from flmc import checks
from flmc.checks import Array
from flmc.errors import InvalidSetting


class Fading(ABC):
    """A law of the channel gains. Your own is a class with one method, ``draw``."""

    constant: bool = False
    """Whether every draw gives the same values."""

    @abstractmethod
    def draw(self, rng: np.random.Generator, num_rounds: int, num_devices: int, dim: int) -> Array:
        """Gains that broadcast to (round, device, dim), all positive."""

    def draw_checked(self, rng: np.random.Generator, num_rounds: int, num_devices: int, dim: int) -> Array:
        """A draw with its full shape, refused if a gain is not a positive number."""
        gains = np.asarray(self.draw(rng, num_rounds, num_devices, dim), dtype=np.float64)
        shape = (num_rounds, num_devices, dim)
        try:
            full = np.broadcast_to(gains, shape)
        except ValueError:
            raise InvalidSetting(
                f"{type(self).__name__}.draw must broadcast to (round, device, dim) = {shape}, got {gains.shape}"
            ) from None
        if not (np.isfinite(gains) & (gains > 0)).all():
            worst = gains[~(np.isfinite(gains) & (gains > 0))].flat[0]
            raise InvalidSetting(f"fading must be positive (a device cannot invert a dead channel), got {worst}")
        return full


@dataclass(frozen=True)
class ConstantFading(Fading):
    """The same gain for every round, device and entry."""

    gain: float = 0.04
    constant = True

    def __post_init__(self) -> None:
        checks.positive("fading", self.gain, extreme=1e30)

    def draw(self, rng: np.random.Generator, num_rounds: int, num_devices: int, dim: int) -> Array:
        """One number."""
        return np.full((1, 1, 1), self.gain)


@dataclass(frozen=True)
class FixedFading(Fading):
    """A given array of gains (device, dim) or (device, 1), the same in every round."""

    gains: Array
    constant = True

    def __post_init__(self) -> None:
        gains = checks.finite_array("fading", self.gains)
        if gains.ndim != 2 or (gains <= 0).any():
            raise InvalidSetting(
                f"fading must be a (device, dim) array of positive numbers, got shape {gains.shape}"
                f" with least value {gains.min(initial=np.inf):g}"
            )
        object.__setattr__(self, "gains", gains)

    def draw(self, rng: np.random.Generator, num_rounds: int, num_devices: int, dim: int) -> Array:
        """The given array."""
        return self.gains[None]


@dataclass(frozen=True)
class RayleighFading(Fading):
    r"""Magnitude of :math:`\text{scale} \cdot CN(0, 1)`, independent over rounds and devices, the same for all entries
    of a round (a block): :math:`E[h^2] = \text{scale}^2`."""

    scale: float = 0.04

    def __post_init__(self) -> None:
        checks.positive("fading scale", self.scale, extreme=1e30)

    def draw(self, rng: np.random.Generator, num_rounds: int, num_devices: int, dim: int) -> Array:
        """The root of an exponential variable."""
        return self.scale * np.sqrt(rng.standard_exponential((num_rounds, num_devices, 1)))
