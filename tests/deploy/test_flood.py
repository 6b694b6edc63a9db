"""A device that fills the broker's memory is thrown out, and the log says who it was."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import aiomqtt

from deploy.brokers import Plain, connected, make_federation, needs_mosquitto, running
from flmc.wire.transport import Message
from support import full_only

_LIMIT = 4_000_000
"""Bytes, in place of a gigabyte."""
_SIZE = 100_000


async def flood(device: Plain) -> int:
    """Retain messages on invented runs until the broker ends the connection; how many it took."""
    taken = 0

    async def send() -> None:
        nonlocal taken
        while taken * _SIZE < 3 * _LIMIT:
            topic = f"flmc/1/run-{taken}/alive/device-0"
            await device.publish([Message(topic, bytes(_SIZE), retain=True)])
            taken += 1

    async def listen() -> None:
        async for _ in device.messages():
            pass

    sending, listening = asyncio.create_task(send()), asyncio.create_task(listen())
    await asyncio.wait({sending, listening}, return_when=asyncio.FIRST_COMPLETED)
    for task in (sending, listening):
        task.cancel()
    await asyncio.gather(sending, listening, return_exceptions=True)
    return taken


@full_only
@needs_mosquitto
def test_the_broker_has_a_limit(tmp_path: Path) -> None:
    directory = make_federation(tmp_path / "federation", 2)
    path = directory / "broker" / "mosquitto.conf"
    text, changed = re.subn(r"memory_limit \d+", f"memory_limit {_LIMIT}", path.read_text())
    assert changed == 1
    path.write_text(text)

    async def attack() -> int:
        taken = 0
        try:
            async with connected(broker, "device-0") as device:
                taken = await flood(device)
        except aiomqtt.MqttError:
            pass
        return taken

    async def works() -> bool:
        async with connected(broker, "device-1") as device:
            await device.publish([Message("flmc/1/run/alive/device-1", bytes(_SIZE))])
        return True

    with running(directory) as broker:
        taken = asyncio.run(attack())
        assert taken * _SIZE < _LIMIT
        assert "Client device-0 disconnected due to out of memory" in broker.log.read_text()
        broker.check()  # it lives
        broker.stop()
        broker.start()  # what was retained is gone
        assert asyncio.run(works())
