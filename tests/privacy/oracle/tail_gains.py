"""The criteria `tail` and `paper`: probabilities of large losses, and the gain that they allow.

`tail`: Pr(abs(L) > epsilon) under the worst-case pair. `paper`: 2 Pr(X > epsilon) with X the sum of
the losses at w = z + A (K - 1). Moment generating functions are sums over received values here, not
over profiles: a second way to the same numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from privacy.oracle.bits import Array, Bits, of_logits, one_order
from privacy.oracle.inversion import Parts, Sum
from privacy.oracle.lattice import Composed
from privacy.oracle.moments import ComplexArray, Moments

_LOUDEST = 12.0
"""Gain beyond which the noise changes no bit."""


@dataclass(frozen=True)
class Received(Moments):
    """Moments of a loss as a sum over received values: ``up`` has the losses, ``log_up`` the
    logarithms of their probabilities."""

    def log_moment(self, c: float, begin: float, spacing: float, count: int) -> ComplexArray:
        """ln M at c + i t for ``count`` values of t from ``begin`` on, ``spacing`` apart."""
        exponent = self.log_up + c * self.up
        peak = float(np.max(exponent))
        value = np.exp(exponent - peak) * np.exp(1j * begin * self.up)
        turn = np.exp(1j * spacing * self.up)
        total = np.empty(count, dtype=np.complex128)
        for index in range(count):
            total[index] = value.sum()
            value = value * turn
        return np.asarray(peak + np.log(total))


class ReceivedSum(Sum):
    """Sum of equal losses of received values about given centres."""

    def __init__(
        self, bits: Bits, amplitude: float, centres: tuple[tuple[float, float], ...], count: int
    ) -> None:
        self.parts: list[tuple[object, int]] = []  # type: ignore[assignment]
        self.counts, self._tilt = [count], math.inf
        # The trapezoidal rule: the loss has its singularities at a distance of pi/(2 A).
        width = min(0.05, 2 * math.pi / (25 * amplitude + 60))
        z = np.arange(-14.0, 14.0 + width, width)
        w = np.concatenate([centre + z for centre, _ in centres])
        log_weight = math.log(width / math.sqrt(2 * math.pi)) - z * z / 2
        weight = np.concatenate([log_weight + math.log(share) for _, share in centres])
        loss = _loss(bits, amplitude, w)
        self.moments = [Received(loss, weight, np.zeros(1), np.zeros(1))]
        # Losses above this need received values 9 deviations out in every entry: 1e-19 at most.
        self.most = count * float(
            np.max(_loss(bits, amplitude, np.array([c for c, _ in centres]) + 9))
        )
        mean, square = float(np.exp(weight) @ loss), float(np.exp(weight) @ loss**2)
        self.mean, self.spread = count * mean, math.sqrt(count * (square - mean**2))

    def _prepare(self, tilt: float) -> None:
        """Nothing: the received values serve for every tilt."""

    def tilt_above(self, epsilon: float) -> object:  # type: ignore[override]
        """Crossing for the probability of a loss above ``epsilon``."""
        self._tilt = 8 * max(0.5, (epsilon - self.mean) / self.spread) / self.spread
        return super().tilt_above(epsilon)


def _loss(bits: Bits, amplitude: float, w: Array) -> Array:
    """Loss ln[(p v + 1 - p)/(q v + 1 - q)] with v = e^{2 A w}."""
    u = 2 * amplitude * w
    above = np.logaddexp(np.log(bits.p) + u, np.log(bits.p_not))
    return np.asarray(above - np.logaddexp(np.log(bits.q) + u, np.log(bits.q_not)))


def exceedance(total: Sum, epsilon: float, both: bool, fallback: Parts) -> tuple[float, float]:
    """Probability of a sum above epsilon, and its relative error.

    Parameters
    ----------
    total
        The sum.
    epsilon
        What it exceeds.
    both
        Whether losses below -epsilon count too.
    fallback
        Profiles of the same losses, for the grid that is used where the integral does not
        converge; none where it always does.
    """
    tilt = total.tilt_above(epsilon)
    rough = math.exp(min(0.0, tilt.level - tilt.c * epsilon))
    line = total.line(tilt, max(rough, 1e-30), slow=True)
    if line is not None:
        return line.above(epsilon, both), line.left_out
    profiles = Sum(fallback)
    tilt = profiles.tilt_at(tilt.c)
    coarse, fine = (
        Composed(profiles, tilt, max(rough, 1e-30), points).above(epsilon, both)
        for points in (1 << 15, 1 << 17)
    )
    return fine, abs(fine - coarse) / max(fine, 1e-300)


def tail(logit: float, amplitude: float, count: int, epsilon: float) -> tuple[float, float]:
    """Pr(abs(L) > epsilon) for ``count`` entries of the pair with logits +-``logit``, and its
    relative error."""
    bits = of_logits(logit, -logit)
    if epsilon >= count * float(bits.top):
        return 0.0, 0.0
    centres = ((amplitude, float(bits.p)), (-amplitude, float(bits.p_not)))
    total = ReceivedSum(bits, amplitude, centres, count)
    if total.mean > epsilon + 5 * total.spread or epsilon > total.most:
        return float(total.mean > epsilon), 0.0
    return exceedance(total, epsilon, True, [(one_order(bits, amplitude), count)])


def paper(
    logit: float, amplitude: float, count: int, epsilon: float, num_devices: int
) -> tuple[float, float]:
    """2 Pr(X > epsilon) of the paper's bound, and its relative error."""
    bits = of_logits(logit, -logit)
    if epsilon >= count * float(bits.top):
        return 0.0, 0.0
    total = ReceivedSum(bits, amplitude, ((amplitude * (num_devices - 1), 1.0),), count)
    if total.mean > epsilon + 5 * total.spread or epsilon > total.most:
        return float(total.mean > epsilon), 0.0
    value, error = exceedance(total, epsilon, False, [])
    return min(1.0, 2 * value), error


