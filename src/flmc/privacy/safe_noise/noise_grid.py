r"""The public grid on which a channel made of software adds symbols and noise.

The grid's step is :math:`g`. Symbols arrive as whole numbers of steps, and the noise is
:math:`Z = \text{round}(2^b n)` steps with :math:`n \sim N(0, 1)`: a normal variable of standard
deviation :math:`\sigma = 2^b g`, rounded to the grid. The received value :math:`g(S + Z)`
with a whole :math:`S` is the real number :math:`gS + \sigma n` rounded to the grid. It is made from
what the accountants assume by a step that knows no data, so it costs no more privacy."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from flmc.base import checks
from flmc.base.arrays import Array, IntArray
from flmc.base.clipping import clip
from flmc.base.errors import InvalidSetting
from flmc.privacy.safe_noise.entropy import Entropy
from flmc.privacy.safe_noise.rounded_normal import MOST_BITS, draw_rounded_normal

MOST_STEPS = 1 << 40
"""Largest magnitude of a symbol in steps: a million devices together stay far below 2^63."""
_SLACK = Fraction(1, 2)
"""Steps by which a symbol may move, beyond what its gradient does, because of rounding: that of its
scaling, at most 2^-12, and that of the sums behind the gradient, for which the rest is left."""


@dataclass(frozen=True)
class NoiseGrid:
    """Grid of received values, fine against the noise and public.

    Attributes
    ----------
    noise_power
        Variance N_0 of the noise in an entry that accountants assume.
    bits
        The standard deviation of the noise is 2^bits steps; from 0 to 30. The grid does not matter
        for privacy. Rounding to it adds a share of 1/(12 * 4^bits) to the noise's variance, and
        gains are rounded down to it.
    parts
        Peaks arrive at a multiple of so many steps, so that all levels that are whole multiples of
        this part of the peak lie on the grid, without rounding; 1 for bits and values.

    Examples
    --------
    >>> from flmc.privacy.safe_noise.noise_grid import NoiseGrid
    >>> grid = NoiseGrid(noise_power=1.0, bits=10)
    >>> grid.step == 2**-10
    True
    >>> grid.peak_steps(0.2739, peak=1.0)  # 280.47 steps
    280
    >>> grid.gain(np.array([0.2739, 0.0]), peak=1.0).tolist()
    [0.2734375, 0.0]
    """

    noise_power: float = 1.0
    bits: int = 20
    parts: int = 1

    def __post_init__(self) -> None:
        checks.positive("noise_power", self.noise_power)
        if checks.at_least("bits", self.bits, 0) > MOST_BITS:
            raise InvalidSetting(
                f"bits must be at most {MOST_BITS}, got {self.bits!r}; use a coarser grid"
            )

    @cached_property
    def step(self) -> float:
        """Distance g of two values of the grid: the smallest double with (2^bits g)^2 >= N_0.

        So the noise is never weaker than what is accounted. At a noise power of 1, or another power
        of 4, the step is a power of 2."""
        deviation = math.sqrt(self.noise_power)
        # The exact root lies between the neighbours of the rounded one.
        candidates = (
            math.nextafter(deviation, 0.0),
            deviation,
            math.nextafter(deviation, math.inf),
        )
        power = Fraction(self.noise_power)
        return math.ldexp(min(c for c in candidates if Fraction(c) ** 2 >= power), -self.bits)

    def peak_steps(self, gain: float, peak: float) -> int:
        """Steps at which the largest symbol arrives: gain times peak, rounded down to a multiple of
        ``parts``; 0 only for a gain of 0. A gain below the grid or beyond 2^40 steps is refused."""
        checks.positive("peak", peak)
        if checks.number("gain", gain) < 0:
            raise InvalidSetting(f"gain must not be negative, got {gain!r}")
        steps = math.floor(Fraction(gain) * Fraction(peak) / Fraction(self.step))
        steps -= steps % self.parts
        if gain > 0 and steps == 0:
            raise InvalidSetting(
                f"the largest symbol must arrive at one step of the grid, {self.step:g}, or above,"
                f" got {gain * peak:g}; use more bits than {self.bits}, or a larger gain"
            )
        if steps > MOST_STEPS:
            raise InvalidSetting(
                f"the largest symbol must arrive at {MOST_STEPS * self.step:g} or below, got"
                f" {gain * peak:g}; use fewer bits than {self.bits}, or a smaller gain"
            )
        return steps

    def gain(self, gain: Array, peak: float) -> Array:
        """Amplitudes at which a symbol of 1 arrives on the grid, in the shape of ``gain``: at most
        the gains that were planned. Servers normalise by them."""
        return self._peaks(gain, peak) * (self.step / peak)

    def accounted_gain(
        self, gain: float, peak: float, move: float | None = None, sharing: int | None = None
    ) -> float:
        r"""Gain whose privacy event bounds what is sent on the grid.

        Bits, and the data of a whole device, move a symbol from one end to the other at most. The
        ends are rounded towards 0, so the gain that was planned is a bound, and the one on the grid
        a better one. Where a symbol moves by at most D, as if one example of an analog uplink is
        replaced, it moves by at most :math:`\lceil cD/\ell + 1/2 \rceil` steps, with the peak
        :math:`\ell` at :math:`c` steps. The half covers rounding, provided that the sums behind
        a gradient are right to a fifth of the width :math:`\ell/c` of a step. Where m symbols share
        a move whose norm is at most D, rounding adds as much to each of them, so the norm of their
        move is at most :math:`cD/\ell + 3\sqrt m/2` steps.

        ``move`` is D, None for bits and whole devices; ``sharing`` is m, None for moves of single
        entries. The result is rounded up."""
        steps, span = self.peak_steps(gain, peak), Fraction(2) * Fraction(peak)
        most = 2 * steps
        if move is not None:
            checks.positive("move", move)
            span = min(span, Fraction(move))
            scaled = Fraction(steps / peak) * span
            if sharing is None:
                most = min(most, math.ceil(scaled + _SLACK))
            else:  # by the triangle inequality, with the root rounded up
                root = math.isqrt(checks.at_least("sharing", sharing, 1) - 1) + 1
                most = math.ceil(scaled + (1 + _SLACK) * root)
        exact = most * Fraction(self.step) / span
        nearest = float(exact)
        return nearest if Fraction(nearest) >= exact else math.nextafter(nearest, math.inf)

    def symbol_steps(self, symbols: Array, gain: Array, peak: float) -> IntArray:
        """Symbols times the gain on the grid, as whole numbers of steps in the shape of
        ``symbols``.

        A symbol beyond the peak counts as the peak and one that is not a number as 0, so that no
        device reveals more than is accounted."""
        most = self._peaks(gain, peak)
        if most.ndim:
            most = most[..., None, :]
        # Scaling, rounding and limiting never decrease with the symbol; whole numbers up to 2^40
        # are exact as doubles.
        scaled = np.rint(clip(symbols, peak) * (most / peak))
        return np.asarray(np.clip(scaled, -most, most), dtype=np.int64)

    def arriving_steps(self, symbols: Array, amplitude: Array, peak: float) -> IntArray:
        """Symbols of devices that arrive each with an amplitude of its own, in steps.

        An amplitude is rounded down to the grid, so that no symbol arrives louder than it was sent.
        """
        turned = np.where(amplitude < 0, -symbols, symbols)
        # The grid has one gain for all devices of a batch: each device is a batch of its own.
        return self.symbol_steps(turned[:, None, :], np.abs(amplitude), peak)[:, 0]

    def draw_noise(self, shape: tuple[int, ...], entropy: Entropy) -> IntArray:
        """Noise of the channel of the given shape, in whole steps of the grid, with exactly the law
        of a rounded normal variable."""
        return draw_rounded_normal(shape, self.bits, entropy)

    def values(self, steps: IntArray) -> Array:
        """Received values, in the unit of gain and noise, for whole numbers of steps."""
        return steps * np.float64(self.step)

    def _peaks(self, gain: Array, peak: float) -> Array:
        """Steps of the largest symbol at every gain, as doubles in the shape of ``gain``."""
        # Exact fractions are slow, and few gains differ: each is computed once.
        gains, place = np.unique(np.asarray(gain, dtype=np.float64), return_inverse=True)
        steps = [self.peak_steps(float(value), peak) for value in gains]
        return np.array(steps, dtype=np.float64)[place].reshape(np.shape(gain))
