r"""Brackets of the normal distribution in whole numbers: no floating point, no rounding that is not
accounted for.

A number :math:`r` is bracketed at *precision* :math:`p` by whole numbers :math:`a \le 2^p r \le b`.
Every operation rounds :math:`a` down and :math:`b` up, so a bracket is right whatever its width;
the precision only decides how wide it is."""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from math import isqrt
from typing import NamedTuple

_GUARD = 32
"""Bits that are computed beyond those asked for, against the rounding of some hundred terms."""


class Bracket(NamedTuple):
    """Whole numbers between which a real number lies, in units of 2 to the power of minus the
    precision.

    Attributes
    ----------
    low, high
        The two ends, both possible.
    """

    low: int
    high: int


def _divide_up(numerator: int, denominator: int) -> int:
    """Quotient, rounded up."""
    return -(-numerator // denominator)


def _inverse_tangent(inverse: int, precision: int) -> Bracket:
    """Bracket of atan(1/inverse), by its alternating series."""
    low = high = 0
    power, place = inverse, 0
    while (1 << precision) >= power * (2 * place + 1):
        term = power * (2 * place + 1)
        down, up = (1 << precision) // term, _divide_up(1 << precision, term)
        low, high = (low + down, high + up) if place % 2 == 0 else (low - up, high - down)
        power, place = power * inverse * inverse, place + 1
    # What is left out alternates and decreases: its sum is below its first term, which is below 1.
    return Bracket(low - 1, high + 1)


@lru_cache(maxsize=16)
def _root_of_two_over_pi(precision: int) -> Bracket:
    """Bracket of sqrt(2/pi), with pi = 16 atan(1/5) - 4 atan(1/239)."""
    fifth, small = _inverse_tangent(5, precision), _inverse_tangent(239, precision)
    pi = Bracket(16 * fifth.low - 4 * small.high, 16 * fifth.high - 4 * small.low)
    # 2^p sqrt(2/pi) = sqrt(2^(3p+1) / (2^p pi)).
    square = 1 << (3 * precision + 1)
    return Bracket(isqrt(square // pi.high), isqrt(_divide_up(square, pi.low)) + 1)


def _exponential_series(q: Fraction, precision: int, *, integrated: bool) -> Bracket:
    r"""Bracket of :math:`\sum_n (-q)^n/n!`, or of :math:`\sum_n (-q)^n/(n!(2n+1))` if integrated,
    for :math:`q \ge 0`."""
    term = Bracket(1 << precision, 1 << precision)
    low = high = place = 0
    # The series alternates; once q < place its terms decrease, and what is left out is below the
    # first term that is.
    while term.high > 1 or place <= q:
        divisor = 2 * place + 1 if integrated else 1
        down, up = term.low // divisor, _divide_up(term.high, divisor)
        low, high = (low + down, high + up) if place % 2 == 0 else (low - up, high - down)
        place += 1
        divisor = q.denominator * place
        term = Bracket(
            term.low * q.numerator // divisor, _divide_up(term.high * q.numerator, divisor)
        )
    return Bracket(low - term.high, high + term.high)


def _working_precision(q: Fraction, precision: int) -> int:
    """Precision of the terms of a series: they grow up to e^q before they fall, and their rounding
    with them; e is below 2^1.5."""
    return precision + int(3 * q) // 2 + _GUARD


def tail_bracket(x: Fraction, precision: int) -> Bracket:
    r"""Bracket of :math:`Q(x) = \Pr(|n| > x)` for a standard normal :math:`n`.

    .. math:: Q(x) = 1 - \sqrt{2/\pi}\; x \sum_{n \ge 0} \frac{(-x^2/2)^n}{n!\,(2n+1)}

    Parameters
    ----------
    x
        A number that is not negative.
    precision
        Bits behind the point.

    Returns
    -------
    Bracket
        Its ends are at most 3 apart, at the arguments that the sampler uses.
    """
    q = x * x / 2
    fine = _working_precision(q, precision)
    series, root = _exponential_series(q, fine, integrated=True), _root_of_two_over_pi(fine)
    scale = x.denominator << (2 * fine - precision)
    inner_low = series.low * root.low * x.numerator // scale
    inner_high = _divide_up(series.high * root.high * x.numerator, scale)
    return Bracket((1 << precision) - inner_high, (1 << precision) - inner_low)


def density_bracket(x: Fraction, precision: int) -> Bracket:
    r"""Bracket of :math:`-Q'(x) = \sqrt{2/\pi}\, e^{-x^2/2}`, the density of :math:`|n|` for a
    standard normal :math:`n`.

    Parameters
    ----------
    x
        A number that is not negative.
    precision
        Bits behind the point.
    """
    q = x * x / 2
    fine = _working_precision(q, precision)
    series, root = _exponential_series(q, fine, integrated=False), _root_of_two_over_pi(fine)
    scale = 1 << (2 * fine - precision)
    return Bracket(series.low * root.low // scale, _divide_up(series.high * root.high, scale))
