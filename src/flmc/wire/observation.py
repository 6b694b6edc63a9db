"""What an observer learns of federations: their status, and who is there; listening once, for some
time, or for ever.

It only listens. A broker is not trusted with this process's memory: names that are none, payloads
that are too large, and runs and identities beyond a number are left out, and counted."""

from __future__ import annotations

import asyncio
import dataclasses
import math
import random
import secrets
from collections.abc import Callable, Mapping
from typing import Any

from flmc.base.errors import InvalidSetting
from flmc.base.tables import Grid, Row
from flmc.wire.frames import Malformed
from flmc.wire.presence import Presence, read_object
from flmc.wire.status import Status
from flmc.wire.topics import (
    AIR,
    AIR_STATUS,
    ALIVE,
    OBSERVER,
    RIGHTS,
    SERVER,
    STATUS,
    Topic,
    check_run,
    device_number,
)
from flmc.wire.transport import Disconnected, Message, Transport

MOST_RUNS, MOST_IDENTITIES = 1000, 20_000
"""Runs, and identities over all of them, that are kept."""
_MOST_BYTES = 16_384
"""Bytes of a status that is kept; those of a server have about one thousand."""
_ROLES = (SERVER, AIR)
TROUBLE = ("refused", "gone")
"""States that somebody should look at."""


@dataclasses.dataclass
class ObservedRun:
    """What is known of a run.

    Attributes
    ----------
    status
        What its server said last; None: nothing yet.
    air
        What its air said last, as plain values; None: nothing yet.
    presences
        States of server, air and devices by identity.
    """

    status: Status | None = None
    air: Mapping[str, object] | None = None
    presences: dict[str, Presence] = dataclasses.field(default_factory=dict)

    @property
    def identities(self) -> list[str]:
        """Identities in order: server, air, then devices by their numbers."""
        return sorted(self.presences, key=_place)

    def shown(self, most: int | None = None) -> list[str]:
        """Identities in order, as many as can be shown; those in trouble are never left out for
        others.

        Parameters
        ----------
        most
            How many; None: all.
        """
        named = self.identities
        if most is None or len(named) <= most:
            return named
        by_trouble = sorted(named, key=lambda each: self.presences[each].state not in TROUBLE)
        return sorted(by_trouble[:most], key=_place)

    def grid(self, most: int | None = None) -> Grid:
        """States and versions of server, air and devices; reasons of refusals stand below.

        Parameters
        ----------
        most
            Rows that are shown; None: all. Where there are more, those that refused or are gone
            come first.
        """
        found = [(each, self.presences[each]) for each in self.shown(most)]
        rows = tuple((name, each.state, each.version or "unknown") for name, each in found)
        notes = [
            Row(name, f"{each.state}: {each.why}", severity="warning")
            for name, each in found
            if each.why and each.state == "refused"
        ]
        if len(found) < len(self.presences):
            notes.append(Row("", f"and {len(self.presences) - len(found)} more"))
        return Grid(("who", "state", "flmc"), rows, "", tuple(notes))

    def to_document(self) -> dict[str, Any]:
        """What is known, in plain values, for JSON."""
        return {
            "status": None if self.status is None else self.status.to_document(),
            "air": None if self.air is None else dict(self.air),
            "roles": {each: dataclasses.asdict(self.presences[each]) for each in self.identities},
        }


