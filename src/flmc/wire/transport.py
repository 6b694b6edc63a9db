"""How messages travel: publish to topics, subscribe to patterns, leave a last will; and a hub in
memory with the same interface.

Another transport is another file: a class with ``connect``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import NamedTuple, Protocol

# The interface of a transport: publish to topics, subscribe to patterns, leave a last will.
#
# What is needed of it: every message is delivered at least once while both ends are connected; the
# last retained message of a topic is delivered to whoever subscribes; the last will is published
# when a connection breaks. Nothing is assumed about order between topics, about repetitions, or
# about what was sent while a role was away.


class Message(NamedTuple):
    """A message to or from a topic.

    Attributes
    ----------
    topic, payload
        Where it belongs, and its bytes.
    retain
        Whether it is kept for those who subscribe later, in place of the one before.
    """

    topic: str
    payload: bytes
    retain: bool = False


class Disconnected(Exception):  # noqa: N818 (says what happened)
    """The connection broke, or could not be made; trying again later makes sense."""


class Connection(Protocol):
    """An open connection, with its subscriptions made."""

    async def publish(self, messages: Sequence[Message]) -> None:
        """Hand messages over, in this order, and return when they are taken.

        Parameters
        ----------
        messages
            What to publish.

        Raises
        ------
        Disconnected
            If the connection broke; whether they were delivered is then not known.
        """

    def messages(self) -> AsyncIterator[Message]:
        """Messages that arrive, until the connection breaks with :class:`Disconnected`."""


class Transport(Protocol):
    """What connects a role."""

    def connect(
        self, identity: str, subscriptions: Sequence[str], will: Message | None
    ) -> AbstractAsyncContextManager[Connection]:
        """A connection that is open while the context lasts.

        Parameters
        ----------
        identity
            Name of the role; a second connection of the same name replaces the first.
        subscriptions
            Patterns of topics, in which ``+`` stands for any one part.
        will
            What is published for the role if the connection breaks; None: nothing.
        """


def matches(pattern: str, topic: str) -> bool:
    """Whether a topic fits a pattern in which ``+`` stands for any one part.

    Parameters
    ----------
    pattern, topic
        The pattern and the topic.
    """
    wanted, found = pattern.split("/"), topic.split("/")
    return len(wanted) == len(found) and all(
        want in ("+", part) for want, part in zip(wanted, found, strict=True)
    )


# A transport inside one process: the same interface without a broker.
#
# It is for tests, for audits of the roles, and for showing what a transport must do.


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
            As :class:`~flmc.wire.transport.Transport` says. The will is published unless
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
