"""The interface of a transport: publish to topics, subscribe to patterns, leave a last will.

What is needed of it: every message is delivered at least once while both ends are connected; the
last retained message of a topic is delivered to whoever subscribes; the last will is published
when a connection breaks. Nothing is assumed about order between topics, about repetitions, or
about what was sent while a role was away."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, Protocol


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
