"""Machine code that is written out operation by operation, without the compiler's leave.

A function of the kernel whose loops must be written out, and whose numbers must stay in registers,
is *emitted*: a Python function runs once, and every operation on its :class:`Value` arguments
becomes an instruction. What Python's own loops and branches do is decided then; loops and branches
of the machine are :meth:`Code.loop` and :meth:`Code.when`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import RLock
from typing import Any

from llvmlite import ir

from flmc.sampling.compiled import code_cache
from flmc.sampling.compiled.machine import object_code
from flmc.sampling.compiled.machine.value import (
    BYTE,
    FLOAT,
    FLOATS,
    NUMBER,
    WIDTH,
    WORD,
    WORDS,
    Value,
)

ROUNDS_AT_ONCE = 8
"""Rounds that are run by one call, and for which normals are made at once: an even number, because
Box-Muller makes pairs."""


class Code:
    """The body of a function that is being emitted.

    Parameters
    ----------
    builder
        Where instructions are appended.
    """

    def __init__(self, builder: Any) -> None:
        self.builder = builder

    def value(self, raw: Any) -> Value:
        """A value of LLVM as one that has operators."""
        return Value(self.builder, raw)

    def number(self, value: int) -> Value:
        """A whole number of 64 bits."""
        return self.value(NUMBER(value))

    def floats(self, value: float) -> Value:
        """A vector with the same float in every lane."""
        return self.value(ir.Constant(FLOATS, [value] * WIDTH))

    def words(self, value: int) -> Value:
        """A vector with the same word in every lane."""
        return self.value(ir.Constant(WORDS, [value] * WIDTH))

    def _place(self, kind: Any, address: Value, index: Value | int) -> Any:
        element = kind.element if isinstance(kind, ir.VectorType) else kind
        start = self.builder.inttoptr(address.raw, element.as_pointer())
        at = index.raw if isinstance(index, Value) else NUMBER(index)
        pointer = self.builder.gep(start, [at])
        return pointer if kind == element else self.builder.bitcast(pointer, kind.as_pointer())

    def load(self, address: Value, index: Value | int, kind: Any = FLOATS) -> Value:
        """A vector or scalar that begins ``index`` elements behind an address."""
        place = self._place(kind, address, index)
        return self.value(self.builder.load(place, align=1 if kind == BYTE else 4))

    def store(self, address: Value, index: Value | int, value: Value) -> None:
        """Put a vector or scalar ``index`` elements behind an address."""
        place = self._place(value.raw.type, address, index)
        self.builder.store(value.raw, place, align=4)

    def pick(self, address: Value, index: Value) -> Value:
        """A float for each lane, from the place whose number the lane of ``index`` is."""
        result = ir.Constant(FLOATS, ir.Undefined)
        for lane in map(WORD, range(WIDTH)):
            number = self.builder.zext(self.builder.extract_element(index.raw, lane), NUMBER)
            found = self.load(address, self.value(number), FLOAT).raw
            result = self.builder.insert_element(result, found, lane)
        return self.value(result)

    def variables(self, values: Sequence[Value]) -> list[Variable]:
        """Variables that begin with these values."""
        return [Variable(self, value) for value in values]

    @contextmanager
    def loop(self, end: Value, start: Value | int = 0, step: int = 1) -> Iterator[Value]:
        """What follows is done for every whole number from ``start`` on, below ``end``."""
        index = Variable(self, start if isinstance(start, Value) else self.number(start))
        with self.during(lambda: index.value < end):
            now = index.value
            yield now
            index.value = now + step

    @contextmanager
    def during(self, condition: Callable[[], Value]) -> Iterator[None]:
        """What follows is done again and again while a condition holds."""
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
        """What follows is done only if a scalar is true."""
        with self.builder.if_then(truth.raw):
            yield

    @contextmanager
    def either(self, truth: Value) -> Iterator[tuple[Any, Any]]:
        """Two branches, of which the first is taken if a scalar is true."""
        with self.builder.if_else(truth.raw) as branches:
            yield branches


class Variable:
    """A value that may change in loops and branches; the compiler keeps it in a register.

    Parameters
    ----------
    code
        The function that has it.
    first
        What it begins with.
    """

    def __init__(self, code: Code, first: Value) -> None:
        self._code = code
        # At the function's entry: what is reserved inside a loop would be reserved in every turn.
        with code.builder.goto_entry_block():
            self._place = code.builder.alloca(first.raw.type)
        self.value = first

    @property
    def value(self) -> Value:
        """What it is now."""
        return self._code.value(self._code.builder.load(self._place))

    @value.setter
    def value(self, value: Value) -> None:
        self._code.builder.store(value.raw, self._place)


_ONE_AT_A_TIME = RLock()
"""LLVM is not for several threads at once."""


def emitted(
    what: str, body: Callable[[Code, list[Value]], None], arguments: Sequence[ir.Type]
) -> int:
    """Emit and compile a function that returns nothing, or read it from disk; its address.

    Parameters
    ----------
    what
        What the function is, with all that is a constant for the compiler.
    body
        Emits what the function does with its arguments.
    arguments
        Their types.
    """
    with _ONE_AT_A_TIME:
        name = code_cache.name_of(what, object_code.machine())
        code = code_cache.read(name)
        if code is None:
            code = _compiled(name, body, arguments)
            code_cache.write(name, code)
        return object_code.load(name, code.machine)


def _compiled(
    name: str, body: Callable[[Code, list[Value]], None], arguments: Sequence[ir.Type]
) -> code_cache.MachineCode:
    """What Numba's compiler makes of a function."""
    # To import it takes longer than all that a process does with code that was kept.
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
        return code_cache.MachineCode(*made)


def _emit(function: Any, body: Callable[[Code, list[Value]], None]) -> None:
    """Emit the body of a function: a block for its variables, then what it does."""
    builder = ir.IRBuilder(function.append_basic_block("variables"))
    start = function.append_basic_block("start")
    builder.branch(start)
    builder.position_at_end(start)
    code = Code(builder)
    body(code, [code.value(argument) for argument in function.args])
    builder.ret_void()
