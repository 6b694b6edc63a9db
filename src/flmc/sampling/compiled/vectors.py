"""Eight lanes in one value, in compiled code: a vector of floats, of words or of truth values.

The compiler makes vector instructions of plain loops only where it can prove much about them, and
not for eight passes. These values leave it no choice: an operation on them *is* an instruction for
eight lanes (two of four, or half of sixteen, where the processor has such). Rules are those of IEEE
single precision, except that a product and a sum may be fused; a comparison with NaN is false,
except that "!=" is true.

The cache of compiled code does not notice changes of this file: see ``_BUILT_ON`` in
:mod:`flmc.sampling.compiled.kernel`."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core.cgutils import get_or_insert_function
from numba.core.typing.templates import AbstractTemplate, Signature, infer_global, signature
from numba.extending import intrinsic, lower_builtin, models, register_model

WIDTH = 8
_FLAGS = ("contract",)
"""Flags of every operation on floats: a product and a sum may be fused. Never empty: to
instructions without flags Numba adds those of the function around them, and then sums could be
reordered."""


class Vector(types.Type):
    """The type of eight numbers of one kind, as Numba knows it; ``code`` is the same type in
    LLVM."""

    def __init__(self, name: str, element: ir.Type) -> None:
        self.code = ir.VectorType(element, WIDTH)
        super().__init__(f"{name} of {WIDTH} lanes")


FLOATS = Vector("floats", ir.FloatType())
WORDS = Vector("words", ir.IntType(32))
TRUTHS = Vector("truths", ir.IntType(1))


@register_model(Vector)
class _Model(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Vector) -> None:
        super().__init__(manager, kind, kind.code)


def _define(
    operation: Callable[..., Any],
    operands: tuple[Vector, ...],
    result: Vector,
    emit: Callable[..., Any],
) -> None:
    """Define what an operator does with vectors of these types: ``emit(builder, *operands)``."""

    @infer_global(operation)
    class _Typing(AbstractTemplate):
        def generic(self, args: tuple[Any, ...], kws: dict[str, Any]) -> Signature | None:
            return signature(result, *operands) if args == operands else None

    @lower_builtin(operation, *operands)
    def _lowering(context: Any, builder: Any, sig: Signature, args: tuple[Any, ...]) -> Any:
        return emit(builder, *args)


_TWO = (FLOATS, FLOATS)
_define(operator.add, _TWO, FLOATS, lambda builder, a, b: builder.fadd(a, b, flags=_FLAGS))
_define(operator.sub, _TWO, FLOATS, lambda builder, a, b: builder.fsub(a, b, flags=_FLAGS))
_define(operator.mul, _TWO, FLOATS, lambda builder, a, b: builder.fmul(a, b, flags=_FLAGS))
_define(operator.truediv, _TWO, FLOATS, lambda builder, a, b: builder.fdiv(a, b, flags=_FLAGS))
_define(operator.neg, (FLOATS,), FLOATS, lambda builder, a: builder.fneg(a))
# Ordered comparisons are false where an operand is NaN; the unordered "!=" is true there.
_define(operator.lt, _TWO, TRUTHS, lambda builder, a, b: builder.fcmp_ordered("<", a, b))
_define(operator.ne, _TWO, TRUTHS, lambda builder, a, b: builder.fcmp_unordered("!=", a, b))
_define(operator.gt, _TWO, TRUTHS, lambda builder, a, b: builder.fcmp_ordered(">", a, b))
_define(operator.add, (WORDS, WORDS), WORDS, lambda builder, a, b: builder.add(a, b))
_define(operator.xor, (WORDS, WORDS), WORDS, lambda builder, a, b: builder.xor(a, b))


def _place(builder: Any, kind: Vector, address: Any, index: Any) -> Any:
    """A pointer to the vector that begins ``index`` elements behind ``address``."""
    start = builder.inttoptr(address, kind.code.element.as_pointer())
    return builder.bitcast(builder.gep(start, [index]), kind.code.as_pointer())


def _instruction(function: Callable[..., Any]) -> Any:
    """Make a function of compiled code: from the types of its arguments it gives its signature and
    what emits its code."""
    return intrinsic(function)


@_instruction
def load(typing: Any, address: Any, index: Any) -> Any:
    """Eight neighbouring floats of an array in memory.

    Parameters
    ----------
    address
        Address of the array's first element. An address is a plain number, which costs nothing to
        hand around; in return nobody checks that the floats are there, or keeps the array from
        being freed.
    index
        Number of the first of the eight elements.
    """

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.load(_place(builder, FLOATS, *args), align=4)

    return FLOATS(types.uint64, types.uint64), emit


@_instruction
def load_words(typing: Any, address: Any, index: Any) -> Any:
    """Eight neighbouring words of 32 bits of an array in memory.

    Parameters
    ----------
    address
        Address of the array's first element; nobody checks that the words are there.
    index
        Number of the first of the eight elements.
    """

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.load(_place(builder, WORDS, *args), align=4)

    return WORDS(types.uint64, types.uint64), emit


@_instruction
def store(typing: Any, address: Any, index: Any, value: Any) -> Any:
    """Put the eight numbers of a vector beside each other into an array of their kind.

    Parameters
    ----------
    address
        Address of the array's first element; nobody checks that there is room.
    index
        Number of the element that the first of the eight becomes.
    value
        A vector of floats or of words.
    """

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        builder.store(args[2], _place(builder, value, *args[:2]), align=4)
        return context.get_dummy_value()

    return types.void(types.uint64, types.uint64, value), emit


def _spread(builder: Any, kind: Vector, value: Any) -> Any:
    """A vector with the same number in every lane."""
    empty = ir.Constant(kind.code, ir.Undefined)
    first = builder.insert_element(empty, value, ir.IntType(32)(0))
    return builder.shuffle_vector(first, empty, ir.Constant(WORDS.code, [0] * WIDTH))


@_instruction
def spread(typing: Any, value: Any) -> Any:
    """A vector with the same float in every lane."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return _spread(builder, FLOATS, args[0])

    return FLOATS(types.float32), emit