class Observed:
    """What an observer has heard, by run; it takes any message, whatever it holds.

    Attributes
    ----------
    runs
        What is known of every run, by name.
    left_out
        Messages that were not taken: malformed, or beyond what is kept.
    """

    def __init__(self) -> None:
        self.runs: dict[str, ObservedRun] = {}
        self.left_out = 0
        self._identities = 0

    def take(self, message: Message) -> Topic | None:
        """Take a message, and return its topic; None if it was left out.

        Parameters
        ----------
        message
            The message. An empty one removes what was known, as it does at a broker.
        """
        topic = _known_topic(message.topic)
        try:
            if topic is None:
                raise Malformed("not a topic that an observer reads")
            if not message.payload:
                self._forget(topic)
            else:
                self._keep(topic, message.payload)
        except Malformed:
            self.left_out += 1
            return None
        return topic

    def _keep(self, topic: Topic, payload: bytes) -> None:
        """Read a payload, and then make room for what it says."""
        if topic.what == ALIVE:
            presence = _clean_presence(Presence.from_bytes(payload))
            run, who = self._run(topic.run, wants_identity=topic.who), topic.who or ""
            self._identities += who not in run.presences
            run.presences[who] = presence
            return
        if len(payload) > _MOST_BYTES:
            raise Malformed(f"{len(payload)} bytes where {_MOST_BYTES} are kept")
        if topic.what == AIR_STATUS:
            air = _flat(read_object(payload, _MOST_BYTES))
            self._run(topic.run).air = air
            return
        status = _clean_status(Status.from_bytes(payload))
        if status.run != topic.run:
            raise Malformed("a status of another run")
        self._run(topic.run).status = status

    def _run(self, name: str, wants_identity: str | None = None) -> ObservedRun:
        """The run of a name, new if there is room for it and for an identity that it wants."""
        run = self.runs.get(name)
        if run is None and len(self.runs) >= MOST_RUNS:
            raise Malformed("more runs than are kept")
        is_new = wants_identity is not None and (run is None or wants_identity not in run.presences)
        if is_new and self._identities >= MOST_IDENTITIES:
            raise Malformed("more identities than are kept")
        return self.runs.setdefault(name, run or ObservedRun())

    def _forget(self, topic: Topic) -> None:
        """Remove what a topic said, and a run of which nothing is left."""
        run = self.runs.get(topic.run)
        if run is None:
            return
        if topic.what == ALIVE:
            self._identities -= run.presences.pop(topic.who or "", None) is not None
        elif topic.what == AIR_STATUS:
            run.air = None
        else:
            run.status = None
        if run == ObservedRun():
            del self.runs[topic.run]


def _known_topic(text: str) -> Topic | None:
    """The parts of a topic that an observer reads, with names that can be names; else None."""
    topic = Topic.parse(text)
    if topic is None:
        return None
    try:
        check_run(topic.run)
    except InvalidSetting:
        return None
    if topic.what in (STATUS, AIR_STATUS):
        return topic if topic.who is None else None
    known = topic.who in _ROLES or device_number(topic.who or "") is not None
    return topic if topic.what == ALIVE and known else None


def _place(identity: str) -> tuple[int, int]:
    """Place of an identity among all: server, air, then devices by their numbers."""
    number = device_number(identity)
    return (len(_ROLES), number) if number is not None else (_ROLES.index(identity), 0)


def _clean_presence(said: Presence) -> Presence:
    """A presence whose texts a terminal can be given."""
    why, digest, version = map(_clean, (said.why, said.digest, said.version))
    return dataclasses.replace(said, why=why, digest=digest, version=version)


def _clean_status(said: Status) -> Status:
    """A status whose texts a terminal can be given."""
    present, dropped, dropped_air = (
        {_clean(name): count for name, count in counts.items()}
        for counts in (said.present, said.dropped, said.dropped_air)
    )
    return dataclasses.replace(
        said, why=_clean(said.why), present=present, dropped=dropped, dropped_air=dropped_air
    )


def _flat(document: Mapping[str, object]) -> dict[str, object]:
    """The words, numbers and counts of a document; whatever is nested deeper is left out."""
    found: dict[str, object] = {}
    for name, value in document.items():
        if isinstance(value, dict):
            counts = {_clean(key): each for key, each in value.items() if _is_number(each)}
            found[_clean(name)] = counts
        elif value is None or isinstance(value, str) or _is_number(value):
            found[_clean(name)] = _clean(value) if isinstance(value, str) else value
    return found


def _is_number(value: object) -> bool:
    """Whether a value is a number that JSON can hold."""
    return isinstance(value, int) or (isinstance(value, float) and math.isfinite(value))


def _clean(text: str) -> str:
    """A text on one line without control characters, which would speak to a terminal."""
    return "".join(each if each.isprintable() else " " for each in text)


# How an observer listens: once, for some time, or for ever.


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
