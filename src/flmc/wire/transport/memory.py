"""A transport inside one process: the same interface without a broker.

It is for tests, for audits of the roles, and for showing what a transport must do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from flmc.wire.transport.transport import Connection, Disconnected, Message, matches


class MemoryHub:
    """A broker in memory; every role of a process connects to the same hub."""

    def __init__(self) -> None:
        self._open: dict[str, _MemoryConnection] = {}
        self._retained: dict[str, Message] = {}

    @asynccontextmanager
    async def connect(
        self, identity: str, subscriptions: Sequence[str], will: Message | None
    ) -> AsyncIterator[Connection]:
        """A connection that is open while the context lasts.

        Parameters
        ----------
        identity, subscriptions, will
            As :class:`~flmc.wire.transport.transport.Transport` says. The will is published unless
            the context ends without an exception.
        """
        connection = _MemoryConnection(self, tuple(subscriptions))
        before = self._open.get(identity)
        if before is not None:
            before.queue.put_nowait(None)
        self._open[identity] = connection
        for message in self._retained.values():
            connection.offer(message)
        broken = True
        try:
            yield connection
            broken = False
        finally:
            if self._open.get(identity) is connection:
                del self._open[identity]
            if broken and will is not None:
                self.deliver(will)

    def deliver(self, message: Message) -> None:
        """Give a message to all who subscribed to its topic.

        Parameters
        ----------
        message
            The message; an empty one that is retained removes the one before.
        """
        if message.retain and message.payload:
            self._retained[message.topic] = message
        elif message.retain:
            self._retained.pop(message.topic, None)
        for connection in list(self._open.values()):
            connection.offer(message)


class _MemoryConnection:
    """An open connection to a hub."""

    def __init__(self, hub: MemoryHub, patterns: tuple[str, ...]) -> None:
        self._hub, self._patterns = hub, patterns
        self.queue: asyncio.Queue[Message | None] = asyncio.Queue()

    def offer(self, message: Message) -> None:
        """Take a message if it was subscribed to."""
        if any(matches(pattern, message.topic) for pattern in self._patterns):
            self.queue.put_nowait(message)

    async def publish(self, messages: Sequence[Message]) -> None:
        """Hand messages over, in this order."""
        for message in messages:
            self._hub.deliver(message)
        await asyncio.sleep(0)

    async def messages(self) -> AsyncIterator[Message]:
        """Messages that arrive."""
        while True:
            message = await self.queue.get()
            if message is None:
                raise Disconnected("another connection has this name")
            yield message
