"""Digests of a class in a script, and of everything in the script that its code uses: constants,
functions, classes, objects, and modules of the user's own.

The rest of the script has no digest, because the user edits that file in order to resume a run."""

from __future__ import annotations

import ast
import builtins
import dis
import hashlib
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from flmc.base.errors import InvalidSetting

SCRIPT = "__main__"
"""Name of the module of a script or a notebook."""


def digests_of_class(
    kind: type, of_module: Callable[[str], Mapping[str, str]]
) -> Iterator[tuple[str, str]]:
    """Yield pairs of a name and a SHA-256 digest: of the class ``kind`` in a script, and of
    everything in the script that its code uses, directly or through others. ``of_module`` returns
    the digests of a module by its name, none for a module that is not the user's own.
    ``InvalidSetting`` where something has no source, so that a change could not be noticed."""
    script = vars(sys.modules[SCRIPT])
    seen: set[str] = set()
    waiting: list[tuple[str, Any]] = [(kind.__qualname__, kind)]
    while waiting:
        name, value = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        unwrapped = inspect.unwrap(value) if callable(value) else value
        if isinstance(unwrapped, ModuleType):
            yield from of_module(unwrapped.__name__).items()
            continue
        if isinstance(unwrapped, (type, FunctionType)):
            if unwrapped.__module__ != SCRIPT:
                yield from of_module(unwrapped.__module__).items()
                continue
            texts, held = [_source(unwrapped)], {**script, **_closure(unwrapped)}
        elif (plain := _plain(value)) is not None:
            yield f"{SCRIPT}.{name}", _digest(plain)
            continue
        else:  # any other object: digest the statements that made it
            texts, held = _assignments(name, kind, value), script
        yield f"{SCRIPT}.{name}", _digest("\n".join(texts).encode())
        for text in texts:
            used, modules = _names(text)
            for module in modules:
                yield from of_module(module).items()
            waiting += [(each, held[each]) for each in used if each in held]


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _source(value: type | FunctionType) -> str:
    """Source of a class or function of a script; ``InvalidSetting`` if there is none, as for code
    typed at a prompt."""
    try:
        return inspect.getsource(value)
    except (OSError, TypeError) as error:
        what = "class" if isinstance(value, type) else "function"
        raise InvalidSetting(
            f"the {what} {value.__qualname__} must have source that can be read, so that changes"
            " are noticed by flmc.resume; it has none: put it into a .py file, or keep no record"
        ) from error


def _closure(value: type | FunctionType) -> dict[str, Any]:
    """Values, by name, of variables of enclosing functions that a function, or a method of a class,
    uses."""
    functions = vars(value).values() if isinstance(value, type) else [value]
    found: dict[str, Any] = {}
    for each in functions:
        if isinstance(each, FunctionType):
            for name, cell in zip(each.__code__.co_freevars, each.__closure__ or (), strict=True):
                if name != "__class__" and cell != type(cell)():
                    found[name] = cell.cell_contents
    return found


def _plain(value: object) -> bytes | None:
    """Bytes that differ for different values of a number, a text, an array, or a container of
    these; None for any other object."""
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
        return f"{type(value).__name__} {value!r}".encode()
    if isinstance(value, (np.ndarray, np.generic)):
        array = np.asarray(value)
        if array.dtype.hasobject:
            return None
        return f"array {array.dtype.str} {array.shape} ".encode() + array.tobytes()
    if isinstance(value, Mapping):
        parts = [_plain(each) for pair in value.items() for each in pair]
    elif isinstance(value, (list, tuple, set, frozenset)):
        parts = [_plain(each) for each in value]
    else:
        return None
    if any(part is None for part in parts):
        return None
    whole = [part for part in parts if part is not None]
    if isinstance(value, (set, frozenset)):  # sets have no order
        whole.sort()
    return f"{type(value).__name__} {len(whole)} ".encode() + b"".join(
        f"{len(part)} ".encode() + part for part in whole
    )


def _assignments(name: str, kind: type, value: object) -> list[str]:
    """Statements of the script that assign a value to ``name``, a variable that the class ``kind``
    uses. ``InvalidSetting`` where there are none, because changes of the object ``value`` would
    then not be noticed."""
    file = getattr(sys.modules[SCRIPT], "__file__", None)
    try:
        with open(file or "", encoding="utf-8") as stream:
            source = stream.read()
        tree = ast.parse(source)
    except (OSError, SyntaxError, ValueError):
        source, tree = "", ast.Module([], [])
    texts = [
        ast.get_source_segment(source, statement) or ""
        for statement in ast.walk(tree)
        if isinstance(statement, _SIMPLE) and name in _bound(statement)
    ]
    if not texts:
        raise InvalidSetting(
            f"the class {kind.__qualname__} uses {name!r}, of type {type(value).__name__}, whose"
            " changes flmc.resume would not notice: make it a number, a text or an array, or assign"
            " it in the script by its name, or keep no record"
        )
    return texts


_SIMPLE = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Import, ast.ImportFrom)
"""Kinds of statements that give a value to a name and contain no other statements."""


def _bound(statement: ast.stmt) -> set[str]:
    """Names to which a statement gives a value."""
    names = {
        node.id
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    if isinstance(statement, (ast.Import, ast.ImportFrom)):
        names |= {each.asname or each.name.partition(".")[0] for each in statement.names}
    return names


def _names(text: str) -> tuple[list[str], list[str]]:
    """Two lists from a piece of source: names that it reads and does not define itself, without
    those of Python's builtins, and names of the modules that it imports. They are read from the
    compiled code, because in the source a local variable looks like one of the script."""
    indented = text[:1].isspace()
    try:
        whole = compile("if True:\n" + text if indented else text, "<source>", "exec")
    except SyntaxError:  # source of a lambda may be a piece of a statement
        return [], []
    names: dict[str, None] = {}
    modules: dict[str, None] = {}
    waiting = [whole]
    while waiting:
        code = waiting.pop()
        for each in dis.get_instructions(code):
            if each.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
                names[each.argval] = None
            elif each.opname == "IMPORT_NAME":
                modules[each.argval] = None
        waiting += [each for each in code.co_consts if isinstance(each, CodeType)]
    return [name for name in names if not hasattr(builtins, name)], list(modules)
