"""Path gains that do not change during a run: one number for all devices, a given array, or numbers
computed from the devices' distances."""

from __future__ import annotations

import math
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
    alike = True

    def __post_init__(self) -> None:
        checks.positive("fading", self.gain)

    @property
    def mean_square(self) -> float:
        """Mean square of the path gain, which is constant: its square."""
        return self.gain**2

    def draw(self, rng: np.random.Generator, rounds: range, num_devices: int, dim: int) -> Array:
        """The constant path gain, as an array of shape (1, 1, 1)."""
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
        """The given path gains, with a leading axis of length 1 for the round."""
        return self.gains[None]


@dataclass(frozen=True)
class DistanceFading(Fading):
    r"""Path gains that fall with the distance and stay as they are for the whole run.

    A device at the distance d, in units of the reference distance, has :math:`h = g\,d^{-n/2}
    10^{X/20}` with the path gain g at the reference distance, the path-loss exponent n and normal
    shadowing X in decibels, drawn once for each device and experiment.

    Attributes
    ----------
    distances
        One for each device, in units of the reference distance, at least 1 each. A single number:
        devices are dropped uniformly over the area of the ring from 1 to it, anew for each
        experiment.
    gain
        Path gain at the reference distance, positive.
    exponent
        n: 2 in free space, 3 to 4 in cities.
    shadowing
        Standard deviation of X in decibels; 0: none.

    Examples
    --------
    >>> near_and_far = flmc.DistanceFading((1.0, 10.0), gain=0.4, exponent=2.0)
    >>> near_and_far.draw_checked(np.random.default_rng(0), range(1), 2, 1).ravel().round(3)
    array([0.4 , 0.04])
    """

    distances: float | tuple[float, ...] = 5.0
    gain: float = 0.2
    exponent: float = 3.0
    shadowing: float = 0.0

    def __post_init__(self) -> None:
        checks.positive("the path gain at the reference distance", self.gain)
        checks.not_negative("the path-loss exponent", self.exponent)
        checks.not_negative("shadowing", self.shadowing)
        if self.shadowing > 60:
            raise InvalidSetting(f"shadowing must be at most 60 dB, got {self.shadowing!r}")
        given = np.atleast_1d(checks.finite_array("distances", self.distances))
        if given.ndim != 1 or not given.size or (given < 1).any() or (given > 1e6).any():
            raise InvalidSetting(
                "distances must be numbers from 1 (the reference distance) to 1e6, got"
                f" {self.distances!r}"
            )
        if not isinstance(self.distances, (int, float)):
            object.__setattr__(self, "distances", tuple(float(value) for value in given))

    @property
    def constant(self) -> bool:  # type: ignore[override]
        """Whether path gains are not random: distances are given, and shadowing is off."""
        return isinstance(self.distances, tuple) and self.shadowing == 0

    @property
    def independent(self) -> bool:  # type: ignore[override]
        """Whether the path gains of all rounds are independent draws: only if they are constant.
        Path gains that are random are drawn once and kept for the whole run."""
        return self.constant

    @property
    def mean_square(self) -> float:
        r"""Mean of :math:`h^2` over devices and shadowing, :math:`g^2 E[d^{-n}] e^{(\sigma\ln
        10/10)^2/2}`, with distance d, path gain g at the reference distance, exponent n and
        shadowing of :math:`\sigma` decibels."""
        n = self.exponent
        if isinstance(self.distances, tuple):
            loss = float(np.mean(np.asarray(self.distances) ** -n))
        elif self.distances == 1:
            loss = 1.0
        else:
            # Devices are uniform over the area of the ring from 1 to R, so the density of the
            # distance d is 2 d/(R^2 - 1). At n = 2 the integral of d^(1-n) is a logarithm, and the
            # general formula would be 0/0.
            far = float(self.distances)
            inside = math.log(far) if n == 2 else (far ** (2.0 - n) - 1.0) / (2.0 - n)
            loss = 2.0 * inside / (far**2 - 1.0)
        spread = self.shadowing * math.log(10.0) / 10.0
        return self.gain**2 * loss * math.exp(spread**2 / 2.0)

    def draw(self, rng: np.random.Generator, rounds: range, num_devices: int, dim: int) -> Array:
        """Path gains, (1, device, 1), for all rounds alike."""
        if isinstance(self.distances, tuple):
            if len(self.distances) != num_devices:
                raise InvalidSetting(
                    f"distances must be given for all {num_devices} devices, got"
                    f" {len(self.distances)}"
                )
            distances = np.asarray(self.distances)
        else:
            # Uniform over the area: the square of the distance is uniform, not the distance.
            area = rng.random(num_devices)
            distances = np.sqrt(1.0 + area * (float(self.distances) ** 2 - 1.0))
        decibels = self.shadowing * rng.standard_normal(num_devices) if self.shadowing else 0.0
        gains = self.gain * distances ** (-self.exponent / 2.0) * 10.0 ** (decibels / 20.0)
        return np.asarray(gains, dtype=np.float64)[None, :, None]
