"""Path gains that differ between entries: two entries of one complex symbol, or one entry per
subcarrier of a multipath channel.

The taps (delayed copies of the signal) are complex normal, drawn anew for every round and device; a
power-delay profile says how much power arrives with which delay."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from flmc.base import checks
from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.uplink.fading import Fading
from flmc.uplink.fadings.laws import ScaledFading

_TDL_A = (
    (0.0000, -13.4),
    (0.3819, 0.0),
    (0.4025, -2.2),
    (0.5868, -4.0),
    (0.4610, -6.0),
    (0.5375, -8.2),
    (0.6708, -9.9),
    (0.5750, -10.5),
    (0.7618, -7.5),
    (1.5375, -15.9),
    (1.8978, -6.6),
    (2.2242, -16.7),
    (2.1718, -12.4),
    (2.4942, -15.2),
    (2.5119, -10.8),
    (3.0582, -11.3),
    (4.0810, -12.7),
    (4.4579, -16.2),
    (4.5695, -18.3),
    (4.7966, -18.9),
    (5.0066, -16.6),
    (5.3043, -19.9),
    (9.6586, -29.7),
)
"""Delay in units of the delay spread, and power in dB, of the taps of TDL-A (3GPP TR 38.901, table
7.7.2-1), which is without a path in sight."""


@dataclass(frozen=True)
class PairedFading(Fading):
    """Path gains of complex symbols: the two entries of a symbol share one.

    Attributes
    ----------
    fading
        Law of the path gains of symbols, of which there are half as many as entries, rounded up.
    """

    fading: Fading

    @property
    def constant(self) -> bool:  # type: ignore[override]
        """Whether every draw gives the same path gains: it does if ``fading``, the law of the
        symbols' path gains, is constant."""
        return self.fading.constant

    @property
    def independent(self) -> bool:  # type: ignore[override]
        """Whether the path gains of all rounds are independent draws: they are if those of
        ``fading``, the law of the symbols' path gains, are."""
        return self.fading.independent

    @property
    def given(self) -> bool:  # type: ignore[override]
        """Whether path gains are public numbers that no draw changes: they are if those of
        ``fading``, the law of the symbols' path gains, are."""
        return self.fading.given

    @property
    def mean_square(self) -> float | None:
        """Mean square of the symbols' path gains; None where their law does not tell."""
        return self.fading.mean_square

    def draw(self, rng: np.random.Generator, rounds: range, num_devices: int, dim: int) -> Array:
        """Path gains of some rounds, (round, device, dim), with the path gain of each symbol for
        both of its entries; (round, device, 1) where all symbols share one."""
        drawn = np.asarray(self.fading.draw(rng, rounds, num_devices, -(-dim // 2)))
        if drawn.ndim < 3 or drawn.shape[-1] == 1:  # all symbols share one path gain
            return drawn
        return np.repeat(drawn, 2, axis=-1)[..., :dim]


@dataclass(frozen=True)
class SelectiveFading(ScaledFading):
    r"""Rayleigh fading on every subcarrier, with an exponential power-delay profile.

    There are as many subcarriers as entries. Tap l = 0, 1, ... arrives l samples late with the
    power :math:`p_l \propto e^{-l/D}`, and entry i has :math:`h_i = \text{scale}\,|\sum_l a_l
    e^{-2\pi \mathrm i\, i l/m}|` with :math:`a_l \sim CN(0, p_l)`. Entries that are n subcarriers
    apart have the correlation :math:`\sum_l p_l e^{-2\pi\mathrm i\, n l/m}`. :math:`E[h^2] =
    \text{scale}^2`.

    Attributes
    ----------
    scale
        Root mean square of the path gain, positive.
    delay
        D, decay of the profile in samples; a sample is the m-th part of a symbol. With a small D
        all entries have the same path gain.
    """

    delay: float = 1.0
    independent = True

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.positive("the delay of the profile", self.delay)

    def profile(self, dim: int) -> Array:
        """Powers of the taps, which add up to 1: at most one tap per entry, and none with less than
        1e-12 of the power of the first.

        Parameters
        ----------
        dim
            Number of entries.
        """
        count = min(dim, 1 + math.floor(min(dim, -math.log(1e-12) * self.delay)))
        powers = np.exp(-np.arange(count) / self.delay)
        return np.asarray(powers / powers.sum())

    def draw(self, rng: np.random.Generator, rounds: range, num_devices: int, dim: int) -> Array:
        """Path gains of some rounds, (round, device, dim)."""
        powers = self.profile(dim)
        phase = np.outer(np.arange(len(powers)), np.arange(dim)) / dim
        waves = np.exp(-2j * math.pi * phase)
        return self.scale * _subcarriers(rng, (len(rounds), num_devices), powers, waves)


@dataclass(frozen=True)
class TappedDelayFading(ScaledFading):
    r"""Rayleigh fading on every subcarrier, with a tabulated power-delay profile.

    Entry i is sent on the subcarrier at :math:`i\,\Delta f`; :math:`h_i = \text{scale}\,|\sum_l a_l
    e^{-2\pi\mathrm i\, i\Delta f\tau_l}|` with :math:`a_l \sim CN(0, p_l)` for the tap with the
    delay :math:`\tau_l` and the power :math:`p_l`. :math:`E[h^2] = \text{scale}^2`.

    Attributes
    ----------
    scale
        Root mean square of the path gain, positive.
    delay_spread
        Unit of the delays in nanoseconds; root mean square delay of the default profile.
    spacing
        Subcarrier spacing :math:`\Delta f` in kHz.
    taps
        Delay in units of ``delay_spread`` and power in dB of each tap; powers are scaled to add up
        to 1. By default the 23 taps of TDL-A of 3GPP TR 38.901.
    """

    delay_spread: float = 300.0
    spacing: float = 15.0
    taps: tuple[tuple[float, float], ...] = field(default=_TDL_A)
    independent = True

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.positive("the delay spread", self.delay_spread)
        checks.positive("the subcarrier spacing", self.spacing)
        table = checks.finite_array("taps", self.taps)
        if table.ndim != 2 or table.shape[1] != 2 or not len(table) or (table[:, 0] < 0).any():
            raise InvalidSetting(
                "taps must be pairs of a delay, not negative, and a power in dB; got shape"
                f" {table.shape}"
            )
        object.__setattr__(self, "taps", tuple((float(d), float(p)) for d, p in table))

    def draw(self, rng: np.random.Generator, rounds: range, num_devices: int, dim: int) -> Array:
        """Path gains of some rounds, (round, device, dim)."""
        delays, decibels = np.asarray(self.taps).T
        # Powers are relative to the strongest tap, so that none overflows; below, they are scaled
        # to add up to 1.
        powers = 10.0 ** ((decibels - decibels.max()) / 10.0)
        cycles = delays * self.delay_spread * 1e-9 * self.spacing * 1e3
        waves = np.exp(-2j * math.pi * np.outer(cycles, np.arange(dim)))
        return self.scale * _subcarriers(
            rng, (len(rounds), num_devices), powers / powers.sum(), waves
        )


def _subcarriers(
    rng: np.random.Generator, shape: tuple[int, int], powers: Array, waves: Array
) -> Array:
    """Path gains, (round, device, dim), for ``shape`` = (round, device): magnitudes of sums over
    all taps of ``waves`` (tap, dim), each times a complex normal amplitude whose mean square is the
    tap's entry of ``powers`` (tap)."""
    # Half of a tap's power is in its real part, half in the imaginary part.
    spread = np.sqrt(powers / 2.0)
    taps = rng.standard_normal((*shape, len(powers), 2)) * spread[:, None]
    gains: Array = np.abs((taps[..., 0] + 1j * taps[..., 1]) @ waves)
    return gains
