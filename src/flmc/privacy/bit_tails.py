r"""Probability that the privacy loss of one-bit symbols exceeds epsilon, for the paper's criteria:
``tail``, on the loss itself, and ``paper``, on the paper's bound of the loss. The module holds the
worst-case laws of one received entry, the law of its loss, and the tail of the sum of losses.

Given every other device's bits, the received entry is :math:`w = A b + z` up to a known constant,
with the device's bit b and noise z. Under two data sets the bit is +1 with probability :math:`p_1 =
\Phi(\ell)` and :math:`p_0 = \Phi(-\ell)`:

.. math:: P = p_1 N(A, N_0) + (1-p_1) N(-A, N_0), \qquad Q = p_0 N(A, N_0) + (1-p_0) N(-A, N_0).

The loss :math:`\ln\frac{p_1 v + 1 - p_1}{p_0 v + 1 - p_0}`, :math:`v = e^{2 A w/N_0}`, increases
with w for :math:`p_1 > p_0`. A sum X of independent losses exceeds epsilon with probability

.. math:: \Pr(X > \epsilon) = \frac{1}{2\pi i}
          \int_{c - i\infty}^{c + i\infty} \frac{M(s)\,e^{-s\epsilon}}{s}\,ds, \qquad c > 0,

M being the moment generating function. The trapezoidal rule with spacing dt, of period T = 2 pi/dt,
gives exactly :math:`\sum_k e^{c k T} \Pr(X > \epsilon + kT)`: the terms with k < 0 are at most
:math:`e^{-cT}`, those with k > 0 vanish once epsilon + T is above every loss, so the error is
known. The sum along the line ends once its terms have been negligible for longer than the integrand
may take to revive. If the integrand does not decay, because the losses are nearly discrete at high
signal-to-noise ratio, a grid and FFT give an upper bound instead."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache, partial

import numpy as np

from flmc.base.arrays import Array, ComplexArray
from flmc.base.special import ndtr
from flmc.privacy.composed_loss import ComposedLoss, EntryLoss
from flmc.privacy.loss_grid import LossGrid
from flmc.privacy.root_finding import largest_argument

REACH = 10.0
"""Number of standard deviations beyond which noise, with a probability of 1e-23, counts as an
infinite privacy loss."""
_LARGE = 1e9
"""Largest amplitude of a bit, in standard deviations of the noise, that is used in computations. It
stands for all larger ones, because noise changes no bit at far smaller amplitudes already."""
_SMALL = 1e-4
"""Size of privacy losses below which they are not computed as the difference of two logarithms,
which would be rounded too much."""
_LARGEST_LOSS = 700.0
"""Largest magnitude of a privacy loss that is used in computations, because exponentials of larger
ones overflow. Losses are larger only if a data set gives one of the bits for certain."""


@dataclass(frozen=True)
class BitPair:
    """Laws of one received entry under two data sets, in the worst case: a bit of the given
    ``amplitude`` plus noise of variance 1. The bit is +1 with probability ``high`` under the first
    data set and ``low`` under the second."""

    high: float
    """Probability of a +1 bit under the first data set."""
    low: float
    """Probability of a +1 bit under the second data set, below ``high``."""
    amplitude: float
    """Amplitude of the bit at the receiver, in standard deviations of the noise."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "amplitude", min(self.amplitude, _LARGE))

    def loss(self, w: Array) -> Array:
        """Privacy losses, in the shape of ``w``, at received values ``w`` in standard deviations of
        the noise."""
        u = 2.0 * self.amplitude * np.asarray(w)
        # Both data sets' likelihoods are weighted sums of exp(u/2) and exp(-u/2). They are divided
        # by the larger of these two, which leaves 1 and exp(-abs(u)), so that nothing overflows.
        fade = np.exp(-np.abs(u))
        plus, minus = np.where(u > 0, 1.0, fade), np.where(u > 0, fade, 1.0)
        above, below = (p * plus + (1.0 - p) * minus for p in (self.high, self.low))
        with np.errstate(divide="ignore"):
            # Where both likelihoods are nearly equal, the difference of their logarithms loses
            # digits. There the logarithm of 1 plus their relative difference is accurate, unless
            # that is near -1.
            values = np.log(above) - np.log(below)
            if min(2.0 * self.amplitude, 1.0) * (self.high - self.low) < _SMALL:
                excess = np.copysign((self.high - self.low) * -np.expm1(-np.abs(u)), u) / below
                values = np.where(excess > -0.5, np.log1p(np.maximum(excess, -0.5)), values)
        return np.asarray(np.clip(values, -_LARGEST_LOSS, _LARGEST_LOSS))

    def threshold(self, loss: Array) -> Array:
        """Received values, in standard deviations of the noise and in the shape of ``loss``, at
        which the privacy loss is ``loss``; minus infinity at or below the smallest possible loss,
        plus infinity at or above the largest."""
        loss = np.minimum(loss, _LARGEST_LOSS)
        # The received value w has the loss l where exp(2 A w) = above/below, A being the amplitude.
        # Both are written with the distance of l from the smallest or largest loss, so that no
        # digits cancel near these.
        above = (
            (1.0 - self.high) * np.expm1(loss - self.lower_bound)
            if self.high < 1
            else np.exp(loss) * (1.0 - self.low)
        )
        below = (
            -self.high * np.expm1(loss - self.bound)
            if self.low > 0
            else np.full_like(loss, self.high)
        )
        # The smallest and the largest loss are rounded: a given loss that is meant to equal one of
        # them must not fall short of it.
        above = np.where(loss <= self.lower_bound + 1e-12 * abs(self.lower_bound), 0.0, above)
        below = np.where(loss >= self.bound - 1e-12 * abs(self.bound), 0.0, below)
        with np.errstate(divide="ignore", invalid="ignore"):
            w = (np.log(np.maximum(above, 0.0)) - np.log(np.maximum(below, 0.0))) / (
                2.0 * self.amplitude
            )
        return np.where(above <= 0, -np.inf, np.where(below <= 0, np.inf, w))

    @property
    def bound(self) -> float:
        """Largest privacy loss at any received value; infinite if the second data set never gives
        +1."""
        return math.log1p((self.high - self.low) / self.low) if self.low > 0 else math.inf

    @property
    def lower_bound(self) -> float:
        """Smallest privacy loss at any received value; minus infinity if the first data set always
        gives +1."""
        return (
            -math.log1p((self.high - self.low) / (1.0 - self.high)) if self.high < 1 else -math.inf
        )


