"""The interface of a role (server, air or device): an object without a network, whose state is
changed by messages and by the passage of time, both of which its caller tells it.

A role returns the messages to publish. It writes its journal before it returns them, because
the process may die at any moment and must not have said more than the disk knows.
"""

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
"""Number of the latest durations that are kept, and from which the median is taken."""


class Outgoing(NamedTuple):
    """A message to publish.

    Attributes
    ----------
    message
        Topic and bytes.
    at
        Earliest time of publishing on the monotonic clock; None: at once.
    """

    message: Message
    at: float | None = None


class Dropped(Exception):  # noqa: N818 (says what happens to a message)
    """Raised if a role ignores a message, for one of :data:`flmc.wire.drops.REASONS`; ``detail``
    goes to the log and must hold no data of the payload."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(reason)
        self.reason, self.detail = reason, detail


class Role(ABC):
    """The part that one process plays in a federation (server, air or device), with its identity
    as in its certificate, and the name of its run. Its methods take messages and times, and return
    the messages to publish; times are seconds on the monotonic clock."""

    def __init__(self, identity: str, run: str) -> None:
        self.identity, self.run = identity, run
        self.log = logging.getLogger(f"flmc.deploy.{identity.partition('-')[0]}")
        self.drops = Drops(self.log)
        self.finished = False
        """Whether the role's work is done."""

    @property
    @abstractmethod
    def subscriptions(self) -> tuple[str, ...]:
        """Patterns of the topics that the role reads, in which ``+`` stands for any one part."""

    @property
    def next_wake(self) -> float | None:
        """Time, in seconds on the monotonic clock, at which :meth:`wake` should be called next;
        None if the role waits for messages only."""
        return None

    @property
    def numbers(self) -> Mapping[str, float]:
        """Measurements of the role by name, for Prometheus; a name ending with ``_total`` is a
        counter."""
        return {}

    @abstractmethod
    def connected(self, now: float) -> list[Outgoing]:
        """Messages to publish on a new connection to the broker, which may have restarted and
        forgotten all retained messages."""

    @abstractmethod
    def take(self, topic: Topic, payload: bytes, now: float) -> list[Outgoing]:
        """Messages to publish in reply to a message of the role's own run; raises ``Dropped``
        or ``Malformed`` to ignore it."""

    def wake(self, now: float) -> list[Outgoing]:
        """Messages to publish because time has passed; called at ``next_wake``."""
        return []

    def receive(self, message: Message, now: float) -> list[Outgoing]:
        """Messages to publish in reply to any message, even a hostile one; an ignored message is
        counted by its reason in ``drops``."""
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
        """Finish because the server has ended the run, and return no messages; an empty payload,
        which only clears the end of an earlier run at the broker, changes nothing."""
        if payload:
            self.finished = True
            self.log.info("the run is over", extra={"event": "end", "run": self.run})
        return []

    def topic(self, what: str, who: str | None = None) -> str:
        """Full name of a topic of the role's run, ``flmc/1/<run>/<what>``, followed by the identity
        ``who`` if it is given."""
        return str(Topic(self.run, what, who))

    def say(self, what: str, payload: bytes, *, retain: bool = True) -> Outgoing:
        """A message on a topic of the run, to publish at once; ``retain`` keeps it for later
        subscribers."""
        return Outgoing(Message(self.topic(what), payload, retain))

    def presence(self, presence: Presence) -> Outgoing:
        """The message that publishes the role's own state, retained by the broker."""
        topic = self.topic(ALIVE, self.identity)
        return Outgoing(Message(topic, presence.to_bytes(), retain=True))

    @property
    def farewell(self) -> Presence:
        """The presence that the role publishes last when it stops by itself: ``gone``, because it
        is finished or was stopped."""
        return Presence("gone", "finished" if self.finished else "stopped")

    @property
    def will(self) -> Message:
        """The role's last will: the message with the state ``gone`` that the broker publishes if
        the role's connection breaks."""
        return self.presence(Presence("gone")).message

    def reads(self, *whats: str) -> tuple[str, ...]:
        """Full names ``flmc/1/<run>/<what>`` of topics of the role's run, for subscriptions."""
        return tuple(self.topic(what) for what in whats)


class Timing:
    """The last fifty durations of a repeated step, such as a round, with their median."""

    def __init__(self) -> None:
        self._times: deque[float] = deque(maxlen=_MOST)

    def add(self, seconds: float) -> None:
        """Add a duration in seconds to the kept ones, in place of the oldest if fifty are kept."""
        self._times.append(seconds)

    @property
    def median(self) -> float | None:
        """Median of the kept durations in seconds; None before the first was added."""
        return float(np.median(self._times)) if self._times else None
