"""The demonstration: a federation on this machine, from the plan to its measured result."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from flmc.base.errors import RunFailed
from flmc.deploy.configuration import credentials_in
from flmc.deploy.demo.local_federation import LocalFederation, Processes
from flmc.deploy.loop import stop_event
from flmc.deploy.server.federation_result import read_recorded, result_with_model
from flmc.models.model import Model
from flmc.planning.plans import Plan
from flmc.runs.results import Result
from flmc.wire.encoding import Malformed
from flmc.wire.mqtt import Mqtt
from flmc.wire.status import Status
from flmc.wire.topics import AIR, MONITOR, SERVER, STATUS, Topic, device_name, device_number
from flmc.wire.transport import Disconnected

StatusListener = Callable[[Status], None]
"""Function that is called with every status published by the demonstration's server."""
_PATIENCE = 120.0
"""Seconds without a finished round or a newly joined device, after which the demonstration gives
up."""


@dataclass(frozen=True)
class Demonstrated:
    """Outcome of a demonstration, a whole federation run on this machine.

    Attributes
    ----------
    result
        Result like that of a simulation with the same plan and data.
    seconds
        Seconds from the start of the first process to the end of the last one.
    status
        Last status of the server; None if none was heard.
    """

    result: Result
    seconds: float
    status: Status | None


def public_curvature(num_samples: int, dim: int) -> tuple[float, float]:
    r"""Largest and smallest curvature of the negative log posterior to expect in linear regression
    with standard normal features, from the law of the features alone and so without the data.

    With N examples (``num_samples``) of m features (``dim``), the eigenvalues of the sum of the
    features' outer products lie between about :math:`N(1 \mp \sqrt{m/N})^2`; the prior adds 1.
    """
    ratio = math.sqrt(dim / num_samples)
    return num_samples * (1 + ratio) ** 2 + 1, num_samples * max(0.0, 1 - ratio) ** 2 + 1


def demonstrate(
    federation: LocalFederation,
    plan: Plan,
    model: Model,
    tell: StatusListener = lambda status: None,
) -> Demonstrated:
    """Run a prepared federation on this machine and measure its result; ``model`` has the data of
    all devices. Raises ``RunFailed`` if a process fails, or if for two minutes no round ends and no
    device joins, and ``KeyboardInterrupt`` after a signal, once all processes have ended."""
    began = time.monotonic()

    async def run() -> tuple[Status | None, bool]:
        # Signals are handled before any process starts, so that a signal leaves no process behind.
        stop = stop_event()
        with Processes(federation.directory / "logs") as processes:
            for role in ("broker", AIR, SERVER, *map(device_name, range(federation.num_devices))):
                federation.start(processes, role)
            return await watch(federation, processes, tell, stop), stop.is_set()

    status, stopped = asyncio.run(run())
    if stopped:
        raise KeyboardInterrupt
    seconds = time.monotonic() - began
    held = read_recorded(federation.record)
    path = (held.kept, held.seconds, held.ledger, held.before)
    return Demonstrated(result_with_model(plan, model, *path), seconds, status)


async def watch(
    federation: LocalFederation,
    processes: Processes,
    tell: StatusListener,
    stop: asyncio.Event | None = None,
) -> Status | None:
    """Wait until the server's process has ended, give each of its statuses to ``tell``, and return
    the last one (None: there was none); ``stop`` ends the waiting early. Raises ``RunFailed`` if a
    process fails, or if for two minutes no round ends and no device joins."""
    latest: list[Status] = []
    credentials = credentials_in(federation.directory / MONITOR)
    transport = Mqtt(federation.url, credentials)

    async def listen() -> None:
        while True:
            try:
                topics = [str(Topic("+", STATUS))]
                async with transport.connect(MONITOR, topics, None) as connection:
                    async for message in connection.messages():
                        try:
                            latest[:] = [Status.from_bytes(message.payload)]
                        except Malformed:
                            continue
                        tell(latest[0])
            except Disconnected:
                await asyncio.sleep(0.2)

    task = asyncio.create_task(listen())
    moved, where = time.monotonic(), (-1, -1)
    try:
        while processes.code(SERVER) is None:
            if stop is not None and stop.is_set():
                return latest[0] if latest else None
            await asyncio.sleep(0.05)
            now = latest[0] if latest else None
            here = (now.round, now.present.get("joined", 0)) if now else (-1, -1)
            if here != where:
                moved, where = time.monotonic(), here
            _refuse_failure(processes)
            if time.monotonic() - moved > _PATIENCE:
                raise RunFailed(f"nothing happened for {_PATIENCE:.0f} s: {_last_words(processes)}")
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    if processes.code(SERVER) != 0:
        raise RunFailed(f"the server failed: {processes.log(SERVER)[-500:]}")
    return latest[0] if latest else None


def _refuse_failure(processes: Processes) -> None:
    """Raise ``RunFailed`` if a process has failed; a killed device is no failure, it is only
    absent."""
    for name, code in processes.ended().items():
        # A negative code is a signal: tests and users may kill devices, which a run must survive.
        if code > 0 or (code and device_number(name) is None):
            raise RunFailed(f"{name} ended with {code}: {processes.log(name)[-500:].strip()}")


def _last_words(processes: Processes) -> str:
    """The last 500 characters that the server's process has printed, for an error message."""
    return processes.log(SERVER)[-500:].strip() or "the server has printed nothing"
