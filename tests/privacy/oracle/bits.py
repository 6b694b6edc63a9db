"""Two inputs of one received entry, and how far they are apart: the oracle's own formulas.

An entry is w = A b + z with a bit b, amplitude A and noise z of variance 1. The bit is +1 with
probability p under the first input and q < p under the second. Nothing here comes from
``flmc.privacy``: every number is derived anew, in a form that keeps its digits where p and q are
close to each other, to 0 or to 1."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import special

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Bits:
    """Probabilities of a bit under two inputs, as numbers or arrays that broadcast.

    Attributes
    ----------
    p, p_not, q, q_not
        Probability of +1 and of -1 under the first input, then under the second.
    apart
        p - q, which the difference of two rounded numbers would not know well.
    top
        ln(p/q), the largest loss; infinite where q = 0.
    """

    p: Array
    p_not: Array
    q: Array
    q_not: Array
    apart: Array
    top: Array

    @property
    def exchanged(self) -> Bits:
        """The second input first, with w and -w exchanged, so that the loss rises with w again."""
        with np.errstate(divide="ignore"):
            top = np.log1p(self.apart / self.p_not)
        return Bits(self.q_not, self.q, self.p_not, self.p, self.apart, top)


def of_numbers(high: float, low: float) -> Bits:
    """Bits of two given probabilities, in double precision."""
    with np.errstate(divide="ignore"):
        top = np.log1p(np.float64(high - low) / np.float64(low))
    p, p_not, q, q_not, apart = (
        np.asarray(value) for value in (high, 1.0 - high, low, 1.0 - low, high - low)
    )
    return Bits(p, p_not, q, q_not, apart, np.asarray(top))


def of_logits(high: Array | float, low: Array | float, move: float | None = None) -> Bits:
    """Bits of a logistic link at two places; ``move`` is high - low where that is known better."""
    upper, lower = np.asarray(high, np.float64), np.asarray(low, np.float64)
    p, p_not = special.expit(upper), special.expit(-upper)
    q, q_not = special.expit(lower), special.expit(-lower)
    apart = p * q_not * -np.expm1(-(upper - lower) if move is None else -move)
    return Bits(p, p_not, q, q_not, apart, np.log1p(apart / q))


def of_normal(high: Array | float, low: Array | float) -> Bits:
    """Bits of a normal link at two places."""
    upper, lower = np.asarray(high, np.float64), np.asarray(low, np.float64)
    p, p_not = special.ndtr(upper), special.ndtr(-upper)
    q, q_not = special.ndtr(lower), special.ndtr(-lower)
    # The difference of the two smaller tails keeps its digits on both sides of 0.
    apart = np.where(lower + upper > 0, q_not - p_not, p - q)
    return Bits(p, p_not, q, q_not, apart, special.log_ndtr(upper) - special.log_ndtr(lower))


def of_line(high: Array | float, low: Array | float, move: float | None = None) -> Bits:
    """Bits of a straight link at two places u, with probability (1 + u)/2."""
    upper, lower = np.asarray(high, np.float64), np.asarray(low, np.float64)
    p, p_not, q, q_not = (1 + upper) / 2, (1 - upper) / 2, (1 + lower) / 2, (1 - lower) / 2
    apart = (upper - lower) / 2 if move is None else np.full(np.shape(upper), move / 2)
    with np.errstate(divide="ignore"):
        return Bits(p, p_not, q, q_not, apart, np.log1p(apart / q))


def log_excess(bits: Bits, amplitude: float, epsilon: Array) -> Array:
    r"""Logarithm of the hockey-stick divergence at epsilon > 0, with a small relative error.

    With x = e^epsilon, P > x Q where v = e^{2 A w} exceeds k/c, c = p - x q and
    k = x (1 - q) - (1 - p). There

    .. math:: \int (P - xQ)_+ = c\,[\bar\Phi(w - A) - v\,\bar\Phi(w + A)]
              = c\,\varphi(w - A)\,[R(w - A) - R(w + A)],

    at the threshold w, with Mills' ratio R: no difference of nearly equal numbers is left but that
    of R at two places."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        gap = epsilon - bits.top
        c = np.where(np.isinf(bits.top), bits.p, -bits.p * np.expm1(np.minimum(gap, 0.0)))
        # k divided by x, which may be too large for a number.
        k = -np.expm1(-epsilon) * bits.q_not + bits.apart * np.exp(-epsilon)
        w = (epsilon + np.log(k) - np.log(c)) / (2 * amplitude)
        near, far = w - amplitude, w + amplitude
        found = np.log(c) + _log_hockey(w, near, far, amplitude)
    return np.where((gap < 0) & (c > 0), found, -np.inf)


_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


def _log_hockey(w: Array, near: Array, far: Array, amplitude: float) -> Array:
    """ln[tail(w - A) - e^{2 A w} tail(w + A)] of the standard normal distribution."""
    ratio, scale = math.sqrt(math.pi / 2), math.sqrt(0.5)
    inside = np.maximum(near, -6.0)  # erfcx overflows far below 0, and is not needed there
    mills = ratio * (
        special.erfcx(scale * inside) - special.erfcx(scale * (inside + 2 * amplitude))
    )
    right = -0.5 * near**2 - _HALF_LOG_2PI + np.log(mills)
    left = np.log(special.ndtr(-near) - np.exp(2 * amplitude * w + special.log_ndtr(-far)))
    return np.asarray(np.where(near < -5.0, left, right))


@dataclass(frozen=True)
class Profile:
    """Excess of a divergence over (1 - e^epsilon)+, for epsilon > 0 and for epsilon < 0.

    Attributes
    ----------
    forward
        ln H(e^epsilon) at increasing epsilon > 0, (point).
    backward
        The same for the exchanged inputs: the excess at -epsilon is e^-epsilon times its
        exponential.
    top, bottom
        Largest loss, and largest loss of the exchanged inputs; infinite where there is none.
    """

    forward: Callable[[Array], Array]
    backward: Callable[[Array], Array]
    top: float
    bottom: float


def one_order(bits: Bits, amplitude: float) -> Profile:
    """Profile of one pair of inputs in one order, the same for every entry."""
    back = bits.exchanged
    return Profile(
        lambda e: log_excess(bits, amplitude, e),
        lambda e: log_excess(back, amplitude, e),
        float(bits.top),
        float(back.top),
    )


def either_order(bits: Bits, amplitude: float) -> Profile:
    """Profile of one pair of inputs of which every entry may have another order: the larger of the
    two divergences at each epsilon."""
    back = bits.exchanged

    def larger(e: Array) -> Array:
        return np.maximum(log_excess(bits, amplitude, e), log_excess(back, amplitude, e))

    top = max(float(bits.top), float(back.top))
    return Profile(larger, larger, top, top)
