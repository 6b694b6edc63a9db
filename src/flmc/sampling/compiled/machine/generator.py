"""The generators of random words, as emitted code: xoshiro128++, seeded like every stream of this
package.

*Word*: 32 random bits."""

from __future__ import annotations

from llvmlite import ir

from flmc.sampling.compiled.machine.emission import Code, Variable
from flmc.sampling.compiled.machine.value import WIDTH, WORD, Value


class Generator:
    """xoshiro128++ in registers, one for each lane or one alone.

    Parameters
    ----------
    code
        Where code is emitted.
    address
        Where the state is, four words for each lane.
    kind
        The type of what it gives.
    """

    def __init__(self, code: Code, address: Value, kind: ir.Type) -> None:
        self._code, self._address, self.kind = code, address, kind
        self._state = code.variables([code.load(address, i * WIDTH, kind) for i in range(4)])

    def __call__(self) -> Value:
        """The next word."""
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
        """Put the state back to where it was."""
        for i, part in enumerate(self._state):
            self._code.store(self._address, i * WIDTH, part.value)


_START, _TURN = 0x43B0D7E5, 0x931E8875
_MIX_LEFT, _MIX_RIGHT = 0xCA01F9DD, 0x4973F715
_END, _END_TURN = 0x8B51F9DD, 0x58F38DED
"""The constants of NumPy's ``SeedSequence``."""


def seed(code: Code, entropy: Value, count: Value, key: list[Value], state: Value) -> None:
    """Start the generators of all lanes as ``SeedSequence(seed, spawn_key).generate_state(4)``
    would, and store their states.

    The steps are those of NumPy's ``SeedSequence``: mix the entropy into a pool of four words, let
    every word of the pool and every further word act on all others, then hash the pool.

    Parameters
    ----------
    code
        Where code is emitted.
    entropy, count
        Address of the seed's words, lowest first, and how many there are, at least four.
    key
        The words of the spawn key, for every lane.
    state
        Where the states go, four words for each lane.
    """
    factor = Variable(code, code.value(WORD(_START)))

    def hashed(value: Value) -> Value:
        value = value ^ factor.value.spread()
        factor.value = factor.value * _TURN
        value = value * factor.value.spread()
        return value ^ value.lowered(16)

    def mixed(one: Value, other: Value) -> Value:
        found = one * code.words(_MIX_LEFT) - other * code.words(_MIX_RIGHT)
        return found ^ found.lowered(16)

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
