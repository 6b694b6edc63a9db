"""A small language for generating machine code: a Python function is run once, and each of its
operations on :class:`Value` objects appends one instruction to the machine code. The code is then
said to be *emitted*.

An ordinary compiler *may* turn a loop over numbers into vector instructions, depending on what it
can prove (docs/compiled_engine.md has measurements); here vector instructions and registers are
chosen explicitly. Loops and branches of Python are resolved while the function runs; loops and
branches of the machine code are made by :meth:`Code.loop`, :meth:`Code.during`, :meth:`Code.when`
and :meth:`Code.either`.

A :class:`Value` is a number or a vector of eight, in a register; a :class:`Variable` is a value
that may change in loops and branches; an address is a whole number. Arithmetic is that of IEEE 754,
and a product and a sum are fused only by :meth:`Value.times`, so that results do not depend on the
optimiser."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import RLock
from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir

from flmc.sampling.compiled import machine_code

WIDTH = 8
"""Number of lanes of a vector: the numbers on which one vector instruction of the processor works
at the same time."""
BYTE, WORD, NUMBER, FLOAT = ir.IntType(8), ir.IntType(32), ir.IntType(64), ir.FloatType()
DOUBLE = ir.DoubleType()
WORDS, FLOATS, DOUBLES = (ir.VectorType(kind, WIDTH) for kind in (WORD, FLOAT, DOUBLE))


class Value:
    """A number or truth value, or a vector of eight, in a register of the machine code that is
    being generated. ``raw`` is the value as an object of LLVM; operations on it append instructions
    to LLVM's ``builder``."""

    __slots__ = ("builder", "raw")

    def __init__(self, builder: Any, raw: Any) -> None:
        self.builder, self.raw = builder, raw

    def _is_float(self) -> bool:
        """Whether this value is a float or a double, or a vector of them."""
        kind = self.raw.type
        return isinstance(getattr(kind, "element", kind), ir.FloatType | ir.DoubleType)

    def _with(self, other: Value | int, of_floats: str, of_words: str) -> Value:
        """Emit one instruction on this value and ``other``, a value or constant, and return its
        result: LLVM's instruction named ``of_floats`` if this value holds floats or doubles,
        ``of_words`` if it holds whole numbers."""
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
        """Emit the comparison ``sign`` (< or >) of this value with ``other``, lane by lane; returns
        truth values, False where either is NaN. Whole numbers are compared as unsigned."""
        compare = self.builder.fcmp_ordered if self._is_float() else self.builder.icmp_unsigned
        return Value(self.builder, compare(sign, self.raw, other.raw))

    def __lt__(self, other: Value) -> Value:
        return self._compared("<", other)

    def __gt__(self, other: Value) -> Value:
        return self._compared(">", other)

    def differs(self, other: Value) -> Value:
        """Emit the comparison of this value's floats with those of ``other``, lane by lane; returns
        truth values, True where they differ. NaN differs from every float, itself included."""
        return Value(self.builder, self.builder.fcmp_unordered("!=", self.raw, other.raw))

    def same(self, other: Value | int) -> Value:
        """Emit the comparison of this value, a whole number, with ``other``; returns the truth
        value whether they are equal."""
        right = other.raw if isinstance(other, Value) else self.raw.type(other)
        return Value(self.builder, self.builder.icmp_unsigned("==", self.raw, right))

    def at_most(self, other: Value) -> Value:
        """Emit the code for the minimum of this value and ``other``, lane by lane, and return it;
        where either is NaN, the result is ``other``."""
        return (self < other).choose(self, other)

    def choose(self, yes: Value, no: Value) -> Value:
        """Emit a choice, lane by lane, and return its result: ``yes`` where this value, a truth
        value, is true, else ``no``."""
        return Value(self.builder, self.builder.select(self.raw, yes.raw, no.raw))

    def either(self, other: Value) -> Value:
        """Emit the logical or of this value and ``other``, both truth values, lane by lane, and
        return its result."""
        return Value(self.builder, self.builder.or_(self.raw, other.raw))

    def both(self, other: Value) -> Value:
        """Emit the logical and of this value and ``other``, both truth values, lane by lane, and
        return its result."""
        return Value(self.builder, self.builder.and_(self.raw, other.raw))

    def ones(self) -> Value:
        """Emit the conversion of this value, a vector of truth values, to words of 32 bits, and
        return them: 1 in the lanes that are true, else 0."""
        return Value(self.builder, self.builder.zext(self.raw, WORDS))

    def spread(self) -> Value:
        """Emit the code for a vector with this value, a scalar, in each of the ``WIDTH`` lanes, and
        return the vector."""
        kind = ir.VectorType(self.raw.type, WIDTH)
        empty = ir.Constant(kind, ir.Undefined)
        first = self.builder.insert_element(empty, self.raw, WORD(0))
        zeros = ir.Constant(WORDS, [0] * WIDTH)
        return Value(self.builder, self.builder.shuffle_vector(first, empty, zeros))

    def as_word(self) -> Value:
        """Emit the conversion of this value, a whole number, to a word: its lower 32 bits."""
        return Value(self.builder, self.builder.trunc(self.raw, WORD))

    def as_float(self) -> Value:
        """Emit the conversion of this value, a whole number, to a float in single precision."""
        return Value(self.builder, self.builder.uitofp(self.raw, FLOAT))

    def some(self) -> Value:
        """Emit the test whether this value, a vector of truth values, is true in any of the
        ``WIDTH`` lanes; returns one truth value."""
        every = ir.IntType(WIDTH)
        bits = self.builder.bitcast(self.raw, every)
        return Value(self.builder, self.builder.icmp_unsigned("!=", bits, every(0)))

    def signed(self) -> Value:
        """Emit the conversion of this value, ``WIDTH`` words of 32 bits that are read as signed
        whole numbers, to floats, and return these."""
        return Value(self.builder, self.builder.sitofp(self.raw, FLOATS))

    def unsigned(self) -> Value:
        """Emit the conversion of this value, ``WIDTH`` words of 32 bits that are read as unsigned
        whole numbers, to floats, and return these."""
        return Value(self.builder, self.builder.uitofp(self.raw, FLOATS))

    def bits(self) -> Value:
        """Words of 32 bits, one in each of the ``WIDTH`` lanes, with the same bits as this value's
        floats; no number is converted."""
        return Value(self.builder, self.builder.bitcast(self.raw, WORDS))

    def as_bits(self) -> Value:
        """Floats, one in each of the ``WIDTH`` lanes, with the same bits as this value's words of
        32 bits; no number is converted."""
        return Value(self.builder, self.builder.bitcast(self.raw, FLOATS))

    def lowered_signed(self, by: int) -> Value:
        """Emit a shift of this value's ``WIDTH`` words of 32 bits, read as signed numbers, to the
        right by ``by`` bits, and return the result: the numbers divided by 2^by, rounded down."""
        return Value(self.builder, self.builder.ashr(self.raw, self.filled(by)))

    def size(self) -> Value:
        """Emit the absolute values of this value's floats, one in each of the ``WIDTH`` lanes, and
        return them."""
        kept = ir.Constant(WORDS, [0x7FFFFFFF] * WIDTH)
        return Value(self.builder, self.builder.and_(self.bits().raw, kept)).as_bits()

    def magnitude(self) -> Value:
        """Emit the absolute value of this value, a double, and return it."""
        return (self < Value(self.builder, self.raw.type(0.0))).choose(-self, self)

    def single(self) -> Value:
        """Emit the rounding of this value, a double, to a float in single precision."""
        return Value(self.builder, self.builder.fptrunc(self.raw, FLOAT))

    def double(self) -> Value:
        """Emit the conversion of this value, a float, to a double."""
        return Value(self.builder, self.builder.fpext(self.raw, DOUBLE))

    def doubles(self) -> Value:
        """Emit the conversion of this value's floats, one in each of the ``WIDTH`` lanes, to
        doubles, and return these."""
        return Value(self.builder, self.builder.fpext(self.raw, DOUBLES))

    def whole(self) -> Value:
        """Emit the rounding of this value's floats, one in each of the ``WIDTH`` lanes, towards
        zero to words of 32 bits, and return these. They are undefined for magnitudes beyond 2^31,
        so the floats must be clipped first."""
        return Value(self.builder, self.builder.fptosi(self.raw, WORDS))

    def times(self, factor: Value, plus: Value) -> Value:
        """Emit this value times ``factor`` plus ``plus``, lane by lane, and return the result. It
        is rounded once, on processors that have an instruction for it.

        No other product and sum are fused, so that results do not depend on the compiler's choices.
        """
        kind, number = self.raw.type, self.raw.type
        name = "llvm.fmuladd."
        if isinstance(kind, ir.VectorType):
            name, number = f"{name}v{WIDTH}", kind.element
        name += "f32" if number == FLOAT else "f64"
        function = self._function(name, ir.FunctionType(kind, [kind] * 3))
        return Value(self.builder, self.builder.call(function, [self.raw, factor.raw, plus.raw]))

    def _function(self, name: str, kind: Any) -> Any:
        """LLVM's built-in function ``name``, of the function type ``kind``, to be called in emitted
        code. It is declared in the LLVM module when it is first needed."""
        module = self.builder.module
        return module.globals.get(name) or ir.Function(module, kind, name)

    def root(self) -> Value:
        """Emit the square roots of this value's floats, one in each of the ``WIDTH`` lanes, and
        return them."""
        kind, name = ir.FunctionType(FLOATS, [FLOATS]), f"llvm.sqrt.v{WIDTH}f32"
        function = self._function(name, kind)
        return Value(self.builder, self.builder.call(function, [self.raw]))

    def turned(self, by: int) -> Value:
        """Emit a rotation of this value's words of 32 bits, one in each of the ``WIDTH`` lanes, to
        the left by ``by`` bits, and return the result."""
        up = self.builder.shl(self.raw, self.filled(by))
        down = self.builder.lshr(self.raw, self.filled(32 - by))
        return Value(self.builder, self.builder.or_(up, down))

    def lowered(self, by: int) -> Value:
        """Emit a shift of this value's words of 32 bits, one in each of the ``WIDTH`` lanes, to the
        right by ``by`` bits, with zeros from the left, and return the result."""
        return Value(self.builder, self.builder.lshr(self.raw, self.filled(by)))

    def shifted(self, by: int) -> Value:
        """Emit a shift of this value's words of 32 bits, one in each of the ``WIDTH`` lanes, to the
        left by ``by`` bits, with zeros from the right, and return the result."""
        return Value(self.builder, self.builder.shl(self.raw, self.filled(by)))

    def filled(self, number: int) -> Any:
        """LLVM constant of this value's type, with ``number`` in every lane."""
        kind = self.raw.type
        return ir.Constant(kind, [number] * WIDTH) if kind == WORDS else kind(number)


