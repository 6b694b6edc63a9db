"""Machine code between processes and in memory: files that may be damaged, on a disk that may be
full, and LLVM's loader, without the compiler that made the code.

Code can be made again, to the same bits: a file that cannot be read or written costs some tenths
of a second and a warning that names it, never the run. A file's name is a digest of all that its
code depends on (the text of this folder, the processor, the compiler's version), so it is never
out of date."""

from __future__ import annotations

import hashlib
import logging
import os
import tempfile
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import llvmlite
from llvmlite import binding

from flmc.base.randomness import ROUNDS_PER_BLOCK, Purpose

_log = logging.getLogger(__name__)

_DIGEST = 32
"""Number of bytes of the digest with which a file of code begins."""


class MachineCode(NamedTuple):
    """One function, as the compiler LLVM made it.

    Attributes
    ----------
    machine
        Object code, which the processor runs.
    bitcode
        The same function in LLVM's own language, which the compiler can read again.
    """

    machine: bytes
    bitcode: bytes


@cache
def _sources() -> str:
    """A digest of the Python files in and below this folder, and of the constants of seeds."""
    files = sorted(Path(__file__).parent.rglob("*.py"))
    text = b"".join(file.read_bytes() for file in files)
    return hashlib.sha256(text + repr([ROUNDS_PER_BLOCK, *map(int, Purpose)]).encode()).hexdigest()


def name_of(function: str, machine: object) -> str:
    """The name of a function's code, a digest of all that it depends on: what the function is, the
    processor, the compiler, and the sources of this folder."""
    # The versions' names are read, because importing Numba takes longer than reading the code that
    # it made.
    versions = (version("numba"), llvmlite.__version__)
    text = repr((function, machine, versions, _sources()))
    return f"flmc_{hashlib.sha256(text.encode()).hexdigest()[:32]}"


@cache
def _folder() -> Path | None:
    """The folder for compiled code, the first of these that can be written to: Numba's cache if the
    user set one, ``__pycache__`` beside this file, a folder in the user's cache; None if none
    can."""
    places = [os.environ.get("NUMBA_CACHE_DIR"), str(Path(__file__).parent / "__pycache__")]
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    for place in (*places, os.path.join(home, "flmc")):
        if place:
            try:
                Path(place).mkdir(parents=True, exist_ok=True)
                tempfile.TemporaryFile(dir=place).close()
            except OSError:
                continue
            return Path(place)
    return None


def read(name: str) -> MachineCode | None:
    """The code kept on disk under a ``name`` of :func:`name_of`; None if it is missing or
    damaged."""
    folder = _folder()
    if folder is None:
        return None
    file = folder / name
    try:
        content = file.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        _say(file, f"cannot be read ({error})")
        return None
    digest, rest = content[:_DIGEST], content[_DIGEST:]
    if hashlib.sha256(rest).digest() != digest:
        _say(file, "is damaged")
        return None
    size = int.from_bytes(rest[:8], "big")
    return MachineCode(rest[8 : 8 + size], rest[8 + size :])


def write(name: str, code: MachineCode) -> None:
    """Keep compiled code on disk under its name; if that fails, it serves this process only."""
    folder = _folder()
    if folder is None:
        return
    rest = len(code.machine).to_bytes(8, "big") + code.machine + code.bitcode
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=name, delete=False) as file:
            try:
                file.write(hashlib.sha256(rest).digest() + rest)
                file.flush()
                # Renamed as a whole, so that another process never reads half a file.
                os.replace(file.name, folder / name)
            except OSError:
                os.unlink(file.name)
                raise
    except OSError as error:
        _say(folder / name, f"cannot be written ({error})")


def _say(file: Path, what: str) -> None:
    """Warn about a file of compiled code: ``what`` says what is wrong with it (damaged, or not to
    be read or written), and the warning adds what that costs."""
    _log.warning(
        "the compiled code in %s %s: it is compiled again, which takes some tenths of a second;"
        " remove the file, or set NUMBA_CACHE_DIR to another place",
        file,
        what,
    )


_SETTINGS = ("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES", "NUMBA_ENABLE_AVX", "NUMBA_OPT")
"""Environment variables by which a user makes Numba compile for another processor, or in another
way."""
_ENGINES: list[Any] = []
"""Loaded machine code, kept because it must live as long as its addresses are used: as long as the
process."""


@cache
def machine() -> tuple[str | None, ...]:
    """The processor for which code is compiled: kind of machine, name, features, and what the user
    set instead."""
    try:
        features = binding.get_host_cpu_features().flatten()
    except RuntimeError:  # LLVM does not know the processor's features here
        features = ""
    known = (binding.get_process_triple(), binding.get_host_cpu_name(), features)
    return (*known, *map(os.environ.get, _SETTINGS))


@cache
def _initialise() -> None:
    """Make the compiler library LLVM ready to load code for this processor, once in a process."""
    with suppress(RuntimeError):  # newer versions initialise themselves, and refuse to be asked
        binding.initialize()
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()


def load(name: str, code: bytes) -> int:
    """The address of a function after loading its object code; the code calls no other function,
    and its name is unique in the process."""
    _initialise()
    target = binding.Target.from_triple(binding.get_process_triple())
    engine = binding.create_mcjit_compiler(
        binding.parse_assembly(""), target.create_target_machine(jit=True)
    )
    engine.add_object_file(binding.ObjectFileRef.from_data(code))
    engine.finalize_object()
    _ENGINES.append(engine)
    return int(engine.get_function_address(name))
