"""Compiled machine code on disk and in memory: files that keep it between processes, and LLVM's
loader. Loading does not import the compiler.

A file that is missing, damaged or cannot be written costs only some tenths of a second for
compiling again, to the same bits, and a warning that names it; the run goes on. A file's name is a
digest of everything on which its code depends (the source text of this folder, the processor, the
compiler's version), so a file is never out of date."""

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
"""Number of bytes of the SHA-256 digest with which a file of machine code begins."""


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
    """A digest of the Python files in and below this folder, and of the constants that the random
    streams depend on (``ROUNDS_PER_BLOCK`` and ``Purpose``)."""
    files = sorted(Path(__file__).parent.rglob("*.py"))
    text = b"".join(file.read_bytes() for file in files)
    return hashlib.sha256(text + repr([ROUNDS_PER_BLOCK, *map(int, Purpose)]).encode()).hexdigest()


def name_of(function: str, machine: object) -> str:
    """The name under which a function's machine code is stored. It contains a digest of all on
    which the code depends: ``function``, which describes the function, ``machine``, which describes
    the processor, the versions of the compiler, and the sources of this folder."""
    # The versions are read from the packages' metadata, because importing Numba takes longer than
    # loading stored code.
    versions = (version("numba"), llvmlite.__version__)
    text = repr((function, machine, versions, _sources()))
    return f"flmc_{hashlib.sha256(text.encode()).hexdigest()[:32]}"


@cache
def _folder() -> Path | None:
    """The folder for compiled code: the first that can be written to of Numba's cache if the user
    set one (``NUMBA_CACHE_DIR``), ``__pycache__`` beside this file, and a folder in the user's
    cache. None if none of them can be written to."""
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
    """The machine code stored on disk under ``name``, which comes from :func:`name_of`; None if it
    is missing, damaged or cannot be read."""
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
    """Store machine code on disk under ``name``. A failure causes only a warning: later processes
    then compile the code again."""
    folder = _folder()
    if folder is None:
        return
    rest = len(code.machine).to_bytes(8, "big") + code.machine + code.bitcode
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=name, delete=False) as file:
            try:
                file.write(hashlib.sha256(rest).digest() + rest)
                file.flush()
                # The file is written under another name and renamed when it is complete, so that
                # another process never reads a part of it.
                os.replace(file.name, folder / name)
            except OSError:
                os.unlink(file.name)
                raise
    except OSError as error:
        _say(folder / name, f"cannot be written ({error})")


def _say(file: Path, what: str) -> None:
    """Log a warning about a file of compiled code. ``what`` completes the sentence, such as "is
    damaged"; the warning adds that the code is compiled again."""
    _log.warning(
        "the compiled code in %s %s: it is compiled again, which takes some tenths of a second;"
        " remove the file, or set NUMBA_CACHE_DIR to another place",
        file,
        what,
    )


_SETTINGS = ("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES", "NUMBA_ENABLE_AVX", "NUMBA_OPT")
"""Environment variables with which a user changes the processor for which Numba compiles, or its
optimisation."""
_ENGINES: list[Any] = []
"""LLVM's execution engines, which hold the loaded machine code. They live as long as the process,
because the addresses of functions become invalid when an engine is deleted."""


@cache
def machine() -> tuple[str | None, ...]:
    """Description of the processor for which code is compiled: LLVM's target triple, the
    processor's name and features, and the values of the environment variables ``_SETTINGS`` (None
    for those that are not set)."""
    try:
        features = binding.get_host_cpu_features().flatten()
    except RuntimeError:  # LLVM does not know the processor's features here
        features = ""
    known = (binding.get_process_triple(), binding.get_host_cpu_name(), features)
    return (*known, *map(os.environ.get, _SETTINGS))


@cache
def _initialise() -> None:
    """Initialise the compiler library LLVM for loading code for this processor, once in a
    process."""
    with suppress(RuntimeError):  # newer versions of llvmlite raise: they initialise themselves
        binding.initialize()
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()


def load(name: str, code: bytes) -> int:
    """Load the object code ``code`` of the function ``name`` and return the function's address. The
    code must call no other function, and the name must be unique in the process."""
    _initialise()
    target = binding.Target.from_triple(binding.get_process_triple())
    engine = binding.create_mcjit_compiler(
        binding.parse_assembly(""), target.create_target_machine(jit=True)
    )
    engine.add_object_file(binding.ObjectFileRef.from_data(code))
    engine.finalize_object()
    _ENGINES.append(engine)
    return int(engine.get_function_address(name))
