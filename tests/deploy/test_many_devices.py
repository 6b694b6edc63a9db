"""Hundreds of devices of one federation, simulated in one process, against one real broker."""

from __future__ import annotations

import resource
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import flmc
from deploy.brokers import needs_mosquitto
from flmc.deploy.demo.demonstration import public_curvature, watch
from flmc.deploy.demo.local_federation import LocalFederation, Processes
from flmc.deploy.demo.simulated_devices import NAME, allow_files, start_devices
from flmc.deploy.device.device_journal import DeviceJournal
from flmc.wire.topics import AIR, SERVER, device_name
from support import full, full_only, in_own_loop

DEVICES, ROUNDS = full(500, 40), full(20, 4)
RUN = "demo"
DEADLINE_MS = 60_000
"""All devices share a processor with others: a round may take long, and nobody may be left out."""


MEMORY = Path("/dev/shm")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A directory in memory, if there is one: on a disk that is shared with other tests, hundreds
    of journals of one process would wait for so long that connections time out."""
    if not MEMORY.is_dir():
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="flmc-many-", dir=MEMORY) as found:
        yield Path(found)


@full_only
@needs_mosquitto
def test_every_device_answers_every_round(place: Path) -> None:
    data = flmc.data.draw_linear(seed=3, num_samples=2 * DEVICES, num_devices=DEVICES)
    largest, smallest = public_curvature(2 * DEVICES, 5)
    made = flmc.plan(
        flmc.LinearGaussian(data),
        flmc.Digital(),
        num_rounds=ROUNDS,
        num_burn_in=0,
        start="zero",
        public_smoothness=largest,
        public_convexity=smallest,
    )
    federation = LocalFederation.prepare(
        place / "here", made, data, broker="mosquitto", deadline_ms=DEADLINE_MS
    )
    with Processes(place / "logs") as processes:
        for role in ("broker", AIR, SERVER):
            federation.start(processes, role)
        start_devices(federation, processes)
        status = in_own_loop(watch(federation, processes, lambda _: None))
        codes = {name: processes.wait(name, 60) for name in (AIR, SERVER, NAME)}
    assert set(codes.values()) == {0}, codes
    assert status is not None
    assert (status.phase, status.round, status.active) == ("finished", ROUNDS, DEVICES)
    assert (status.dropped, status.dropped_air, status.repeats) == ({}, {}, 0)
    answers = []
    for number in range(DEVICES):
        journal = DeviceJournal(federation.directory / device_name(number) / "journal")
        answers.append(journal.runs[RUN].answers)
        journal.close()
    assert answers == [ROUNDS] * DEVICES


def test_as_many_files_are_allowed_as_devices_need(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, 4096))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: asked.append(limits))
    allow_files(10)  # 230 files are below the limit that there is
    allow_files(500)
    allow_files(10_000)  # the system allows less
    assert asked == [(1700, 4096), (4096, 4096)]
