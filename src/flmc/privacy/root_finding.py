"""Root finding whose result lies on the safe side of the root, where the quantity in question is
still within its bound, such as a gain whose delta is at most the allowed one."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

_MOST_STEPS = 200
"""Largest number of steps of a search; after these it returns the end of its interval at which the
bound is kept."""
FIRST_STEP = 0.4
"""First step of the search for a gain, in the natural logarithm of the gain: small, because delta
is costly to compute far above the allowed gain."""


_LOWEST, _HIGHEST = 25.0, 60.0
"""Distances below and above the first guess, in the natural logarithm of the gain, within which a
gain is searched for."""


def largest_argument(
    excess: Callable[[float], float], low: float, high: float, tolerance: float = 1e-12
) -> float:
    """Largest x in [low, high] at which the increasing function ``excess`` is not positive, rounded
    down.

    The search follows Chandrupatla's rule: inverse quadratic interpolation where the last three
    points promise that it works, else bisection. ``excess`` must not be positive at ``low`` (else
    ``ValueError``), and it is not positive at the result, even if it does not increase everywhere;
    ``tolerance`` is the width of the last interval relative to its larger end."""
    f_low, f_high = excess(low), excess(high)
    if f_high <= 0:
        return high
    if not f_low <= 0:
        raise ValueError(f"the lower end must satisfy the bound, but exceeds it by {f_low}")
    # Ends of the interval: the newest point and the other end, each with its excess; and the share
    # of the way between them at which the next point lies.
    new, f_new, end, f_end = low, f_low, high, f_high
    share = f_low / (f_low - f_high) if math.isfinite(f_low - f_high) else 0.5
    for _ in range(_MOST_STEPS):
        width, wanted = abs(end - new), tolerance * max(abs(new), abs(end))
        if width <= wanted:
            break
        # The next point stays half the tolerance away from both ends, so that the last step lands
        # on the other side of the root and makes the interval narrow enough.
        nearest = 0.5 * wanted / width
        x = new + min(max(share, nearest), 1 - nearest) * (end - new)
        # The new point replaces the end of the interval on whose side of the root it lies.
        value = excess(x)
        old, f_old = new, f_new
        if (value <= 0) != (f_new <= 0):
            old, f_old, end, f_end = end, f_end, new, f_new
        new, f_new = x, value
        share = _interpolated((new, f_new), (end, f_end), (old, f_old))
    # The root lies between these two ends. The function increases, so it is not positive at the
    # lower one.
    return min(new, end)


def _interpolated(
    new: tuple[float, float], end: tuple[float, float], old: tuple[float, float]
) -> float:
    """Share of the way from ``new`` to ``end`` at which the inverse parabola through three points,
    each a pair of argument and value, vanishes; one half if it cannot be trusted, for instance
    because a value is not finite."""
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
    bracket: float = FIRST_STEP,
    tolerance: float = 1e-9,
    *,
    limited: bool = False,
) -> float:
    """Largest gain at which ``delta_of`` is at most ``target``, rounded down; 0 if no gain that is
    tried keeps delta so small.

    The search is on logarithms of gain and delta, whose relation is nearly a straight line. It
    begins at the gain ``scale``, with the step ``bracket`` in the natural logarithm of the gain. An
    infinite gain is tried first, and returned if delta is kept there; ``limited`` says that it is
    not, and spares this trial."""
    if not limited and delta_of(math.inf) <= target:
        return math.inf
    # A delta of 0 has no logarithm, so a delta of at least this much is assumed.
    floor = 1e-320
    spent = cache(delta_of)  # cached, because the ends of a bracket are evaluated twice

    def excess(log_gain: float) -> float:
        return math.log(max(spent(math.exp(log_gain)), floor)) - math.log(target)

    ends = _bracketed(excess, math.log(scale), bracket)
    if ends is None:
        return 0.0
    gain = math.exp(largest_argument(excess, *ends, tolerance=tolerance))
    while not spent(gain) <= target:  # the exponential is rounded: step down until delta is kept
        gain *= 1 - 1e-12
    return gain


def _bracketed(
    excess: Callable[[float], float], start: float, step: float
) -> tuple[float, float] | None:
    """Natural logarithms of two gains, the smaller one first, between which ``excess`` (positive
    where delta is too large) changes its sign. If it is positive at every tried point down from
    ``start``, the result is None. If it is positive at no tried point up from ``start``, the result
    is a pair of numbers whose second one is the highest tried point.

    The first step from ``start`` has the length ``step``. Each later one aims 2 % beyond the root
    of the secant through the last two points. The next three are at most four times as long as the
    first, and the limit doubles with each one after, so that few steps are needed however far the
    root is."""
    x, value = start, excess(start)
    down = not value <= 0  # written with "not <=", so that NaN counts as above the bound
    width, steps = step, 0
    while start - _LOWEST < x < start + _HIGHEST:
        further = x - width if down else x + width
        value_there = excess(further)
        if (not value_there <= 0) != down:
            return (further, x) if down else (x, further)
        # Step to the root of the secant, and 2 % further, so as to land beyond the root of the
        # function.
        slope = (value_there - value) / (further - x)
        # Where delta does not grow with the gain, the secant has no root ahead: the longest allowed
        # step is taken.
        wanted = abs(value_there) / slope * 1.02 if slope > 0 else math.inf
        steps += 1
        width = min(max(step, wanted), 4 * step * 2 ** max(0, steps - 3))
        x, value = further, value_there
    return None if down else (x - width, x)
