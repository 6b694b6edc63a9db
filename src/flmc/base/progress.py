"""Progress of long work: a function that is called with the finished fraction."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[float], None]
"""Called now and then with the finished fraction, between 0 and 1."""


def report_within(progress: Progress | None, first: float, last: float) -> Progress:
    """Progress function of a part of the work, which leads from the fraction ``first`` of the whole
    to ``last``.

    Parameters
    ----------
    progress
        Told of the whole; None if nobody asks.
    first, last
        Finished fraction of the whole before and after the part.

    Returns
    -------
    Progress
        To be called with the finished fraction of the part.
    """

    def report(fraction: float) -> None:
        if progress is not None:
            progress(first + fraction * (last - first))

    return report


def report_part(progress: Progress | None, index: int, count: int) -> Progress:
    """Progress function of one of ``count`` equal parts of the work.

    Parameters
    ----------
    progress
        Told of the whole; None if nobody asks.
    index
        Number of the part, counted from 0.
    count
        Number of parts.

    Returns
    -------
    Progress
        To be called with the finished fraction of the part.
    """
    return report_within(progress, index / count, (index + 1) / count)
