r"""Privacy events of one-bit symbols if a device is put to zero or is silent in one of two
neighbouring data sets.

*Put to zero*: the bits of the device are +1 with :math:`q = \Phi(0)`, a fair coin for an odd link
:math:`\Phi`, and with any :math:`p \in [\Phi(-\ell), \Phi(\ell)]` under its own data. The
divergence is convex in p, so p is one of the two ends.

*Silent*: an entry is received as noise alone, :math:`Z = N(0, 1)` in units of its deviation, or as
the mixture :math:`M = p N(A, 1) + (1-p) N(-A, 1)`. The divergence of either order is convex in p
and the same at 1 - p, so the worst p is the farthest from 1/2. The likelihood ratio

.. math:: R(w) = M/Z = e^{-A^2/2}\,(p\,e^{Aw} + (1-p)\,e^{-Aw})

falls up to one point and rises from there, so :math:`R < r` between two values a and b, the roots
of a quadratic in :math:`u = e^{Aw}`: :math:`p u^2 - k u + 1 - p = 0` with :math:`k = r e^{A^2/2}`.
With :math:`F(t) = p\,B(t - A/2) - (1-p)\,B(t + A/2)` and :math:`B(t) = \int_{t-A/2}^{t+A/2}
\varphi` for the standard normal density :math:`\varphi`,

.. math:: \int_a^b (M - Z) = F(a) - F(b), \qquad D = F(b) - F(a) - |e^\epsilon - 1|\,W

is the excess :math:`D(\epsilon) = \delta(\epsilon) - (1 - e^\epsilon)_+` of either order. W is a
probability under its second law, :math:`e^\epsilon` times which is subtracted from the first: of
the values where the first law is the larger one by that factor for :math:`\epsilon \ge 0`, and of
the other ones else.

Neither pair is symmetric, so delta is the larger one of the two orders."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from flmc.base.arrays import Array
from flmc.base.special import ndtr, normal_between
from flmc.privacy.bit_pairs import REACH, PairHull
from flmc.privacy.composed_event import ComposedEvent
from flmc.privacy.event import Event
from flmc.privacy.transmissions import Transmissions, total_mu

_LOUD = 20.0
"""Amplitude of a bit, in standard deviations of the noise, beyond which a silent device is taken to
be told for certain from one that transmits: the probability of an error is below 1e-22."""
_QUIET = 0.05
"""Half length of an interval below which its normal probability is integrated, because a difference
of two tails would lose digits."""
_FARTHEST = 600.0
"""Largest privacy loss that is used in computations, because exponentials of larger ones
overflow."""
_ROUNDING = 2e-15
"""Share of each term of the excess that is added to it, so that rounding never makes it too
small."""
_LARGE = 30.0
"""Logarithm of k above which the roots of the quadratic are those of its two largest terms, to
within a relative exp(-60)."""


class Presence(NamedTuple):
    """Noise alone, and noise with a bit that is +1 with probability ``high``: the two laws of an
    entry where a device is silent or not, in one of the two orders."""

    high: float
    """Probability of a +1 bit of the device that transmits."""
    present_first: bool
    """Whether the device transmits in the first world, and not in the second."""

    @property
    def largest_loss(self) -> float:
        """Infinity: a value far from 0 tells a device that transmits from a silent one."""
        return math.inf

    @property
    def lattice(self) -> None:
        """None: losses are multiples of no number."""
        return None

    def loss(self, w: Array, amplitude: float) -> Array:
        """Privacy losses (point) at the received values ``w`` (point), within 600; ``w`` and the
        ``amplitude`` of a bit are in standard deviations of the noise."""
        with np.errstate(divide="ignore"):
            plus, minus = np.log(np.array([self.high, 1.0 - self.high]))
        ratio = np.logaddexp(plus + amplitude * w, minus - amplitude * w)
        ratio = ratio - amplitude**2 / 2
        return np.asarray(np.clip(ratio if self.present_first else -ratio, -_FARTHEST, _FARTHEST))

    def loss_range(self, amplitude: float, reach: float = REACH) -> tuple[float, float]:
        """Smallest and largest privacy loss at all received values within ``reach`` of plus or
        minus the ``amplitude`` of a bit."""
        far = amplitude + reach
        with np.errstate(divide="ignore"):
            turn = np.log(np.array(1.0 - self.high) / self.high) / (2.0 * amplitude)
        ends = self.loss(np.array([-far, float(np.clip(turn, -far, far)), far]), amplitude)
        return float(ends.min()), float(ends.max())

    def spread(self, amplitude: float) -> float:
        """Standard deviation of one entry's privacy loss under the first law; it sets the step of a
        grid and is no bound."""
        z = np.linspace(-8.0, 8.0, 193)
        weight = np.exp(-0.5 * z * z)
        weight /= weight.sum()
        means = [(self.high, amplitude), (1.0 - self.high, -amplitude)]
        laws = means if self.present_first else [(1.0, 0.0)]
        losses = [(share, self.loss(mean + z, amplitude)) for share, mean in laws]
        mean, square = (
            sum(share * float((loss**power * weight).sum()) for share, loss in losses)
            for power in (1, 2)
        )
        return math.sqrt(max(square - mean**2, 0.0))

    def excess(self, epsilon: Array, amplitude: float) -> Array:
        r"""Excess :math:`\delta(\epsilon) - (1 - e^\epsilon)_+` at each of the epsilons (point), of
        either sign and at most 600 in magnitude, rounded up."""
        epsilon = np.asarray(epsilon)
        high, low = self.high, 1.0 - self.high
        bias = high - low
        # R < r between the two roots: r is e^epsilon for M against Z, and its inverse for Z
        # against M.
        log_k = (epsilon if self.present_first else -epsilon) + amplitude**2 / 2
        more = np.expm1(np.minimum(log_k, _LARGE))
        square = more * (more + 2.0) + bias**2
        inside = square > 0.0
        root = np.sqrt(np.maximum(square, 0.0))
        with np.errstate(divide="ignore", invalid="ignore"):
            up = np.log1p((more + root - bias) / (2.0 * high))
            down = -np.log1p((more + root + bias) / np.float64(2.0 * low))
            large = log_k > _LARGE
            up = np.where(large, log_k - math.log(high), up)
            down = np.where(large, np.log(np.float64(low)) - log_k, down)
        b, a = up / amplitude, down / amplitude
        # Which side of the two roots loses: outside for M against Z at e^epsilon above 1.
        outside = (epsilon >= 0) == self.present_first
        half = amplitude / 2
        terms = [
            high * _between(b - half, half),
            -low * _between(b + half, half),
            -high * _between(a - half, half),
            low * _between(a + half, half),
        ]
        laws = [(1.0, 0.0)] if self.present_first else [(high, amplitude), (low, -amplitude)]
        weight = np.zeros_like(epsilon)
        for share, mean in laws:
            below, above = ndtr(a - mean), ndtr(mean - b)
            middle = np.where(a > mean, ndtr(mean - a) - above, ndtr(b - mean) - below)
            weight = weight + share * np.where(outside, below + above, np.maximum(middle, 0.0))
        lost = np.abs(np.expm1(epsilon)) * weight
        excess = sum(terms) - lost
        excess = excess + _ROUNDING * (sum(np.abs(term) for term in terms) + lost)
        # Where no value has R < r, epsilon is beyond the largest loss, or below the smallest.
        return np.asarray(np.where(inside, np.maximum(excess, 0.0), 0.0))


def _between(centre: Array, half: float) -> Array:
    """Normal probability of the interval ``half`` to either side of each centre, with full relative
    accuracy; 0 at an infinite one."""
    away = np.minimum(np.abs(centre), 1e3)
    if half < _QUIET:
        return normal_between(away, half)
    return np.asarray(ndtr(half - away) - ndtr(-half - away))


@dataclass(frozen=True)
class OrderedBitEvent(ComposedEvent):
    """Privacy event of bits under two data sets in one order: each pair in ``pairs`` is q, the
    probability of a +1 bit under the second, and 1 - p, that of a -1 bit under the first."""

    pairs: tuple[tuple[float, float], ...]
    noise_power: float
    transmissions: Transmissions

    @property
    def hull(self) -> PairHull:
        """Polygon around the pairs of probabilities of a +1 bit."""
        return PairHull.of(self.pairs)

    @property
    def mu(self) -> float:
        """Distance of the expected bits, in standard deviations of the noise; it only says where a
        search begins."""
        return total_mu(2.0 * float(self.hull.gap.max()), self.noise_power, self.transmissions)


@dataclass(frozen=True)
class PresenceEvent(ComposedEvent):
    """Privacy event of bits of a device that is silent in one of two data sets, in one order."""

    presence: Presence
    noise_power: float
    transmissions: Transmissions

    @property
    def hull(self) -> Presence:  # type: ignore[override]  # the same questions, of other laws
        """The two laws of an entry."""
        return self.presence

    @property
    def largest_loss(self) -> float:
        """Infinity: without noise it is seen that a device is silent."""
        return math.inf

    @property
    def mu(self) -> float:
        """Distance of a bit from silence, in standard deviations of the noise."""
        return total_mu(1.0, self.noise_power, self.transmissions)

    @property
    def _told(self) -> bool:
        """Whether an entry is so loud that it counts as telling that the device transmits."""
        loudest = max((gain for gain, count in self.transmissions if count), default=0.0)
        return loudest > _LOUD * math.sqrt(self.noise_power)

    def tight_delta(self, epsilon: float) -> float:
        """Upper bound of the delta that goes with ``epsilon``; 1 for a loud entry."""
        return 1.0 if self._told else super().tight_delta(epsilon)

    def solve_epsilon(self, delta: float) -> tuple[float, bool]:
        """Upper bound of the epsilon that goes with ``delta``; infinite for a loud entry."""
        return (math.inf, False) if self._told else super().solve_epsilon(delta)

    def averaged_delta(self, epsilon: float, rounds: int, chance: float) -> float:
        """Upper bound of delta where the device transmits in a round by chance."""
        return 1.0 if self._told else super().averaged_delta(epsilon, rounds, chance)

    def averaged_epsilon(self, delta: float, rounds: int, chance: float) -> tuple[float, bool]:
        """Upper bound of epsilon where the device transmits in a round by chance."""
        if self._told:
            return math.inf, False
        return super().averaged_epsilon(delta, rounds, chance)

    def curve_delta(self, epsilon: float) -> float:
        """Upper bound of delta for a curve of many epsilons; 1 for a loud entry."""
        return 1.0 if self._told else super().curve_delta(epsilon)

    def averaged_curve_delta(self, epsilon: float, rounds: int, chance: float) -> float:
        """Upper bound of delta for a curve of many epsilons, where the device transmits in a round
        by chance."""
        return 1.0 if self._told else super().averaged_curve_delta(epsilon, rounds, chance)

    def delta_without_noise(self, epsilon: float, criterion: str, num_devices: int | None) -> float:
        """1: without noise it is seen that a device is silent."""
        return 1.0


class TwoOrdersEvent(Event):
    """Privacy event of two data sets that cannot be exchanged: its delta and epsilon are the larger
    ones of the two orders."""

    @property
    @abstractmethod
    def orders(self) -> tuple[ComposedEvent, ComposedEvent]:
        """The event in both orders of the two data sets, with this event's transmissions."""

    @property
    def largest_loss(self) -> float:
        """Upper bound of the privacy loss in either order."""
        both = [each.largest_loss for each in self.orders]
        return math.inf if any(map(math.isnan, both)) else max(both)

    @property
    def mu(self) -> float:
        """Distance of the means of a Gaussian mechanism; it only says where a search begins."""
        return self.orders[0].mu

    @property
    def tight_only(self) -> tuple[str, str]:
        """Two phrases for the message that refuses the criteria ``tail`` and ``paper``."""
        return "a relation other than 'replace'", "the two data sets cannot be exchanged"

    def tight_delta(self, epsilon: float) -> float:
        """Upper bound of the delta that goes with ``epsilon`` in both orders."""
        return max(each.delta(epsilon) for each in self.orders)

    def solve_epsilon(self, delta: float) -> tuple[float, bool]:
        """Upper bound of the epsilon that goes with ``delta`` in both orders, and whether it is
        looser than usual."""
        first, second = (each.tight_epsilon(delta) for each in self.orders)
        return max(first[0], second[0]), first[1] or second[1]

    def averaged_delta(self, epsilon: float, rounds: int, chance: float) -> float:
        """Upper bound of delta, in both orders, if this event happens in each round by chance."""
        return max(each.averaged_delta(epsilon, rounds, chance) for each in self.orders)

    def curve_delta(self, epsilon: float) -> float:
        """Upper bound of delta in both orders, for a curve of many epsilons."""
        return max(each.curve_delta(epsilon) for each in self.orders)

    def averaged_curve_delta(self, epsilon: float, rounds: int, chance: float) -> float:
        """Upper bound of delta in both orders, for a curve of many epsilons, if this event happens
        in each round by chance."""
        return max(each.averaged_curve_delta(epsilon, rounds, chance) for each in self.orders)

    def averaged_epsilon(self, delta: float, rounds: int, chance: float) -> tuple[float, bool]:
        """Upper bound of epsilon, in both orders, if this event happens in each round by chance;
        and whether it is looser than usual."""
        first, second = (each.averaged_epsilon(delta, rounds, chance) for each in self.orders)
        return max(first[0], second[0]), first[1] or second[1]

    def delta_without_noise(self, epsilon: float, criterion: str, num_devices: int | None) -> float:
        """Upper bound of delta, in both orders, at an infinite gain."""
        return max(e.delta_without_noise(epsilon, criterion, num_devices) for e in self.orders)


