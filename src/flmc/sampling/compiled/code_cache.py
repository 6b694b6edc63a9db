"""Where machine code is kept between processes: files that may be damaged, on a disk that may be
full.

Code can be made again, to the same bits: a file that cannot be read or written costs some tenths
of a second and a warning that names it, never the run. A file's name is a digest of all that its
code depends on (the text of this folder, the processor, the compiler's version), so it is never
out of date."""

from __future__ import annotations

import hashlib
import logging
import os
import tempfile
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import llvmlite

from flmc.base.randomness import ROUNDS_PER_BLOCK, Purpose

_log = logging.getLogger(__name__)

_DIGEST = 32
"""Bytes of the digest that a file begins with."""


class MachineCode(NamedTuple):
    """What the compiler made of a function.

    Attributes
    ----------
    machine
        Object code.
    bitcode
        The same as the compiler understands it.
    """

    machine: bytes
    bitcode: bytes


@cache
def _sources() -> str:
    """A digest of the text of this folder and those in it, and of the constants of seeds."""
    files = sorted(Path(__file__).parent.rglob("*.py"))
    text = b"".join(file.read_bytes() for file in files)
    return hashlib.sha256(text + repr([ROUNDS_PER_BLOCK, *map(int, Purpose)]).encode()).hexdigest()


def name_of(function: str, machine: object) -> str:
    """The name of a function's code, which nothing else has.

    Parameters
    ----------
    function
        What it is, with all that is a constant for the compiler.
    machine
        The processor.
    """
    # Numba compiles, and to import it takes longer than to read what it made.
    versions = (version("numba"), llvmlite.__version__)
    text = repr((function, machine, versions, _sources()))
    return f"flmc_{hashlib.sha256(text.encode()).hexdigest()[:32]}"


@cache
def _folder() -> Path | None:
    """Where code is kept: the first place that can be written."""
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
    """The code of this name; None if it is not there, or cannot be read.

    Parameters
    ----------
    name
        What :func:`name_of` gave.
    """
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
    """Keep code; where the disk refuses, it lives in this process only.

    Parameters
    ----------
    name
        What :func:`name_of` gave.
    code
        What the compiler made.
    """
    folder = _folder()
    if folder is None:
        return
    rest = len(code.machine).to_bytes(8, "big") + code.machine + code.bitcode
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=name, delete=False) as file:
            try:
                file.write(hashlib.sha256(rest).digest() + rest)
                file.flush()
                os.replace(file.name, folder / name)
            except OSError:
                os.unlink(file.name)
                raise
    except OSError as error:
        _say(folder / name, f"cannot be written ({error})")


def _say(file: Path, what: str) -> None:
    """Warn of a file, and of what it costs."""
    _log.warning(
        "the compiled code in %s %s: it is compiled again, which takes some tenths of a second;"
        " remove the file, or set NUMBA_CACHE_DIR to another place",
        file,
        what,
    )
