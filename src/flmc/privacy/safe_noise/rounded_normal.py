r"""Exact draws of a normal variable rounded to whole numbers: :math:`Z = \text{round}(s\,n)` with
:math:`n \sim N(0, 1)` and :math:`s = 2^{\text{bits}}`.

A draw is an inversion. Let :math:`v` be a uniform real number, given by its binary digits, as many
as it takes, and :math:`Q(x) = \Pr(|n| > x)`. Then :math:`|Z|` is the number of whole :math:`k \ge
1` with

.. math:: v < Q\left(\frac{k - 1/2}{s}\right),

and one more random bit is the sign. So :math:`|Z| = k` is found by showing :math:`v` to lie between
two values of :math:`Q`. A guess comes from SciPy, and is trusted with nothing. Two proofs are
tried:

* *Fast*, for arrays: :math:`Q` by Taylor's series around the nearest node :math:`j/64`, in double
  precision, with a margin for every error of series and rounding (see ``_bracket_thresholds``).
* *Exact*, where 63 digits of :math:`v` or double precision do not tell (two draws in 10^10 at
  20 bits): :math:`Q` in whole numbers of as many digits as it takes, and more digits of :math:`v`.

Either way the result is the function of :math:`v` above: the law of :math:`Z` has no error at all.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from math import isqrt
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from flmc.base import checks
from flmc.base.arrays import Array, IntArray
from flmc.base.errors import InvalidSetting, RunFailed
from flmc.privacy.safe_noise.entropy import WORD_BITS, Entropy, draw_words, extend

MOST_BITS = 30
"""Largest base-2 logarithm of the noise's standard deviation in grid steps: it is at most 2^30
steps. A finer grid raises ``InvalidSetting``."""
_DIGITS = WORD_BITS - 1
"""Binary digits of the uniform number v that are drawn first; the remaining bit of the word is the
sign."""
_MOST_DIGITS = 64 * WORD_BITS
"""Number of binary digits of the uniform number v after which the source of random bits is refused
as broken: a sound one never needs so many."""
_AT_ONCE = 1 << 14
"""Number of draws that are made together: their arrays fit into the processor's cache."""
_NODES_PER_UNIT = 64
"""Number of points, per unit of length, around which the normal tail probability is expanded in a
Taylor series."""
_LAST_NODE = 608
"""Index of the last point around which the normal tail probability is expanded in a Taylor series.
It lies at 9.5, which a standard normal variable exceeds in magnitude with a probability of 2^-68
only."""
_TERMS = 7
"""Number of terms of each Taylor series."""
_RELATIVE_MARGIN = 2.0**-46
_ABSOLUTE_MARGIN = 4.0
"""``_RELATIVE_MARGIN`` and ``_ABSOLUTE_MARGIN``, the second in units of 2^-63, bound the error in
the comparison of a uniform number with the probability that a normal variable exceeds a threshold
in magnitude; ``_bracket_thresholds`` derives them."""
_GUARD = 32
"""Number of binary digits that are computed beyond the wanted ones, to absorb the rounding of some
hundred terms of a series."""


def draw_rounded_normal(shape: tuple[int, ...], bits: int, entropy: Entropy) -> IntArray:
    r"""Independent draws of a normal variable of mean 0 and standard deviation :math:`2^{bits}`,
    rounded to the nearest whole number, in the given shape; ``InvalidSetting`` unless ``bits`` is
    a whole number from 0 to 30.

    .. math:: \Pr(Z = k) = \Phi\left(\frac{k + 1/2}{2^{bits}}\right) -
              \Phi\left(\frac{k - 1/2}{2^{bits}}\right) \quad\text{exactly.}
    """
    if checks.at_least("bits", bits, 0) > MOST_BITS:
        raise InvalidSetting(f"bits must be at most {MOST_BITS}, got {bits!r}; use a coarser grid")
    result = np.empty(math.prod(shape), dtype=np.int64)
    for start in range(0, result.size, _AT_ONCE):
        part = result[start : start + _AT_ONCE]
        words = draw_words(entropy, part.size)
        digits, negative = words >> np.uint64(1), words & np.uint64(1) != 0
        part[:] = _guess(digits, bits)
        # A guess that is not proven right is replaced by the exact result: SciPy's quantile may be
        # wrong in any bit, and the law of the noise must be exact.
        for place in np.flatnonzero(~_proven(part, digits, bits)):
            part[place] = exact_magnitude(int(digits[place]), _DIGITS, bits, entropy)
        np.negative(part, out=part, where=negative)
    return result.reshape(shape)


