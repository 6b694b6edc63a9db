"""Generation of the machine code that makes random words and standard normals.

A word is 32 random bits from xoshiro128++. Every chain has a generator of its own, seeded like all
random streams of this package. Normals are made by the method of Box and Muller, eight at a time:
of the words for ``ROUNDS_AT_ONCE`` rounds the first half makes radii and the second half angles. A
radius and an angle make two normals, one for the first half of the rounds and one for the
second."""

from __future__ import annotations

from llvmlite import ir

from flmc.sampling.compiled.instructions import WIDTH, WORD, WORDS, Code, Value, Variable


class Generator:
    """Random generators xoshiro128++ in registers of the emitted code. ``kind`` is the LLVM type of
    the words of one step: a vector for eight generators, one for each chain, or a single word for
    one generator. Their state, four words for each, is loaded from ``address``."""

    def __init__(self, code: Code, address: Value, kind: ir.Type) -> None:
        self._code, self._address, self.kind = code, address, kind
        self._state = code.variables([code.load(address, i * WIDTH, kind) for i in range(4)])

    def __call__(self) -> Value:
        """Emit one step of the generators; returns their next random words of 32 bits, one from
        each generator."""
        a, b, c, d = (part.value for part in self._state)
        word = (a + d).turned(7) + a
        shifted = b.shifted(9)
        c = c ^ a
        d = d ^ b
        b = b ^ c
        a = a ^ d
        for part, value in zip(self._state, (a, b, c ^ shifted, d.turned(11)), strict=True):
            part.value = value
        return word

    def save(self) -> None:
        """Emit the code that stores the generators' state at the address from which it was
        loaded."""
        for i, part in enumerate(self._state):
            self._code.store(self._address, i * WIDTH, part.value)


_START, _TURN = 0x43B0D7E5, 0x931E8875
_MIX_LEFT, _MIX_RIGHT = 0xCA01F9DD, 0x4973F715
_END, _END_TURN = 0x8B51F9DD, 0x58F38DED
"""Constants of NumPy's ``SeedSequence``, with which a seed gives the same random streams here.
``_START`` is the initial value of the factor with which words are hashed into the pool of entropy,
and ``_TURN`` multiplies this factor after each word. ``_MIX_LEFT`` and ``_MIX_RIGHT`` multiply two
words that are mixed into one. ``_END`` and ``_END_TURN`` are the initial value and the multiplier
of the factor with which the pool is hashed at the end."""


def seed_generators(
    code: Code, entropy: Value, count: Value, key: list[Value], state: Value
) -> None:
    """Emit the code that seeds eight random generators, one for each place of a vector, with the
    state that ``SeedSequence(seed, spawn_key=key).generate_state(4)`` would give.

    The steps are those of NumPy's ``SeedSequence``: hash the seed's first four words into a pool of
    four words, mix every word of the pool, every further word of the seed and every word of the key
    into the others, then hash the pool. ``entropy`` is the address of the seed's ``count`` words,
    lowest first, at least four. ``key`` holds the words of the spawn key, each a vector with one
    word for each generator. ``state`` is the address to which the states go, (4, 8) words."""
    factor = Variable(code, code.value(WORD(_START)))

    def hashed(value: Value) -> Value:
        value = value ^ factor.value.spread()
        factor.value = factor.value * _TURN
        value = value * factor.value.spread()
        return value ^ value.lowered(16)

    def mixed(one: Value, other: Value) -> Value:
        combined = one * code.words(_MIX_LEFT) - other * code.words(_MIX_RIGHT)
        return combined ^ combined.lowered(16)

    # The order of these steps is that of NumPy: any other would give other random streams for the
    # same seed.
    pool = code.variables([code.words(0)] * 4)
    for i, part in enumerate(pool):
        part.value = hashed(code.load(entropy, i, WORD).spread())
    for source in range(4):
        for target, part in enumerate(pool):
            if source != target:
                part.value = mixed(part.value, hashed(pool[source].value))
    with code.loop(count, 4) as n:
        word = code.load(entropy, n, WORD).spread()
        for part in pool:
            part.value = mixed(part.value, hashed(word))
    for word in key:
        for part in pool:
            part.value = mixed(part.value, hashed(word))
    number = _END
    for i, part in enumerate(pool):
        value = part.value ^ code.words(number)
        number = number * _END_TURN % 2**32
        value = value * code.words(number)
        code.store(state, i * WIDTH, value ^ value.lowered(16))


