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
    """Law of the path gains. Your own is a class with one method, ``draw``.

    Examples
    --------
    >>> class Shadowing(flmc.Fading):
    ...     def draw(self, rng, rounds, num_devices, dim):
    ...         return 0.04 * 10 ** (0.2 * rng.standard_normal((len(rounds), num_devices, 1)))
    >>> flmc.Digital(fading=Shadowing()).fading.constant
    False
    """

    constant: bool = False
    """Whether every draw gives the same values: then the power limit is the same in every round."""

    def __init_subclass__(cls) -> None:
        """Refuse a ``draw`` with the signature of earlier versions, which were not told which
        rounds are drawn."""
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
            Positive numbers that broadcast to (round, device, dim).
        """

    def draw_checked(
        self, rng: np.random.Generator, rounds: range, num_devices: int, dim: int
    ) -> Array:
        """Path gains of some rounds in their full shape, refused unless all are positive numbers.

        Parameters
        ----------
        rng
            Source of randomness, passed to :meth:`draw`.
        rounds
            The rounds that are drawn, counted from 0.
        num_devices, dim
            Number of devices and of entries.

        Returns
        -------
        Array
            Path gains, (round, device, dim); a read-only view where the draw has fewer entries.

        Raises
        ------
        InvalidSetting
            If the draw has another shape, or a path gain is not finite and positive.
        """
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
    """The same path gain for every round, device and entry.

    Attributes
    ----------
    gain
        The path gain h, positive.
    """

    gain: float = 0.04
    constant = True

    def __post_init__(self) -> None:
        checks.positive("fading", self.gain, extreme=1e30)

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

    def __post_init__(self) -> None:
        checks.positive("fading scale", self.scale, extreme=1e30)

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