@_instruction
def choose(typing: Any, truth: Any, yes: Any, no: Any) -> Any:
    """Lane by lane, ``yes`` where ``truth`` is true, else ``no``."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.select(*args)

    return yes(TRUTHS, yes, yes), emit


def _of_one(operand: Vector, result: Any, emit: Callable[..., Any]) -> Any:
    """Make a function of one vector in compiled code; ``emit(builder, value)`` emits it."""

    def typed(typing: Any, value: Any) -> Any:
        return result(operand), lambda context, builder, sig, args: emit(builder, *args)

    return intrinsic(typed)


def _of_words_by(emit: Callable[..., Any]) -> Any:
    """Make a function of words and one number for all lanes; ``emit(builder, words, number)`` emits
    it."""

    def typed(typing: Any, words: Any, by: Any) -> Any:
        return WORDS(WORDS, types.uint32), lambda context, builder, sig, args: emit(builder, *args)

    return intrinsic(typed)


def _is_any(builder: Any, truths: Any) -> Any:
    """Whether any of the truth values is true: read as one number of eight bits, they are not 0."""
    every = ir.IntType(WIDTH)
    return builder.icmp_unsigned("!=", builder.bitcast(truths, every), every(0))


def _square_root(builder: Any, floats: Any) -> Any:
    """The square roots of eight floats."""
    kind = ir.FunctionType(FLOATS.code, [FLOATS.code])
    return builder.call(
        get_or_insert_function(builder.module, kind, f"llvm.sqrt.v{WIDTH}f32"), [floats]
    )


def _moved_up(builder: Any, words: Any, by: Any) -> Any:
    """Words shifted to the left by the same number of bits."""
    return builder.shl(words, _spread(builder, WORDS, by))


def _turned(builder: Any, words: Any, by: Any) -> Any:
    """Words rotated to the left by the same number of bits, from 1 to 31."""
    rest = builder.sub(ir.IntType(32)(32), by)
    return builder.or_(
        _moved_up(builder, words, by), builder.lshr(words, _spread(builder, WORDS, rest))
    )


some = _of_one(TRUTHS, types.boolean, _is_any)
"""Whether a vector of truth values is true in any lane."""
ones = _of_one(TRUTHS, WORDS, lambda builder, truths: builder.zext(truths, WORDS.code))
"""The word 1 in the lanes where a truth value is true, else 0."""
signed = _of_one(WORDS, FLOATS, lambda builder, words: builder.sitofp(words, FLOATS.code))
"""Words, read as signed numbers, as floats."""
whole = _of_one(FLOATS, WORDS, lambda builder, floats: builder.fptosi(floats, WORDS.code))
"""Floats without their fractions, as words."""
root = _of_one(FLOATS, FLOATS, _square_root)
"""The square root of a vector of floats, lane by lane."""
shift = _of_words_by(_moved_up)
"""Bits of words moved upwards; those beyond the end are lost."""
turn = _of_words_by(_turned)
"""Bits of words moved upwards; those beyond the end come in again at the lower one."""


@_instruction
def pick(typing: Any, address: Any, index: Any) -> Any:
    """Eight floats of an array in memory, each lane its own.

    Parameters
    ----------
    address
        Address of the array's first element.
    index
        The number of an element for each lane, a vector of words. Nobody checks that they are
        there.
    """

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        start = builder.inttoptr(args[0], FLOATS.code.element.as_pointer())
        result = ir.Constant(FLOATS.code, ir.Undefined)
        # One load for each lane: there is no instruction for it that every processor has.
        for lane in map(ir.IntType(32), range(WIDTH)):
            number = builder.zext(builder.extract_element(args[1], lane), ir.IntType(64))
            result = builder.insert_element(
                result, builder.load(builder.gep(start, [number])), lane
            )
        return result

    return FLOATS(types.uint64, WORDS), emit
