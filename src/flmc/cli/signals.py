"""How a recorded run hears that it is to stop; ``flmc_command`` hears the signals."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from flmc.sampling.simulation import never
from flmc_command import WorkInHand


@contextmanager
def stopping_at_signals(record: Path | None) -> Iterator[Callable[[], bool]]:
    """While this lasts, SIGINT or SIGTERM asks a run to save itself into its record and stop; gives
    the function that the run asks. Without a record there is nothing to save: the process leaves at
    once, and the function always says False."""
    if record is None:
        yield never
        return
    with WorkInHand(f"what was recorded in {str(record)!r} is whole", saves=True) as work:
        yield work.interrupted
