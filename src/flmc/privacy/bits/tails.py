r"""Tail probabilities of the privacy loss, for the criteria `tail` and `paper`.

A sum X of independent losses exceeds epsilon with probability

.. math:: \Pr(X > \epsilon) = \frac{1}{2\pi i}
          \int_{c - i\infty}^{c + i\infty} \frac{M(s)\,e^{-s\epsilon}}{s}\,ds, \qquad c > 0,

M being the moment generating function. The trapezoidal rule of period P = 2 pi/dt gives exactly
:math:`\sum_k e^{c k P} \Pr(X > \epsilon + kP)`: the terms with k < 0 are at most :math:`e^{-cP}`,
those with k > 0 vanish once epsilon + P is above every loss, so the error is known; the rest of the
line is negligible, for at least as long as the integrand may take to come back. Where the integrand
does not decay, because the losses are nearly discrete at high signal-to-noise ratio, a grid and FFT
give an upper bound instead."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache, partial

import numpy as np

from flmc.base.arrays import ComplexArray
from flmc.privacy.bits.loss_law import LossLaw
from flmc.privacy.losses.composed_loss import ComposedLoss
from flmc.privacy.losses.grids import EntryLoss
from flmc.privacy.root_finding import largest_argument

_ALIASING = 40.0  # exp(-40) = 4e-18
_MOST_POINTS = 1 << 10
_FASTEST = 5e3
"""Most radians per noise deviation that the quadrature of the moment generating function
follows."""
_FLOOR = 1e-15
"""Smallest probability that is resolved; it is added."""
_DISTINCT = 2.0
"""Amplitude over noise from which losses are nearly discrete: bits are received without error."""
_STEEPEST = 3e3
_CHUNK = 32
_SHARES = 8
"""Number of shares of a cell's mass that go to its upper end."""
_FEW = 100
"""Number of losses up to which all are rounded up."""
_FINE, _FINEST = 600.0, 4000.0
"""Grid steps per standard deviation of a loss: of many, and of a few."""


Sum = Sequence[tuple[LossLaw, int]]
"""Laws of independent losses, each with the number of times that it is added."""


def exceedance(parts: Sum, epsilon: float, both: bool = False, *, quick: bool = False) -> float:
    r"""Upper bound of Pr(X > epsilon) for a sum X of losses, but for a relative 1e-9.

    Parameters
    ----------
    parts
        Laws of independent losses, each with the number of times that it is added.
    epsilon
        Value that the sum exceeds.
    both
        Whether to bound Pr(abs(X) > epsilon), for the loss under P of symmetric pairs. X under Q
        has the law of -X under P, so :math:`\Pr(X < -\epsilon) = E[e^{-X}; X > \epsilon]`.
    quick
        Whether to return a looser bound, which takes little time and is never below the other.
    """
    highest = sum(count * law.largest for law, count in parts)
    moments = [(law.moments(), count) for law, count in parts]
    mean = sum(count * m for (m, _), count in moments)
    spread = math.sqrt(sum(count * v for (_, v), count in moments))
    if highest <= epsilon:
        return _FLOOR  # what lies beyond the noise's reach
    if spread < 1e-6 * abs(mean) or spread == 0 or mean - epsilon > 8.0 * spread:
        return 1.0  # all but certain, or too concentrated to resolve: a bound all the same
    saddle = _saddle(parts, epsilon, spread)
    if quick:
        return _by_chernoff(parts, epsilon, both, saddle)
    distinct = max(law.pair.amplitude for law, _ in parts) > _DISTINCT
    value = None if distinct else _by_contour(parts, epsilon, both, mean, spread, saddle)
    if value is not None:
        return value
    # Rounding many losses up may cost more than Chernoff's bound does.
    return min(_by_chernoff(parts, epsilon, both, saddle), _by_grid(parts, epsilon, both))


def _by_chernoff(parts: Sum, epsilon: float, both: bool, s: float) -> float:
    r"""Chernoff's bound :math:`e^{K(s) - s\epsilon}` for one s > 0, times :math:`1 + e^{-\epsilon}`
    for both sides; what is beyond the noise's reach is not in K, and is added."""
    if s <= 0:
        return 1.0
    s = min(
        s, *(_STEEPEST / law.steepest for law, _ in parts)
    )  # any s gives a bound, and large ones take many nodes
    exponent = sum(count * law.cumulant(s, exactly=True)[0] for law, count in parts) - s * epsilon
    sides = 1.0 + math.exp(-epsilon) if both else 1.0
    return min(1.0, sides * math.exp(min(exponent, 0.0)) * (1 + 1e-6) + 2 * _FLOOR)


