r"""The public grid on which a channel made of software adds symbols and noise.

The grid's step is :math:`g`. Symbols arrive as whole numbers of steps, and the noise is :math:`Z =
\text{round}(2^b n)` steps with :math:`n \sim N(0, 1)` and a setting :math:`b`, ``bits``: a normal
variable of standard deviation :math:`\sigma = 2^b g`, rounded to the grid. The received value
:math:`g(S + Z)` with a whole :math:`S` is the real number :math:`gS + \sigma n` rounded to the
grid. Rounding does not depend on the data, so it costs no more privacy than the real number, which
the accountants assume."""

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
"""Largest magnitude of a received symbol in grid steps: so small that the sum of a million devices'
symbols stays far below 2^63, the limit of 64-bit integers. A louder symbol raises
``InvalidSetting``."""
_SLACK = Fraction(1, 2)
"""Largest amount, in grid steps, by which rounding lengthens the move of a symbol beyond the move
of its gradient entry. Rounding in the scaling of symbols takes at most 2^-12 of a step; the rest is
left for rounding in the sums over examples that make the gradient."""
_NORM_SLACK = 1 + Fraction(1, 2**23)
"""Factor by which the norm of a device's symbols may exceed the bound to which it was clipped. Each
symbol travels in single precision, which changes it by 2^-24 of itself; the rounding of the norm
itself, in double precision, is far smaller."""


