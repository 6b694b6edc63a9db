"""Connections to a real broker that end at a bad moment."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from flmc.wire.transport.mqtt import Mqtt
from studio.small_broker import small_broker
from support import full, in_own_loop

_PAUSE = 0.0005
"""Seconds; connecting takes about ten of them."""


def test_whoever_is_cancelled_while_connecting_leaves_nothing(tmp_path: Path) -> None:
    """Cancelled at many moments of it: the loop has nothing to complain about, and no socket."""
    complaints: list[dict[str, Any]] = []

    async def hold(transport: Mqtt, number: int, held: asyncio.Event) -> None:
        async with transport.connect(f"observer-{number}", ("flmc/1/+/status",), None):
            held.set()
            await asyncio.Event().wait()

    async def story(url: str) -> int:
        asyncio.get_running_loop().set_exception_handler(lambda _, what: complaints.append(what))
        transport, connected = Mqtt(url), 0
        for number in range(full(100, 20)):
            held = asyncio.Event()
            task = asyncio.create_task(hold(transport, number, held))
            await asyncio.sleep(_PAUSE * (number % 20))
            task.cancel()
            done, _ = await asyncio.wait({task}, timeout=60)
            assert done, "a cancellation was lost"
            assert task.cancelled()
            connected += held.is_set()
        return connected

    with small_broker(tmp_path) as broker:
        connected = in_own_loop(story(broker.url))
    assert complaints == []
    assert connected < full(100, 20)  # some were cancelled before
