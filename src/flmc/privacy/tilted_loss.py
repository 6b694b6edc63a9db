r"""Exponentially tilted law of a privacy loss, and the deltas and epsilons that are read from it.

A Fourier transform is rounded relative to its largest value, so a tail of 1e-12 would be lost after
some thousand additions. *Tilting* brings the tail into the middle: in place of the masses m(x) of
losses x, the masses :math:`m_\theta(x) = m(x)\,e^{\theta x - K(\theta)}` are added, K being such
that they add up to 1. The masses m of the sum are read back as :math:`m(x) = m_\theta(x)\,e^{K -
\theta x}` near the mean of the tilted sum. Sums are taken within a window that holds all but a
negligible part of the tilted mass."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial, reduce

import numpy as np

from flmc.base.arrays import Array, ComplexArray
from flmc.privacy.loss_grid import LossGrid, dot
from flmc.privacy.root_finding import largest_argument

MOST_POINTS = 2**19
"""Largest length of an FFT with which laws of privacy losses are added; a sum that needs a longer
one raises ``TooWideError``."""
TRUNCATED = 60.0
"""Minus the natural logarithm of the probability (1e-26), under the law tilted by exp(theta loss),
that an FFT may cut off on either side of a sum of losses."""
_WIDE = 2**12
"""Number of grid points of a summed loss up to which the FFT covers all of them. For more, a
shorter range is found first: that is faster then, and rounding errors do not fill points far from
the mean, which later sums would have to carry along."""
_ROUNDING = 2e-15
"""Upper bound of the tilted probability that rounding errors move, for each addition of a loss and
each doubling of the FFT's length: some ten times the rounding of double precision."""
_SHARES = (0.3, 0.6, 0.9, 1.2)
"""Parameters s that are tried in Chernoff's bound, as multiples of the one that is best if the sum
of losses is normal."""


