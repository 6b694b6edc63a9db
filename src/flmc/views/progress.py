"""Progress of long work: bars on standard error, if that is a terminal."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn


@contextmanager
def show_progress(what: str) -> Iterator[Callable[[float], None]]:
    """Show a bar with the time left on standard error, if that is a terminal and the work takes
    longer than a second.

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
    columns = (
        TextColumn(what),
        BarColumn(),
        TextColumn("{task.percentage:.0f} %"),
        TimeRemainingColumn(),
    )
    bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
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
    """Show a bar with the time left for each stage of long work, on standard error, if that is a
    terminal. Gives a function that begins a stage and returns what its finished fraction is
    reported to."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:.0f} %"),
        TimeRemainingColumn(),
    )
    bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)

    def stage(name: str) -> Callable[[float], None]:
        task = bar.add_task(name, total=1.0)
        return lambda fraction: bar.update(task, completed=fraction)

    bar.start()
    try:
        yield stage
    finally:
        _stop(bar)


def _stop(bar: Progress) -> None:
    """Stop a bar that was started: before rich 14.3 one that was not would print an empty line."""
    if bar.live.is_started:
        bar.stop()
