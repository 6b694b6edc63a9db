"""Connections to a real broker that end at a bad moment."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import aiomqtt
import pytest

from flmc.wire import mqtt
from flmc.wire.mqtt import Mqtt
from flmc.wire.transport import Disconnected
from studio.small_broker import small_broker
from support import full, in_own_loop

_PAUSE = 0.0005
"""Seconds; connecting takes about ten of them."""


def test_messages_that_wait_are_bounded_in_bytes() -> None:
    async def story() -> int:
        queue = mqtt._BoundedQueue(100)
        message = aiomqtt.Message("t", bytes(mqtt._MOST_WAITING_BYTES // 4), 1, False, 1, None)
        taken = 0
        while not queue.full():
            queue.put_nowait(message)
            taken += 1
        with pytest.raises(asyncio.QueueFull):
            queue.put_nowait(message)
        while not queue.empty():
            queue.get_nowait()
        queue.put_nowait(message)  # there is room again
        return taken

    assert in_own_loop(story()) == 5


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


def test_a_broker_that_is_silent_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """One with TLS, spoken to without it, waits for a handshake."""
    monkeypatch.setattr(mqtt, "_TIMEOUT", 0.3)

    async def enter(url: str) -> None:
        async with Mqtt(url).connect("observer-0", (), None):
            raise AssertionError("nobody answered")

    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"mqtt://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(Disconnected, match=f"{url}: .* a broker with TLS is reached by mqtts"):
            in_own_loop(enter(url))
