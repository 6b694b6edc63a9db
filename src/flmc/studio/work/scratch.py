"""Scratch directories of runs and reports, all below one that is removed with the studio."""

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
"""Actions for the end of the studio, the newest last."""


def new_directory(name: str) -> Path:
    """A new empty directory whose name starts with ``name``, removed with the studio at the
    latest."""
    return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=_root()))


def at_the_end(action: Callable[[], None]) -> Callable[[], None]:
    """Register an action for the end of the studio, before its directories are removed; the
    returned function unregisters it."""
    _ENDINGS.append(action)

    def forget() -> None:
        # ``close_all`` may be running this very action, and waiting for the thread that calls this.
        if action in _ENDINGS:
            _ENDINGS.remove(action)

    return forget


def close_all() -> None:
    """Run the actions registered for the end of the studio, the newest first, and remove all
    scratch directories."""
    # An action is taken off the list before it is done, because it may unregister itself or others
    # meanwhile.
    while _ENDINGS:
        _ENDINGS.pop()()
    # Asked first, because calling ``_root()`` would make a directory only to remove it.
    if _root.cache_info().currsize:
        shutil.rmtree(_root(), ignore_errors=True)
        _root.cache_clear()
