"""Where compiled code is kept between processes: numba's cache, which may be damaged or full.

numba raises whatever reading a damaged file raises, for an empty one ``EOFError``, and fails where
a full disk refuses what it would save. Compiled code can be made again, to the same bits: a file
that cannot be read or written costs a compilation and a warning that names it, never the run."""

from __future__ import annotations

import logging
from typing import Any

from numba.core.caching import FunctionCache

_log = logging.getLogger(__name__)


class CodeCache(FunctionCache):
    """The compiled forms of one function on disk.

    Parameters
    ----------
    function
        What is compiled; its file's age decides whether what is on disk is still good.

    Raises
    ------
    RuntimeError
        If there is no directory that can be written; ``NUMBA_CACHE_DIR`` names one.
    """

    def __init__(self, function: Any) -> None:
        super().__init__(function)  # type: ignore[no-untyped-call]

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