@dataclass(frozen=True)
class NoiseGrid:
    """Public grid of received values, on which a software channel adds symbols and noise; its step
    is a small part of the noise's standard deviation.

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
    """Variance of the noise in a received entry, as privacy accountants assume it."""
    bits: int = 20
    """Base-2 logarithm, from 0 to 30, of the noise's standard deviation in steps. Rounding the
    noise costs no privacy, and adds a share of 1/(12 * 4^bits) to its variance; gains are rounded
    down to the grid. Rounding analog symbols can move them further apart, the more so the coarser
    the grid, which ``accounted_gain`` counts."""
    parts: int = 1
    """Whole number that divides the number of grid steps at which the largest symbol arrives, so
    that symbols that are multiples of 1/parts of the largest lie on the grid without rounding; 1
    for bits and for analog values."""

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
        # The exact square root lies between the floating-point neighbours of the rounded one, so
        # the step is derived from one of these three numbers.
        candidates = (
            math.nextafter(deviation, 0.0),
            deviation,
            math.nextafter(deviation, math.inf),
        )
        power = Fraction(self.noise_power)
        return math.ldexp(min(c for c in candidates if Fraction(c) ** 2 >= power), -self.bits)

    def peak_steps(self, gain: float, peak: float) -> int:
        """Number of grid steps at which the largest symbol, ``peak``, arrives: gain times peak,
        rounded down to a multiple of ``parts``; 0 only for a gain of 0. Raises ``InvalidSetting``
        for a positive gain that rounds to 0 steps, a negative one, and one beyond 2^40 steps."""
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
        """Gains, in the shape of ``gain``, with which symbols arrive on the grid: the planned ones
        rounded down so that the largest symbol, ``peak``, arrives at a whole number of steps. A
        server divides what it receives by these."""
        return self._peaks(gain, peak) * (self.step / peak)

    def accounted_gain(
        self,
        gain: float,
        peak: float,
        move: float | None = None,
        sharing: int | None = None,
        *,
        peak_of_norm: bool = False,
    ) -> float:
        r"""Gain for which the privacy event must be computed if symbols are sent on the grid with
        the planned ``gain``, rounded up; 0 for a gain of 0. ``peak`` is the largest symbol
        :math:`\ell`, which arrives at :math:`c` steps.

        With ``move`` None, a symbol moves from one end of its range to the other at most: this is
        so for bits, and for analog entries that are clipped one by one if all data of a device are
        replaced. The ends are rounded towards 0 to the grid, so the result is at most the planned
        gain, up to rounding.

        Otherwise ``move`` is the largest move D of a symbol before the gain, as if one example of
        an analog uplink is replaced. On the grid it is at most :math:`\lceil cD/\ell + 1/2 \rceil`
        steps: the half covers rounding, provided that the sums over examples that make a gradient
        are right to a fifth of the width :math:`\ell/c` of a step. If ``sharing`` = m symbols share
        a move whose norm is at most D, :meth:`shared_move` bounds the norm in steps;
        ``peak_of_norm`` says that ``peak`` bounds the norm of the m symbols, not only each of
        them."""
        steps, span = self.peak_steps(gain, peak), Fraction(2) * Fraction(peak)
        if steps == 0:
            return 0.0
        most = Fraction(2 * steps)
        if move is not None:
            checks.positive("move", move)
            span = Fraction(move) if sharing is not None else min(span, Fraction(move))
            scaled = Fraction(steps / peak) * span
            if sharing is None:
                most = min(most, Fraction(math.ceil(scaled + _SLACK)))
            else:
                checks.at_least("sharing", sharing, 1)
                most = self.shared_move(steps, scaled, sharing, peak_of_norm=peak_of_norm)
        # The gain at which a move of a symbol by ``span`` is a move by ``most`` steps, in exact
        # fractions; it is rounded up once, so that it stays a bound.
        exact = most * Fraction(self.step) / span
        nearest = float(exact)
        return nearest if Fraction(nearest) >= exact else math.nextafter(nearest, math.inf)

    @staticmethod
    def shared_move(
        steps: int, scaled: Fraction, sharing: int, *, peak_of_norm: bool = False
    ) -> Fraction:
        """Upper bound, in grid steps, of the norm by which the m = ``sharing`` rounded symbols of a
        round differ under two neighbouring data sets. Before rounding the symbols differ by a norm
        of at most ``scaled`` steps, and the largest possible symbol, the peak, lies at ``steps``.

        Three bounds hold, and the smallest is returned. No symbol passes the peak. Rounding adds at
        most 3/2 steps to the move of each symbol: 1 in the symbols themselves, 1/2 in the sums over
        examples that make the gradients. And with ``peak_of_norm``, where the peak bounds the norm
        of all m symbols together, rounding adds at most 1/2 to each one's distance from 0, and the
        two vectors differ by at most twice the norm of the longer one. The last two are convex
        programs, solved by ``_largest_square``."""
        squares = [4 * sharing * steps**2, _largest_square(scaled**2, sharing, 1 + _SLACK)]
        if peak_of_norm:
            reach = (steps * _NORM_SLACK) ** 2
            squares.append(4 * _largest_square(reach, sharing, Fraction(1, 2)))
        return _root_up(min(squares))

    def symbol_steps(self, symbols: Array, gain: Array, peak: float) -> IntArray:
        """Symbols (..., device, dim) times the gain on the grid, as whole numbers of steps in the
        shape of ``symbols``; ``gain`` is a number or (..., dim).

        A symbol beyond the peak counts as the peak and one that is not a number as 0, so that no
        device reveals more than is accounted."""
        most = self._peaks(gain, peak)
        if most.ndim:
            most = most[..., None, :]
        # Scaling, rounding and limiting are non-decreasing functions of the symbol; whole numbers
        # up to 2^40 are exact as doubles.
        scaled = np.rint(clip(symbols, peak) * (most / peak))
        return np.asarray(np.clip(scaled, -most, most), dtype=np.int64)

    def arriving_steps(self, symbols: Array, amplitude: Array, peak: float) -> IntArray:
        """Steps (device, dim) at which symbols (device, dim) arrive if each device has an
        ``amplitude`` of its own, (device, dim); a negative amplitude turns the sign.

        Amplitudes are rounded towards 0 to the grid, so that no symbol arrives louder than it was
        sent."""
        turned = np.where(amplitude < 0, -symbols, symbols)
        # ``symbol_steps`` takes one gain for all devices of an array, so each device is put into an
        # array of its own, along the first axis.
        return self.symbol_steps(turned[:, None, :], np.abs(amplitude), peak)[:, 0]

    def draw_noise(self, shape: tuple[int, ...], entropy: Entropy) -> IntArray:
        """Noise of the channel, in whole steps of the grid and the given shape, with exactly the
        law of a rounded normal variable."""
        return draw_rounded_normal(shape, self.bits, entropy)

    def values(self, steps: IntArray) -> Array:
        """Received values, in the unit of the gain and the noise's standard deviation, for whole
        numbers of grid steps."""
        return steps * np.float64(self.step)

    def _peaks(self, gain: Array, peak: float) -> Array:
        """Number of grid steps at which the largest symbol, ``peak``, arrives, for each gain, as
        doubles in the shape of ``gain``."""
        # Exact fractions are slow, and few gains differ: each is computed once.
        gains, place = np.unique(np.asarray(gain, dtype=np.float64), return_inverse=True)
        steps = [self.peak_steps(float(value), peak) for value in gains]
        return np.array(steps, dtype=np.float64)[place].reshape(np.shape(gain))


def _largest_square(square: Fraction, count: int, rounding: Fraction) -> int:
    r"""Largest sum of squares of m = ``count`` whole numbers :math:`k_i`, each at most r =
    ``rounding`` above a real number :math:`x_i \ge 0`, if the squares of the real numbers add up to
    at most ``square``.

    A whole number k needs :math:`x \ge (k - r)_+`. So :math:`k_i^2 \le f(x_i^2)` with the polygon f
    through :math:`(0, \lfloor r\rfloor^2)` and :math:`((k - r)^2, k^2)` for all larger k. Its
    slopes :math:`(2k + 1)/(2(k - r) + 1)` fall, so f is concave, and by Jensen's inequality
    :math:`\sum k_i^2 \le m f(\sum x_i^2/m)`."""
    share = square / count
    # The line through any edge of a concave polygon lies on or above the polygon. So the result is
    # an upper bound even if rounding of k picks a neighbour of the edge above ``share``.
    k = math.floor(Fraction(math.sqrt(share)) + rounding)
    left = max(Fraction(0), k - rounding) ** 2
    right = (k + 1 - rounding) ** 2
    return math.floor(count * (k**2 + (2 * k + 1) * (share - left) / (right - left)))


def _root_up(square: int) -> Fraction:
    """Square root of a whole number, rounded up to a multiple of 2^-40."""
    return Fraction(math.isqrt((square << 80) - 1) + 1 if square else 0, 1 << 40)
