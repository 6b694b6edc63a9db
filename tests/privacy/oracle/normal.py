"""Gaussian mechanism in closed form: a value moves by mu standard deviations of the noise."""

from __future__ import annotations

import math

from scipy import special


def delta_of(epsilon: float, mu: float) -> float:
    """Delta, as phi(a) [R(a) - R(b)] with Mills' ratio R at a = epsilon/mu - mu/2 and b = a + mu:
    no difference of nearly equal numbers."""
    a = epsilon / mu - mu / 2
    if a < -6:  # R overflows far below 0, where the plain difference keeps its digits
        return float(special.ndtr(-a) - math.exp(epsilon + float(special.log_ndtr(-a - mu))))
    ratios = special.erfcx(a / math.sqrt(2)) - special.erfcx((a + mu) / math.sqrt(2))
    return 0.5 * math.exp(-0.5 * a * a) * float(ratios)


def epsilon_of(delta: float, mu: float) -> float:
    """Epsilon at a delta, by bisection; 0 where delta is already met there."""
    if delta_of(0.0, mu) <= delta:
        return 0.0
    low, high = 0.0, mu * mu / 2 + mu * math.sqrt(-2 * math.log(delta)) + 1e-12
    while high - low > 1e-14 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if delta_of(middle, mu) > delta else (low, middle)
    return high


def tail_of(epsilon: float, mu: float) -> float:
    """Pr(abs(L) > epsilon) of the loss L, which is normal with mean mu^2/2 and variance mu^2."""
    return float(special.ndtr(mu / 2 - epsilon / mu) + special.ndtr(-mu / 2 - epsilon / mu))
