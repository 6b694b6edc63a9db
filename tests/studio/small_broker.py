"""A real broker on loopback, and hand-made messages of a federation."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from flmc.wire.mqtt import Mqtt
from flmc.wire.presence import Presence
from flmc.wire.status import Status
from flmc.wire.topics import Topic
from flmc.wire.transport import Message

STATUS = Status(
    "demo", "running", 7, 100, 20,
    active=18, present={"joined": 19, "refused": 1}, epsilon=1.25, delta=1e-5, epsilon_round=7,
    epsilon_so_far=0.3,
    temperature=1.01, round_seconds=0.061, dropped={"malformed": 2}, dropped_air={"late": 3},
    repeats=1, unix_time=time.time(),
)  # fmt: skip


@dataclass
class SmallBroker:
    """A mosquitto that runs."""

    port: int
    process: subprocess.Popen[bytes]

    @property
    def url(self) -> str:
        return f"mqtt://127.0.0.1:{self.port}"

    def publish(self, messages: Sequence[Message]) -> None:
        """Publish messages, and return when the broker has them."""

        async def hand_over() -> None:
            async with Mqtt(self.url).connect("publisher", (), None) as connection:
                await connection.publish(messages)

        # In a thread of its own: Playwright has a loop running in that of the tests.
        with ThreadPoolExecutor(1) as pool:
            pool.submit(asyncio.run, hand_over()).result()


@contextmanager
def small_broker(
    directory: Path, port: int = 0, lines: Sequence[str] = ("allow_anonymous true",)
) -> Iterator[SmallBroker]:
    """Start mosquitto; port 0: a free one."""
    program = shutil.which("mosquitto", path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin")
    assert program, "these tests need mosquitto: apt-get install mosquitto"
    if not port:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
    file = directory / f"mosquitto-{port}.conf"
    # Started by root, mosquitto becomes a user who cannot read the directories of tests.
    user = ["user root"] if os.geteuid() == 0 else []
    file.write_text("\n".join([f"listener {port} 127.0.0.1", *user, *lines]) + "\n")
    process = subprocess.Popen([program, "-c", str(file)], stderr=subprocess.DEVNULL)
    try:
        while True:
            assert process.poll() is None, "mosquitto ended at once"
            with socket.socket() as asked:
                if asked.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.02)
        yield SmallBroker(port, process)
    finally:
        process.terminate()
        process.wait()


def status_of(run: str = "demo", **changes: object) -> Message:
    """A status as a server publishes it."""
    status = replace(STATUS, run=run, **changes)  # type: ignore[arg-type]
    return Message(str(Topic(run, "status")), status.to_bytes(), retain=True)


def presence_of(who: str, state: str = "joined", why: str = "", run: str = "demo") -> Message:
    """A presence as a role publishes it."""
    presence = Presence(state, why, digest="ab12")
    return Message(str(Topic(run, "alive", who)), presence.to_bytes(), retain=True)


def demo_messages() -> list[Message]:
    """A run of twenty devices, one of which refused and one of which is gone."""
    devices = [presence_of(f"device-{device}") for device in range(20)]
    devices[4] = presence_of("device-4", "refused", "its budget is [1], and the plan needs 5")
    devices[11] = presence_of("device-11", "gone")
    air = Message(str(Topic("demo", "air")), b'{"repeats": 1}', retain=True)
    return [status_of(), presence_of("server", "here"), presence_of("air", "here"), air, *devices]
