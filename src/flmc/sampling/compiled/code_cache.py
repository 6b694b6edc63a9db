"""How the kernel is compiled, and where compiled code is kept between processes: numba's cache,
which may be damaged or full.

numba raises whatever reading a damaged file raises, for an empty one ``EOFError``, and fails where
a full disk refuses what it would save. Compiled code can be made again, to the same bits: a file
that cannot be read or written costs a compilation and a warning that names it, never the run."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numba
from numba.core.caching import FunctionCache, IndexDataCacheFile

from flmc.base.randomness import ROUNDS_PER_BLOCK, Purpose

_log = logging.getLogger(__name__)

_FAST = {"nsz", "arcp", "contract", "reassoc", "afn"}
"""Sums may be reordered, multiplications fused and divisions made multiplications. That no number
is NaN or infinite is not promised to the compiler: lost chains are found by ``np.isfinite``."""


def compiled(function: Callable[..., Any]) -> Any:
    """Compile a function without the interpreter's lock, with the rules of ``_FAST``, and keep it
    on disk.

    Parameters
    ----------
    function
        What to compile when it is called first.
    """
    made: Any = numba.njit(nogil=True, fastmath=_FAST, error_model="numpy")(function)
    made._cache = CodeCache(function)  # as cache=True does, with one that may be damaged
    return made


def part(function: Callable[..., Any]) -> Any:
    """Compile a helper by the rules of IEEE (no fast-math), as a part of the functions that call
    it.

    Parameters
    ----------
    function
        What to compile with its callers.
    """
    return numba.njit(error_model="numpy")(function)


@cache
def _digest(folder: Path) -> str:
    """A digest of all that is compiled from a folder and those in it, and of the constants of
    seeds."""
    text = b"".join(file.read_bytes() for file in sorted(folder.rglob("*.py")))
    numbers = [ROUNDS_PER_BLOCK, *map(int, Purpose)]
    return hashlib.sha256(text + repr(numbers).encode()).hexdigest()


class CodeCache(FunctionCache):
    """The compiled forms of one function on disk.

    Parameters
    ----------
    function
        What is compiled. What is on disk is good as long as the text of its folder is the same:
        numba itself looks at the age of the function's own file, which may call others, and which
        changes when a package is installed.

    Raises
    ------
    RuntimeError
        If there is no directory that can be written; ``NUMBA_CACHE_DIR`` names one.
    """

    def __init__(self, function: Any) -> None:
        super().__init__(function)  # type: ignore[no-untyped-call]
        stamp = _digest(Path(function.__code__.co_filename).parent)
        self._cache_file = IndexDataCacheFile(  # type: ignore[no-untyped-call]
            self._cache_path, self._impl.filename_base, stamp
        )

    def load_overload(self, signature: Any, context: Any) -> Any:
        """The form for some types of arguments; None if it is not there or cannot be read.

        Parameters
        ----------
        signature
            The types.
        context
            Target of the compiler.
        """
        try:
            return super().load_overload(signature, context)  # type: ignore[no-untyped-call]
        except Exception as error:  # pickle may raise anything for damaged bytes
            self._say("cannot be read", error)
            self._begin_anew()
            return None

    def save_overload(self, signature: Any, compiled: Any) -> None:
        """Keep a form; where the disk refuses, it lives in this process only.

        Parameters
        ----------
        signature
            The types.
        compiled
            What the compiler made for them.
        """
        try:
            super().save_overload(signature, compiled)  # type: ignore[no-untyped-call]
        except Exception as error:
            self._say("cannot be written", error)

    def _begin_anew(self) -> None:
        """Forget what is on disk, so that what is compiled now can be kept."""
        try:
            self.flush()  # type: ignore[no-untyped-call]
        except OSError as error:
            self._say("cannot be written", error)
            self.disable()  # type: ignore[no-untyped-call]

    def _say(self, what: str, error: Exception) -> None:
        """Warn of the file, and of what it costs."""
        reason = f"{type(error).__name__}: {error}".removesuffix(": ")
        _log.warning(
            "the compiled code of %s in %s %s (%s): it is compiled again, which takes some ten"
            " seconds; remove the file, or set NUMBA_CACHE_DIR to another place",
            self._py_func.__name__,
            self._cache_file._index_path,
            what,
            reason,
        )