ROUNDS_AT_ONCE = 8
"""Number of rounds whose standard normals machine code makes together, and largest number of rounds
whose positions it adds to the sums together. It is even, because the method of Box and Muller makes
normals in pairs."""


class Code:
    """The code of one function while it is generated: the methods append instructions to LLVM's
    ``builder``."""

    def __init__(self, builder: Any) -> None:
        self.builder = builder

    def value(self, raw: Any) -> Value:
        """A :class:`Value`, which has arithmetic operators, from ``raw``, a value of the compiler
        library LLVM."""
        return Value(self.builder, raw)

    def number(self, value: int) -> Value:
        """A constant of the machine code: ``value`` as a whole number of 64 bits."""
        return self.value(NUMBER(value))

    def floats(self, value: float) -> Value:
        """A constant of the machine code: a vector with the float ``value`` in every lane."""
        return self.value(ir.Constant(FLOATS, [value] * WIDTH))

    def words(self, value: int) -> Value:
        """A constant of the machine code: a vector with ``value``, a whole number of 32 bits, in
        every lane."""
        return self.value(ir.Constant(WORDS, [value] * WIDTH))

    def _place(self, kind: Any, address: Value, index: Value | int) -> Any:
        """LLVM pointer to a value of type ``kind`` that begins ``index`` elements behind
        ``address``; for a vector type, elements are the numbers of the vector."""
        element = kind.element if isinstance(kind, ir.VectorType) else kind
        start = self.builder.inttoptr(address.raw, element.as_pointer())
        at = index.raw if isinstance(index, Value) else NUMBER(index)
        pointer = self.builder.gep(start, [at])
        return pointer if kind == element else self.builder.bitcast(pointer, kind.as_pointer())

    def load(self, address: Value, index: Value | int, kind: Any = FLOATS) -> Value:
        """Emit a load from memory, and return the loaded value: the vector or scalar of LLVM's type
        ``kind`` that begins ``index`` elements (numbers, not vectors) behind ``address``."""
        place = self._place(kind, address, index)
        return self.value(self.builder.load(place, align=1 if kind == BYTE else 4))

    def store(self, address: Value, index: Value | int, value: Value) -> None:
        """Emit the code that stores a vector or scalar in memory, ``index`` elements (numbers, not
        vectors) behind ``address``."""
        place = self._place(value.raw.type, address, index)
        self.builder.store(value.raw, place, align=4)

    def pick(self, address: Value, index: Value) -> Value:
        """Emit the code that gathers floats from memory, and return them as a vector: lane i holds
        element number ``index[i]`` of the array of floats at ``address``."""
        result = ir.Constant(FLOATS, ir.Undefined)
        for lane in map(WORD, range(WIDTH)):
            number = self.builder.zext(self.builder.extract_element(index.raw, lane), NUMBER)
            picked = self.load(address, self.value(number), FLOAT).raw
            result = self.builder.insert_element(result, picked, lane)
        return self.value(result)

    def variables(self, values: Sequence[Value]) -> list[Variable]:
        """Variables of the emitted code, one for each of ``values``, which are their initial
        values."""
        return [Variable(self, value) for value in values]

    @contextmanager
    def loop(self, end: Value, start: Value | int = 0, step: int = 1) -> Iterator[Value]:
        """Context manager of a loop of the emitted code: its body runs for every whole number from
        ``start`` to below ``end``, in steps of ``step``. It yields the number."""
        index = Variable(self, start if isinstance(start, Value) else self.number(start))
        with self.during(lambda: index.value < end):
            now = index.value
            yield now
            index.value = now + step

    @contextmanager
    def during(self, condition: Callable[[], Value]) -> Iterator[None]:
        """Context manager of a loop of the emitted code: its body runs while ``condition``, whose
        code is executed before every turn, gives true."""
        head = self.builder.append_basic_block("head")
        body = self.builder.append_basic_block("body")
        rest = self.builder.append_basic_block("rest")
        self.builder.branch(head)
        self.builder.position_at_end(head)
        self.builder.cbranch(condition().raw, body, rest)
        self.builder.position_at_end(body)
        yield
        self.builder.branch(head)
        self.builder.position_at_end(rest)

    @contextmanager
    def when(self, truth: Value) -> Iterator[None]:
        """Context manager of a branch of the emitted code: its body runs only if the scalar truth
        value ``truth`` is true."""
        with self.builder.if_then(truth.raw):
            yield

    @contextmanager
    def either(self, truth: Value) -> Iterator[tuple[Any, Any]]:
        """Context manager of two branches of the emitted code. It yields two further context
        managers: the body of the first runs if the scalar truth value ``truth`` is true, else the
        body of the second."""
        with self.builder.if_else(truth.raw) as branches:
            yield branches


