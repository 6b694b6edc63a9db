"""The federations that the studio watches: one connection for all tabs, in the background.

The broker is given on the command line only. No page can make the studio connect anywhere."""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict

from flmc.studio.work.latest import in_words
from flmc.views.charts.run_charts import RoundSeen
from flmc.wire.observation import Observed, observe_forever
from flmc.wire.status import Status
from flmc.wire.topics import STATUS
from flmc.wire.transport import Message, Transport

_MOST_RUNS = 20
"""Runs whose rounds are kept; the one that was silent for longest is forgotten first."""
_MOST_ROUNDS = 2000
"""Rounds that are kept of a run; where there are more, every second one is forgotten."""


class History:
    """Rounds of some runs as they were seen, for charts against rounds."""

    def __init__(self) -> None:
        self._runs: OrderedDict[str, list[RoundSeen]] = OrderedDict()

    def of(self, run: str) -> tuple[RoundSeen, ...]:
        """What was seen of a run, in the order of its rounds.

        Parameters
        ----------
        run
            Name of the run.
        """
        return tuple(self._runs.get(run, ()))

    def add(self, status: Status) -> None:
        """Take notice of a status, if it is of a new round.

        Parameters
        ----------
        status
            What the server said.
        """
        seen = self._runs.setdefault(status.run, [])
        self._runs.move_to_end(status.run)
        # A server that was restarted goes on at an earlier round; another run of the same name
        # begins at round 0.
        while seen and status.round < seen[-1].round:
            seen.pop()
        if status.round > (seen[-1].round if seen else 0):
            seen.append(_seen(status))
        if len(seen) > _MOST_ROUNDS:
            del seen[1::2]
        while len(self._runs) > _MOST_RUNS:
            self._runs.popitem(last=False)


class WatchedFederations:
    """What is heard from the broker of the studio.

    Attributes
    ----------
    broker
        Its address; None: the studio was started without one.
    observed, history
        What is known of all runs now, and the rounds of some of them.
    trouble
        Why there is no connection; None: there is one.
    changes
        Counts up with everything that is heard.
    """

    def __init__(self) -> None:
        self.broker: str | None = None
        self.observed, self.history = Observed(), History()
        self.trouble: str | None = "connecting"
        self.changes = 0
        self._transport: Transport | None = None
        self._task: asyncio.Task[None] | None = None

    def offer(self, broker: str, transport: Transport) -> None:
        """Say which broker is listened to, before the studio begins.

        Parameters
        ----------
        broker, transport
            Its address, and what connects to it.
        """
        self.broker, self._transport = broker, transport

    def begin(self) -> None:
        """Begin to listen, in the event loop of the studio; without a broker do nothing."""
        if self._transport is not None and self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._listen(self._transport))

    async def end(self) -> None:
        """Close the connection."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    def take(self, message: Message) -> None:
        """Take a message from the broker, whatever it holds.

        Parameters
        ----------
        message
            The message.
        """
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
        """The run whose server spoke last; None: nothing is known of any."""

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
        self.trouble = trouble
        self.changes += 1


def _seen(status: Status) -> RoundSeen:
    """What a chart shows of a status."""
    current = status.epsilon if status.epsilon_round == status.round else None
    epsilon = math.nan if current is None else current
    seconds = math.nan if status.round_seconds is None else status.round_seconds
    return RoundSeen(status.round, status.active, epsilon, seconds)


FEDERATIONS = WatchedFederations()
"""What this process watches."""
