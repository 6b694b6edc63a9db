"""Devices as processes that refuse: what they say, and how they end."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from deploy.test_federation import BROKER, problem
from flmc.deploy.accounting import cost_of_run
from flmc.deploy.demo.demonstration import watch
from flmc.deploy.demo.local_federation import LocalFederation, Processes
from flmc.deploy.device.consent import Budget
from flmc.wire.federation import Federation
from flmc.wire.topics import AIR, SERVER, device_name
from support import full_only, in_own_loop

DEVICES, ROUNDS = 2, 6


@pytest.fixture(scope="module")
def refused(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, str]]:
    """Exit codes and last words of devices that were asked for too much."""
    data, _, plan = problem(DEVICES, ROUNDS, 2)
    price = cost_of_run(Federation.of("demo", plan), Budget().share)
    assert price > 5
    directory: Path = tmp_path_factory.mktemp("refusals") / "here"
    federation = LocalFederation.prepare(
        directory, plan, data, broker=BROKER, slot_ms=20, quorum=DEVICES, budget={"epsilon": 1.0}
    )
    first = device_name(0)
    said: dict[str, tuple[int, str]] = {}

    def end_of(processes: Processes, device: str) -> tuple[int, str]:
        return processes.wait(device, 60), processes.log(device)

    with Processes(directory / "logs") as processes:
        for role in ("broker", AIR, SERVER, first):
            federation.start(processes, role)
        said["small budget"] = end_of(processes, first)
        # With one and a half times what the run may cost, the run is joined, and no other.
        for device in range(DEVICES):
            federation.write_device(device, {"epsilon": 1.5 * price})
            federation.start(processes, device_name(device))
        in_own_loop(watch(federation, processes, lambda _: None))
        for role in (AIR, *map(device_name, range(DEVICES))):
            processes.wait(role, 60)
        for role in (AIR, SERVER):
            shutil.rmtree(directory / role / "journal")
        federation.write_plan(plan, "second", slot_ms=20, quorum=DEVICES)
        for role in (AIR, SERVER, first):
            federation.start(processes, role)
        said["second run"] = end_of(processes, first)
    said["price"] = (0, f"{price:.3f}"[:4])
    return said


@full_only
def test_a_small_budget_refuses_a_costly_plan(refused: dict[str, tuple[int, str]]) -> None:
    code, words = refused["small budget"]
    assert code == 2
    assert "the lifetime budget of this device is 1" in words
    assert f"may cost epsilon {refused['price'][1]}" in words
    assert "Traceback" not in words


@full_only
def test_a_second_run_beyond_the_budget_is_refused(refused: dict[str, tuple[int, str]]) -> None:
    code, words = refused["second run"]
    assert code == 2
    assert "refused the run 'second'" in words
    assert f"earlier runs {refused['price'][1]}" in words