def exact_magnitude(digits: int, length: int, bits: int, entropy: Entropy) -> int:
    """Magnitude of the draw of a normal variable of standard deviation 2^bits, rounded to a whole
    number, that belongs to the uniform number in [0, 1) whose first ``length`` binary digits are
    ``digits``. All arithmetic is in whole numbers. More digits are drawn from ``entropy`` if these
    do not decide; raises ``RunFailed`` if 4096 digits do not."""
    while digits == 0:
        digits, length = _extended(digits, length, entropy)
    # The noise exceeds x standard deviations in magnitude with a probability of at most
    # exp(-x^2/2), and the uniform number is at least 2^-length: so x is below sqrt(2 length).
    low, beyond = 0, math.isqrt(2 * length << 2 * bits) + 2
    while beyond - low > 1:
        middle = (low + beyond) // 2
        threshold = Fraction(2 * middle - 1, 2 << bits)
        while True:
            tail = tail_bracket(threshold, length + 8)
            # The uniform number lies in [digits, digits + 1) 2^-length, and the bounds of the tail
            # probability have 8 more digits. Where both intervals overlap, 64 more digits are
            # drawn, and the bounds are computed again with as many.
            if digits + 1 << 8 <= tail.low:
                low = middle
                break
            if digits << 8 >= tail.high:
                beyond = middle
                break
            digits, length = _extended(digits, length, entropy)
    return low


def _extended(digits: int, length: int, entropy: Entropy) -> tuple[int, int]:
    """The first ``length`` binary ``digits`` of a uniform random number with 64 more random digits
    appended, and the number of all digits. Raises ``RunFailed`` if there would be more than
    4096."""
    if length + WORD_BITS > _MOST_DIGITS:
        raise RunFailed(
            f"{length} random bits did not decide on one draw of the noise: the source of entropy"
            " is broken; use the operating system's"
        )
    return extend(digits, entropy), length + WORD_BITS


def _guess(digits: npt.NDArray[np.uint64], bits: int) -> IntArray:
    """Most likely magnitudes (draw) of the rounded normal draws, not yet proven, from SciPy's
    normal quantile at the first 63 ``digits`` of each uniform number; the standard deviation is
    2^bits."""
    from scipy.special import ndtri  # imported here, because that takes longer than making a plan

    # The uniform number (the middle of the interval that its digits leave) is the probability of
    # both tails together, so half of it is the probability of one tail.
    quantile = ndtri(np.ldexp(digits.astype(np.float64) + 0.5, -_DIGITS - 1))
    return np.asarray(np.rint(np.ldexp(-quantile, bits)), dtype=np.int64)


def _proven(
    magnitude: IntArray, digits: npt.NDArray[np.uint64], bits: int
) -> npt.NDArray[np.bool_]:
    """Whether each magnitude k is shown to be right, (draw): Q((k + 1/2)/s) <= v < Q((k - 1/2)/s),
    with the uniform number v, the standard deviation s = 2^bits, and Q(x) the probability that a
    standard normal variable exceeds x in magnitude."""
    above, below = (_bracket_thresholds(2 * magnitude + side, digits, bits) for side in (-1, 1))
    # In units of 2^-63 the uniform number v lies anywhere in [digits, digits + 1). The magnitude k
    # = 0 has no upper threshold that v must be below.
    small_enough = (magnitude == 0) | (above.gap >= 1.0 + above.margin)
    return np.asarray(small_enough & (below.gap <= -below.margin))


class _Comparison(NamedTuple):
    """Comparison of tail probabilities, at thresholds of the noise, with the first 63 digits of
    each draw's uniform number: ``gap`` is the amount by which the probability is larger, ``margin``
    a bound of its error, both (draw) and in units of 2^-63."""

    gap: Array
    margin: Array


