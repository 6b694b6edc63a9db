"""Path gains that are drawn from a law: anew for every round and device (Rayleigh, Rician,
Nakagami), or with a memory over rounds (Gauss-Markov, Jakes' spectrum).

The ``scale`` of a law is the root of :math:`E[h^2]`. Devices are independent, and all entries of a
round share a path gain. Laws with a memory draw all rounds of a run at once, so that the memory
reaches across blocks of rounds and across an interruption."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from flmc.base import checks
from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.uplink.fading import Fading

_LONGER = 8
"""Jakes' fading is a part of a periodic random process: smallest ratio of the process's period to
the length of the run."""


@dataclass(frozen=True)
class ScaledFading(Fading):
    r"""A law of path gains with :math:`E[h^2] = \text{scale}^2`.

    Attributes
    ----------
    scale
        Root mean square of the path gain, positive.
    """

    scale: float = 0.04
    alike = True

    def __post_init__(self) -> None:
        checks.positive("fading scale", self.scale)

    @property
    def mean_square(self) -> float:
        """Mean square of the path gain, the same for all devices and rounds: the square of
        ``scale``."""
        return self.scale**2


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
        r"""Path gains of some rounds, (round, device, 1): :math:`\text{scale}\sqrt{x}` with x
        exponential of mean 1."""
        return self.scale * np.sqrt(rng.standard_exponential((len(rounds), num_devices, 1)))

    def exceedance(self, threshold: float) -> float | None:
        """Probability that a path gain is at least ``threshold``, by the Rayleigh law; None for a
        subclass with a ``draw`` of its own."""
        if type(self).draw is not RayleighFading.draw:
            return None
        return math.exp(-((threshold / self.scale) ** 2))


@dataclass(frozen=True)
class RicianFading(ScaledFading):
    r"""Rician fading: a path in sight and many reflected ones.

    The path gain is :math:`\text{scale}\,\bigl|\sqrt{K/(K+1)} + \sqrt{1/(K+1)}\,CN(0,1)\bigr|`, so
    that :math:`E[h^2] = \text{scale}^2`. K = 0 is Rayleigh fading; with K to infinity the path gain
    becomes constant.

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
        """Path gains of some rounds, (round, device, 1)."""
        real, imaginary = rng.standard_normal((2, len(rounds), num_devices, 1))
        in_sight = math.sqrt(self.factor / (self.factor + 1.0))
        spread = math.sqrt(0.5 / (self.factor + 1.0))
        gains: Array = np.hypot(in_sight + spread * real, spread * imaginary)
        return self.scale * gains

    def exceedance(self, threshold: float) -> float | None:
        """Probability that a path gain is at least ``threshold``: Marcum's Q function, for the
        Rician law; None for a subclass with a ``draw`` of its own."""
        if type(self).draw is not RicianFading.draw:
            return None
        from scipy.special import chndtr

        square = 2.0 * (self.factor + 1.0) * (threshold / self.scale) ** 2
        return float(1.0 - chndtr(square, 2.0, 2.0 * self.factor))


