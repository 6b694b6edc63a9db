r"""Delta of a sum of losses by inverting its moment generating function on a line.

.. math:: \delta(\epsilon) = E[(1 - e^{\epsilon - L})_+]
          = \frac1{2\pi i}\int_{c-i\infty}^{c+i\infty} \frac{M(s)\,e^{-s\epsilon}}{s(s+1)}\,ds

The trapezoidal rule with spacing 2 pi/P is exact up to delta at epsilon - P and epsilon + P, each
weighted by e^{-cP} and e^{cP}: exponentially small. Two spacings and two lines say how exact a
value is."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from privacy.oracle.bits import Array, Profile
from privacy.oracle.moments import ComplexArray, Moments, scan

Parts = Sequence[tuple[Profile, float]]
"""Profiles of independent losses, each with the number of entries that have it."""
_CHUNK = 48
_MOST = 6000
"""Points of a line at most; where more are needed the loss is nearly discrete."""
_FLAT = 1e-3
"""Relative gain of a bound below which a larger tilt is not tried."""
_SMALL = 1e-9
"""Share of the integral that may be left out."""


@dataclass(frozen=True)
class Tilt:
    """Where the line of integration crosses the real axis.

    Attributes
    ----------
    c
        The crossing, near the saddle point for the delta that is asked for.
    spread
        Standard deviation of the sum of losses under the tilted law.
    level
        ln M(c) of the sum.
    """

    c: float
    spread: float
    level: float


@dataclass(frozen=True)
class Line:
    """ln M of a sum at c + i k dt for k = 0, 1, ...

    Attributes
    ----------
    s, log_moment
        Arguments and values, (point).
    spacing
        dt.
    left_out
        Bound of what lies beyond the last point, relative to the integrand at c times c.
    """

    s: ComplexArray
    log_moment: ComplexArray
    spacing: float
    left_out: float

    def delta(self, epsilon: float) -> float:
        """Delta at an epsilon."""
        return self._sum(epsilon, 1 / (self.s * (self.s + 1)))

    def above(self, epsilon: float, both: bool) -> float:
        """Pr(L > epsilon); ``both``: Pr(abs(L) > epsilon) of a law under P whose exchange is its
        mirror image, where Pr(L < -epsilon) = E[e^{-L}; L > epsilon]."""
        kernel = 1 / self.s + (math.exp(-epsilon) / (self.s + 1) if both else 0.0)
        return self._sum(epsilon, kernel)

    def _sum(self, epsilon: float, kernel: ComplexArray) -> float:
        with np.errstate(over="ignore", invalid="ignore"):  # far from the saddle point
            terms = (np.exp(self.log_moment - self.s * epsilon) * kernel).real
            return float(self.spacing / math.pi * (terms.sum() - terms[0] / 2))


class Sum:
    """A sum of independent losses, given by their profiles.

    Parameters
    ----------
    parts
        Profiles, each with the number of entries that have it.
    panels
        Panels of the quadrature of each moment generating function.
    """

    def __init__(self, parts: Parts, panels: int = 24) -> None:
        self.parts, self.panels = list(parts), panels
        self.counts = [count for _, count in self.parts]
        self._tilt = 0.0
        self._prepare(4.0 / self._rough_spread())

    def _rough_spread(self) -> float:
        """About the standard deviation of the sum: ln M is near s (s + 1) times the integral of
        the excess, which a scan gives roughly."""
        variance = 0.0
        for profile, count in self.parts:
            e = scan(profile.top)
            excess = np.exp(profile.forward(e))
            variance += 4 * count * float(np.sum(np.diff(e) * (excess[1:] + excess[:-1]) / 2))
        return math.sqrt(variance)

    def _prepare(self, tilt: float) -> None:
        """Make nodes that serve up to a tilt."""
        if tilt > self._tilt:
            self._tilt = 2 * tilt
            self.moments = [Moments.of(part, self._tilt, self.panels) for part, _ in self.parts]

    def cumulant(self, c: float) -> float:
        """ln M(c) of the sum."""
        self._prepare(c)
        return sum(n * m.cumulant(c) for m, n in zip(self.moments, self.counts, strict=True))

    def tilt_for(self, delta: float) -> Tilt:
        """Crossing at which Chernoff's bound of epsilon at this delta is least."""

        def bound(log_c: float) -> float:
            c = math.exp(log_c)
            return (self.cumulant(c) - math.log(delta) - math.log(c * (c + 1))) / c

        return self.tilt_at(math.exp(_least(bound, math.log(self._tilt / 2))))

    def tilt_at(self, c: float) -> Tilt:
        """What is known of the sum tilted by ``c``."""
        step = 0.01 * c
        low, level, high = (self.cumulant(x) for x in (c - step, c, c + step))
        return Tilt(c, math.sqrt(max(high - 2 * level + low, 1e-12) / step**2), level)

    def tilt_above(self, epsilon: float) -> Tilt:
        """Crossing for the probability of a loss above ``epsilon``, near its saddle point."""

        def exponent(log_c: float) -> float:
            c = math.exp(log_c)
            # Chernoff's bound, with the factor that keeps it away from the pole at 0.
            return self.cumulant(c) - c * epsilon - log_c

        return self.tilt_at(math.exp(_least(exponent, math.log(self._tilt / 8))))

    def line(
        self, tilt: Tilt, delta: float, wider: float = 1.0, *, slow: bool = False
    ) -> Line | None:
        """The line at a tilt; None where the integrand does not decay. ``slow``: its kernel falls
        like 1/t only, so that the moment itself must be negligible in the end."""
        period = wider * max((25.0 - math.log(delta)) / tilt.c, 14.0 * tilt.spread)
        spacing = 2 * math.pi / period
        self._prepare(tilt.c)
        found: list[ComplexArray] = []
        size = abs(tilt.c * (tilt.c + 1))
        for first in range(0, _MOST, _CHUNK):
            found.append(self._log_moment(tilt.c, spacing * first, spacing, _CHUNK))
            end = spacing * (first + _CHUNK - 1)
            # What is beyond: the kernel falls like 1/t^2, the moment by what is seen further on.
            fall = 1.0 if slow else size / end / tilt.c
            if math.exp(np.max(found[-1][-8:].real) - tilt.level) * fall < _SMALL:
                left_out = self._beyond(tilt, end) * fall
                if left_out < 1e-6:
                    log_moment = np.concatenate(found)
                    s = tilt.c + 1j * spacing * np.arange(len(log_moment))
                    return Line(np.asarray(s, np.complex128), log_moment, spacing, left_out)
        return None

    def _beyond(self, tilt: Tilt, end: float) -> float:
        """Largest size of the moment behind ``end`` relative to that at the crossing: losses near
        few values make it come back, in peaks that are narrow where there are many losses."""
        widest = max(float(m.up[-1] + m.down[-1]) for m in self.moments)
        begin, spacing, most = end, 0.2 / widest, -math.inf
        for _ in range(6):
            size = self._log_moment(tilt.c, begin, spacing, 160).real
            at = int(np.argmax(size))
            most = max(most, float(size[at]))
            begin, spacing = max(end, begin + (at - 1) * spacing), spacing / 80
        return math.exp(min(0.0, most - tilt.level))

    def _log_moment(self, c: float, begin: float, spacing: float, count: int) -> ComplexArray:
        total = np.zeros(count, dtype=np.complex128)
        for moments, number in zip(self.moments, self.counts, strict=True):
            total = total + number * moments.log_moment(c, begin, spacing, count)
        return total


