"""How a command is asked to stop, by SIGINT or SIGTERM."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def interrupting_at_signals() -> Iterator[None]:
    """While this lasts, SIGINT and SIGTERM are an exception: the finished points of a sweep are
    kept, and its processes ended."""

    def ask(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def stopping_at_signals() -> Iterator[Callable[[], bool]]:
    """While this lasts, SIGINT and SIGTERM ask to stop after the rounds in hand; a second signal
    stops at once. Gives a function that says whether to stop."""
    asked: list[int] = []

    def ask(number: int, frame: object) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)
        # os.write, because the signal may have come in the middle of another write to a stream.
        os.write(2, b"\nstopping after the rounds in hand; once more stops at once\n")

    try:
        before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not in the main thread: whoever runs us there handles signals
        before = {}
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
