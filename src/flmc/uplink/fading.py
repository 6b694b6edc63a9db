r"""Fading: the gain :math:`h` of each device's path to the server, per round, device and entry.

Only the magnitude matters, because each device knows its channel and inverts it. Values are
positive."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from flmc.base import checks
from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting


class Fading(ABC):
    """A law of the channel gains. Your own is a class with one method, ``draw``."""

    constant: bool = False
    """Whether every draw gives the same values."""

    def __init_subclass__(cls) -> None:
        """Refuse the signature of earlier versions, which did not know which rounds are drawn."""
        drawn = vars(cls).get("draw")
        if drawn is not None and "num_rounds" in inspect.signature(drawn).parameters:
            raise InvalidSetting(
                f"{cls.__name__}.draw(rng, num_rounds, num_devices, dim) is the signature of"
                " earlier versions; write draw(self, rng, rounds, num_devices, dim), where rounds"
                " is the range of rounds that are drawn, counted from 0: what was num_rounds is"
                " len(rounds)"
            )

    @abstractmethod
    def draw(self, rng: np.random.Generator, rounds: range, num_devices: int, dim: int) -> Array:
        """Path gains of some rounds.

        Parameters
        ----------
        rng
            The only source of randomness: one stream for each experiment and block of rounds.
        rounds
            The rounds that are drawn, counted from 0.
        num_devices, dim
            Number of devices and of entries.

        Returns
        -------
        Array
            Positive numbers that broadcast to (round, device, entry).
        """

    def draw_checked(
        self, rng: np.random.Generator, rounds: range, num_devices: int, dim: int
    ) -> Array:
        """A draw with its full shape, refused if a gain is not a positive number."""
        gains = np.asarray(self.draw(rng, rounds, num_devices, dim), dtype=np.float64)
        shape = (len(rounds), num_devices, dim)
        try:
            full = np.broadcast_to(gains, shape)
        except ValueError:
            raise InvalidSetting(
                f"{type(self).__name__}.draw must broadcast to (round, device, dim) = {shape}, got"
                f" {gains.shape}"
            ) from None
        if not (np.isfinite(gains) & (gains > 0)).all():
            worst = gains[~(np.isfinite(gains) & (gains > 0))].flat[0]
            raise InvalidSetting(
                f"fading must be positive (a device cannot invert a dead channel), got {worst}"
            )
        return full


@dataclass(frozen=True)
class ConstantFading(Fading):
    """The same gain for every round, device and entry."""

    gain: float = 0.04
    constant = True

    def __post_init__(self) -> None:
        checks.positive("fading", self.gain, extreme=1e30)

    def draw(self, rng: np.random.Generator, rounds: range, num_devices: int, dim: int) -> Array:
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

    def draw(self, rng: np.random.Generator, rounds: range, num_devices: int, dim: int) -> Array:
        """The given array."""
        return self.gains[None]


@dataclass(frozen=True)
class RayleighFading(Fading):
    r"""Magnitude of :math:`\text{scale} \cdot CN(0, 1)`, independent over rounds and devices, the
    same for all entries of a round (a block): :math:`E[h^2] = \text{scale}^2`."""

    scale: float = 0.04

    def __post_init__(self) -> None:
        checks.positive("fading scale", self.scale, extreme=1e30)

    def draw(self, rng: np.random.Generator, rounds: range, num_devices: int, dim: int) -> Array:
        """The root of an exponential variable."""
        return self.scale * np.sqrt(rng.standard_exponential((len(rounds), num_devices, 1)))
