"""Sums of independent tilted losses on one grid, by FFT, within a window."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial, reduce

import numpy as np

from flmc.base.arrays import ComplexArray
from flmc.privacy.losses.tilted import TiltedLoss

MOST_POINTS = 2**19
"""Largest length of an FFT."""
TRUNCATED = 60.0
"""Minus the logarithm of the tilted mass (1e-26) that may leave the window of an FFT on either
side."""
_WIDE = 2**12
"""Points up to which a longer FFT takes less time than finding a window for a shorter one. Beyond,
rounding would fill what is far from the mean, which later windows would have to hold."""
_ROUNDING = 2e-15
"""Rounding of the tilted mass in all, for each addition and each doubling of the FFT's length: some
ten times what double precision makes of it."""


_SHARES = (0.3, 0.6, 0.9, 1.2)
"""Slopes that are tried in Chernoff's bound, over the best one of a normal sum."""


class TooWideError(Exception):
    """The sum of losses needs a coarser grid: so few of them are large, and so large."""


Terms = Sequence[tuple[TiltedLoss, int]]
"""Tilted losses of one step and tilt, each with the number of times that it is added."""


def total(terms: Terms, truncated: float = TRUNCATED) -> TiltedLoss:
    """Law of a sum of independent losses, by FFT.

    Parameters
    ----------
    terms
        Tilted losses of one step and tilt, each with the number of times that it is added.
    truncated
        Minus the logarithm of the tilted mass that may leave the window on either side.

    Returns
    -------
    TiltedLoss
        The law of the sum within a window; what lies above it counts as infinite.

    Raises
    ------
    TooWideError
        If the FFT would be too long.
    """
    lowest = sum(count * term.first for term, count in terms)
    start, stop = _window(terms, truncated)
    # A power of two that holds the window: the FFT is periodic, and must not wrap within it.
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
    if not whole > 0:  # nothing, or not a number
        raise TooWideError
    found = replace(
        terms[0][0],
        first=lowest + start,
        mass=mass / whole,
        log_scale=log_scale,
        infinite=-math.expm1(log_finite),
        rounding=rounding,
    )
    # What lies above the window counts as infinite; what lies below it is less than the rounding.
    lost = math.exp(min(found.log_tail_mass - truncated, 0.0))
    return replace(found, infinite=min(1.0, found.infinite + lost))


def _power(base: ComplexArray, count: int) -> ComplexArray:
    """Power with a whole exponent, by squaring: faster than NumPy's, which takes logarithms."""
    result: ComplexArray | None = None
    while count:
        if count & 1:
            result = base if result is None else result * base
        count >>= 1
        if count:
            base = base * base
    return np.ones_like(base) if result is None else result


def _window(terms: Terms, truncated: float) -> tuple[int, int]:
    """First and last step, from the smallest sum there is, between which all but a negligible part
    of the tilted sum lies, by Chernoff's bound."""
    highest = sum(count * (len(term.mass) - 1) for term, count in terms)
    if highest < _WIDE:
        return 0, highest
    spread = math.sqrt(sum(count * (term.spread / term.step) ** 2 for term, count in terms))
    # Chernoff's bound is exp(-T) at t = (K(s) + T)/s; were the sum normal, the best s would be the
    # root of 2 T over its spread.
    unit = math.sqrt(2 * truncated)

    def end(sign: float, share: float) -> float:
        s = share * unit / max(spread, 1e-9)
        moment = sum(count * term.log_moment(sign * s) for term, count in terms)
        return (moment + truncated) / s

    lower, upper = (_least(partial(end, sign)) for sign in (-1.0, 1.0))
    return max(0, math.floor(-lower)), min(highest, math.ceil(upper))


def _least(bound: Callable[[float], float]) -> float:
    """Smallest of Chernoff's bounds for some slopes, which fall with the slope and then rise: so
    not all of them are looked at."""
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
