"""Root finding that ends on the safe side."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

_MOST_STEPS = 200
_BRACKET = 0.4
"""Steps of the search for a bracket, in logarithms: small, because far above the answer delta is
costly to compute."""


_LOWEST, _HIGHEST = 25.0, 60.0
"""How far below and above the first guess a gain is looked for, in logarithms."""


def largest_argument(
    excess: Callable[[float], float], low: float, high: float, tolerance: float = 1e-12
) -> float:
    """Largest x in [low, high] with excess(x) <= 0 for an increasing function, from below:
    excess(result) <= 0 always.

    ``excess(low) <= 0`` is required. Chandrupatla's rule: inverse quadratic interpolation where the
    last three points promise that it works, else the middle; never closer to an end than half the
    tolerance, so that the last step lands on the other side and closes the bracket."""
    f_low, f_high = excess(low), excess(high)
    if f_high <= 0:
        return high
    if not f_low <= 0:
        raise ValueError(f"the lower end must satisfy the bound, but exceeds it by {f_low}")
    new, f_new, end, f_end = (
        low,
        f_low,
        high,
        f_high,
    )  # the newest point, and the other end of the bracket
    share = (
        f_low / (f_low - f_high) if math.isfinite(f_low - f_high) else 0.5
    )  # of the way from one to the other
    for _ in range(_MOST_STEPS):
        width, wanted = abs(end - new), tolerance * max(abs(new), abs(end))
        if width <= wanted:
            break
        nearest = 0.5 * wanted / width
        x = new + min(max(share, nearest), 1 - nearest) * (end - new)
        value = excess(x)
        old, f_old = new, f_new
        if (value <= 0) != (f_new <= 0):
            old, f_old, end, f_end = end, f_end, new, f_new
        new, f_new = x, value
        share = _interpolated((new, f_new), (end, f_end), (old, f_old))
    return min(new, end)


def _interpolated(
    new: tuple[float, float], end: tuple[float, float], old: tuple[float, float]
) -> float:
    """Where on the way from ``new`` to ``end`` the inverse parabola through three points vanishes;
    one half where it cannot be trusted, for instance because a value is not finite."""
    (x, f), (x_end, f_end), (x_old, f_old) = new, end, old
    place, height = (x - x_end) / (x_old - x_end), (f - f_end) / (f_old - f_end)
    if not (height**2 < place and (1 - height) ** 2 < 1 - place):
        return 0.5
    bend = (x_old - x) / (x_end - x)
    return f / (f_end - f) * f_old / (f_end - f_old) + bend * f / (f_old - f) * f_end / (
        f_old - f_end
    )


def largest_gain(
    delta_of: Callable[[float], float],
    target: float,
    scale: float,
    bracket: float = _BRACKET,
    tolerance: float = 1e-9,
) -> float:
    """Largest gain whose delta is at most ``target``, from below; infinite if every gain is
    allowed, 0 if none is found.

    ``delta_of`` increases with the gain; ``scale`` is a gain of about the right size; ``bracket``
    and ``tolerance`` are in logarithms. The search is on logarithms, where delta is nearly a
    straight line."""
    if delta_of(math.inf) <= target:
        return math.inf
    floor = 1e-320
    spent = cache(delta_of)  # ends of a bracket are asked for again

    def excess(log_gain: float) -> float:
        return math.log(max(spent(math.exp(log_gain)), floor)) - math.log(target)

    found = _bracketed(excess, math.log(scale), bracket)
    if found is None:
        return 0.0
    gain = math.exp(largest_argument(excess, *found, tolerance=tolerance))
    while not spent(gain) <= target:  # the exponential is rounded
        gain *= 1 - 1e-12
    return gain


def _bracketed(
    excess: Callable[[float], float], start: float, step: float
) -> tuple[float, float] | None:
    """Ends on both sides of the root, or the highest two; None where there is nothing below it. The
    steps grow to where a straight line would vanish, but not more than fourfold."""
    x, value = start, excess(start)
    down = not value <= 0  # what is not a number is no less than the bound
    width = step
    while start - _LOWEST < x < start + _HIGHEST:
        further = x - width if down else x + width
        value_there = excess(further)
        if (not value_there <= 0) != down:
            return (further, x) if down else (x, further)
        slope = (value_there - value) / (further - x)
        width = min(max(step, abs(value_there) / slope * 1.02), 4 * step) if slope > 0 else step
        x, value = further, value_there
    return None if down else (x - width, x)
