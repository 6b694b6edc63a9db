"""Discovery of the run that a device joins when its owner named none: the only one in progress
at the broker."""

from __future__ import annotations

import asyncio
import logging
import random

from flmc.base.errors import InvalidSetting
from flmc.wire.encoding import Malformed
from flmc.wire.presence import Presence
from flmc.wire.topics import ALIVE, END, PLAN, SERVER, Topic, check_run
from flmc.wire.transport import Disconnected, Message, Transport

_SETTLE = 0.5
"""Seconds for which a device listens before it assumes that it has heard of all runs."""
_PAUSE = 1.0
"""Pause between attempts to connect, in seconds."""
_MOST_RUNS = 1000
"""Largest number of runs that a device keeps in memory: anyone with write access to the broker
could invent any number of them. Messages about further runs are ignored."""
_log = logging.getLogger("flmc.deploy.device")


class Offered:
    """Runs at a broker that a device could join, as the broker's retained messages show them."""

    def __init__(self) -> None:
        self._plans, self._over = set[str](), set[str]()
        self._left = set[str]()

    @property
    def patterns(self) -> tuple[str, ...]:
        """Patterns of the topics that show runs: plans, ends, and presences of servers."""
        topics = (Topic("+", PLAN), Topic("+", END), Topic("+", ALIVE, SERVER))
        return tuple(map(str, topics))

    def take(self, message: Message) -> None:
        """Update what is known of a run by a message with its plan, its end or its server's
        presence; any other message, even a hostile one, is ignored."""
        topic = Topic.parse(message.topic)
        if topic is None or not _is_name(topic.run):
            return
        run, here = topic.run, bool(message.payload)
        known = self._plans | self._over | self._left
        if run not in known and len(known) >= _MOST_RUNS:
            return
        if topic[1:] == (PLAN, None):
            _put(self._plans, run, here)
        elif topic[1:] == (END, None):
            _put(self._over, run, here)
        elif topic[1:] == (ALIVE, SERVER):
            try:
                _put(self._left, run, Presence.from_bytes(message.payload).state == "gone")
            except Malformed:
                return

    @property
    def going(self) -> list[str]:
        """Names of the runs in progress, sorted: runs with a plan and a server that has not left,
        and without an end."""
        return sorted(self._plans - self._over - self._left)

    @property
    def left(self) -> list[str]:
        """Names, sorted, of the runs that have not ended but whose server has left; the server may
        come back and go on with the run."""
        return sorted((self._plans & self._left) - self._over)


def _is_name(run: str) -> bool:
    """Whether ``run`` is a valid name of a run, by ``check_run``."""
    try:
        check_run(run)
    except InvalidSetting:
        return False
    return True


def _put(names: set[str], name: str, here: bool) -> None:
    """Add ``name`` to a set of names if ``here``, and remove it from the set otherwise."""
    (names.add if here else names.discard)(name)


async def find_run(identity: str, transport: Transport) -> str:
    """The name of the only run in progress at the broker; waits until there is one, reconnects
    after losses, and raises ``InvalidSetting`` if there are several."""
    while True:
        offered = Offered()

        async def look(offered: Offered = offered) -> None:
            async with transport.connect(identity, offered.patterns, None) as connection:
                _log.info("looking for a run", extra={"event": "looking"})
                async for message in connection.messages():
                    offered.take(message)

        task = asyncio.create_task(look())
        try:
            while not task.done():
                before = offered.left
                # The broker's retained messages of several runs arrive one by one: after the first
                # run the device listens a little longer, for others.
                await asyncio.wait({task}, timeout=_SETTLE)
                if len(offered.going) > 1:
                    raise InvalidSetting(
                        f"there are several runs, {', '.join(offered.going[:5])}: choose one with"
                        " --run"
                    )
                if offered.going:
                    return offered.going[0]
                if offered.left != before:
                    left = ", ".join(offered.left[:5])
                    _log.warning("its server has left", extra={"event": "left", "run": left})
            task.result()
        except Disconnected as error:
            lost = {"event": "disconnected", "why": str(error)[:200], "retry_seconds": _PAUSE}
            _log.warning("no connection to the broker", extra=lost)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await asyncio.sleep(_PAUSE * random.uniform(0.5, 1.0))