@dataclass(frozen=True)
class TiltedLoss:
    """Law of a privacy loss, or of a sum of independent losses, on a grid: tilted, that is
    multiplied by exp(theta loss) and scaled so that the probabilities add up to 1."""

    step: float
    """Distance of two neighbouring privacy losses of the grid."""
    first: int
    """Index of the smallest privacy loss: the losses are ``step`` times ``first``, ``first`` + 1,
    ..."""
    mass: Array
    """Tilted probability of each privacy loss of the grid, (point); they add up to 1."""
    theta: float
    """The tilt theta: the probability of each privacy loss is multiplied by exp(theta loss), up to
    a common factor."""
    log_scale: float
    """Number K that undoes the tilt: the probability of a loss without the tilt is ``mass`` times
    exp(K - theta loss)."""
    infinite: float
    """Probability, without the tilt, that is counted at an infinite privacy loss."""
    rounding: float = 0.0
    """Upper bound of the part of ``mass`` that rounding errors may have moved to other losses."""

    @classmethod
    def of(cls, grid: LossGrid, theta: float) -> TiltedLoss:
        """Law of one privacy loss on a grid, tilted by exp(theta loss)."""
        with np.errstate(divide="ignore"):
            exponent = np.log(grid.mass) + theta * grid.losses
        largest = float(exponent.max())
        weight = np.exp(exponent - largest)
        total = float(weight.sum())
        return cls(
            grid.step,
            grid.first,
            weight / total,
            theta,
            largest + math.log(total),
            grid.infinite,
        )

    @property
    def losses(self) -> Array:
        """Privacy losses of the grid, to which the values in ``mass`` belong, (point)."""
        return np.asarray(self.step * np.arange(self.first, self.first + len(self.mass)))

    @property
    def spread(self) -> float:
        """Standard deviation of the privacy loss under the tilted law."""
        mean = dot(self._steps, self.mass)
        return self.step * math.sqrt(dot(np.square(self._steps - mean), self.mass))

    @cached_property
    def _steps(self) -> Array:
        """Number of grid steps of each privacy loss from the smallest one, (point)."""
        return np.arange(len(self.mass), dtype=np.float64)

    @cached_property
    def _carried(self) -> tuple[int, int]:
        """Indices of the smallest and the largest privacy loss of the grid whose probability is not
        0."""
        some = self.mass != 0.0
        return int(some.argmax()), len(some) - 1 - int(some[::-1].argmax())

    @property
    def log_tail_mass(self) -> float:
        """Natural logarithm of the factor that turns the tilted probability of the largest loss of
        the grid into the probability without the tilt; the factor is smaller for larger losses."""
        return self.log_scale - self.theta * self.step * (self.first + len(self.mass) - 1)

    def transform(self, size: int) -> ComplexArray:
        """Fourier transform of the probabilities in ``mass`` with length ``size``, cached: the same
        law is added to others twice, in groups and for losses that fill no group. If the law is
        longer than the transform, it is wrapped around, as the transform wraps the sum of laws, of
        which only a range of that length is kept."""
        if size not in self._transforms:
            mass = self.mass
            if len(mass) > size:
                folded = np.zeros(-(-len(mass) // size) * size)
                folded[: len(mass)] = mass
                mass = folded.reshape(-1, size).sum(axis=0)
            self._transforms[size] = np.fft.rfft(mass, size)
        return self._transforms[size]

    @cached_property
    def _transforms(self) -> dict[int, ComplexArray]:
        """Cache of the Fourier transforms of ``mass``, with their lengths as keys."""
        return {}

    def log_moment(self, s: float) -> float:
        """Natural logarithm of E[exp(s k)] under the tilted law, k being the number of grid steps
        from the smallest loss of the grid."""
        weight = s * self._steps
        largest = max(float(weight[self._carried[1]]), float(weight[self._carried[0]]))
        weight -= largest
        # The exponentials of losses without probability may overflow: they are limited to 1, which
        # changes nothing.
        if self._carried != (0, len(weight) - 1):
            np.minimum(weight, 0.0, out=weight)
        np.exp(weight, out=weight)
        return largest + math.log(dot(weight, self.mass))

    def coarser(self, factor: int) -> TiltedLoss:
        """Law on a grid whose step is ``factor`` times as long; its deltas are upper bounds of
        those of this law.

        A mass at a loss x between two points l and l + h of the coarse grid is divided between them
        so that the masses under both data sets, P and Q, are kept: the share :math:`u = (1 -
        e^{l-x})/(1 - e^{-h})` goes to the upper one. It is connect the dots
        (:mod:`flmc.privacy.loss_grid`) for a law on a grid."""
        if factor == 1:
            return self
        first, offset = divmod(self.first, factor)
        if factor > len(self.mass):
            mass = self._in_wide_cells(factor, offset)
        else:
            # Distances x - l of the fine grid's losses x in a coarse cell from its lower end l.
            wide, rest = factor * self.step, self.step * np.arange(factor)
            upper = np.expm1(-rest) / math.expm1(-wide)
            # Probability that moves to another loss is tilted anew, by the factor exp(theta times
            # the move).
            up = upper * np.exp(self.theta * (wide - rest))
            down = (1.0 - upper) * np.exp(-self.theta * rest)
            # One row for each cell of the coarse grid; the first and the last cell are padded with
            # zeros.
            cells = np.zeros((-(-(offset + len(self.mass)) // factor), factor))
            cells.ravel()[offset : offset + len(self.mass)] = self.mass
            mass = np.zeros(len(cells) + 1)
            mass[:-1] += np.einsum("cx,x->c", cells, down)
            mass[1:] += np.einsum("cx,x->c", cells, up)
        total = float(mass.sum())
        return replace(
            self,
            step=factor * self.step,
            first=first,
            mass=mass / total,
            log_scale=self.log_scale + math.log(total),
        )

    def _in_wide_cells(self, factor: int, offset: int) -> Array:
        """Probabilities (3) of this law on a grid whose step is ``factor`` times as long, and
        longer than the whole law. The law starts ``offset`` fine steps after the first coarse
        point, and lies in one coarse cell or in two. The work grows with the number of the law's
        points, not with ``factor``."""
        wide = factor * self.step
        inside = min(len(self.mass), factor - offset)
        coarse = np.zeros(3)
        for cell, start, part in ((0, offset, self.mass[:inside]), (1, 0, self.mass[inside:])):
            # Distances from the lower and from the upper end of the coarse cell. The share of the
            # upper end follows from the first, that of the lower end from the second, because 1
            # minus a share near 1 would lose digits. ``factor`` may be too large for integers of 64
            # bits, so distances are floats.
            steps = np.arange(len(part), dtype=np.float64)
            below, above = self.step * (start + steps), self.step * ((factor - start) - steps)
            upper = np.expm1(-below) / math.expm1(-wide)
            lower = math.exp(-wide) * np.expm1(above) / -math.expm1(-wide)
            coarse[cell] += dot(part, lower * np.exp(-self.theta * below))
            coarse[cell + 1] += dot(part, upper * np.exp(self.theta * above))
        return coarse

    def mixed(self, chance: float) -> TiltedLoss:
        """Law of a privacy loss that follows this law with probability ``chance`` and is 0
        otherwise, where everybody sees which of both happens.

        The probabilities under both data sets are mixed in the same way, because chance does not
        depend on data; the tilt leaves the probability of the loss 0 as it is. Raises
        ``TooWideError`` if a grid from 0 to the losses of this law would be too long."""
        if chance >= 1.0:
            return self
        first, last = min(self.first, 0), max(self.first + len(self.mass) - 1, 0)
        if last - first >= MOST_POINTS:
            raise TooWideError
        sent, silent = math.log(chance) + self.log_scale, math.log1p(-chance)
        log_scale = float(np.logaddexp(sent, silent))
        mass = np.zeros(last - first + 1)
        begin = self.first - first
        mass[begin : begin + len(self.mass)] = math.exp(sent - log_scale) * self.mass
        mass[-first] += math.exp(silent - log_scale)
        infinite = chance * self.infinite
        return replace(self, first=first, mass=mass, log_scale=log_scale, infinite=infinite)

    def delta(self, epsilon: float) -> float:
        r"""Upper bound of the delta that goes with ``epsilon``, the hockey-stick divergence
        :math:`\sum_{x > \epsilon} m(x)\,(1 - e^{\epsilon - x})` of the untilted masses m."""
        above, mass = self._above(epsilon)
        certain = dot(mass, -np.expm1(epsilon - above))
        return min(1.0, certain + self.uncertain(epsilon))

    def mean_above(self, threshold: float, weight: Callable[[Array], Array]) -> float:
        """Upper bound of E[weight(loss); loss > threshold] under the law without the tilt, for a
        function ``weight`` of losses with values between 0 and 2."""
        above, mass = self._above(threshold)
        hidden = self.rounding * math.exp(min(self.log_scale - self.theta * threshold, 600.0))
        return dot(mass, weight(above)) + 2.0 * (self.infinite + hidden)

    def uncertain(self, epsilon: float) -> float:
        r"""Part of the upper bound of delta that the true delta may lack: the probability of an
        infinite loss, and the most that rounding errors may hide.

        Tilted probability that rounding errors leave out at a loss x counts :math:`e^{K - \theta x}
        (1 - e^{\epsilon - x})` at most, which is largest at :math:`x = \epsilon + \ln(1 +
        1/\theta)`."""
        theta = self.theta
        peak = theta * math.log(theta / (1 + theta)) - math.log1p(theta) if theta > 0 else 0.0
        exponent = self.log_scale - theta * epsilon + peak
        return self.infinite + self.rounding * math.exp(min(exponent, 600.0))

    def epsilon(self, target: float) -> float:
        """Smallest epsilon >= 0 whose delta is at most ``target``, rounded up; infinite if delta is
        above ``target`` at every epsilon up to the largest loss of the grid."""
        low, high = 0.0, self.step * (self.first + len(self.mass))
        if high <= 0.0 or self.delta(high) > target:
            return math.inf if self.delta(max(high, 0.0)) > target else 0.0
        above, mass = self._above(low)

        def excess(minus: float) -> float:
            first = int(np.searchsorted(above, -minus, side="right"))
            certain = dot(mass[first:], -np.expm1(-minus - above[first:]))
            return math.log(max(certain + self.uncertain(-minus), 1e-320) / target)

        # The search is over minus epsilon, because delta increases with it: so the search ends at
        # an epsilon whose delta is at most ``target``.
        return abs(largest_argument(excess, -high, -low, tolerance=1e-10))

    def _above(self, epsilon: float) -> tuple[Array, Array]:
        """Privacy losses of the grid above ``epsilon``, and their probabilities without the tilt,
        both (point)."""
        beyond = math.floor(epsilon / self.step) + 1 - self.first
        first = min(max(0, beyond), len(self.mass))
        losses = self.step * np.arange(self.first + first, self.first + len(self.mass))
        # For losses above epsilon the factor exp(K - theta loss) falls; where epsilon is far below
        # the mean of the tilted law, it may overflow.
        factor = np.exp(np.minimum(self.log_scale - self.theta * losses, 700.0))
        return np.asarray(losses), np.asarray(self.mass[first:] * factor)


class TooWideError(Exception):
    """Raised if the law of a sum of privacy losses needs too long an FFT, or none of its
    probability is left in the range that the FFT covers: a few losses are far larger than the
    others, and only a coarser grid would hold them."""


Terms = Sequence[tuple[TiltedLoss, int]]
"""Tilted laws of independent losses, each with the number of times that it is added; all have the
same grid step and the same tilt theta."""


def total(terms: Terms, truncated: float = TRUNCATED) -> TiltedLoss:
    """Tilted law of a sum of independent losses, whose laws have the same grid step and tilt, by
    FFT. The FFT covers a range of the sum that leaves out a probability of exp(-``truncated``) at
    most on either side; what lies above it counts as infinite. Raises ``TooWideError`` if the FFT
    would be too long, or its masses are all 0 or not numbers."""
    lowest = sum(count * term.first for term, count in terms)
    start, stop = _window(terms, truncated)
    # Length of the FFT, a power of two: the FFT is periodic, and must not wrap around within the
    # range of the sum that is kept.
    size = 1 << max(1, stop - start).bit_length()
    if size > MOST_POINTS:
        raise TooWideError
    factors = []
    rounding, log_scale, log_finite = 0.0, 0.0, 0.0
    for term, count in terms:
        factors.append(_power(term.transform(size), count))
        rounding += count * (term.rounding + _ROUNDING * math.log2(size))
        log_scale += count * term.log_scale
        log_finite += count * (math.log1p(-term.infinite) if term.infinite < 1 else -math.inf)
    around, first = np.fft.irfft(reduce(np.multiply, factors), size), start % size
    mass = np.concatenate([around[first:], around[:first]])[: stop - start + 1]
    np.maximum(mass, 0.0, out=mass)
    whole = float(mass.sum())
    if not whole > 0:  # all masses are 0, or one is not a number
        raise TooWideError
    law = replace(
        terms[0][0],
        first=lowest + start,
        mass=mass / whole,
        log_scale=log_scale,
        infinite=-math.expm1(log_finite),
        rounding=rounding,
    )
    # Losses above the range of the FFT count as infinite; the probability of those below it is less
    # than the rounding errors.
    lost = math.exp(min(law.log_tail_mass - truncated, 0.0))
    return replace(law, infinite=min(1.0, law.infinite + lost))


def _power(base: ComplexArray, count: int) -> ComplexArray:
    """Entries of ``base`` raised to the whole power ``count``, by squaring: faster than NumPy's
    power, which takes logarithms."""
    result: ComplexArray | None = None
    while count:
        if count & 1:
            result = base if result is None else result * base
        count >>= 1
        if count:
            base = base * base
    return np.ones_like(base) if result is None else result


def _window(terms: Terms, truncated: float) -> tuple[int, int]:
    """First and last index, in grid steps from the smallest value of the sum of losses, of a range
    outside of which a share of at most exp(-``truncated``) of the tilted probability lies on either
    side, by Chernoff's bound."""
    highest = sum(count * (len(term.mass) - 1) for term, count in terms)
    if highest < _WIDE:
        return 0, highest
    spread = math.sqrt(sum(count * (term.spread / term.step) ** 2 for term, count in terms))
    # With K the cumulant generating function of the sum, the probability beyond (K(s) + T)/s is at
    # most exp(-T) by Chernoff's bound, T = ``truncated``. For a normal sum the best s is the root
    # of 2 T over its standard deviation.
    unit = math.sqrt(2 * truncated)

    def end(sign: float, share: float) -> float:
        """Distance in grid steps, times ``sign``, from the smallest value of the sum to one end of
        the range: beyond it the probability is at most exp(-``truncated``) by Chernoff's bound. The
        parameter s of that bound is ``share`` times the best one for a normal sum."""
        s = share * unit / max(spread, 1e-9)
        moment = sum(count * term.log_moment(sign * s) for term, count in terms)
        return (moment + truncated) / s

    lower, upper = (_least(partial(end, sign)) for sign in (-1.0, 1.0))
    return max(0, math.floor(-lower)), min(highest, math.ceil(upper))


def _least(bound: Callable[[float], float]) -> float:
    """Smallest value of the function ``bound`` over the numbers in ``_SHARES``, by which the
    parameter s of Chernoff's bound is multiplied. The values fall and then rise as s grows, so not
    all of them need be computed."""
    best = bound(_SHARES[-2])
    after = bound(_SHARES[-1])
    if after < best:
        return after
    for share in _SHARES[-3::-1]:
        before = bound(share)
        if before >= best:
            break
        best = before
    return best
