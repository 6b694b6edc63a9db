"""Interface of a transport (publish to topics, subscribe to patterns, leave a last will), and a
hub in memory that implements it.

A transport must deliver every message at least once while both ends are connected, deliver the
last retained message of a topic to each new subscriber, and publish the last will when a
connection breaks. Roles assume nothing about the order between topics, about repetitions, or about
messages sent while they were away. Another transport is a class with ``connect``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import NamedTuple, Protocol


class Message(NamedTuple):
    """A message to or from a topic.

    Attributes
    ----------
    topic, payload
        Name of the topic, and the bytes.
    retain
        Whether the broker keeps the message for later subscribers, in place of the one before.
    """

    topic: str
    payload: bytes
    retain: bool = False


class Disconnected(Exception):  # noqa: N818 (says what happened)
    """Raised if the connection broke or could not be made; another attempt may succeed."""


class Connection(Protocol):
    """An open connection of a role to the other roles of a federation, with its subscriptions in
    place: it publishes messages to topics and yields those that arrive."""

    async def publish(self, messages: Sequence[Message]) -> None:
        """Hand messages over in this order, and return when the transport has accepted them; raises
        :class:`Disconnected` if the connection broke, after which each message may or may not have
        been delivered."""

    def messages(self) -> AsyncIterator[Message]:
        """The arriving messages, until the connection breaks with :class:`Disconnected`."""


class Transport(Protocol):
    """The way in which server, air, devices and observers connect to each other, such as an MQTT
    broker or a hub in memory."""

    def connect(
        self, identity: str, subscriptions: Sequence[str], will: Message | None
    ) -> AbstractAsyncContextManager[Connection]:
        """A connection that is open while the context lasts, for the role named ``identity``, whose
        new connection replaces an older one. It receives the topics that fit ``subscriptions``,
        where ``+`` stands for any one part; ``will`` is published for the role if the connection
        breaks (None: nothing is)."""


def matches(pattern: str, topic: str) -> bool:
    """Whether a topic fits a pattern, part by part between slashes; ``+`` in the pattern stands for
    any one part."""
    wanted, parts = pattern.split("/"), topic.split("/")
    return len(wanted) == len(parts) and all(
        want in ("+", part) for want, part in zip(wanted, parts, strict=True)
    )


class MemoryHub:
    """A broker in memory, for tests and for audits of the roles: every role of the process
    connects to the same hub."""

    def __init__(self) -> None:
        self._open: dict[str, _MemoryConnection] = {}
        self._retained: dict[str, Message] = {}

    @asynccontextmanager
    async def connect(
        self, identity: str, subscriptions: Sequence[str], will: Message | None
    ) -> AsyncIterator[Connection]:
        """A connection to the hub that is open while the context lasts, in place of an earlier one
        of the same identity; the last will ``will`` is published if the context ends with an
        exception."""
        connection = _MemoryConnection(self, tuple(subscriptions))
        before = self._open.get(identity)
        if before is not None:
            # A broker ends a client when another one connects with the same identifier. Here None
            # in the queue of the older connection ends that connection.
            before.queue.put_nowait(None)
        self._open[identity] = connection
        for message in self._retained.values():
            connection.offer(message)
        broken = True
        try:
            yield connection
            broken = False
        finally:
            # A newer connection with the same identity may already be registered, and must stay.
            if self._open.get(identity) is connection:
                del self._open[identity]
            if broken and will is not None:
                self.deliver(will)

    def deliver(self, message: Message) -> None:
        """Give a message to all subscribers of its topic; a retained message without payload
        removes the one that was retained before."""
        if message.retain and message.payload:
            self._retained[message.topic] = message
        elif message.retain:
            self._retained.pop(message.topic, None)
        for connection in list(self._open.values()):
            connection.offer(message)


class _MemoryConnection:
    """An open connection to a hub in memory, with a queue of arriving messages; None in the queue
    ends the connection."""

    def __init__(self, hub: MemoryHub, patterns: tuple[str, ...]) -> None:
        self._hub, self._patterns = hub, patterns
        self.queue: asyncio.Queue[Message | None] = asyncio.Queue()

    def offer(self, message: Message) -> None:
        """Queue a message for this connection if its topic fits one of the connection's
        subscriptions."""
        if any(matches(pattern, message.topic) for pattern in self._patterns):
            self.queue.put_nowait(message)

    async def publish(self, messages: Sequence[Message]) -> None:
        """Give messages to all subscribers of the hub, in this order, and let their tasks run."""
        for message in messages:
            self._hub.deliver(message)
        # Sleeping for zero seconds gives the receiving tasks a turn, as a real network would.
        await asyncio.sleep(0)

    async def messages(self) -> AsyncIterator[Message]:
        """The arriving messages that fit a subscription, until another connection of the same name
        ends this one with ``Disconnected``."""
        while True:
            message = await self.queue.get()
            if message is None:
                raise Disconnected("another connection has this name")
            yield message
