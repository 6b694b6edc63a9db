"""Workers of a sweep that die, and clusters that lose all of theirs."""

from __future__ import annotations

import json
import logging
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from joblib.externals.loky import get_reusable_executor

from flmc.base.errors import InvalidSetting
from flmc.runs.sweeps import workers
from flmc.runs.sweeps.grid import read_grid
from flmc.runs.sweeps.grid_run import run_grid
from flmc.runs.sweeps.workers import on_dask, on_this_machine
from support import full_only

SMALL = {"devices": 4, "samples": 80, "rounds": 40, "burn_in": 20, "chains": 4, "engine": "numpy"}
KILLER = """
import os, signal
from pathlib import Path
import flmc

class Deadly(flmc.Fading):
    constant = True
    def draw(self, rng, rounds, num_devices, dim):
        import numpy as np
        if {condition}:
            Path("{mark}").write_text("x")
            os.kill(os.getpid(), signal.SIGKILL)
        return np.full((1, 1, 1), 0.04)
"""


def sweep_with(tmp_path: Path, name: str, condition: str) -> dict[str, Any]:
    """A grid one of whose points kills its process while a condition holds."""
    code = KILLER.format(condition=condition, mark=tmp_path / "mark")
    (tmp_path / f"{name}.py").write_text(code)
    return {**SMALL, "sweep": {"fading": [0.03, f"{name}:Deadly", 0.05, 0.06]}}


@full_only
@pytest.mark.parametrize("always", [False, True])
def test_a_killed_process_is_tried_again(
    always: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    condition = "True" if always else f"not Path({str(tmp_path / 'mark')!r}).exists()"
    # joblib keeps its processes, which would neither see this path nor forget another module.
    get_reusable_executor().shutdown(wait=True)
    grid = read_grid(sweep_with(tmp_path, f"deadly_{always}", condition), {})
    with caplog.at_level(logging.WARNING):
        done = run_grid(grid, tmp_path / "out", on_this_machine(2))
    assert "a worker process died" in caplog.text
    errors = [row["error"] for row in done.rows]
    assert errors[::2] == [None, None]
    assert errors[3] is None
    if always:
        assert "died, also when the point ran alone" in errors[1]
    else:
        assert errors[1] is None


@pytest.fixture
def scheduler(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A Dask scheduler without workers, and its address."""
    file = tmp_path / "scheduler.json"
    words = ["--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", str(file)]
    process = subprocess.Popen(
        [sys.executable, "-m", "distributed.cli.dask_scheduler", *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        for _ in range(600):
            if file.exists():
                break
            time.sleep(0.1)
        yield process, json.loads(file.read_text())["address"]
    finally:
        process.kill()
        process.wait()


@full_only
def test_a_cluster_without_workers_is_waited_for(
    scheduler: tuple[subprocess.Popen[bytes], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(workers, "_PATIENCE", 1.0)
    grid = read_grid({**SMALL, "sweep": {"seed": [1, 2]}}, {})
    words = [sys.executable, "-m", "distributed.cli.dask_worker", scheduler[1], "--no-dashboard"]
    words += ["--no-nanny", "--nthreads", "1", "--local-directory", str(tmp_path)]
    started: list[subprocess.Popen[bytes]] = []

    def come_late() -> None:
        while "has no workers" not in caplog.text:
            time.sleep(0.1)
        started.append(
            subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        )

    threading.Thread(target=come_late, daemon=True).start()
    try:
        with caplog.at_level(logging.WARNING), on_dask(scheduler[1], 1) as work:
            done = run_grid(grid, tmp_path / "out", work)
    finally:
        for process in started:
            process.kill()
            process.wait()
    assert "has no workers: waiting for some" in caplog.text
    assert done.num_failed == 0


@full_only
def test_a_dead_scheduler_is_one_line(
    scheduler: tuple[subprocess.Popen[bytes], str], tmp_path: Path
) -> None:
    process, address = scheduler
    config = tmp_path / "grid.toml"
    lines = [f"{name} = {json.dumps(value)}" for name, value in SMALL.items()]
    config.write_text("\n".join([*lines, "[sweep]", "seed = [1, 2]"]))
    words = ["sweep", "--config", str(config), "--out", str(tmp_path / "out"), "--scheduler"]
    command = subprocess.Popen(
        [sys.executable, "-m", "flmc", *words, address],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    for _ in range(600):  # there are no workers, so it waits for ever
        if (tmp_path / "out" / "points").exists():
            break
        time.sleep(0.1)
    time.sleep(1.0)
    process.send_signal(signal.SIGKILL)
    _, said = command.communicate(timeout=120)
    assert command.returncode in (1, 2), said
    assert "Traceback" not in said, said
    assert [line for line in said.splitlines() if line.startswith("flmc: ")], said


def test_leftovers_of_a_killed_sweep_are_removed(tmp_path: Path) -> None:
    grid = read_grid({**SMALL, "sweep": {"seed": [1]}}, {})
    run_grid(grid, tmp_path, on_this_machine(1))
    left = tmp_path / "points" / ".abc.json.x1y2"
    left.write_text("half")
    run_grid(grid, tmp_path, on_this_machine(1))
    assert not left.exists()


def test_points_of_a_newer_version_are_refused(tmp_path: Path) -> None:
    grid = read_grid({**SMALL, "sweep": {"seed": [1]}}, {})
    run_grid(grid, tmp_path, on_this_machine(1))
    (point,) = (tmp_path / "points").glob("*.json")
    from flmc.runs.files.durable_files import read_json, write_json

    document = {name: value for name, value in read_json(point).items() if name != "sha256"}
    write_json(point, {**document, "schema_version": 99})
    before = point.read_bytes()
    with pytest.raises(InvalidSetting, match="schema_version 99"):
        run_grid(grid, tmp_path, on_this_machine(1))
    assert point.read_bytes() == before
