"""Many devices of a federation in one process: to see how a broker, the air and the server bear
them.

Every device is what it is in a process of its own: its role, its journal, its connection with its
certificate. They share a processor, so that they compute one after the other. A slot begins when a
device has read what it is asked, so it must be long enough for one answer; the deadline of the air
must be long enough for all of them."""

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
"""Name of the process."""
_FILES = 3
"""Open files of a device: its connection, its journal, and the journal's lock."""
_OTHER_FILES = 200


def start_devices(federation: LocalFederation, processes: Processes) -> None:
    """Start all devices of a federation in one process, whose name is ``NAME``.

    Parameters
    ----------
    federation
        Folders that :meth:`.LocalFederation.prepare` wrote, for a run of the usual name.
    processes
        Where the process belongs.
    """
    module = "flmc.deploy.demo.simulated_devices"
    words = [sys.executable, "-m", module, "--folder", str(federation.directory)]
    words += ["--broker", federation.url, "--last", str(federation.num_devices)]
    processes.start(NAME, words, federation.directory)


def allow_files(num_devices: int) -> None:
    """Let this process open as many files as so many devices need, as far as the system allows.

    Parameters
    ----------
    num_devices
        Devices in this process.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES * num_devices + _OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


async def run_devices(devices: Sequence[tuple[DeviceRole, Mqtt]]) -> None:
    """Run devices until all are finished, or SIGINT or SIGTERM asks them to stop.

    Parameters
    ----------
    devices
        Roles, and what connects each.
    """
    stop = stop_event()
    await asyncio.gather(*(run_role(role, transport, stop=stop) for role, transport in devices))


def main() -> None:
    """Run the devices of a prepared federation, those from the first number to before the last."""
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