@dataclass(frozen=True)
class NakagamiFading(ScaledFading):
    r"""Nakagami fading: :math:`h^2` has a gamma law with shape m and mean
    :math:`\text{scale}^2`.

    m = 1 is Rayleigh fading, m = 1/2 has the deepest fades, and with m to infinity the path gain
    becomes constant.

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
        """Path gains of some rounds, (round, device, 1)."""
        power = rng.standard_gamma(self.shape, (len(rounds), num_devices, 1)) / self.shape
        # A gamma variable of small shape may be rounded to 0, and path gains must be positive.
        return self.scale * np.sqrt(np.maximum(power, 1e-300))

    def exceedance(self, threshold: float) -> float | None:
        """Probability that a path gain is at least ``threshold``, by the gamma law of its square;
        None for a subclass with a ``draw`` of its own."""
        if type(self).draw is not NakagamiFading.draw:
            return None
        from scipy.special import gammaincc

        return float(gammaincc(self.shape, self.shape * (threshold / self.scale) ** 2))


@dataclass(frozen=True)
class GaussMarkovFading(ScaledFading):
    r"""Rayleigh fading that remembers the round before.

    The complex path gain is :math:`g_s = r g_{s-1} + \sqrt{1 - r^2}\,CN(0, 1)`, and :math:`h =
    \text{scale}\,|g|`: Rayleigh in every round, with the autocorrelation :math:`r^{\tau}` of g, and
    :math:`r^{2\tau}` of :math:`h^2`. :math:`E[h^2] = \text{scale}^2`.

    Attributes
    ----------
    scale
        Root mean square of the path gain, positive.
    correlation
        r, from one round to the next, in [0, 1).
    """

    correlation: float = 0.9

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= checks.number("the correlation of fading", self.correlation) < 1:
            raise InvalidSetting(
                f"the correlation of fading must lie in [0, 1), got {self.correlation!r}"
            )

    def draw(self, rng: np.random.Generator, rounds: range, num_devices: int, dim: int) -> Array:
        """Path gains of all rounds, (round, device, 1), from a stationary start."""
        new = rng.standard_normal((len(rounds), num_devices, 2)) * math.sqrt(0.5)
        r = self.correlation
        # The first round keeps variance 1, its stationary value. (1 - r)(1 + r) has the digits that
        # 1 - r^2 loses near r = 1.
        new[1:] *= math.sqrt((1.0 - r) * (1.0 + r))
        for now in range(1, len(rounds)):
            new[now] += r * new[now - 1]
        gains: Array = np.hypot(new[:, :, 0], new[:, :, 1])[:, :, None]
        return self.scale * gains


@dataclass(frozen=True)
class JakesFading(ScaledFading):
    r"""Rayleigh fading of a moving device among many reflections: Jakes' spectrum.

    The complex path gain g is Gaussian with the autocorrelation :math:`J_0(2\pi f\tau)` over
    rounds; :math:`h = \text{scale}\,|g|` is Rayleigh, and :math:`h^2` has the autocorrelation
    :math:`J_0^2`. :math:`E[h^2] = \text{scale}^2`.

    It is cut from a periodic process, at least eight times as long as the run, with random Fourier
    coefficients whose variances are the spectrum's exact masses, :math:`(\arcsin(b/f) -
    \arcsin(a/f))/\pi` between the frequencies a and b. The law of a round is exact; the
    autocorrelation is that of frequencies rounded to the grid, which changes it by less than 0.03
    at lags up to the length of the run, and by less than 0.001 below a fifth of it.

    Attributes
    ----------
    scale
        Root mean square of the path gain, positive.
    doppler
        f, Doppler frequency times the time from round to round: speed over wavelength times that
        time. Above 1/2 the sampled autocorrelation is still :math:`J_0` at whole rounds.
    """

    doppler: float = 0.05

    def __post_init__(self) -> None:
        super().__post_init__()
        if checks.positive("the Doppler frequency", self.doppler) > 1e3:
            raise InvalidSetting(
                f"the Doppler frequency must be at most 1000 a round, got {self.doppler!r}"
            )

    def draw(self, rng: np.random.Generator, rounds: range, num_devices: int, dim: int) -> Array:
        """Path gains of all rounds, (round, device, 1)."""
        length = len(rounds)
        # The period is rounded up to a power of 2, for which the Fourier transform is fastest.
        period = 1 << (_LONGER * length - 1).bit_length()
        spread = np.sqrt(self._masses(period) / 2.0)
        gains = np.empty((length, num_devices, 1))
        # Devices are drawn one after the other, because a long period takes much memory.
        for device in range(num_devices):
            real, imaginary = rng.standard_normal((2, period))
            whole = np.fft.ifft(spread * (real + 1j * imaginary), norm="forward")
            gains[:, device, 0] = np.abs(whole[:length])
        return self.scale * gains

    def _masses(self, period: int) -> Array:
        """Share of the spectrum's power around each frequency k/period, in cycles a round, for k
        from 0 to below ``period``, (period): the shares of frequencies that differ by whole cycles
        a round are added up, because they give the same samples."""
        f = self.doppler
        # Frequencies are divided into cells, one of them beyond the Doppler frequency on each side,
        # and the edges of cells are clipped to it. The power in a cell is a difference of arc
        # sines, which is finite although the spectrum's density is infinite at the Doppler
        # frequency.
        reach = math.ceil(f * period) + 1
        k = np.arange(-reach, reach + 1)
        edges = np.clip((np.arange(-reach, reach + 2) - 0.5) / (period * f), -1.0, 1.0)
        mass = np.diff(np.arcsin(edges)) / math.pi
        return np.asarray(np.bincount(k % period, weights=mass, minlength=period), np.float64)