def _least(function: Callable[[float], float], start: float) -> float:
    """Place of the least value of a function with one valley, by steps and a golden section."""
    step, x = 0.7, start
    value, up, down = function(x), function(x + step), function(x - step)
    # Where epsilon is close to the largest loss the valley has no floor: it ends where it is flat.
    while up < value - _FLAT * abs(value) or down < value:
        if up < value:
            x, value, up, down = x + step, up, function(x + 2 * step), value
        else:
            x, value, up, down = x - step, down, value, function(x - 2 * step)
    low, high = x - step, x + step
    share = (math.sqrt(5) - 1) / 2
    for _ in range(14):
        left, right = high - share * (high - low), low + share * (high - low)
        low, high = (left, high) if function(right) < function(left) else (low, right)
    return (low + high) / 2


def solve(delta_of: Callable[[float], float], target: float, high: float, width: float) -> float:
    """Epsilon at which a decreasing delta is ``target``, by bisection below ``high``.

    Values far below the answer need not be right: the search begins ``width`` below ``high``, and
    further down only if delta is not above the target there."""
    low = max(0.0, high - width)
    while low > 0 and not delta_of(low) > target:
        low, high, width = max(0.0, low - 4 * width), low, 4 * width
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if delta_of(middle) > target else (low, middle)
        if high - low < 1e-13 * max(high, 1e-12):
            break
    return (low + high) / 2


def as_array(values: object) -> Array:
    """Values as an array of double precision."""
    return np.asarray(values, dtype=np.float64)