_SERIES = (2.0, 2 / 3, 2 / 5, 2 / 7)
"""Coefficients of the series 2 atanh(s) = s (2 + 2/3 s^2 + ...), lowest first: for |s| <= 0.172
these four terms leave an error of 3e-8."""
# The coefficients of the sine are fitted and are not those of Taylor's series: their largest error
# on [-1/2, 1/2] is 6e-8, the rounding error of single precision near 1.
_SINE = (
    3.14159265,
    -5.16771278,
    2.550164039877,
    -0.5992645293,
    0.08214588661,
    -0.007370430945,
)
"""Coefficients of an approximation sin(pi t) = t (c_0 + c_1 t^2 + ...), lowest first, fitted for
|t| <= 1/2."""


def _series(code: Code, terms: tuple[float, ...], x: Value) -> Value:
    """Emit the value of the polynomial in x with the coefficients ``terms``, lowest first, and
    return it."""
    value = code.floats(terms[-1])
    for term in reversed(terms[:-1]):
        value = value.times(x, code.floats(term))
    return value


def _log(code: Code, words: Value) -> Value:
    """Emit the natural logarithm of (w + 1/2)/2^32 for each of the random ``words`` w, and return
    it; (w + 1/2)/2^32 lies between 0 and 1 and is never 0, so the logarithm is finite."""
    bits = (words.unsigned() + code.floats(0.5)).bits()
    # A float is 2^exponent times a mantissa. Subtracting the bits of sqrt(1/2) chooses the exponent
    # such that the mantissa lies in [0.7, 1.4], where a short series of log(mantissa) = 2 atanh(s)
    # suffices, with s = (mantissa - 1)/(mantissa + 1).
    exponent = (bits - code.words(0x3F3504F3)).lowered_signed(23)
    mantissa = (bits - exponent.shifted(23)).as_bits()
    one = code.floats(1.0)
    s = (mantissa - one) / (mantissa + one)
    whole = (exponent - code.words(32)).signed() * code.floats(0.69314718)
    return s.times(_series(code, _SERIES, s * s), whole)


def _sine(code: Code, t: Value) -> Value:
    """Emit sin(pi t) for every float t of the vector, |t| <= 1/2, and return it."""
    return t * _series(code, _SINE, t * t)


def fill_normals(
    code: Code, generator: Generator, words: Value, normals: Value, rounds: Value, apart: Value
) -> None:
    """Emit the code that stores standard normals at the address ``normals``, in two halves: each
    has ``rounds`` normals for each chain, and the second begins ``apart`` floats behind the first.

    ``apart`` is the number of floats of a half, rounded up to whole vectors of eight; ``words`` is
    the address of scratch memory for twice ``apart`` words of 32 bits."""
    unit = 1 if generator.kind == WORD else WIDTH
    for half in (0, 1):
        start = words + apart * (4 * half)
        with code.loop(rounds) as n:
            code.store(start, n * unit, generator())
    with code.loop(apart, step=WIDTH) as n:
        first, second = (code.load(words, n + apart * half, WORDS) for half in (0, 1))
        one, half_pi = code.floats(1.0), code.floats(0.5)
        radius = (code.floats(-2.0) * _log(code, first)).root()
        angle = second.signed() * code.floats(2.0**-31)  # the angle in units of pi, in [-1, 1]
        size = angle.size()
        # With the angle t in units of pi, cos(pi t) = sin(pi (1/2 - |t|)); and sin(pi |t|) = sin(pi
        # (1 - |t|)) brings |t| into [0, 1/2]. One series of the sine on [-1/2, 1/2] therefore gives
        # both.
        folded = half_pi - (size - half_pi).size()
        sine = _sine(code, folded)
        code.store(normals, n, radius * _sine(code, half_pi - size))
        sign = (angle > code.floats(0.0)).choose(one, -one)
        code.store(normals, n + apart, radius * sine * sign)
