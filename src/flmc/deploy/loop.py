"""The event loop of a role: it connects the role to a transport, reconnects after losses, and
ends when the role is finished or a signal arrives."""

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
"""First and longest pause between two attempts to connect to the broker, in seconds."""
Watcher = Callable[[Role], None]
"""Function that is called with a role whenever a message, or the passing of time, may have changed
the role."""


def run_process(role: Role, transport: Transport) -> None:
    """Run a role until it is finished, or SIGINT or SIGTERM asks it to stop."""
    asyncio.run(_run(role, transport))


async def _run(role: Role, transport: Transport) -> None:
    """Run a role until it is finished, with handlers of SIGINT and SIGTERM that ask it to stop."""
    await run_role(role, transport, stop=stop_event())


def stop_event() -> asyncio.Event:
    """An event that SIGINT and SIGTERM set, in the running event loop."""
    # The signals set an event, and raise no exception: an exception would strike wherever the
    # process happens to be, in a task of a library or between the start of a child process and the
    # line that notes it.
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    return stop


def ignore(role: Role) -> None:
    """A watcher of a role that does nothing, the default."""


async def run_role(
    role: Role,
    transport: Transport,
    watcher: Watcher = ignore,
    stop: asyncio.Event | None = None,
) -> None:
    """Run a role until it is finished or ``stop`` is set, and then publish its farewell; reconnect
    after a broken connection, with pauses that grow to three seconds. ``watcher`` is called after
    every message and every wake-up of the role."""
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
            # A connection that lasted longer than the longest pause had been accepted by the
            # broker: the next pauses begin with the shortest one again.
            if time.monotonic() - began > _LONGEST_PAUSE:
                pause = _FIRST_PAUSE
            # The random factor keeps all roles from connecting in the same moment after a broker
            # has come back.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause * random.uniform(0.5, 1.0)):
                    await stop.wait()
            pause = min(2 * pause, _LONGEST_PAUSE)


class _Session:
    """One open connection of a role to the broker: it gives arriving messages to the role, wakes it
    at the times for which it asks, and publishes the messages that it returns."""

    def __init__(
        self, role: Role, connection: Connection, watcher: Watcher, stop: asyncio.Event
    ) -> None:
        self._role, self._connection, self._watcher = role, connection, watcher
        self._stop = stop
        self._changed = asyncio.Event()
        self._delayed: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Serve the role on this connection until the role is finished or asked to stop, and then
        publish its last presence; raises ``Disconnected`` if the connection breaks."""
        stopping = asyncio.create_task(self._stop.wait())
        tasks = [
            asyncio.create_task(self._read()),
            asyncio.create_task(self._watch_clock()),
            stopping,
        ]
        try:
            await self._publish(self._role.connected(time.monotonic()))
            self._notify()
            while not self._role.finished and not stopping.done():
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
            # The role's last presence is published explicitly: a clean disconnect makes the broker
            # discard the last will.
            farewell = self._role.presence(self._role.farewell)
            await self._connection.publish([farewell.message])
        finally:
            for task in (*tasks, *self._delayed):
                task.cancel()
            await asyncio.gather(*tasks, *self._delayed, return_exceptions=True)

    async def _read(self) -> None:
        """Give every arriving message to the role and publish its replies, until the role is
        finished; raises ``Disconnected`` if the connection breaks."""
        async for message in self._connection.messages():
            await self._publish(self._role.receive(message, time.monotonic()))
            self._notify()
            if self._role.finished:
                return
        raise Disconnected("no more messages")

    async def _watch_clock(self) -> None:
        """Wake the role at the times for which it asks, and publish the messages that it returns,
        until it is finished."""
        while not self._role.finished:
            due = self._role.next_wake
            # The event is cleared right after next_wake was read, without an await in between: so
            # any later change of the role ends the wait below.
            self._changed.clear()
            wait = None if due is None else max(0.0, due - time.monotonic())
            # asyncio.wait_for is not used: in Python 3.11 it loses a cancellation that arrives
            # together with a change of the role, and the session of a broken connection would never
            # end.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._changed.wait()
                continue
            await self._publish(self._role.wake(time.monotonic()))
            self._notify()

    def _notify(self) -> None:
        """Call the watcher, and let the task that waits for the role's next wake-up time read that
        time again, because the role may have changed."""
        self._changed.set()
        self._watcher(self._role)

    async def _publish(self, outgoing: Iterable[Outgoing]) -> None:
        """Publish the messages of a role that are due now, and schedule those that are due
        later."""
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
        """Publish a message at the time ``at``, in seconds on the monotonic clock; if the
        connection has broken by then, the message is lost."""
        await asyncio.sleep(max(0.0, at - time.monotonic()))
        # The error is ignored here, because the task that reads messages notices a broken
        # connection too, and ends the session.
        with contextlib.suppress(Disconnected):
            await self._connection.publish([message])
