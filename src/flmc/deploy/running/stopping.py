"""How a program with an event loop is asked to stop, by SIGINT or SIGTERM."""

from __future__ import annotations

import asyncio
import signal


def stop_event() -> asyncio.Event:
    """An event of the running loop that SIGINT and SIGTERM set, for as long as the loop lasts.

    An exception would end whatever runs just then: a task of a library, or the start of a process
    that nobody has noted yet.
    """
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    return stop
