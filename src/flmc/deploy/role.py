"""The contract of a role: a state that messages and time change, without network and clock.

A role returns what is to be published. It journals before it returns: what is published must be on
the disk, because a process may end at any time."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from flmc.wire.drops import Drops
from flmc.wire.encoding import MOST_BYTES, Malformed
from flmc.wire.presence import Presence
from flmc.wire.topics import ALIVE, Topic
from flmc.wire.transport import Message

_MOST = 50


class Outgoing(NamedTuple):
    """A message to be published.

    Attributes
    ----------
    message
        Topic and bytes.
    at
        Time on the monotonic clock before which it must not leave; None: at once.
    """

    message: Message
    at: float | None = None


class Dropped(Exception):  # noqa: N818 (says what happens to a message)
    """A message that a role does not take.

    Parameters
    ----------
    reason
        One of :data:`flmc.wire.drops.REASONS`.
    detail
        What was wrong, in words that hold no data.
    """

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(reason)
        self.reason, self.detail = reason, detail


class Role(ABC):
    """A role of a federation.

    Parameters
    ----------
    identity, run
        Name of the role, as its certificate has it, and name of the run.
    """

    def __init__(self, identity: str, run: str) -> None:
        self.identity, self.run = identity, run
        self.log = logging.getLogger(f"flmc.deploy.{identity.partition('-')[0]}")
        self.drops = Drops(self.log)
        self.finished = False
        """Whether the role has nothing more to do."""

    @property
    @abstractmethod
    def subscriptions(self) -> tuple[str, ...]:
        """Patterns of topics that the role reads."""

    @property
    def next_wake(self) -> float | None:
        """Time on the monotonic clock at which the role wants to be woken; None: never."""
        return None

    @property
    def numbers(self) -> Mapping[str, float]:
        """What is measured of the role, by name, for whoever watches it."""
        return {}

    @abstractmethod
    def connected(self, now: float) -> list[Outgoing]:
        """What to publish on a new connection: the broker may have forgotten everything.

        Parameters
        ----------
        now
            Time on the monotonic clock.
        """

    @abstractmethod
    def take(self, topic: Topic, payload: bytes, now: float) -> list[Outgoing]:
        """What to publish because of a message.

        Parameters
        ----------
        topic, payload
            The message; its run is the role's own.
        now
            Time on the monotonic clock.

        Raises
        ------
        Dropped
            If the message is not taken.
        Malformed
            If its payload is none.
        """

    def wake(self, now: float) -> list[Outgoing]:
        """What to publish because time has passed.

        Parameters
        ----------
        now
            Time on the monotonic clock.
        """
        return []

    def receive(self, message: Message, now: float) -> list[Outgoing]:
        """What to publish because of a message from anybody, whatever it holds.

        Parameters
        ----------
        message
            The message.
        now
            Time on the monotonic clock.
        """
        size, topic = len(message.payload), Topic.parse(message.topic)
        try:
            if topic is None:
                raise Dropped("unknown-topic")
            if topic.run != self.run:
                raise Dropped("wrong-run")
            if size > MOST_BYTES:
                raise Dropped("oversized")
            return self.take(topic, message.payload, now)
        except Dropped as drop:
            self.drops.count(drop.reason, message.topic, size, drop.detail)
        except Malformed as error:
            self.drops.count("malformed", message.topic, size, str(error))
        return []

    def end(self, payload: bytes) -> list[Outgoing]:
        """Leave because the server says that the run is over; an empty payload takes it back.

        Parameters
        ----------
        payload
            What the server says.
        """
        if payload:
            self.finished = True
            self.log.info("the run is over", extra={"event": "end", "run": self.run})
        return []

    def topic(self, what: str, who: str | None = None) -> str:
        """A topic of the run, as text.

        Parameters
        ----------
        what, who
            Its end, and the identity behind it, if there is one.
        """
        return str(Topic(self.run, what, who))

    def say(self, what: str, payload: bytes, *, retain: bool = True) -> Outgoing:
        """A message to a topic of the run, at once.

        Parameters
        ----------
        what, payload
            End of the topic, and the bytes.
        retain
            Whether it is kept for those who come later.
        """
        return Outgoing(Message(self.topic(what), payload, retain))

    def presence(self, presence: Presence) -> Outgoing:
        """A message about the role's own state.

        Parameters
        ----------
        presence
            The state.
        """
        topic = self.topic(ALIVE, self.identity)
        return Outgoing(Message(topic, presence.to_bytes(), retain=True))

    @property
    def farewell(self) -> Presence:
        """What the role leaves behind when it goes by itself."""
        return Presence("gone", "finished" if self.finished else "stopped")

    @property
    def will(self) -> Message:
        """What the broker says for the role if its connection breaks."""
        return self.presence(Presence("gone")).message

    def reads(self, *whats: str) -> tuple[str, ...]:
        """Topics of the run, as subscriptions.

        Parameters
        ----------
        *whats
            Ends of topics.
        """
        return tuple(self.topic(what) for what in whats)


class Timing:
    """Times of the last fifty occurrences."""

    def __init__(self) -> None:
        self._times: deque[float] = deque(maxlen=_MOST)

    def add(self, seconds: float) -> None:
        """Remember how long it took.

        Parameters
        ----------
        seconds
            The time.
        """
        self._times.append(seconds)

    @property
    def median(self) -> float | None:
        """Median of the times in seconds; None: there are none yet."""
        return float(np.median(self._times)) if self._times else None
