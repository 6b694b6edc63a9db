"""What a round of a real federation costs beyond the devices' slot, against the number of devices.

A real mosquitto, air and server are processes of their own; all devices are roles in one further
process, each with its own connection, certificate and journal. Devices that share a processor
compute one after the other: on machines of their own they would not. Journals are in memory for
most rows, since a disk that all devices share is slower than a disk of each. Clock time for rounds,
because that is what a run waits for: use a quiet machine."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from flmc.deploy.demo.demonstration import public_curvature, watch
from flmc.deploy.demo.local_federation import LocalFederation, Processes, find_mosquitto
from flmc.deploy.demo.simulated_devices import NAME, start_devices
from flmc.settings.assembly import assemble
from flmc.settings.construction import draw_examples
from flmc.settings.schema import merge
from flmc.wire.status import Status
from flmc.wire.topics import AIR, SERVER

ROUNDS = 20
SLOT_MS = 50
DEADLINE_MS = 60_000
"""Long enough for all devices of one process one after the other. A round ends with its last
answer, so that nothing waits for it."""
DIM = 5
EXAMPLES = 60
"""Examples of a device."""
MEMORY = Path("/dev/shm")
MOST_RUNS = 3
"""Runs of a case, at most: the largest take half a minute."""
ROLES = ("broker", AIR, SERVER, NAME)


class Setup(NamedTuple):
    """A federation to be measured: devices, whether with TLS, and where journals are."""

    devices: int
    tls: bool = True
    journals: str = "memory"


SETUPS = (
    *(Setup(devices) for devices in (20, 50, 100, 200, 500)),
    Setup(500, tls=False),
    *(Setup(devices, journals="disk") for devices in (20, 100, 500)),
)


class Sample(NamedTuple):
    """CPU seconds that every role has taken when so many rounds were done."""

    round: int
    seconds: dict[str, float]


def cpu_seconds(pid: int) -> float:
    """CPU seconds of all threads of a process so far."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((each / "schedstat").read_text().split()[0]) for each in threads) / 1e9


def peak_megabytes(pid: int) -> float:
    """Largest resident memory of a process so far."""
    status = Path(f"/proc/{pid}/status").read_text()
    [kilobytes] = [line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")]
    return int(kilobytes) / 1024


def start_broker(federation: LocalFederation, processes: Processes, tls: bool) -> None:
    """Start mosquitto, with the files of the federation or without TLS, certificates and rights."""
    if tls:
        federation.start(processes, "broker")
        return
    place = federation.directory / "plain.conf"
    lines = (f"listener {federation.port} 127.0.0.1", "allow_anonymous true")
    place.write_text("\n".join((*lines, "set_tcp_nodelay true", "")))
    command = [find_mosquitto() or "mosquitto", "-c", str(place)]
    processes.start("broker", command, federation.directory)


def run_once(setup: Setup, directory: Path) -> dict[str, Any]:
    """Run a federation, and measure it.

    Parameters
    ----------
    setup, directory
        What to run, and a new directory for all its files.
    """
    count = EXAMPLES * setup.devices
    largest, smallest = public_curvature(count, DIM)
    given: dict[str, Any] = {
        "devices": setup.devices,
        "rounds": ROUNDS,
        "burn_in": 0,
        "samples": count,
    }
    given |= {"dim": DIM, "public_smoothness": largest, "public_convexity": smallest}
    settings = merge({}, {**given, "start": "zero", "data": "examples"})
    federation = LocalFederation.prepare(
        directory,
        assemble(settings).plan(),
        draw_examples(settings, None),
        broker="mosquitto",
        slot_ms=SLOT_MS,
        deadline_ms=DEADLINE_MS,
    )
    if not setup.tls:
        # The address without TLS is that of the embedded broker; mosquitto listens there.
        federation = LocalFederation(directory, "embedded", federation.port, setup.devices)
    samples: list[Sample] = []
    peaks: dict[str, float] = {}
    with Processes(directory / "logs") as processes:
        start_broker(federation, processes, setup.tls)
        for role in (AIR, SERVER):
            federation.start(processes, role)
        start_devices(federation, processes)

        def tell(status: Status) -> None:
            # The first round builds tables, and the last status computes what the run has cost.
            if status.phase != "running" or status.round < 1:
                return
            with contextlib.suppress(OSError):
                took = {role: cpu_seconds(processes.pid(role)) for role in ROLES}
                peaks.update({role: peak_megabytes(processes.pid(role)) for role in ROLES})
                samples.append(Sample(status.round, took))

        status = asyncio.run(watch(federation, processes, tell))
    assert status is not None
    assert status.round_seconds is not None
    first, last = samples[0], samples[-1]
    rounds = max(1, last.round - first.round)
    each = {
        f"{role}_ms": 1e3 * (last.seconds[role] - first.seconds[role]) / rounds for role in ROLES
    }
    # A process that waits for its disk too long loses connections.
    found = {"round_ms": 1e3 * status.round_seconds, "active": status.active, **each}
    parts = {"receive_ms": status.receive_seconds, "commit_ms": status.commit_seconds}
    found |= {name: 1e3 * (value or 0.0) for name, value in parts.items()}
    return {**found, **{f"peak_megabytes_{role}": peaks[role] for role in ROLES}}


def measure_federation(repeats: int, setups: Sequence[Setup] = SETUPS) -> list[dict[str, Any]]:
    """Rows of the table, one for each setup.

    Parameters
    ----------
    repeats
        Runs of a setup, at most ``MOST_RUNS``; medians count.
    setups
        What is measured.
    """
    if find_mosquitto() is None:
        return [{"devices": "federation", "absent": "mosquitto is not there"}]
    rows = []
    for setup in setups:
        if setup.journals == "memory" and not MEMORY.is_dir():
            continue
        runs = []
        for _ in range(min(repeats, MOST_RUNS)):
            parent = MEMORY if setup.journals == "memory" else None
            with tempfile.TemporaryDirectory(dir=parent, prefix="flmc-bench-") as place:
                runs.append(run_once(setup, Path(place) / "federation"))
        medians = {name: statistics.median(run[name] for run in runs) for name in runs[0]}
        facts = {**setup._asdict(), "rounds": ROUNDS, "slot_ms": SLOT_MS, "runs": len(runs)}
        rows.append({**facts, **medians, "beyond_slot_ms": medians["round_ms"] - SLOT_MS})
    return rows


def main() -> None:
    """Measure, and print a table."""
    from rendering.markdown import every_column as table

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--devices", type=int, help="with TLS and journals in memory only")
    options = parser.parse_args()
    setups = SETUPS if options.devices is None else (Setup(options.devices),)
    print(table(measure_federation(options.repeats, setups)))


if __name__ == "__main__":
    main()