class Variable:
    """Variable of the emitted code, with the initial value ``first``, that can be assigned in loops
    and branches; the compiler keeps it in a register if it can."""

    def __init__(self, code: Code, first: Value) -> None:
        self._code = code
        # The variable's memory is reserved at the entry of the function, because inside a loop
        # every turn would reserve more.
        with code.builder.goto_entry_block():
            self._place = code.builder.alloca(first.raw.type)
        self.value = first

    @property
    def value(self) -> Value:
        """The variable's present value, loaded by an instruction that is emitted whenever this
        property is read; assigning to it emits a store."""
        return self._code.value(self._code.builder.load(self._place))

    @value.setter
    def value(self, value: Value) -> None:
        self._code.builder.store(value.raw, self._place)


_ONE_AT_A_TIME = RLock()
"""Lock that is held while code is compiled or loaded, because LLVM is not safe for threads."""


def emitted(
    what: str, body: Callable[[Code, list[Value]], None], arguments: Sequence[ir.Type]
) -> int:
    """The address of a function of machine code that returns nothing, compiled or loaded from disk.
    ``body`` emits its instructions, from its arguments; ``arguments`` are their LLVM types.

    ``what`` is the key under which the code is stored on disk, so it must contain everything that
    ``body`` uses as a constant."""
    with _ONE_AT_A_TIME:
        name = machine_code.name_of(what, machine_code.machine())
        code = machine_code.read(name)
        if code is None:
            code = _compiled(name, body, arguments)
            machine_code.write(name, code)
        return machine_code.load(name, code.machine)


