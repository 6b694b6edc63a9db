"""Runs a role over a transport, through lost connections, until it is done or a signal stops it."""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import time
from collections.abc import Callable, Iterable

from flmc.deploy.role import Outgoing, Role
from flmc.wire.transport import Connection, Disconnected, Message, Transport

_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 3.0
"""Seconds between attempts to connect, at first and at most."""
Watcher = Callable[[Role], None]
"""Told after every change of a role."""


def run_process(role: Role, transport: Transport) -> None:
    """Run a role until it is finished, or SIGINT or SIGTERM asks it to stop.

    Parameters
    ----------
    role, transport
        The role, and what connects it.
    """
    asyncio.run(_run(role, transport))


async def _run(role: Role, transport: Transport) -> None:
    """Run a role, with signals that ask it to stop."""
    await run_role(role, transport, stop=stop_event())


def stop_event() -> asyncio.Event:
    """An event of the running loop that SIGINT and SIGTERM set, for as long as the loop lasts.

    An exception would end whatever runs just then: a task of a library, or the start of a process
    that nobody has noted yet.
    """
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    return stop


def ignore(role: Role) -> None:
    """A watcher that does nothing.

    Parameters
    ----------
    role
        The role.
    """


async def run_role(
    role: Role,
    transport: Transport,
    watcher: Watcher = ignore,
    stop: asyncio.Event | None = None,
) -> None:
    """Run a role until it is finished, or asked to stop.

    Parameters
    ----------
    role, transport
        The role, and what connects it. A connection that breaks is made again, after a pause that
        grows to three seconds.
    watcher
        Told after every change.
    stop
        Set by whoever wants the role to leave; it then says that it is gone.
    """
    pause, stop = _FIRST_PAUSE, stop or asyncio.Event()
    while not role.finished and not stop.is_set():
        began = time.monotonic()
        try:
            will = role.will
            async with transport.connect(role.identity, role.subscriptions, will) as connection:
                role.log.info("connected", extra={"event": "connected"})
                await _Session(role, connection, watcher, stop).run()
        except Disconnected as error:
            lost = {"event": "disconnected", "why": str(error)[:200], "retry_seconds": pause}
            role.log.warning("no connection to the broker", extra=lost)
            if time.monotonic() - began > _LONGEST_PAUSE:
                pause = _FIRST_PAUSE
            # Not all at the same moment after a broker has come back.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause * random.uniform(0.5, 1.0)):
                    await stop.wait()
            pause = min(2 * pause, _LONGEST_PAUSE)


class _Session:
    """A role on one connection."""

    def __init__(
        self, role: Role, connection: Connection, watcher: Watcher, stop: asyncio.Event
    ) -> None:
        self._role, self._connection, self._watcher = role, connection, watcher
        self._stop = stop
        self._changed = asyncio.Event()
        self._delayed: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Serve the role until it is finished; a broken connection is ``Disconnected``."""
        asked = asyncio.create_task(self._stop.wait())
        tasks = [
            asyncio.create_task(self._read()),
            asyncio.create_task(self._watch_clock()),
            asked,
        ]
        try:
            await self._publish(self._role.connected(time.monotonic()))
            self._tell()
            while not self._role.finished and not asked.done():
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
            farewell = self._role.presence(self._role.farewell)
            await self._connection.publish([farewell.message])
        finally:
            for task in (*tasks, *self._delayed):
                task.cancel()
            await asyncio.gather(*tasks, *self._delayed, return_exceptions=True)

    async def _read(self) -> None:
        """Give every message that arrives to the role."""
        async for message in self._connection.messages():
            await self._publish(self._role.receive(message, time.monotonic()))
            self._tell()
            if self._role.finished:
                return
        raise Disconnected("no more messages")

    async def _watch_clock(self) -> None:
        """Wake the role when it wants to be woken."""
        while not self._role.finished:
            due = self._role.next_wake
            self._changed.clear()
            wait = None if due is None else max(0.0, due - time.monotonic())
            # Not asyncio.wait_for, which in Python 3.11 loses a cancellation that comes together
            # with the change: the session of a connection that broke would never end.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._changed.wait()
                continue
            await self._publish(self._role.wake(time.monotonic()))
            self._tell()

    def _tell(self) -> None:
        """Say that the role may have changed."""
        self._changed.set()
        self._watcher(self._role)

    async def _publish(self, outgoing: Iterable[Outgoing]) -> None:
        """Publish what is due at once, and what is due later in its time."""
        now: list[Message] = []
        for message, at in outgoing:
            if at is None or at <= time.monotonic():
                now.append(message)
            else:
                task = asyncio.create_task(self._publish_at(message, at))
                self._delayed.add(task)
                task.add_done_callback(self._delayed.discard)
        if now:
            await self._connection.publish(now)

    async def _publish_at(self, message: Message, at: float) -> None:
        """Publish a message at its time; the reader notices a connection that breaks meanwhile."""
        await asyncio.sleep(max(0.0, at - time.monotonic()))
        with contextlib.suppress(Disconnected):
            await self._connection.publish([message])
