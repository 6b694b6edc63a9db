"""Observation of federations: the status of every run and the presence of its roles, followed until
the connection breaks, for some seconds, or for ever.

An observer only listens, and its memory is bounded whatever the broker delivers: invalid names,
oversized payloads, and runs and identities beyond a limit are left out and counted.
"""

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
from flmc.wire.encoding import Malformed, read_object
from flmc.wire.presence import Presence
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
"""Largest number of runs, and of identities over all runs, that an observer keeps; messages about
further ones are refused."""
_MOST_BYTES = 16_384
"""Size of the largest status that an observer keeps, in bytes; a larger one is refused. The status
of a server has about one thousand."""
_ROLES = (SERVER, AIR)
TROUBLE = ("refused", "gone")
"""States of a role that an observer should look at: the role declined the plan (``refused``), or
it left or died (``gone``)."""


@dataclasses.dataclass
class ObservedRun:
    """An observer's knowledge of one run.

    Attributes
    ----------
    status
        Last status of the server; None before the first.
    air
        Last status of the air in plain values; None before the first.
    presences
        States of server, air and devices by identity.
    """

    status: Status | None = None
    air: Mapping[str, object] | None = None
    presences: dict[str, Presence] = dataclasses.field(default_factory=dict)

    @property
    def identities(self) -> list[str]:
        """Identities of the roles whose presence is known, in the order server, air, devices by
        number."""
        return sorted(self.presences, key=_place)

    def shown(self, most: int | None = None) -> list[str]:
        """The first ``most`` identities in the order server, air, devices by number (None: all). If
        not all fit, roles that refused or are gone are chosen before healthy ones."""
        named = self.identities
        if most is None or len(named) <= most:
            return named
        by_trouble = sorted(named, key=lambda each: self.presences[each].state not in TROUBLE)
        return sorted(by_trouble[:most], key=_place)

    def grid(self, most: int | None = None) -> Grid:
        """Table with the state and the flmc version of each role of the run, with at most ``most``
        rows (None: all) and the reasons of refusals as notes below."""
        shown = [(each, self.presences[each]) for each in self.shown(most)]
        rows = tuple((name, each.state, each.version or "unknown") for name, each in shown)
        notes = [
            Row(name, f"{each.state}: {each.why}", severity="warning")
            for name, each in shown
            if each.why and each.state == "refused"
        ]
        if len(shown) < len(self.presences):
            notes.append(Row("", f"and {len(self.presences) - len(shown)} more"))
        return Grid(("who", "state", "flmc"), rows, "", tuple(notes))

    def to_document(self) -> dict[str, Any]:
        """The observer's knowledge of the run, in plain values for JSON: status of the server,
        status of the air, and the presence of each role by identity."""
        return {
            "status": None if self.status is None else self.status.to_document(),
            "air": None if self.air is None else dict(self.air),
            "roles": {each: dataclasses.asdict(self.presences[each]) for each in self.identities},
        }


class Observed:
    """An observer's knowledge of all runs, updated by messages, of which any may be hostile.

    Attributes
    ----------
    runs
        Knowledge of every run, by name.
    left_out
        Number of messages that were malformed or beyond the limits.
    """

    def __init__(self) -> None:
        self.runs: dict[str, ObservedRun] = {}
        self.left_out = 0
        self._identities = 0

    def take(self, message: Message) -> Topic | None:
        """Store the status or presence in a message, and return the message's topic, or None if the
        message was left out. An empty payload removes what was stored for the topic, as it removes
        a retained message at a broker."""
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
        """Store the presence or the status that a payload holds in the observer's knowledge of the
        topic's run; raises ``Malformed`` if the payload holds none or goes beyond a limit."""
        if topic.what == ALIVE:
            # The payload is read first, so that a malformed one does not create an entry for its
            # run.
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
        """The knowledge of a run by its name, created if it is new; raises ``Malformed`` if the
        run, or the identity ``wants_identity`` that is to be stored in it, would exceed a limit."""
        run = self.runs.get(name)
        # Both limits are checked before anything is stored, so that a message beyond a limit
        # changes nothing.
        if run is None and len(self.runs) >= MOST_RUNS:
            raise Malformed("more runs than are kept")
        is_new = wants_identity is not None and (run is None or wants_identity not in run.presences)
        if is_new and self._identities >= MOST_IDENTITIES:
            raise Malformed("more identities than are kept")
        return self.runs.setdefault(name, run or ObservedRun())

    def _forget(self, topic: Topic) -> None:
        """Remove the status or presence that was stored from an earlier message on this topic, and
        the topic's whole run if nothing else is known of the run."""
        run = self.runs.get(topic.run)
        if run is None:
            return
        if topic.what == ALIVE:
            self._identities -= run.presences.pop(topic.who or "", None) is not None
        elif topic.what == AIR_STATUS:
            run.air = None
        else:
            run.status = None
        # A run of which nothing is known no longer counts against the limit of runs.
        if run == ObservedRun():
            del self.runs[topic.run]


