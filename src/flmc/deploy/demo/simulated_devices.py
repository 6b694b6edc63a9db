"""Many devices of a federation in one process, to load a broker, the air and the server.

Each device has the same as in a process of its own: a role, a journal, and a connection with a
certificate. The devices share a processor and compute one after the other. The slot of a device
begins when the device has read its question, so the slot has to last for one answer only; the air's
deadline has to last for the answers of all devices.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import resource
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from flmc.deploy.configuration import read_device
from flmc.deploy.demo.local_federation import LocalFederation, Processes
from flmc.deploy.device.device_role import DeviceRole
from flmc.deploy.loop import run_role, stop_event
from flmc.deploy.role_assembly import make_device
from flmc.wire.mqtt import Mqtt
from flmc.wire.topics import device_name

NAME = "devices"
"""Name of the one process in which all devices run."""
_FILES = 3
"""Number of files that a device holds open: its connection, its journal, and the journal's lock."""
_OTHER_FILES = 200
"""Number of files that the process may need beside those of its devices."""


def start_devices(federation: LocalFederation, processes: Processes) -> None:
    """Start all devices of a prepared federation in one process with the name ``NAME``."""
    module = "flmc.deploy.demo.simulated_devices"
    words = [sys.executable, "-m", module, "--folder", str(federation.directory)]
    words += ["--broker", federation.url, "--last", str(federation.num_devices)]
    processes.start(NAME, words, federation.directory)


def allow_files(num_devices: int) -> None:
    """Raise the process's limit of open files to the number that ``num_devices`` devices need, as
    far as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES * num_devices + _OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


async def run_devices(devices: Sequence[tuple[DeviceRole, Mqtt]]) -> None:
    """Run devices, each with the transport to its broker, until all are finished, or SIGINT or
    SIGTERM asks them to stop."""
    stop = stop_event()
    await asyncio.gather(*(run_role(role, transport, stop=stop) for role, transport in devices))


def main() -> None:
    """Run the devices from number ``--first`` to below ``--last`` of a prepared federation."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="of the whole federation")
    parser.add_argument("--broker", required=True)
    parser.add_argument("--run", default="demo")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--last", type=int, required=True)
    given = parser.parse_args()
    logging.basicConfig(level=logging.ERROR)
    allow_files(given.last - given.first)
    with ExitStack() as held:
        devices = []
        for number in range(given.first, given.last):
            path = given.folder / device_name(number) / "config.toml"
            configuration = read_device(path, given.broker, None)
            role = make_device(configuration, given.run)
            held.callback(role.journal.close)
            devices.append((role, configuration.broker))
        asyncio.run(run_devices(devices))


if __name__ == "__main__":
    main()
