"""The generator of random words, as emitted code."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from flmc.sampling.compiled.emitted.emission import Code
from flmc.sampling.compiled.emitted.value import WIDTH, WORDS, Value


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
        self._code, self._address = code, address
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


@intrinsic
def emit_words(typing: Any, state: Any, words: Any, count: Any) -> Any:
    """Put ``count`` words of every lane at an address, from the generators at another, in a
    function that numba compiles."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        code = Code(builder)
        address, target, number = (code.value(raw) for raw in args)
        generator = Generator(code, address, WORDS)
        with code.loop(number) as n:
            code.store(target, n * WIDTH, generator())
        generator.save()
        return context.get_dummy_value()

    return types.void(types.uint64, types.uint64, types.uint64), emit
