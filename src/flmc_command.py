"""The script ``flmc``: a Ctrl-C is one line, also while Python still imports a package.

It is not part of the package, so that a signal is heard before anything of that is imported."""

from __future__ import annotations

# The module below ``signal``, which is part of Python itself: ``signal`` imports others, and a
# Ctrl-C meanwhile would end in a traceback.
import _signal  # type: ignore[import-not-found]
import os
import sys


def main() -> int:
    """Run the command ``flmc``; see :func:`flmc.cli.main`.

    Returns
    -------
    int
        The exit code; 130 after an interruption.
    """
    _signal.signal(_signal.SIGINT, _leave)
    from flmc.base.start_up import collecting_later, spare_threads

    spare_threads(sys.argv[1:])
    with collecting_later():
        from flmc.cli import main as command

    # It stays: engines and tables are imported later. Commands that have something to finish, a run
    # or the points of a sweep, hear the signal themselves while they do.
    return command()


def _leave(number: int, frame: object) -> None:
    """End at once: files are whole at any time, and an exception might be lost inside an extension
    module."""
    os.write(2, b"flmc: interrupted\n")
    os._exit(128 + number)
