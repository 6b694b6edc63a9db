"""Scratch directories for the files of runs and reports, in one temporary directory that is removed
when the studio ends."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path


@cache
def _root() -> Path:
    """The temporary directory above all scratch directories, made when it is first needed."""
    return Path(tempfile.mkdtemp(prefix="flmc-studio-"))


_ENDINGS: list[Callable[[], None]] = []
"""Functions to call when the studio ends, from the last in the list to the first."""


def new_directory(name: str) -> Path:
    """A new empty scratch directory whose name starts with ``name``; it is removed when the studio
    ends, if not before."""
    return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=_root()))


def at_the_end(action: Callable[[], None]) -> Callable[[], None]:
    """Register a function to be called when the studio ends, before its scratch directories are
    removed; the returned function unregisters it."""
    _ENDINGS.append(action)

    def forget() -> None:
        # ``close_all`` may have taken this action off the list already, and be inside it, waiting
        # for the thread that now calls this function.
        if action in _ENDINGS:
            _ENDINGS.remove(action)

    return forget


def close_all() -> None:
    """Run the actions registered for the end of the studio, the newest first, and remove all
    scratch directories."""
    # An action is taken off the list before it is called, because it may unregister itself or
    # others.
    while _ENDINGS:
        _ENDINGS.pop()()
    # The cache is asked first, because calling ``_root()`` would make a directory only to remove
    # it.
    if _root.cache_info().currsize:
        shutil.rmtree(_root(), ignore_errors=True)
        _root.cache_clear()
