"""Stopping of recorded runs at SIGINT and SIGTERM, which the package ``flmc_command`` receives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from flmc.sampling.simulation import never
from flmc_command import WorkInHand


@contextmanager
def stopping_at_signals(record: Path | None) -> Iterator[Callable[[], bool]]:
    """Context in which SIGINT or SIGTERM asks a run to save itself into its ``record`` and stop; it
    gives the function that the run calls to learn whether to stop. Without a record there is
    nothing to save: a signal ends the process at once, and the function always returns False."""
    if record is None:
        yield never
        return
    with WorkInHand(f"what was recorded in {str(record)!r} is whole", saves=True) as work:
        yield work.interrupted
