"""The script ``flmc``: a Ctrl-C while Python still imports the package is one line as well.

It is not part of the package, because importing any part of that imports the whole, which takes
half a second."""

from __future__ import annotations

import os
import signal


def main() -> int:
    """Run the command ``flmc``; see :func:`flmc.cli.main`.

    Returns
    -------
    int
        The exit code; 130 after an interruption.
    """
    before = signal.signal(signal.SIGINT, _leave)
    from flmc.cli import main as command

    signal.signal(signal.SIGINT, before)
    return command()


def _leave(number: int, frame: object) -> None:
    """End at once: nothing was begun, and an exception might be lost inside an extension module."""
    os.write(2, b"flmc: interrupted\n")
    os._exit(128 + number)