def _known_topic(text: str) -> Topic | None:
    """The parts of the topic that is named ``text``, if an observer reads it; None for any other
    topic, and for an invalid name of a run or identity."""
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
    """Sort key of an identity: server, air, then devices by number."""
    number = device_number(identity)
    return (len(_ROLES), number) if number is not None else (_ROLES.index(identity), 0)


def _clean_presence(presence: Presence) -> Presence:
    """The presence of a role, with control characters in its texts replaced by spaces so that it is
    safe to print."""
    texts = presence.why, presence.digest, presence.version
    why, digest, version = map(_clean, texts)
    return dataclasses.replace(presence, why=why, digest=digest, version=version)


def _clean_status(status: Status) -> Status:
    """The server's status, with control characters in its texts replaced by spaces so that it is
    safe to print."""
    present, dropped, dropped_air = (
        {_clean(name): count for name, count in counts.items()}
        for counts in (status.present, status.dropped, status.dropped_air)
    )
    return dataclasses.replace(
        status,
        why=_clean(status.why),
        verdict=_clean(status.verdict),
        present=present,
        dropped=dropped,
        dropped_air=dropped_air,
    )


def _flat(document: Mapping[str, object]) -> dict[str, object]:
    """The texts, finite numbers, nulls and tables of numbers in a stranger's JSON document, by
    name, with texts made safe to print; lists and deeper tables are left out."""
    flat: dict[str, object] = {}
    for name, value in document.items():
        if isinstance(value, dict):
            counts = {_clean(key): each for key, each in value.items() if _is_number(each)}
            flat[_clean(name)] = counts
        elif value is None or isinstance(value, str) or _is_number(value):
            flat[_clean(name)] = _clean(value) if isinstance(value, str) else value
    return flat


def _is_number(value: object) -> bool:
    """Whether a value is an int or a finite float, and so a number that JSON can hold."""
    return isinstance(value, int) or (isinstance(value, float) and math.isfinite(value))


def _clean(text: str) -> str:
    """The text on one line, with a space in place of each control character, which could command a
    terminal."""
    return "".join(each if each.isprintable() else " " for each in text)


_TOPICS = (STATUS, AIR_STATUS, f"{ALIVE}/+")
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 5.0
"""First and longest pause between two attempts to connect to the broker, in seconds."""


def subscriptions(run: str | None = None) -> tuple[str, ...]:
    """Patterns of the topics that an observer reads (status of the server, status of the air,
    presences), for one run, or for all runs if ``run`` is None."""
    assert set(_TOPICS) <= set(RIGHTS[OBSERVER].read)
    name = "+" if run is None else check_run(run)
    return tuple(str(Topic(name, what)) for what in _TOPICS)


async def observe(
    transport: Transport,
    take: Callable[[Message], object],
    run: str | None = None,
    on_connect: Callable[[], None] = lambda: None,
) -> None:
    """Listen to the status and presences of one run (None: all runs) on one connection, and give
    every message to ``take``, until the connection breaks with ``Disconnected``; ``on_connect`` is
    called once the subscriptions are in place."""
    # Two connections with one name would replace each other at the broker, so every observer draws
    # a name of its own. Its rights come from its certificate, not from this name.
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
    """Give every message about one run (None: all runs) to ``take`` for some seconds after
    connecting, in which the messages retained by the broker arrive; raises ``Disconnected`` if the
    connection fails or breaks."""
    connected = asyncio.Event()
    listening = asyncio.create_task(observe(transport, take, run, connected.set))
    waiting = asyncio.create_task(_then(connected, seconds))
    try:
        await asyncio.wait({listening, waiting}, return_when=asyncio.FIRST_COMPLETED)
        if listening.done():
            # The listening task ends by itself only with an error, such as Disconnected: result()
            # raises that error.
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
    """Give every message about one run (None: all runs) to ``take`` until the task is cancelled,
    and reconnect after pauses that grow to five seconds; ``say`` gets None after connecting, and
    the reason in words after a loss."""
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
    """Wait until an event has happened, and then ``seconds`` more."""
    await event.wait()
    await asyncio.sleep(seconds)
