"""Path gains that are drawn anew for every round and device: Rayleigh, Rician, Nakagami.

In all of them the scale is the root of :math:`E[h^2]`, and all entries of a round share a path
gain."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from flmc.base import checks
from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.uplink.fadings.scaled import ScaledFading


@dataclass(frozen=True)
class RayleighFading(ScaledFading):
    r"""Rayleigh fading: the magnitude of :math:`\text{scale} \cdot CN(0, 1)`.

    Path gains are independent over rounds and devices, and the same for all entries of a round:
    :math:`E[h^2] = \text{scale}^2`.

    Attributes
    ----------
    scale
        Root mean square of the path gain, positive.
    """

    independent = True

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


@dataclass(frozen=True)
class RicianFading(ScaledFading):
    r"""Rician fading: a path in sight and many reflected ones.

    The path gain is :math:`\text{scale}\,\bigl|\sqrt{K/(K+1)} + \sqrt{1/(K+1)}\,CN(0,1)\bigr|`, so
    that :math:`E[h^2] = \text{scale}^2`. K = 0 is Rayleigh fading, K to infinity a constant.

    Attributes
    ----------
    scale
        Root mean square of the path gain, positive.
    factor
        The K factor: power of the path in sight over that of the others, not negative.
    """

    factor: float = 4.0
    independent = True

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.not_negative("the K factor", self.factor)

    def draw(self, rng: np.random.Generator, rounds: range, num_devices: int, dim: int) -> Array:
        """Path gains of some rounds, (round, device, 1).

        Parameters
        ----------
        rng
            Source of the random numbers.
        rounds, num_devices, dim
            How many rounds and devices; entries share a path gain.
        """
        real, imaginary = rng.standard_normal((2, len(rounds), num_devices, 1))
        in_sight = math.sqrt(self.factor / (self.factor + 1.0))
        spread = math.sqrt(0.5 / (self.factor + 1.0))
        gains: Array = np.hypot(in_sight + spread * real, spread * imaginary)
        return self.scale * gains


@dataclass(frozen=True)
class NakagamiFading(ScaledFading):
    r"""Nakagami fading: :math:`h^2` has a gamma law with shape m and mean
    :math:`\text{scale}^2`.

    m = 1 is Rayleigh fading, m = 1/2 the worst, m to infinity a constant.

    Attributes
    ----------
    scale
        Root mean square of the path gain, positive.
    shape
        m, at least 1/2.
    """

    shape: float = 2.0
    independent = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if checks.positive("the shape of Nakagami fading", self.shape) < 0.5:
            raise InvalidSetting(
                f"the shape of Nakagami fading must be at least 0.5, got {self.shape!r}"
            )

    def draw(self, rng: np.random.Generator, rounds: range, num_devices: int, dim: int) -> Array:
        """Path gains of some rounds, (round, device, 1).

        Parameters
        ----------
        rng
            Source of the random numbers.
        rounds, num_devices, dim
            How many rounds and devices; entries share a path gain.
        """
        power = rng.standard_gamma(self.shape, (len(rounds), num_devices, 1)) / self.shape
        # A gamma variable of small shape may be too small for a floating-point number.
        return self.scale * np.sqrt(np.maximum(power, 1e-300))