def _bracket_thresholds(odd: IntArray, digits: npt.NDArray[np.uint64], bits: int) -> _Comparison:
    r"""Differences :math:`2^{63} Q(x) - \text{digits}` at the thresholds :math:`x =
    \text{odd}/2^{bits+1}`, and bounds of their errors; Q(x) is the probability that a standard
    normal variable exceeds x in magnitude, and ``digits`` are the first 63 of each uniform number.

    With the nearest node :math:`x_j`, :math:`t = x - x_j` (exact in double precision, at most
    1/128), the coefficients :math:`c_i` of Taylor's series, the normal density :math:`\varphi` and
    Hermite's polynomials :math:`He_n`, the errors in units of :math:`2^{-63}` are:

    * Taylor's remainder after 7 terms is :math:`2^{64}|\varphi He_7| t^8/8!`, and
      :math:`|\varphi He_n| \le 0.44 \sqrt{n!}` (Cramér): below 0.2.
    * Horner's scheme, with coefficients rounded once, errs by at most :math:`17 \cdot 2^{-53} \sum
      |c_i t^i|` to first order, and :math:`\sum |c_i t^i| \le |c_1 t| e^{x_j |t| + t^2/2} \le 1.08
      |c_1 t|`: below :math:`2^{-48} |c_1 t|`.
    * The whole part of :math:`2^{63} Q(x_j)` is subtracted from the digits in whole numbers; the
      difference is then rounded twice: below :math:`2^{-51}` of it, plus 1.
    * The subtraction of both, and the comparison: :math:`2^{-51}` of each, plus 1.

    The margins, :math:`2^{-46}` of both and 4, are larger than the sum. Only operations that IEEE
    754 rounds correctly are used. Beyond the last node the margin is infinite."""
    nodes = _nodes()
    x = np.ldexp(odd.astype(np.float64), -bits - 1)
    node = np.rint(x * _NODES_PER_UNIT)
    known = (node >= 0) & (node <= _LAST_NODE)
    place = np.where(known, node, 0.0).astype(np.intp)
    t = np.where(known, x - node / _NODES_PER_UNIT, 0.0)
    # Differences of whole numbers modulo 2^64, read with a sign: they lie between -2^63 and 2^63.
    distance = (digits - nodes.whole[place]).view(np.int64).astype(np.float64)
    distance -= nodes.fraction[place]
    series = nodes.coefficients[-1][place]
    for coefficient in nodes.coefficients[-2::-1]:
        series = series * t + coefficient[place]
    series *= t
    first = np.abs(nodes.coefficients[0][place] * t)
    margin = _RELATIVE_MARGIN * (first + np.abs(distance)) + _ABSOLUTE_MARGIN
    return _Comparison(series - distance, np.where(known, margin, np.inf))


class _Nodes(NamedTuple):
    """Taylor series of 2^63 Q(x) around evenly spaced points (nodes), Q(x) being the probability
    that a standard normal variable exceeds x in magnitude. ``whole`` and ``fraction`` are the whole
    and the fractional part of its value, both (node); ``coefficients``, from the first derivative
    on, are (term, node)."""

    whole: npt.NDArray[np.uint64]
    fraction: Array
    coefficients: Array


@lru_cache(maxsize=1)
def _nodes() -> _Nodes:
    """Taylor series around all nodes of Q(x), the probability that a standard normal variable
    exceeds x in magnitude, computed in whole numbers; takes a third of a second, once in a process.

    Coefficient i is Q^(i)/i! = (-1)^i (-Q') He_(i-1)/i!, with Hermite's polynomials He."""
    precision = 256
    whole, fraction, coefficients = [], [], []
    for node in range(_LAST_NODE + 1):
        x = Fraction(node, _NODES_PER_UNIT)
        # The lower one of two bounds with 256 binary digits, whose distance is far below the errors
        # that the margins allow.
        value = Fraction(tail_bracket(x, precision).low, 1 << precision - _DIGITS)
        whole.append(math.floor(value))
        fraction.append(float(value - math.floor(value)))
        density = Fraction(density_bracket(x, precision).low, 1 << precision - _DIGITS)
        # The coefficients are exact fractions, rounded once at the end, as the bound of the error
        # of Horner's scheme assumes.
        hermite, row = [Fraction(1), x], []
        for order in range(1, _TERMS + 1):
            hermite.append(x * hermite[order] - order * hermite[order - 1])
            row.append(float((-1) ** order * density * hermite[order - 1] / math.factorial(order)))
        coefficients.append(row)
    return _Nodes(
        np.array(whole, dtype=np.uint64),
        np.array(fraction),
        np.ascontiguousarray(np.transpose(coefficients)),
    )