def _compiled(
    name: str, body: Callable[[Code, list[Value]], None], arguments: Sequence[ir.Type]
) -> machine_code.MachineCode:
    """Object code and bitcode that Numba's compiler makes of the function ``name``. ``body`` emits
    its instructions; ``arguments`` are the LLVM types of its arguments."""
    # Numba is imported only here, because the import is slow and code that is loaded from disk does
    # not need it.
    from numba.core.compiler_lock import global_compiler_lock
    from numba.core.registry import cpu_target

    with global_compiler_lock:
        library = cpu_target.target_context.codegen().create_library(name)
        module = library.create_ir_module(name)
        _emit(ir.Function(module, ir.FunctionType(ir.VoidType(), arguments), name), body)
        library.enable_object_caching()
        library.add_ir_module(module)
        library.finalize()
        _, _, made = library.serialize_using_object_code()
        return machine_code.MachineCode(*made)


def _emit(function: Any, body: Callable[[Code, list[Value]], None]) -> None:
    """Emit the instructions of the LLVM function ``function``: first a block that reserves memory
    for its variables, then the instructions that ``body`` appends."""
    builder = ir.IRBuilder(function.append_basic_block("variables"))
    start = function.append_basic_block("start")
    builder.branch(start)
    builder.position_at_end(start)
    code = Code(builder)
    body(code, [code.value(argument) for argument in function.args])
    builder.ret_void()


