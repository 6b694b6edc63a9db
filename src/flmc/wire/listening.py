"""How an observer listens: once, for some time, or for ever."""

from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import Callable

from flmc.wire.topics import AIR_STATUS, ALIVE, OBSERVER, RIGHTS, STATUS, Topic, check_run
from flmc.wire.transport.transport import Disconnected, Message, Transport

_LOOKED_AT = (STATUS, AIR_STATUS, f"{ALIVE}/+")
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 5.0
"""Seconds between attempts to connect, at first and at most."""


def subscriptions(run: str | None = None) -> tuple[str, ...]:
    """Patterns of the topics that an observer looks at.

    Parameters
    ----------
    run
        Name of the run; None: all runs.

    Raises
    ------
    InvalidSetting
        If there can be no run of that name.
    """
    assert set(_LOOKED_AT) <= set(RIGHTS[OBSERVER].read)
    name = "+" if run is None else check_run(run)
    return tuple(str(Topic(name, what)) for what in _LOOKED_AT)


async def observe(
    transport: Transport,
    take: Callable[[Message], object],
    run: str | None = None,
    on_connect: Callable[[], None] = lambda: None,
) -> None:
    """Listen on one connection until it breaks with ``Disconnected``.

    Parameters
    ----------
    transport
        What connects.
    take
        Called with every message.
    run
        Name of the run; None: all runs.
    on_connect
        Called when the connection is there.
    """
    # Two connections of one name would replace each other, so every observer has its own. What it
    # may read is decided by its certificate.
    identity = f"{OBSERVER}-{secrets.token_hex(4)}"
    async with transport.connect(identity, subscriptions(run), None) as connection:
        on_connect()
        async for message in connection.messages():
            take(message)
    raise Disconnected("no more messages")


async def observe_for(
    transport: Transport,
    take: Callable[[Message], object],
    seconds: float,
    run: str | None = None,
) -> None:
    """Listen for some time: retained messages come at once.

    Parameters
    ----------
    transport, take, run
        As for :func:`observe`.
    seconds
        How long to listen once there is a connection.

    Raises
    ------
    Disconnected
        If the broker cannot be reached, or the connection breaks.
    """
    connected = asyncio.Event()
    listening = asyncio.create_task(observe(transport, take, run, connected.set))
    waiting = asyncio.create_task(_then(connected, seconds))
    try:
        await asyncio.wait({listening, waiting}, return_when=asyncio.FIRST_COMPLETED)
        if listening.done():
            listening.result()
    finally:
        for task in (listening, waiting):
            task.cancel()
        await asyncio.gather(listening, waiting, return_exceptions=True)


async def observe_forever(
    transport: Transport,
    take: Callable[[Message], object],
    run: str | None = None,
    say: Callable[[str | None], None] = lambda trouble: None,
) -> None:
    """Listen until the task is cancelled, through lost connections.

    Parameters
    ----------
    transport, take, run
        As for :func:`observe`. A connection that breaks is made again, after a pause that grows to
        five seconds.
    say
        Called with None when there is a connection, and with the reason when there is none.
    """
    pause = _FIRST_PAUSE

    def connected() -> None:
        nonlocal pause
        pause = _FIRST_PAUSE
        say(None)

    while True:
        try:
            await observe(transport, take, run, connected)
        except Disconnected as error:
            say(str(error)[:200] or "the connection broke")
        await asyncio.sleep(pause * random.uniform(0.5, 1.0))
        pause = min(2 * pause, _LONGEST_PAUSE)


async def _then(event: asyncio.Event, seconds: float) -> None:
    """Wait for an event, and then some seconds."""
    await event.wait()
    await asyncio.sleep(seconds)