class Bracket(NamedTuple):
    """Lower and upper bound of a real number, as whole numbers in units of 2^-precision;
    ``precision`` is that of the function that returns them."""

    low: int
    high: int


def tail_bracket(x: Fraction, precision: int) -> Bracket:
    r"""Lower and upper bound, in units of 2^-precision, of :math:`Q(x) = \Pr(|n| > x)` for a
    standard normal :math:`n`.

    .. math:: Q(x) = 1 - \sqrt{2/\pi}\; x \sum_{n \ge 0} \frac{(-x^2/2)^n}{n!\,(2n+1)}"""
    q = x * x / 2
    fine = _working_precision(q, precision)
    series, root = _exponential_series(q, fine, integrated=True), _root_of_two_over_pi(fine)
    scale = x.denominator << (2 * fine - precision)
    inner_low = series.low * root.low * x.numerator // scale
    inner_high = _divide_up(series.high * root.high * x.numerator, scale)
    return Bracket((1 << precision) - inner_high, (1 << precision) - inner_low)


def density_bracket(x: Fraction, precision: int) -> Bracket:
    r"""Lower and upper bound, in units of 2^-precision, of :math:`-Q'(x) = \sqrt{2/\pi}\,
    e^{-x^2/2}`, the density of :math:`|n|` for a standard normal :math:`n`."""
    q = x * x / 2
    fine = _working_precision(q, precision)
    series, root = _exponential_series(q, fine, integrated=False), _root_of_two_over_pi(fine)
    scale = 1 << (2 * fine - precision)
    return Bracket(series.low * root.low // scale, _divide_up(series.high * root.high, scale))


def _working_precision(q: Fraction, precision: int) -> int:
    """Number of binary digits with which the terms of an exponential series in q are computed for a
    result of ``precision`` digits. More are needed because the terms, and their rounding, grow up
    to e^q before they fall; e is below 2^1.5."""
    return precision + int(3 * q) // 2 + _GUARD


def _exponential_series(q: Fraction, precision: int, *, integrated: bool) -> Bracket:
    r"""Lower and upper bound, in units of 2^-precision, of :math:`\sum_n (-q)^n/n!`, or of
    :math:`\sum_n (-q)^n/(n!(2n+1))` if ``integrated``, for :math:`q \ge 0`."""
    term = Bracket(1 << precision, 1 << precision)
    low = high = place = 0
    # The series alternates. Once the index ``place`` of a term is above q, the terms decrease, and
    # the rest of the series is smaller than its first term.
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


@lru_cache(maxsize=16)
def _root_of_two_over_pi(precision: int) -> Bracket:
    """Lower and upper bound of sqrt(2/pi) in units of 2^-precision, with pi = 16 atan(1/5) - 4
    atan(1/239)."""
    fifth, small = _inverse_tangent(5, precision), _inverse_tangent(239, precision)
    pi = Bracket(16 * fifth.low - 4 * small.high, 16 * fifth.high - 4 * small.low)
    # 2^p sqrt(2/pi) = sqrt(2^(3p+1) / (2^p pi)) with p = ``precision``; ``pi`` bounds 2^p pi, and
    # the larger bound of pi gives the lower bound of the root.
    square = 1 << (3 * precision + 1)
    return Bracket(isqrt(square // pi.high), isqrt(_divide_up(square, pi.low)) + 1)


def _inverse_tangent(inverse: int, precision: int) -> Bracket:
    """Lower and upper bound of atan(1/inverse) in units of 2^-precision, by its alternating
    series."""
    low = high = 0
    power, place = inverse, 0
    while (1 << precision) >= power * (2 * place + 1):
        term = power * (2 * place + 1)
        down, up = (1 << precision) // term, _divide_up(1 << precision, term)
        low, high = (low + down, high + up) if place % 2 == 0 else (low - up, high - down)
        power, place = power * inverse * inverse, place + 1
    # The rest of the alternating series is smaller than its first term, which is below one unit.
    return Bracket(low - 1, high + 1)


def _divide_up(numerator: int, denominator: int) -> int:
    """Quotient of two whole numbers, rounded up to a whole number."""
    return -(-numerator // denominator)