_LOUDEST = 40.0
"""Largest amplitude of a bit, in standard deviations of the noise, that the quadrature over
received values uses; it stands for all larger ones, which would need too many nodes."""


@dataclass(frozen=True)
class BitLossLaw:
    """Law of the privacy loss of one entry, if the received value is normal with variance 1 about
    one of ``centres``, which is drawn with the probabilities ``weights``. The loss is the logarithm
    of the likelihood ratio of the two data sets of ``pair`` at the received value."""

    pair: BitPair
    centres: tuple[float, ...]
    weights: tuple[float, ...]

    @classmethod
    def under_first(cls, pair: BitPair) -> BitLossLaw:
        """Law of the privacy loss of an entry when the received value comes from the first data set
        of the ``pair``."""
        pair = _audible(pair)
        return cls(pair, (pair.amplitude, -pair.amplitude), (pair.high, 1.0 - pair.high))

    @classmethod
    def of_paper(cls, pair: BitPair, num_devices: int) -> BitLossLaw:
        """Law of the paper's bound of the privacy loss: the loss at a received value that is noise
        plus the amplitude of the ``pair`` times ``num_devices`` - 1."""
        pair = _audible(pair)
        return cls(pair, (pair.amplitude * (num_devices - 1),), (1.0,))

    def nodes(self, width: float) -> tuple[Array, Array]:
        """Privacy losses at evenly spaced received values, ``width`` apart, and their probabilities
        by the trapezoidal rule, both (node)."""
        z, density = _normal_nodes(width)
        received = np.concatenate([c + z for c in self.centres])
        return self.pair.loss(received), np.concatenate([w * density for w in self.weights])

    def node_width(self, fastest: float) -> float:
        """Spacing of the received values at which a quadrature over the privacy loss is evaluated,
        in standard deviations of the noise. It is small enough to resolve exp(i t loss) for t up to
        ``fastest``, and to keep clear of the loss's singularities, which lie pi/(2 A) off the real
        line for the amplitude A of a bit."""
        wanted = 2 * math.pi / (25.0 * self.pair.amplitude + self.steepest * fastest + 60.0)
        # Rounded down to a power of sqrt(2): few distinct widths occur, so nodes are reused.
        return float(2.0 ** (math.floor(2 * math.log2(min(0.1, wanted))) / 2))

    def cumulant(self, s: float, *, exactly: bool = False) -> tuple[float, float]:
        """Value of ln E[exp(s loss)] of an entry's privacy loss, and its derivative in s: by a
        quadrature with few nodes, which do not suffice for a large s, or ``exactly`` with as many
        as s needs."""
        loss, weights = self.nodes(self.node_width(abs(s))) if exactly else self._still_nodes
        exponent = s * loss
        peak = float(exponent.max())
        exponent -= peak
        tilted = np.exp(exponent, out=exponent) * weights
        total = float(tilted.sum())
        return math.log(total) + peak, float(tilted @ loss) / total

    @cached_property
    def _still_nodes(self) -> tuple[Array, Array]:
        """Privacy losses and their weights, both (node), of the quadrature of E[exp(s loss)] for a
        real s, where the integrand does not oscillate, so that few nodes suffice."""
        return self.nodes(self.node_width(0.0))

    def log_magnitude(self, c: float, t: float) -> float:
        """Logarithm of the magnitude of E[exp((c + i t) loss)] of an entry's privacy loss."""
        loss, weights = self.nodes(self.node_width(t))
        peak = float((c * loss).max())
        value = abs(complex(weights @ np.exp((c + 1j * t) * loss - peak)))
        return math.log(max(value, 1e-300)) + peak

    def moments(self) -> tuple[float, float]:
        """Mean and variance of the privacy loss under this law."""
        loss, weights = self._still_nodes
        mean = float(loss @ weights)
        return mean, float(np.square(loss - mean) @ weights)

    @property
    def steepest(self) -> float:
        """Largest derivative of the privacy loss with respect to the received value, which is in
        standard deviations of the noise; a symmetric pair attains it at the received value 0."""
        return 2.0 * self.pair.amplitude * (self.pair.high - self.pair.low)

    @cached_property
    def largest(self) -> float:
        """Largest privacy loss at received values within 10 standard deviations of a mean in
        ``centres``."""
        return float(self.pair.loss(np.array([max(self.centres) + REACH]))[0])

    @property
    def smallest(self) -> float:
        """Smallest privacy loss at received values within 10 standard deviations of a mean in
        ``centres``."""
        return float(self.pair.loss(np.array([min(self.centres) - REACH]))[0])

    def grid(self, step: float, shares: int) -> LossGrid:
        """Law of the privacy loss on a grid, with losses rounded to multiples of ``step``, upwards
        on average.

        Each cell between two points of the grid is divided into n = ``shares`` equal parts. Part i
        of n, counted from the lowest, gives the share i/n of its probability to the upper point and
        the rest to the lower one, so that no loss is lowered on average. With one part all losses
        are rounded up."""
        first, last = math.floor(self.smallest / step), math.ceil(self.largest / step)
        fine = step / shares * np.arange(first * shares, last * shares + 1)
        edges = self.pair.threshold(np.asarray(fine))
        above = np.asarray(self.weights) @ ndtr(np.asarray(self.centres)[:, None] - edges)
        between = np.maximum(above[:-1] - above[1:], 0.0).reshape(-1, shares)
        upper = between @ (np.arange(1, shares + 1) / shares)
        mass = np.zeros(last - first + 1)
        mass[1:] += upper
        mass[:-1] += between.sum(axis=1) - upper
        mass[0] += 1.0 - float(above[0])  # all mass of the noise below the grid's reach
        return LossGrid(step, first, mass, float(above[-1]))


