"""Progress of long work: a function that is called with the finished fraction."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[float], None]
"""Function that long work calls now and then with its finished fraction, between 0 and 1."""


def report_within(progress: Progress | None, first: float, last: float) -> Progress:
    """Function that takes the finished fraction (0 to 1) of one part of some work and calls
    ``progress`` with the finished fraction of the whole work, which grows from ``first`` to
    ``last`` while the part is done; it does nothing if ``progress`` is None."""

    def report(fraction: float) -> None:
        if progress is not None:
            progress(first + fraction * (last - first))

    return report


def report_part(progress: Progress | None, index: int, count: int) -> Progress:
    """Function that takes the finished fraction (0 to 1) of part ``index`` (counted from 0) of
    ``count`` equal parts of some work, and calls ``progress`` with the finished fraction of the
    whole work; it does nothing if ``progress`` is None."""
    return report_within(progress, index / count, (index + 1) / count)
