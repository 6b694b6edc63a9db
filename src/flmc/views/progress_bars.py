"""Progress of long computations on standard error: a bar on a terminal, elsewhere a plain line from
time to time."""

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
"""Seconds of work before the first plain line of progress, so that short work prints none."""
_EVERY, _SHARE, _LONGEST = 5.0, 0.1, 60.0
"""Seconds between two plain lines of progress: the share ``_SHARE`` of the time since the start,
but at least ``_EVERY`` and at most ``_LONGEST``, so that readers need not wait long and logs stay
short."""


@contextmanager
def show_progress(what: str) -> Iterator[Callable[[float], None]]:
    """A context that shows the progress of work called ``what`` on standard error: a bar on a
    terminal after one second, else plain lines after two. It gives a function to call with the
    finished fraction, from 0 to 1."""
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
    """A context that shows the progress of work in several stages on standard error: a bar for each
    on a terminal, else plain lines. It gives a function that begins a stage by its name and returns
    the function to call with its finished fraction, from 0 to 1."""
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
    """A progress bar for a terminal, which is erased when the work ends."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:.0f} %"),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=console, transient=True)


def _stop(bar: Progress) -> None:
    """Stop a progress bar, but only if it was started: before rich 14.3, stopping one that was not
    started would print an empty line."""
    if bar.live.is_started:
        bar.stop()


class Stage:
    """Finished fraction of a named stage of work, and an estimate of the time left. Times are in
    seconds of one clock, whose zero does not matter."""

    def __init__(self, name: str, began: float) -> None:
        self.name = name
        self.began = began
        self._first: tuple[float, float] | None = None
        self._last = (began, 0.0)

    def report(self, fraction: float, now: float) -> None:
        """Record that ``fraction`` of the stage, from 0 to 1, is finished at the time ``now``
        (seconds)."""
        self._last = (now, fraction)
        # The pace is measured from the first report on, not from the start: work that is resumed
        # reports a fraction at once that an earlier process finished.
        self._first = self._first or self._last

    def line(self, now: float) -> str:
        """Text at the time ``now`` (seconds): the stage's name, its finished percentage, and the
        time left if at least two reports allow an estimate."""
        when, fraction = self._last
        text = f"{self.name}: {math.floor(100 * fraction)} %"
        if self._first is None or fraction <= self._first[1]:
            return text
        pace = (fraction - self._first[1]) / max(when - self._first[0], 1e-9)
        # Time left at the last report by the measured pace, less the time that has passed since.
        left = (1 - fraction) / pace - (now - when)
        return f"{text}, about {_words(left)} left" if left > 0 else text


def _words(seconds: float) -> str:
    """A duration in seconds, minutes or hours, as text such as ``5 min``."""
    if seconds <= 90:
        return f"{math.ceil(seconds)} s"
    return f"{math.ceil(seconds / 60)} min" if seconds <= 5400 else f"{seconds / 3600:.1f} h"


class _PlainLines:
    """Printer of plain lines about the progress of the latest stage, from :meth:`start` to
    :meth:`end`. It prints in a thread of its own, so that lines appear although work reports
    rarely."""

    def __init__(self) -> None:
        self._stage: Stage | None = None
        self._ended = Event()
        self._thread = Thread(target=self._print_lines, name="progress", daemon=True)

    def begin(self, name: str) -> Callable[[float], None]:
        """Begin a stage called ``name``, and return the function to call with its finished
        fraction, from 0 to 1."""
        stage = self._stage = Stage(name, time.monotonic())
        return lambda fraction: stage.report(fraction, time.monotonic())

    def start(self) -> None:
        """Start the thread that prints."""
        self._thread.start()

    def end(self) -> None:
        """Make the thread stop printing, and wait until it has stopped."""
        self._ended.set()
        self._thread.join()

    def _print_lines(self) -> None:
        """Print lines of progress until :meth:`end` is called, at longer intervals the longer the
        work takes."""
        wait, printed, began = _QUIET, "", time.monotonic()
        while not self._ended.wait(wait):
            now, stage = time.monotonic(), self._stage
            quiet = _QUIET if stage is None else stage.began + _QUIET - now
            if stage is None or quiet > 0:
                wait = quiet
                continue
            line = stage.line(now)
            if line != printed:
                _print(line)
            wait, printed = min(max(_EVERY, _SHARE * (now - began)), _LONGEST), line


def _print(line: str) -> None:
    """Print a line on standard error; nothing happens if that is closed."""
    if sys.stderr is not None:
        with suppress(OSError, ValueError):  # an error in printing progress must not end the work
            sys.stderr.write(f"{line}\n")
            sys.stderr.flush()


@contextmanager
def _plain_lines() -> Iterator[_PlainLines]:
    """A context in which a thread prints plain lines of progress."""
    lines = _PlainLines()
    lines.start()
    try:
        yield lines
    finally:
        lines.end()
