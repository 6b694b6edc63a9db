"""The least that a round over a broker can cost: a message to many processes, each of which syncs
a line to its disk and answers. Run as a script it is one of those processes."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from flmc.deploy.configuration import credentials_in
from flmc.deploy.demo.local_federation import LocalFederation, Processes
from flmc.wire.mqtt import Mqtt
from flmc.wire.topics import AIR, SERVER, THETA, UPLINK, Topic, device_name
from flmc.wire.transport import Message

RUN = "echo"
_ANSWER = bytes(150)
_QUESTION = bytes(100)


async def answer(url: str, folder: Path, identity: str) -> None:
    """Answer every question with one line on the disk."""
    transport, log = Mqtt(url, credentials_in(folder)), (folder / "echo.txt").open("ab")
    topic = str(Topic(RUN, UPLINK, identity))
    async with transport.connect(identity, [str(Topic(RUN, THETA))], None) as connection:
        await connection.publish([Message(topic, _ANSWER)])  # it is there
        async for _ in connection.messages():
            log.write(_ANSWER)
            log.flush()
            os.fsync(log.fileno())
            await connection.publish([Message(topic, _ANSWER)])


async def ask(federation: LocalFederation, repeats: int) -> float:
    """Median seconds from a question to the last answer."""
    folders, url = federation.directory, federation.url
    asking = Mqtt(url, credentials_in(folders / SERVER))
    hearing = Mqtt(url, credentials_in(folders / AIR))
    took = []
    async with (
        hearing.connect(AIR, [str(Topic(RUN, UPLINK, "+"))], None) as ears,
        asking.connect(SERVER, [], None) as mouth,
    ):
        answers = ears.messages()
        # Everybody says once that it is there.
        for _ in range(federation.num_devices):
            await asyncio.wait_for(anext(answers), 120)
        for _ in range(repeats):
            began = time.monotonic()
            await mouth.publish([Message(str(Topic(RUN, THETA)), _QUESTION)])
            for _ in range(federation.num_devices):
                await asyncio.wait_for(anext(answers), 60)
            took.append(time.monotonic() - began)
    return float(np.median(took))


def echo_floor(federation: LocalFederation, processes: Processes, repeats: int) -> float:
    """Median seconds of a question and all answers, with a process for each device."""

    async def whole() -> float:
        task = asyncio.create_task(ask(federation, repeats))
        await asyncio.sleep(1.0)  # the asker listens before anybody speaks
        for device in range(federation.num_devices):
            name = device_name(device)
            folder = federation.directory / name
            words = [sys.executable, str(Path(__file__)), federation.url, str(folder), name]
            processes.start(f"echo-{name}", words, folder)
        return await task

    with ThreadPoolExecutor(1) as thread:  # Playwright's loop may run in this one
        return thread.submit(asyncio.run, whole()).result()


if __name__ == "__main__":
    asyncio.run(answer(sys.argv[1], Path(sys.argv[2]), sys.argv[3]))