@lru_cache(maxsize=16)
def _normal_nodes(width: float) -> tuple[Array, Array]:
    """Evenly spaced values of standard normal noise, ``width`` apart, and their probabilities by
    the trapezoidal rule, both (node) and read-only; cached, because many laws share few widths."""
    z = np.arange(-REACH, REACH + width, width)
    nodes = z, width / math.sqrt(2 * math.pi) * np.exp(-0.5 * z * z)
    for array in nodes:
        array.flags.writeable = False
    return nodes


def _audible(pair: BitPair) -> BitPair:
    """The ``pair`` with the amplitude of its bit limited to 40 standard deviations of the noise,
    beyond which the quadrature would need too many nodes.

    The tail probabilities stay the same: at amplitude 40 bits are received without error, and
    losses differ from their smallest or largest value by no more than exp(-2 * 40 * 30)."""
    return replace(pair, amplitude=min(pair.amplitude, _LOUDEST))


_ALIASING = 40.0
"""Smallest product of the real part of the contour, along which the integral for a tail probability
runs, and the period of the trapezoidal rule: the error by aliasing is then below exp(-40) =
4e-18."""
_MOST_POINTS = 1 << 10
"""Largest number of points at which the contour integral for a tail probability is evaluated; where
it needs more, losses are added on a grid instead."""
_FASTEST = 5e3
"""Largest number of radians by which exp(i t loss) may turn within one standard deviation of the
noise, for the quadrature of the moment generating function to follow; where it turns faster, losses
are added on a grid instead."""
_FLOOR = 1e-15
"""Smallest probability that is resolved; it is added to every computed tail probability, so that
the result stays an upper bound."""
_DISTINCT = 2.0
"""Amplitude of a bit, in standard deviations of the noise, above which losses are added on a grid
and not by a contour integral: bits are received almost without error there, so losses are nearly
discrete."""
_STEEPEST = 3e3
"""Largest product of the parameter s of Chernoff's bound and the largest derivative of the privacy
loss with respect to the received value: larger products would take many nodes of the quadrature, so
s is lowered to this limit, with which the bound holds too."""
_CHUNK = 32
"""Number of points on the contour of the integral for a tail probability at which the integrand is
computed at one time."""
_SHARES = 8
"""Number n of equal parts of each grid cell. Part i of n gives the share i/n of its probability to
the cell's upper end and the rest to the lower end."""
_FEW = 100
"""Number of entries' privacy losses up to which each loss is rounded up to a multiple of the grid's
step; more are rounded at random."""
_FINE, _FINEST = 600.0, 4000.0
"""Numbers of grid steps per standard deviation of one privacy loss: ``_FINE`` if more than 100
losses are added, ``_FINEST`` if fewer are."""


