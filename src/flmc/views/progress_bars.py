"""Progress of long work, on standard error: bars on a terminal, elsewhere a plain line now and
then."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

_QUIET = 2.0
"""Seconds of work before the first plain line, so that short work prints none."""
_EVERY, _SHARE, _LONGEST = 5.0, 0.1, 60.0
"""Seconds between two plain lines: at least ``_EVERY``, in long work its share ``_SHARE`` of what
has passed, but not more than ``_LONGEST``, so that neither a reader waits nor a log overflows."""


@contextmanager
def show_progress(what: str) -> Iterator[Callable[[float], None]]:
    """Show on standard error how far the work is: a bar with the time left on a terminal, if the
    work takes longer than a second; else a plain line now and then, if it takes longer than two.

    Parameters
    ----------
    what
        What is being done, beside the bar.

    Yields
    ------
    callable
        To be called with the finished fraction.
    """
    console = Console(stderr=True)
    if not console.is_terminal:
        with _plain_lines() as lines:
            yield lines.begin(what)
        return
    bar = _bar(console)
    task = bar.add_task(what, total=1.0)
    began = time.monotonic()

    def progress(fraction: float) -> None:
        if time.monotonic() - began > 1.0:
            bar.start()
        bar.update(task, completed=fraction)

    try:
        yield progress
    finally:
        _stop(bar)


@contextmanager
def show_stages() -> Iterator[Callable[[str], Callable[[float], None]]]:
    """Show on standard error how far each stage of long work is: a bar with the time left for each
    on a terminal, else a plain line now and then. Gives a function that begins a stage and returns
    what its finished fraction is reported to."""
    console = Console(stderr=True)
    if not console.is_terminal:
        with _plain_lines() as lines:
            yield lines.begin
        return
    bar = _bar(console)

    def stage(name: str) -> Callable[[float], None]:
        task = bar.add_task(name, total=1.0)
        return lambda fraction: bar.update(task, completed=fraction)

    bar.start()
    try:
        yield stage
    finally:
        _stop(bar)


def _bar(console: Console) -> Progress:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:.0f} %"),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=console, transient=True)


def _stop(bar: Progress) -> None:
    """Stop a bar that was started: before rich 14.3 one that was not would print an empty line."""
    if bar.live.is_started:
        bar.stop()


class Stage:
    """How far a stage of work is, and how long it will take.

    Parameters
    ----------
    name
        What is being done.
    began
        When it began, in seconds of any clock.
    """

    def __init__(self, name: str, began: float) -> None:
        self.name = name
        self.began = began
        self._first: tuple[float, float] | None = None
        self._last = (began, 0.0)

    def report(self, fraction: float, now: float) -> None:
        """Take notice of a finished fraction.

        Parameters
        ----------
        fraction, now
            The fraction, from 0 to 1, and the time.
        """
        self._last = (now, fraction)
        # Work that is resumed begins with a fraction that cost nothing: the pace is that since the
        # first report.
        self._first = self._first or self._last

    def line(self, now: float) -> str:
        """What there is to say: the finished share, and the time left where a pace is known.

        Parameters
        ----------
        now
            The time.
        """
        when, fraction = self._last
        text = f"{self.name}: {math.floor(100 * fraction)} %"
        if self._first is None or fraction <= self._first[1]:
            return text
        pace = (fraction - self._first[1]) / max(when - self._first[0], 1e-9)
        left = (1 - fraction) / pace - (now - when)
        return f"{text}, about {_words(left)} left" if left > 0 else text


def _words(seconds: float) -> str:
    """A duration in words, rounded up."""
    if seconds <= 90:
        return f"{math.ceil(seconds)} s"
    return f"{math.ceil(seconds / 60)} min" if seconds <= 5400 else f"{seconds / 3600:.1f} h"


class _PlainLines:
    """Prints lines about the latest stage until it is told to end.

    It has a thread of its own, so that work which reports rarely shows a sign of life too."""

    def __init__(self) -> None:
        self._stage: Stage | None = None
        self._ended = Event()
        self._thread = Thread(target=self._print_lines, name="progress", daemon=True)

    def begin(self, name: str) -> Callable[[float], None]:
        """Begin a stage; gives what its finished fraction is reported to."""
        stage = self._stage = Stage(name, time.monotonic())
        return lambda fraction: stage.report(fraction, time.monotonic())

    def start(self) -> None:
        """Begin to print."""
        self._thread.start()

    def end(self) -> None:
        """Print nothing any more."""
        self._ended.set()
        self._thread.join()

    def _print_lines(self) -> None:
        wait, said, began = _QUIET, "", time.monotonic()
        while not self._ended.wait(wait):
            now, stage = time.monotonic(), self._stage
            quiet = _QUIET if stage is None else stage.began + _QUIET - now
            if stage is None or quiet > 0:
                wait = quiet
                continue
            line = stage.line(now)
            if line != said:
                _say(line)
            wait, said = min(max(_EVERY, _SHARE * (now - began)), _LONGEST), line


def _say(line: str) -> None:
    """Print a line on standard error; where that is closed or gone, nowhere."""
    if sys.stderr is not None:
        with suppress(OSError, ValueError):  # a progress line must not end the work
            sys.stderr.write(f"{line}\n")
            sys.stderr.flush()


@contextmanager
def _plain_lines() -> Iterator[_PlainLines]:
    lines = _PlainLines()
    lines.start()
    try:
        yield lines
    finally:
        lines.end()