def _by_contour(
    parts: Sum, epsilon: float, both: bool, mean: float, spread: float, saddle: float
) -> float | None:
    """Value of the contour integral; None where it does not converge."""
    top = min(sum(count * law.largest for law, count in parts), max(mean, epsilon) + 60.0 * spread)
    # Left of the poles at 0 and -1 the integral gives the probability of the rest, minus. `both`
    # stays right of them.
    sign = 1.0 if saddle >= 0 or both else -1.0
    c = max(saddle, 1.0 / spread) if sign > 0 else min(saddle, -1.0 / spread)
    period = max(_ALIASING / abs(c), top - epsilon if sign > 0 else epsilon + top, 12.0 * spread)
    spacing = 2 * math.pi / period

    lines = [(_Line(law, c, spacing), count) for law, count in parts]

    def terms(first: int) -> ComplexArray:
        s: ComplexArray = np.asarray(
            c + 1j * spacing * np.arange(first, first + _CHUNK), dtype=np.complex128
        )
        kernel = 1.0 / s + math.exp(-epsilon) / (s + 1.0) if both else 1.0 / s
        exponent = sum(count * line.log_moment(first) for line, count in lines) - s * epsilon
        return np.asarray(np.exp(exponent) * kernel)

    farthest = spacing * _MOST_POINTS
    if any(farthest * law.steepest > _FASTEST for law, _ in parts):
        return None
    # Where the integrand has not decayed at the far end it never will within reach.
    decay = sum(count * law.log_magnitude(c, 0.99 * farthest) for law, count in parts) - c * epsilon
    if decay > math.log(1e-13 * abs(c)):
        return None
    # Losses near two values, plus and minus the bound, make the integrand come back after pi/bound:
    # it must have been negligible for as long as that.
    revival = math.pi / max(law.pair.bound for law, _ in parts)
    total, quiet_since = 0.0, 0.0
    for first in range(0, _MOST_POINTS, _CHUNK):
        values = terms(first)
        index = np.arange(first, first + _CHUNK)
        total += (
            float((np.where(index == 0, 1.0, 2.0) * values.real).sum()) * spacing / (2 * math.pi)
        )
        loud = np.abs(values) * spacing * (index + 1) >= 1e-11 * max(abs(total), _FLOOR)
        if loud.any():
            quiet_since = spacing * float(index[loud][-1])
        if spacing * float(index[-1]) - quiet_since > 1.2 * revival:
            return min(1.0, max(0.0, total if sign > 0 else 1.0 + total) * (1 + 1e-9) + _FLOOR)
    return None


class _Line:
    """Moment generating function of a law at c, c + i dt, c + 2 i dt, ..., a chunk of points at a
    time."""

    def __init__(self, law: LossLaw, c: float, spacing: float) -> None:
        self._law, self._c, self._spacing = law, c, spacing
        self._width = math.inf

    def log_moment(self, first: int) -> ComplexArray:
        """ln E[exp(s loss)] at the points number ``first`` to ``first + _CHUNK - 1``."""
        width = self._law.node_width(self._spacing * (first + _CHUNK))
        if width < self._width:
            self._width = width
            self._loss, weights = self._law.nodes(width)
            self._peak = float((self._c * self._loss).max())
            self._weights = weights * np.exp(self._c * self._loss - self._peak)
            self._turns = _powers(np.exp(1j * self._spacing * self._loss), _CHUNK)
        start = self._weights * np.exp(1j * self._spacing * first * self._loss)
        # Not a matrix product: so small a one costs more in waking BLAS's threads than in
        # arithmetic.
        return np.asarray(np.log(np.einsum("tn,n->t", self._turns, start)) + self._peak)


def _powers(base: ComplexArray, count: int) -> ComplexArray:
    """base**0, base**1, ...: (power, base), by doubling."""
    powers = np.ones((count, len(base)), dtype=np.complex128)
    done, factor = 1, base
    while done < count:
        np.multiply(powers[:done], factor, out=powers[done : 2 * done])
        done, factor = 2 * done, factor * factor
    return powers


def _saddle(parts: Sum, epsilon: float, spread: float) -> float:
    """About where K(s) - s epsilon is least: there the integrand falls off fast away from the real
    line."""

    @cache  # ends of a bracket are asked for again
    def slope(s: float) -> float:
        return sum(count * law.cumulant(s)[1] for law, count in parts) - epsilon

    if slope(0.0) > 0:
        return -_bracketed(lambda s: -slope(-s), spread)
    return _bracketed(slope, spread)


def _bracketed(slope: Callable[[float], float], spread: float) -> float:
    high = 1.0 / spread
    while slope(high) < 0 and high * spread < 1e4:
        high *= 2
    return largest_argument(slope, 0.0, high, tolerance=0.02)


def _by_grid(parts: Sum, epsilon: float, both: bool) -> float:
    """Upper bound of the exceedance, from losses on a grid.

    A few losses are rounded up. Rounding many up would move their sum too far: they are rounded at
    random."""
    number = sum(count for _, count in parts)
    few = number <= _FEW
    entries = [
        EntryLoss(
            partial(law.grid, shares=1 if few else _SHARES),
            law.smallest,
            law.largest,
            math.sqrt(law.moments()[1]),
            count,
            law.pair.bound if math.isfinite(law.pair.bound) else None,
        )
        for law, count in parts
    ]
    # Steps of the sum as fine as those of one loss leave nothing to be made coarser.
    composed = (
        ComposedLoss.of(entries, fine=1.0, resolution=min(_FINEST * math.sqrt(number), 1e4))
        if few
        else ComposedLoss.of(entries, fine=_FINE)
    )
    found = composed.exceedance(epsilon, both=both, rounded_up=few)
    return min(1.0, found + 2 * _FLOOR)