Sum = Sequence[tuple[BitLossLaw, int]]
"""Laws of independent privacy losses, each with the number of times that it is added."""


def exceedance(parts: Sum, epsilon: float, both: bool = False, *, quick: bool = False) -> float:
    r"""Upper bound of Pr(X > epsilon) for a sum X of independent privacy losses, whose laws and
    counts are ``parts``. Computed integrals are raised by a relative 1e-9 against rounding, and at
    least 1e-15 is returned.

    With ``both`` it is an upper bound of Pr(abs(X) > epsilon), for losses under the first data set
    P whose bit probabilities are symmetric: X under the second data set Q has the law of -X under
    P, so :math:`\Pr(X < -\epsilon) = E[e^{-X}; X > \epsilon]`. With ``quick`` Chernoff's bound is
    returned, which is looser and takes little time."""
    highest = sum(count * law.largest for law, count in parts)
    moments = [(law.moments(), count) for law, count in parts]
    mean = sum(count * m for (m, _), count in moments)
    spread = math.sqrt(sum(count * v for (_, v), count in moments))
    if highest <= epsilon:
        return _FLOOR  # only noise beyond 10 standard deviations could do more
    if spread < 1e-6 * abs(mean) or spread == 0 or mean - epsilon > 8.0 * spread:
        # The sum of losses nearly certainly exceeds epsilon, or varies too little to be resolved; 1
        # is an upper bound of every probability.
        return 1.0
    saddle = _saddle(parts, epsilon, spread)
    if quick:
        return _by_chernoff(parts, epsilon, both, saddle)
    distinct = max(law.pair.amplitude for law, _ in parts) > _DISTINCT
    value = None if distinct else _by_contour(parts, epsilon, both, mean, spread, saddle)
    if value is not None:
        return value
    # Rounding losses to a grid loosens the bound from the grid, so that Chernoff's may be smaller.
    return min(_by_chernoff(parts, epsilon, both, saddle), _by_grid(parts, epsilon, both))


def _by_chernoff(parts: Sum, epsilon: float, both: bool, s: float) -> float:
    r"""Chernoff's bound :math:`e^{K(s) - s\epsilon}` of the probability that a sum of privacy
    losses, whose laws and counts are ``parts``, exceeds epsilon. K is the cumulant generating
    function of the sum, and any ``s`` > 0 gives a bound. With ``both`` the result is multiplied by
    :math:`1 + e^{-\epsilon}` and bounds the probability that the sum's magnitude exceeds epsilon. K
    leaves out noise beyond 10 standard deviations, whose probability is added."""
    if s <= 0:
        return 1.0
    # Chernoff's bound holds with any s > 0, and a large s would take many quadrature nodes.
    s = min(s, *(_STEEPEST / law.steepest for law, _ in parts))
    exponent = sum(count * law.cumulant(s, exactly=True)[0] for law, count in parts) - s * epsilon
    sides = 1.0 + math.exp(-epsilon) if both else 1.0
    return min(1.0, sides * math.exp(min(exponent, 0.0)) * (1 + 1e-6) + 2 * _FLOOR)


