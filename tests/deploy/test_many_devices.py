"""Hundreds of devices of one federation, simulated in one process, against one real broker."""

from __future__ import annotations

import asyncio
import resource
from pathlib import Path

import pytest

import flmc
from deploy.brokers import needs_mosquitto
from flmc.deploy.demo.demonstration import public_curvature, watch
from flmc.deploy.demo.local_federation import LocalFederation
from flmc.deploy.demo.processes import Processes
from flmc.deploy.demo.simulated_devices import NAME, allow_files, start_devices
from flmc.deploy.device.device_journal import DeviceJournal
from flmc.wire.topics import AIR, SERVER, device_name
from support import full

DEVICES, ROUNDS = full(500, 40), full(20, 4)
RUN = "demo"
DEADLINE_MS = 60_000
"""All devices share a processor with others: a round may take long, and nobody may be left out."""


@needs_mosquitto
def test_every_device_answers_every_round(tmp_path: Path) -> None:
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
        tmp_path / "here", made, data, broker="mosquitto", deadline_ms=DEADLINE_MS
    )
    with Processes(tmp_path / "logs") as processes:
        for role in ("broker", AIR, SERVER):
            federation.start(processes, role)
        start_devices(federation, processes)
        status = asyncio.run(watch(federation, processes, lambda _: None))
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
