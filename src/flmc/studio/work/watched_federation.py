"""The federations (runs on separate machines) that the studio watches, over one connection to a
broker for all browser tabs.

The broker comes from the command line only: no page can make the studio connect anywhere."""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict

from flmc.studio.work.page_tasks import in_words
from flmc.views.charts.run_charts import RoundSeen
from flmc.wire.observation import Observed, observe_forever
from flmc.wire.status import Status
from flmc.wire.topics import STATUS
from flmc.wire.transport import Message, Transport

_MOST_RUNS = 20
"""Largest number of runs whose rounds are kept for charts; if there are more, the run without news
for longest is forgotten."""
_MOST_ROUNDS = 2000
"""Largest number of rounds of a run that are kept for charts; if there are more, every second one
is forgotten."""


class History:
    """Rounds of federations' runs that the studio heard of, for charts over rounds. It keeps at
    most ``_MOST_RUNS`` runs, and at most ``_MOST_ROUNDS`` rounds of each: if there are more, every
    second round is forgotten."""

    def __init__(self) -> None:
        self._runs: OrderedDict[str, list[RoundSeen]] = OrderedDict()

    def of(self, run: str) -> tuple[RoundSeen, ...]:
        """The observed rounds of a run, in order."""
        return tuple(self._runs.get(run, ()))

    def add(self, status: Status) -> None:
        """Append the last round that a server's status reports to the rounds of its run, if it is
        new. If the run has gone back to an earlier round, the rounds after that one are removed
        first."""
        seen = self._runs.setdefault(status.run, [])
        self._runs.move_to_end(status.run)
        # A restarted server continues at an earlier round, and another run with the same name
        # begins at round 0.
        while seen and status.round < seen[-1].round:
            seen.pop()
        if status.round > (seen[-1].round if seen else 0):
            seen.append(_seen(status))
        # The list now has one round more than the limit, which is even. So its first and its newest
        # round have even indices, and deleting the odd indices keeps both.
        if len(seen) > _MOST_ROUNDS:
            del seen[1::2]
        while len(self._runs) > _MOST_RUNS:
            self._runs.popitem(last=False)


class WatchedFederations:
    """State of all federations whose messages the studio received from its MQTT broker. Messages
    are received and pages drawn in the same event loop, so nothing here needs a lock.

    Attributes
    ----------
    broker
        Address of the broker; None if the studio was started without one.
    observed, history
        State of all runs by the last messages, and earlier rounds of some of them for charts.
    trouble
        Reason for a missing connection; None while connected.
    changes
        Number of messages, and changes of the connection, so far. A page compares it with the
        number at its last update, to see whether it must update itself.
    """

    def __init__(self) -> None:
        self.broker: str | None = None
        self.observed, self.history = Observed(), History()
        self.trouble: str | None = "connecting"
        self.changes = 0
        self._transport: Transport | None = None
        self._task: asyncio.Task[None] | None = None

    def offer(self, broker: str, transport: Transport) -> None:
        """Set the address of the ``broker`` and the ``transport`` that connects to it, before the
        studio starts."""
        self.broker, self._transport = broker, transport

    def begin(self) -> None:
        """Start listening in the event loop of the studio; without a broker do nothing."""
        if self._transport is not None and self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._listen(self._transport))

    async def end(self) -> None:
        """Stop listening, and close the connection to the broker."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    def take(self, message: Message) -> None:
        """Store what a message of the broker says about its run; a malformed or hostile one is
        left out."""
        topic = self.observed.take(message)
        self.changes += 1
        if topic is not None and topic.what == STATUS:
            status = (
                self.observed.runs[topic.run].status if topic.run in self.observed.runs else None
            )
            if status is not None:
                self.history.add(status)

    @property
    def newest(self) -> str | None:
        """Name of the run whose server published its status last; None if no run is known."""

        def when(name: str) -> tuple[float, str]:
            status = self.observed.runs[name].status
            return (-math.inf if status is None else status.unix_time), name

        return max(self.observed.runs, key=when, default=None)

    async def _listen(self, transport: Transport) -> None:
        try:
            await observe_forever(transport, self.take, say=self._say)
        except Exception as error:
            self._say(in_words(error))

    def _say(self, trouble: str | None) -> None:
        """Note whether the studio is connected to the broker: ``trouble`` is the reason for a
        missing connection, None while connected."""
        self.trouble = trouble
        self.changes += 1


def _seen(status: Status) -> RoundSeen:
    """The numbers of a server's status that charts over rounds show, for its last round; NaN where
    a number is not known."""
    # The server computes epsilon only now and then, and it may cover fewer rounds than the status:
    # then the chart has no epsilon for this round.
    current = status.epsilon_so_far if status.epsilon_round == status.round else None
    epsilon = math.nan if current is None else current
    seconds = math.nan if status.round_seconds is None else status.round_seconds
    return RoundSeen(status.round, status.active, epsilon, seconds)


FEDERATIONS = WatchedFederations()
"""The federations that this process watches."""
