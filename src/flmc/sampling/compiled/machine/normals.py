"""Standard normals, as emitted code: Box and Muller's, eight at a time.

Of the words of ``ROUNDS_AT_ONCE`` rounds the first half makes radii and the second half angles; a
radius and an angle make two normals, the first of them for the first half of the rounds."""

from __future__ import annotations

from flmc.sampling.compiled.machine.emission import Code
from flmc.sampling.compiled.machine.generator import Generator
from flmc.sampling.compiled.machine.value import WIDTH, WORD, WORDS, Value

_SERIES = (2.0, 2 / 3, 2 / 5, 2 / 7)
"""2 atanh(s) = s (2 + 2/3 s^2 + ...)."""
_SINE = (
    3.14159265,
    -5.16771278,
    2.550164039877,
    -0.5992645293,
    0.08214588661,
    -0.007370430945,
)
"""sin(pi t) = t (pi - pi^3/6 t^2 + ...), fitted for |t| <= 1/2."""


def _series(code: Code, terms: tuple[float, ...], x: Value) -> Value:
    """A polynomial, lowest coefficient first."""
    value = code.floats(terms[-1])
    for term in reversed(terms[:-1]):
        value = value.times(x, code.floats(term))
    return value


def _log(code: Code, words: Value) -> Value:
    """Natural logarithm of (word + 1/2)/2^32, which is never that of 0."""
    bits = (words.unsigned() + code.floats(0.5)).bits()
    # A float is 2^exponent times a mantissa. Less the bits of sqrt(1/2), the exponent field is that
    # of a mantissa in [0.7, 1.4], where log(mantissa) = 2 atanh(s) has a short series.
    exponent = (bits - code.words(0x3F3504F3)).lowered_signed(23)
    mantissa = (bits - exponent.shifted(23)).as_bits()
    one = code.floats(1.0)
    s = (mantissa - one) / (mantissa + one)
    whole = (exponent - code.words(32)).signed() * code.floats(0.69314718)
    return s.times(_series(code, _SERIES, s * s), whole)


def _sine(code: Code, t: Value) -> Value:
    """sin(pi t) for |t| <= 1/2."""
    return t * _series(code, _SINE, t * t)


def fill(
    code: Code, generator: Generator, words: Value, normals: Value, rounds: Value, apart: Value
) -> None:
    """Make the normals of some rounds.

    Parameters
    ----------
    code
        Where code is emitted.
    generator
        Gives words for all lanes, or for one chain alone.
    words
        Where the words go for a while: room for twice ``apart``.
    normals
        Where the normals go: the first half of the rounds from here on, the second half ``apart``
        behind.
    rounds
        Normals of half of the rounds, for each lane.
    apart
        That number of floats, rounded up to whole vectors.
    """
    unit = 1 if generator.kind == WORD else WIDTH
    for half in (0, 1):
        start = words + apart * (4 * half)
        with code.loop(rounds) as n:
            code.store(start, n * unit, generator())
    with code.loop(apart, step=WIDTH) as n:
        first, second = (code.load(words, n + apart * half, WORDS) for half in (0, 1))
        one, half_pi = code.floats(1.0), code.floats(0.5)
        radius = (code.floats(-2.0) * _log(code, first)).root()
        angle = second.signed() * code.floats(2.0**-31)  # in units of pi, in [-1, 1]
        size = angle.size()
        # With t the angle in units of pi: cos(pi t) = sin(pi (1/2 - |t|)), and sin(pi |t|) = sin(pi
        # (1 - |t|)), which folds |t| into [0, 1/2]. So one series on [-1/2, 1/2] serves both.
        folded = half_pi - (size - half_pi).size()
        sine = _sine(code, folded)
        code.store(normals, n, radius * _sine(code, half_pi - size))
        sign = (angle > code.floats(0.0)).choose(one, -one)
        code.store(normals, n + apart, radius * sine * sign)