def address_of(array: npt.NDArray[Any]) -> int:
    """The address of a contiguous array's first number, 0 if it has none; the caller keeps the
    array alive."""
    if not array.size:
        return 0
    # This takes a quarter of the time of ``array.ctypes``, which matters before a short call of
    # machine code, but works only for writeable arrays.
    if array.flags.writeable:
        buffer: Any = array  # arrays are buffers, but NumPy's types say so only from Python 3.12 on
        return ctypes.addressof(ctypes.c_char.from_buffer(buffer))
    return int(array.ctypes.data)


class Workspace:
    """Scratch memory of a call of machine code, filled with zeros. ``sizes`` maps the name of each
    part to its number of bytes. All parts are in one array, because making many arrays takes longer
    than a short call."""

    _LINE = 64
    """Size in bytes of a line of the processor's cache. The size of every part of the scratch
    memory is rounded up to a multiple of it."""

    def __init__(self, **sizes: int) -> None:
        starts = [0]
        for size in sizes.values():
            starts.append(starts[-1] + -(-size // self._LINE) * self._LINE)
        self._array = np.zeros(starts[-1], np.uint8)
        first = address_of(self._array)
        self.addresses = {name: first + start for name, start in zip(sizes, starts, strict=False)}
        """Address of each part of the scratch memory, by name, valid as long as this object
        lives."""