def largest_gain(case: Tail, delta: float) -> tuple[float, float]:
    """Gain up to which the criterion holds throughout, and its relative error; infinite where it
    holds at every gain."""

    def excess(gain: float) -> float:
        return math.log(max(case.probability(gain)[0], 1e-300)) - math.log(delta)

    gain = case.softest(delta)
    while excess(gain) > 0:
        gain /= 2
    # Fine steps where bits are received nearly without error: there it need not be monotone.
    while excess(gain * (1.1 if gain < 0.7 else 1.02)) <= 0:
        gain *= 1.1 if gain < 0.7 else 1.02
        if gain > _LOUDEST:
            return math.inf, 0.0
    low, high = gain, gain * (1.1 if gain < 0.7 else 1.02)
    while high / low > 1 + 1e-7:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if excess(middle) <= 0 else (low, middle)
    slope = (excess(low * 1.001) - excess(low * 0.999)) / 0.002
    return low, case.probability(low)[1] / max(abs(slope), 1e-3) + 1e-7


@dataclass(frozen=True)
class Tail:
    """A criterion of one round.

    Attributes
    ----------
    criterion
        ``tail`` or ``paper``.
    logit, count
        Logits of the two inputs are plus and minus ``logit``; entries of a round.
    epsilon
        Loss that may be exceeded with a small probability only.
    num_devices
        Devices in all, for ``paper``.
    """

    criterion: str
    logit: float
    count: int
    epsilon: float
    num_devices: int

    def probability(self, gain: float) -> tuple[float, float]:
        """The criterion's probability at a gain, and its relative error."""
        if self.criterion == "tail":
            return tail(self.logit, gain, self.count, self.epsilon)
        return paper(self.logit, gain, self.count, self.epsilon, self.num_devices)

    def softest(self, delta: float) -> float:
        """A gain well below the answer, were the loss normal."""
        reach = math.tanh(self.logit / 2)
        mu = self.epsilon / (math.sqrt(-2 * math.log(delta)) + math.sqrt(2 * self.epsilon) + 1)
        extra = self.num_devices if self.criterion == "paper" else 1
        return 0.2 * mu / (2 * reach * math.sqrt(self.count) * math.sqrt(extra))
