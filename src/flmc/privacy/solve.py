"""Root finding that ends on the safe side."""

from __future__ import annotations

import math
from collections.abc import Callable

_MOST_STEPS = 200
_BRACKET = 0.4
"""Steps of the search for a bracket, in logarithms: small, because far above the answer delta is costly to compute."""


_LOWEST = 25.0
"""How far below the first guess a gain is looked for, in logarithms."""


def largest_argument(excess: Callable[[float], float], low: float, high: float, tolerance: float = 1e-12) -> float:
    """Largest x in [low, high] with excess(x) <= 0 for an increasing function, from below: excess(result) <= 0 always.

    ``excess(low) <= 0`` is required. Illinois' rule: secant steps that halve the stale end's weight, so that few
    evaluations are needed and the bracket shrinks from both sides.
    """
    f_low, f_high = excess(low), excess(high)
    if f_high <= 0:
        return high
    if f_low > 0:
        raise ValueError(f"the lower end must satisfy the bound, but exceeds it by {f_low}")
    side = 0
    for count in range(_MOST_STEPS):
        if high - low <= tolerance * max(abs(low), abs(high)):
            break
        bisect = f_low == 0 or count % 4 == 3  # now and then, for functions that are steps
        x = (low + high) / 2 if bisect else (low * f_high - high * f_low) / (f_high - f_low)
        # Keep clear of the ends, or a bracket could shrink from one side only.
        x = min(max(x, low + 0.01 * (high - low)), high - 0.01 * (high - low))
        value = excess(x)
        if value <= 0:
            low, f_low = x, value
            f_high = f_high / 2 if side == -1 else f_high
            side = -1
        else:
            high, f_high = x, value
            f_low = f_low / 2 if side == 1 else f_low
            side = 1
    return low


def largest_gain(
    delta_of: Callable[[float], float], target: float, scale: float, bracket: float = _BRACKET, tolerance: float = 1e-9
) -> float:
    """Largest gain whose delta is at most ``target``, from below; infinite if every gain is allowed, 0 if none is
    found.

    ``delta_of`` increases with the gain; ``scale`` is a gain of about the right size; ``bracket`` and ``tolerance`` are
    in logarithms. The search is on logarithms,
    where delta is nearly a straight line."""
    if delta_of(math.inf) <= target:
        return math.inf
    floor = 1e-320

    def excess(log_gain: float) -> float:
        return math.log(max(delta_of(math.exp(log_gain)), floor)) - math.log(target)

    start = low = high = math.log(scale)
    while excess(low) > 0:
        low, high = low - bracket, low
        if low < start - _LOWEST:
            return 0.0
    while high < start + 60 and excess(high) <= 0:
        low, high = high, high + bracket
    gain = math.exp(largest_argument(excess, low, high, tolerance=tolerance))
    while delta_of(gain) > target:  # the exponential is rounded
        gain *= 1 - 1e-12
    return gain