def _by_contour(
    parts: Sum, epsilon: float, both: bool, mean: float, spread: float, saddle: float
) -> float | None:
    """Upper bound of the probability that a sum of privacy losses, whose laws and counts are
    ``parts``, or with ``both`` its magnitude, exceeds epsilon, by an integral of the sum's moment
    generating function along a contour, a line parallel to the imaginary axis. ``saddle`` is the
    real point at which E[exp(s (sum - epsilon))] is smallest, through which the line goes unless a
    pole is too near; ``mean`` and ``spread`` are mean and standard deviation of the sum. None if
    the integral does not converge within 1024 points."""
    top = min(sum(count * law.largest for law, count in parts), max(mean, epsilon) + 60.0 * spread)
    # The integrand has a pole at 0. On a contour left of it, the integral is minus the probability
    # of the opposite event. With `both` there is a second pole at -1, and the contour stays right
    # of both.
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
    # None tells the caller to add up losses on a grid: the integrand has not decayed at the last
    # affordable point.
    decay = sum(count * law.log_magnitude(c, 0.99 * farthest) for law, count in parts) - c * epsilon
    if decay > math.log(1e-13 * abs(c)):
        return None
    # If all losses are near plus or minus the largest one, the integrand grows again after a
    # distance of pi over the largest loss along the contour. So the sum ends only after the
    # integrand has been negligible over that distance.
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
    """Moment generating function of one privacy loss along the contour of an integral, at the
    complex numbers c, c + i dt, c + 2 i dt, ..., computed a chunk of points at a time."""

    def __init__(self, law: BitLossLaw, c: float, spacing: float) -> None:
        self._law, self._c, self._spacing = law, c, spacing
        self._width = math.inf

    def log_moment(self, first: int) -> ComplexArray:
        """Values of ln E[exp(s loss)], (point), at 32 successive points s of the contour, of which
        the first has the number ``first``."""
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
    """Powers 0 to ``count`` - 1 of every number in ``base`` (node), as an array (power, node); each
    pass doubles the number of powers."""
    powers = np.ones((count, len(base)), dtype=np.complex128)
    done, factor = 1, base
    while done < count:
        np.multiply(powers[:done], factor, out=powers[done : 2 * done])
        done, factor = 2 * done, factor * factor
    return powers


def _saddle(parts: Sum, epsilon: float, spread: float) -> float:
    """Real s at which K(s) - s epsilon is least, to a relative 2 %. K is the cumulant generating
    function of the sum of privacy losses, whose laws and counts are ``parts``; ``spread`` is the
    standard deviation of the sum. On a contour through s the integrand of the tail probability
    falls off fast away from the real line."""

    @cache  # cached, because the ends of a bracket are evaluated twice
    def slope(s: float) -> float:
        return sum(count * law.cumulant(s)[1] for law, count in parts) - epsilon

    if slope(0.0) > 0:
        return -_bracketed(lambda s: -slope(-s), spread)
    return _bracketed(slope, spread)


def _bracketed(slope: Callable[[float], float], spread: float) -> float:
    """Root s > 0 of the increasing function ``slope``, to a relative 2 % and rounded down. The
    search begins with the interval from 0 to 1/``spread`` and doubles it up to about
    1e4/``spread``; its end is returned if ``slope`` is still negative there."""
    high = 1.0 / spread
    while slope(high) < 0 and high * spread < 1e4:
        high *= 2
    return largest_argument(slope, 0.0, high, tolerance=0.02)


def _by_grid(parts: Sum, epsilon: float, both: bool) -> float:
    """Upper bound of the probability that a sum of privacy losses, whose laws and counts are
    ``parts``, or with ``both`` its magnitude, exceeds epsilon, from losses rounded to a grid.

    Up to 100 losses are rounded up. Rounding more of them up would raise their sum too much, so
    these are rounded at random, upwards on average."""
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
    # With few losses the grid of the sum gets the step of a single loss's grid, so that no grid is
    # made coarser while losses are added.
    composed = (
        ComposedLoss.of(entries, fine=1.0, resolution=min(_FINEST * math.sqrt(number), 1e4))
        if few
        else ComposedLoss.of(entries, fine=_FINE)
    )
    beyond = composed.exceedance(epsilon, both=both, rounded_up=few)
    return min(1.0, beyond + 2 * _FLOOR)
