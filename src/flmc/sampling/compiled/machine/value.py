"""Values of the machine: every operation on them becomes an instruction.

The rules of arithmetic are those of IEEE; only where :meth:`Value.times` says so a product and a
sum are fused."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

WIDTH = 8
"""Lanes of a vector."""
BYTE, WORD, NUMBER, FLOAT = ir.IntType(8), ir.IntType(32), ir.IntType(64), ir.FloatType()
DOUBLE = ir.DoubleType()
WORDS, FLOATS, DOUBLES = (ir.VectorType(kind, WIDTH) for kind in (WORD, FLOAT, DOUBLE))


class Value:
    """A value of the machine: a number, or a vector of floats, words or truth values.

    Parameters
    ----------
    builder
        Where its operations are appended.
    raw
        The value as LLVM knows it.
    """

    __slots__ = ("builder", "raw")

    def __init__(self, builder: Any, raw: Any) -> None:
        self.builder, self.raw = builder, raw

    def _is_float(self) -> bool:
        kind = self.raw.type
        return isinstance(getattr(kind, "element", kind), ir.FloatType | ir.DoubleType)

    def _with(self, other: Value | int, of_floats: str, of_words: str) -> Value:
        right = other.raw if isinstance(other, Value) else self.raw.type(other)
        name = of_floats if self._is_float() else of_words
        return Value(self.builder, getattr(self.builder, name)(self.raw, right))

    def __add__(self, other: Value | int) -> Value:
        return self._with(other, "fadd", "add")

    def __sub__(self, other: Value | int) -> Value:
        return self._with(other, "fsub", "sub")

    def __mul__(self, other: Value | int) -> Value:
        return self._with(other, "fmul", "mul")

    def __truediv__(self, other: Value) -> Value:
        return self._with(other, "fdiv", "udiv")

    def __mod__(self, other: int) -> Value:
        return Value(self.builder, self.builder.urem(self.raw, self.raw.type(other)))

    def __xor__(self, other: Value) -> Value:
        return Value(self.builder, self.builder.xor(self.raw, other.raw))

    def __neg__(self) -> Value:
        return Value(self.builder, self.builder.fneg(self.raw))

    def _compared(self, sign: str, other: Value) -> Value:
        compare = self.builder.fcmp_ordered if self._is_float() else self.builder.icmp_unsigned
        return Value(self.builder, compare(sign, self.raw, other.raw))

    def __lt__(self, other: Value) -> Value:
        return self._compared("<", other)

    def __gt__(self, other: Value) -> Value:
        return self._compared(">", other)

    def differs(self, other: Value) -> Value:
        """Whether floats differ; NaN differs from everything."""
        return Value(self.builder, self.builder.fcmp_unordered("!=", self.raw, other.raw))

    def same(self, other: Value | int) -> Value:
        """Whether whole numbers are the same."""
        right = other.raw if isinstance(other, Value) else self.raw.type(other)
        return Value(self.builder, self.builder.icmp_unsigned("==", self.raw, right))

    def at_most(self, other: Value) -> Value:
        """The smaller of two scalars."""
        return (self < other).choose(self, other)

    def choose(self, yes: Value, no: Value) -> Value:
        """Lane by lane, ``yes`` where this is true, else ``no``."""
        return Value(self.builder, self.builder.select(self.raw, yes.raw, no.raw))

    def either(self, other: Value) -> Value:
        """Whether this or the other is true."""
        return Value(self.builder, self.builder.or_(self.raw, other.raw))

    def both(self, other: Value) -> Value:
        """Whether this and the other are true."""
        return Value(self.builder, self.builder.and_(self.raw, other.raw))

    def ones(self) -> Value:
        """The word 1 in the lanes where a truth value is true, else 0."""
        return Value(self.builder, self.builder.zext(self.raw, WORDS))

    def spread(self) -> Value:
        """A vector with this scalar in every lane."""
        kind = ir.VectorType(self.raw.type, WIDTH)
        empty = ir.Constant(kind, ir.Undefined)
        first = self.builder.insert_element(empty, self.raw, WORD(0))
        zeros = ir.Constant(WORDS, [0] * WIDTH)
        return Value(self.builder, self.builder.shuffle_vector(first, empty, zeros))

    def as_word(self) -> Value:
        """The lower half of a whole number."""
        return Value(self.builder, self.builder.trunc(self.raw, WORD))

    def as_float(self) -> Value:
        """A whole number as a float."""
        return Value(self.builder, self.builder.uitofp(self.raw, FLOAT))

    def some(self) -> Value:
        """Whether this is true in any lane."""
        every = ir.IntType(WIDTH)
        bits = self.builder.bitcast(self.raw, every)
        return Value(self.builder, self.builder.icmp_unsigned("!=", bits, every(0)))

    def signed(self) -> Value:
        """Words, read as signed numbers, as floats."""
        return Value(self.builder, self.builder.sitofp(self.raw, FLOATS))

    def unsigned(self) -> Value:
        """Words, read as numbers that are not negative, as floats."""
        return Value(self.builder, self.builder.uitofp(self.raw, FLOATS))

    def bits(self) -> Value:
        """The bits of floats, as words."""
        return Value(self.builder, self.builder.bitcast(self.raw, WORDS))

    def as_bits(self) -> Value:
        """Words, read as the bits of floats."""
        return Value(self.builder, self.builder.bitcast(self.raw, FLOATS))

    def lowered_signed(self, by: int) -> Value:
        """Words, read as signed numbers, over 2^by, rounded down."""
        return Value(self.builder, self.builder.ashr(self.raw, self.filled(by)))

    def size(self) -> Value:
        """Floats without their signs."""
        kept = ir.Constant(WORDS, [0x7FFFFFFF] * WIDTH)
        return Value(self.builder, self.builder.and_(self.bits().raw, kept)).as_bits()

    def magnitude(self) -> Value:
        """A double without its sign."""
        return (self < Value(self.builder, self.raw.type(0.0))).choose(-self, self)

    def single(self) -> Value:
        """A double in single precision."""
        return Value(self.builder, self.builder.fptrunc(self.raw, FLOAT))

    def double(self) -> Value:
        """A float in double precision."""
        return Value(self.builder, self.builder.fpext(self.raw, DOUBLE))

    def doubles(self) -> Value:
        """Floats in double precision."""
        return Value(self.builder, self.builder.fpext(self.raw, DOUBLES))

    def whole(self) -> Value:
        """Floats without their fractions, as words."""
        return Value(self.builder, self.builder.fptosi(self.raw, WORDS))

    def times(self, factor: Value, plus: Value) -> Value:
        """This times a factor plus a number, rounded once where the processor can.

        No other product and sum are fused: results do not depend on what the compiler sees."""
        kind, number = self.raw.type, self.raw.type
        name = "llvm.fmuladd."
        if isinstance(kind, ir.VectorType):
            name, number = f"{name}v{WIDTH}", kind.element
        name += "f32" if number == FLOAT else "f64"
        function = self._function(name, ir.FunctionType(kind, [kind] * 3))
        return Value(self.builder, self.builder.call(function, [self.raw, factor.raw, plus.raw]))

    def _function(self, name: str, kind: Any) -> Any:
        """A function of LLVM, which the module declares once."""
        module = self.builder.module
        return module.globals.get(name) or ir.Function(module, kind, name)

    def root(self) -> Value:
        """Square roots."""
        kind, name = ir.FunctionType(FLOATS, [FLOATS]), f"llvm.sqrt.v{WIDTH}f32"
        function = self._function(name, kind)
        return Value(self.builder, self.builder.call(function, [self.raw]))

    def turned(self, by: int) -> Value:
        """Bits moved upwards; those beyond the end come in again at the lower one."""
        up = self.builder.shl(self.raw, self.filled(by))
        down = self.builder.lshr(self.raw, self.filled(32 - by))
        return Value(self.builder, self.builder.or_(up, down))

    def lowered(self, by: int) -> Value:
        """Bits moved downwards; those beyond the end are lost."""
        return Value(self.builder, self.builder.lshr(self.raw, self.filled(by)))

    def shifted(self, by: int) -> Value:
        """Bits moved upwards; those beyond the end are lost."""
        return Value(self.builder, self.builder.shl(self.raw, self.filled(by)))

    def filled(self, number: int) -> Any:
        """A constant of this type with the same number in every lane."""
        kind = self.raw.type
        return ir.Constant(kind, [number] * WIDTH) if kind == WORDS else kind(number)