@dataclass(frozen=True)
class ZeroedBitEvent(TwoOrdersEvent):
    """Privacy event of bits of a device whose gradient is put to zero in one of two data sets."""

    high: float
    """Largest probability of a +1 bit, at the clip."""
    low: float
    """Smallest probability of a +1 bit, at minus the clip."""
    zero: float
    """Probability of a +1 bit at a gradient of zero, between ``low`` and ``high``."""
    noise_power: float
    transmissions: Transmissions

    @property
    def orders(self) -> tuple[ComposedEvent, ComposedEvent]:
        """The event with the device's data in the first data set, and in the second."""
        # A pair whose probability falls is told by the -1 bits: both are exchanged in it.
        rise, fall = (self.zero, 1.0 - self.high), (1.0 - self.zero, self.low)
        first, second = (
            OrderedBitEvent(pairs, self.noise_power, self.transmissions)
            for pairs in ((rise, fall), (rise[::-1], fall[::-1]))
        )
        return first, second


@dataclass(frozen=True)
class AbsentBitEvent(TwoOrdersEvent):
    """Privacy event of bits of a device that is silent in one of two data sets."""

    high: float
    """Largest probability of a +1 bit, at the clip."""
    low: float
    """Smallest probability of a +1 bit, at minus the clip."""
    noise_power: float
    transmissions: Transmissions

    @property
    def orders(self) -> tuple[ComposedEvent, ComposedEvent]:
        """The event with the device transmitting in the first data set, and in the second."""
        # A bit that is mostly -1 is the mirror image of one that is mostly +1. So the divergence,
        # convex in the probability of +1, grows with the bias to either side of a fair bit.
        high = max(self.high, 1.0 - self.low)
        first, second = (
            PresenceEvent(Presence(high, order), self.noise_power, self.transmissions)
            for order in (True, False)
        )
        return first, second
