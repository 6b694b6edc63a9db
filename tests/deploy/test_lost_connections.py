"""A role whose connection breaks just when something has changed comes back all the same."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from flmc.deploy.loop import run_role
from flmc.deploy.role import Outgoing, Role
from flmc.wire.topics import Topic
from flmc.wire.transport import Connection, Disconnected, Message


class Listener(Role):
    """A role that waits for long, and leaves when it hears the end of the run."""

    subscriptions = ("flmc/1/run/+",)

    @property
    def next_wake(self) -> float | None:
        return time.monotonic() + 1000.0

    def connected(self, now: float) -> list[Outgoing]:
        return []

    def take(self, topic: Topic, payload: bytes, now: float) -> list[Outgoing]:
        return self.end(payload)


class Breaking:
    """A connection that gives one message and breaks some steps of the loop later; the next one
    lasts."""

    def __init__(self, steps: int) -> None:
        self._steps, self.connections = steps, 0

    @asynccontextmanager
    async def connect(
        self, identity: str, subscriptions: Sequence[str], will: Message | None
    ) -> AsyncIterator[Connection]:
        self.connections += 1
        yield self

    async def publish(self, messages: Sequence[Message]) -> None:
        return

    async def messages(self) -> AsyncIterator[Message]:
        await asyncio.sleep(0.01)  # the role has begun to wait
        if self.connections == 1:
            yield Message("flmc/1/run/end", b"")
            for _ in range(self._steps):
                await asyncio.sleep(0)
            raise Disconnected("broken")
        yield Message("flmc/1/run/end", b"over")


@pytest.mark.parametrize("steps", range(5))
def test_a_connection_that_breaks_with_a_change(steps: int) -> None:
    transport = Breaking(steps)

    async def story() -> None:
        async with asyncio.timeout(30):
            await run_role(Listener("device-0", "run"), transport)

    asyncio.run(story())
    assert transport.connections == 2
