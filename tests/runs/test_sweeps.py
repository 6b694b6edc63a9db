"""Sweeps: the same table wherever it is computed, and whatever happens meanwhile."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import flmc
from flmc.base.errors import InvalidSetting
from flmc.cli import main
from flmc.runs.sweeps.grid import read_grid
from flmc.runs.sweeps.grid_run import run_grid
from flmc.runs.sweeps.points import key_of
from flmc.runs.sweeps.workers import on_dask, on_this_machine
from support import full, full_only

SMALL = {"devices": 4, "samples": 80, "rounds": 40, "burn_in": 20, "chains": 4}
SWEPT = {"snr_db": {"start": 0, "stop": 30, "count": 4}, "scheme": ["digital", "analog", "ideal"]}


def table(out: Path) -> list[dict[str, str]]:
    with (out / "table.csv").open() as stream:
        return list(csv.DictReader(stream))


@full_only
def test_the_same_table_everywhere(tmp_path: Path) -> None:
    grid = read_grid({**SMALL, "sweep": SWEPT}, {})
    assert len(grid.points) == 12
    run_grid(grid, tmp_path / "one", on_this_machine(1))
    run_grid(grid, tmp_path / "two", on_this_machine(2))
    with on_dask("local", 2) as work:
        run_grid(grid, tmp_path / "dask", work)
    for name in ("table.csv", "table.parquet"):
        first, *others = (
            (tmp_path / place / name).read_bytes() for place in ("one", "two", "dask")
        )
        assert all(other == first for other in others), name
    rows = table(tmp_path / "one")
    assert [row["scheme"] for row in rows[:3]] == ["digital", "analog", "ideal"]
    assert all(row["error"] == "" for row in rows)
    assert float(rows[0]["variance_ratio"]) > 0


def test_finished_points_are_kept_and_failures_are_rows(tmp_path: Path) -> None:
    asked: list[str] = []

    def counting(tasks: Any) -> Any:
        asked.extend(key for key, _ in tasks)
        return on_this_machine(1)(tasks)

    # The ideal uplink takes no gain: those points fail, the rest goes on.
    document = {**SMALL, "sweep": {"scheme": ["digital", "ideal"], "gain": [0.01, 0.02]}}
    done = run_grid(read_grid(document, {}), tmp_path, counting)
    assert len(asked) == 4
    assert done.num_failed == 2
    assert [bool(row["error"]) for row in table(tmp_path)] == [False, False, True, True]
    assert "takes no gain" in done.rows[2]["error"]
    before = (tmp_path / "table.csv").read_bytes()
    asked.clear()
    run_grid(read_grid(document, {}), tmp_path, counting)
    assert len(asked) == 2  # only what failed is tried again
    assert (tmp_path / "table.csv").read_bytes() == before
    # A wider grid does what is new; a damaged file is done again.
    damaged = tmp_path / "points" / f"{key_of(read_grid(document, {}).points[0])}.json"
    damaged.write_text("{")
    wider = {**document, "sweep": {"scheme": ["digital"], "gain": [0.01, 0.02, 0.03]}}
    asked.clear()
    run_grid(read_grid(wider, {}), tmp_path, counting)
    assert len(asked) == 2


def test_a_user_s_mistake_is_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "brokenlink.py").write_text(
        "import flmc\nclass Broken(flmc.Link):\n    def probability(self, g):\n        raise"
        " ZeroDivisionError('oh')\n"
    )
    grid = read_grid({**SMALL, "sweep": {"link": ["sigmoid", "brokenlink:Broken"]}}, {})
    done = run_grid(grid, tmp_path / "out", on_this_machine(1))
    assert done.rows[0]["error"] is None
    assert "oh" in done.rows[1]["error"]


@pytest.mark.parametrize(
    ("document", "options", "message"),
    [
        ({}, {}, r"needs a table \[sweep\]"),
        ({"sweep": {}}, {}, r"needs a table \[sweep\]"),
        ({"sweep": {"snr": [1]}}, {}, r"in \[sweep\]: unknown setting 'snr'; is it snr_db"),
        ({"sweep": {"snr_db": 3}}, {}, "must be a list that is not empty, or a range"),
        ({"sweep": {"snr_db": []}}, {}, "must be a list that is not empty"),
        ({"sweep": {"snr_db": {"start": 0, "stop": 1}}}, {}, "or a range"),
        (
            {"sweep": {"snr_db": {"start": 0, "stop": 1, "count": 3, "spacing": "log"}}},
            {},
            "positive ends",
        ),
        ({"sweep": {"snr_db": {"start": 0, "stop": 1, "count": 0}}}, {}, "at least 1, got 0"),
        ({"snr_db": 3, "sweep": {"snr_db": [1]}}, {}, "must be given once"),
        ({"sweep": {"snr_db": [1]}}, {"snr_db": "3"}, "must be given once"),
        ({"sweep": {"dim": {"start": 1, "stop": 2, "count": 2_000_000}}}, {}, "at most 1000000"),
        (
            {"sweep": {n: {"start": 1, "stop": 2000, "count": 2000} for n in ("dim", "devices")}},
            {},
            "at most 1000000",
        ),
        ({"sweep": {"scheme": ["digital", "smoke"]}}, {}, "scheme must be one of"),
        ({"sweep": {"snr_db": [True, False]}}, {}, "numbers or words"),
        ({"threads": 2, "sweep": {"snr_db": [1]}}, {}, "threads must not be given for a sweep"),
    ],
)
def test_wrong_grids(document: dict[str, Any], options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidSetting, match=message):
        _ = read_grid(document, options).points


@full_only
def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "grid.toml"
    lines = [f"{name} = {value}" for name, value in SMALL.items()]
    config.write_text(
        "\n".join([*lines, "[sweep]", "snr_db = [0, 30]", 'scheme = ["digital", "ideal"]'])
    )
    arguments = [
        "sweep",
        "--config",
        str(config),
        "--out",
        str(tmp_path / "out"),
        "--workers",
        "1",
        "--seed",
        "3",
    ]
    assert main([*arguments, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["failed"] == 0
    assert len(document["rows"]) == 4
    assert (tmp_path / "out" / "sweep.png").stat().st_size > 10_000
    assert main(arguments) == 0
    assert "variance_ratio" in capsys.readouterr().out
    assert main([*arguments, "--workers", "0"]) == 2
    assert main(["sweep", "--config", str(config), "--out", "/proc/x", "--workers", "1"]) == 1
    assert "cannot write to '/proc/x'" in capsys.readouterr().err
    assert main([*arguments, "--scheduler", "tcp://127.0.0.1:9"]) == 2
    assert "no Dask scheduler answers" in capsys.readouterr().err


def test_the_file_of_a_run_serves_a_sweep(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A varying option beats a fixed value of the file, and what a sweep has no use for is told."""
    path = tmp_path / "run.toml"
    path.write_text(
        "devices = 4\nsamples = 80\nrounds = 40\nburn_in = 20\nsnr_db = 15\nclip = 20\n"
        "checkpoint_rounds = 5\nthreads = 1\n"
    )
    varied = ["--vary", "snr_db=0,10", "--vary", "clip=10,30"]
    assert main(["sweep", "--config", str(path), *varied, "--plan-only", "--json"]) == 0
    said = capsys.readouterr()
    assert "without effect in a sweep, from the file: threads, checkpoint_rounds" in said.err
    rows = json.loads(said.out)["rows"]
    assert [(row["snr_db"], row["clip"]) for row in rows] == [(0, 10), (0, 30), (10, 10), (10, 30)]
    # Two fixed options are a contradiction, and all are named at once.
    given = ["--snr-db", "3", "--clip", "4"]
    assert main(["sweep", "--config", str(path), *varied, *given, "--plan-only"]) == 2
    assert "snr_db, clip must be given once each" in " ".join(capsys.readouterr().err.split())
    assert main(["sweep", *varied, "--threads", "1", "--plan-only"]) == 2


def test_progress_counts_kept_points(tmp_path: Path) -> None:
    base = {"devices": 4, "samples": 80, "rounds": 40, "burn_in": 20}
    flmc.sweep(base, vary={"snr_db": [0, 10, 20]}, out=tmp_path, plan_only=True)
    told: list[float] = []
    more = {"snr_db": [0, 10, 20, 30]}
    flmc.sweep(base, vary=more, out=tmp_path, plan_only=True, progress=told.append)
    assert told == [1.0]
    told.clear()
    flmc.sweep(
        base, vary={"snr_db": [0, 1, 2, 3]}, out=tmp_path, plan_only=True, progress=told.append
    )
    assert told == [0.5, 0.75, 1.0]


def test_another_grid_in_the_same_place_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, config = tmp_path / "out", tmp_path / "grid.toml"
    base = "rounds = 6\nburn_in = 3\nchains = 2\n[sweep]\nsnr_db = "
    told = []
    for values in ("[10, 20]", "[10, 20]", "[10, 25]"):
        config.write_text(base + values)
        assert main(["sweep", "--config", str(config), "--out", str(out), "--workers", "1"]) == 0
        told.append("held another sweep" in capsys.readouterr().err)
    assert told == [False, False, True]
    rows = table(out)
    assert all("burn-in of 3 rounds is short" in row["warnings"] for row in rows)
    assert len(list((out / "points").iterdir())) == 3


@full_only
def test_a_worker_that_is_killed(tmp_path: Path) -> None:
    """A sweep that loses a worker ends with a table that is complete and identical."""
    document = {
        **SMALL,
        "engine": "numpy",
        "chains": full(60, 30),
        "rounds": 300,
        "sweep": {"seed": list(range(full(24, 14)))},
    }
    grid = read_grid(document, {})
    run_grid(grid, tmp_path / "calm", on_this_machine(2))
    from distributed import Client

    address_file = tmp_path / "scheduler.json"
    environment = {**os.environ, "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "10"}
    scheduler = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "distributed.cli.dask_scheduler",
            "--host",
            "127.0.0.1",
            "--port",
            "0",
            "--no-dashboard",
            "--scheduler-file",
            str(address_file),
        ],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    started = [scheduler]

    def worker() -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "distributed.cli.dask_worker",
                "--scheduler-file",
                str(address_file),
                "--nthreads",
                "1",
                "--no-dashboard",
                "--no-nanny",
                "--local-directory",
                str(tmp_path),
            ],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        started.append(process)
        return process

    try:
        begins = time.monotonic()
        while not address_file.exists():
            time.sleep(0.05)
            assert time.monotonic() - begins < 60
        victim, _ = worker(), worker()
        address = json.loads(address_file.read_text())["address"]
        with Client(address, timeout=60) as client:  # type: ignore[no-untyped-call]
            client.wait_for_workers(2, timeout=60)
        fell = threading.Event()

        def kill_mid_sweep() -> None:
            while len(list((tmp_path / "rough" / "points").glob("*.json"))) < 3:
                time.sleep(0.005)
            victim.send_signal(signal.SIGKILL)
            fell.set()

        thread = threading.Thread(target=kill_mid_sweep, daemon=True)
        thread.start()
        with on_dask(address, 2) as work:
            done = run_grid(grid, tmp_path / "rough", work)
        assert fell.is_set()
        assert victim.wait(10) == -signal.SIGKILL
    finally:
        for process in reversed(started):
            process.kill()
            process.wait()
    assert done.num_failed == 0
    assert (tmp_path / "rough" / "table.csv").read_bytes() == (
        tmp_path / "calm" / "table.csv"
    ).read_bytes()


@full_only
def test_an_interrupted_sweep_goes_on(tmp_path: Path) -> None:
    """kill -9 of the whole sweep: a second start does only what is missing."""
    config = tmp_path / "grid.toml"
    lines = [
        f"{name} = {value}"
        for name, value in {**SMALL, "rounds": full(600, 150), "chains": 60}.items()
    ]
    config.write_text(
        "\n".join([*lines, 'engine = "numpy"', "[sweep]", f"seed = {list(range(full(12, 8)))}"])
    )
    command = [
        sys.executable,
        "-m",
        "flmc",
        "sweep",
        "--config",
        str(config),
        "--workers",
        "1",
        "--json",
        "--out",
    ]
    process = subprocess.Popen([*command, str(tmp_path / "cut")], stdout=subprocess.DEVNULL)
    while len(list((tmp_path / "cut" / "points").glob("*.json"))) < 2:
        time.sleep(0.01)
        assert process.poll() is None
    process.kill()
    process.wait()
    kept = {
        path.name: path.stat().st_mtime_ns for path in (tmp_path / "cut" / "points").glob("*.json")
    }
    assert 2 <= len(kept) < full(12, 8)
    subprocess.run([*command, str(tmp_path / "cut")], check=True, capture_output=True)
    subprocess.run([*command, str(tmp_path / "whole")], check=True, capture_output=True)
    assert (tmp_path / "cut" / "table.csv").read_bytes() == (
        tmp_path / "whole" / "table.csv"
    ).read_bytes()
    assert all(
        (tmp_path / "cut" / "points" / name).stat().st_mtime_ns == then
        for name, then in kept.items()
    )


@full_only
def test_interrupted_sweeps_and_failed_points_are_no_success(tmp_path: Path) -> None:
    config = tmp_path / "grid.toml"
    lines = [
        f"{name} = {value}" for name, value in {**SMALL, "rounds": 3000, "chains": 100}.items()
    ]
    config.write_text(
        "\n".join([*lines, 'engine = "numpy"', "[sweep]", f"seed = {list(range(30))}"])
    )
    command = [
        sys.executable,
        "-m",
        "flmc",
        "sweep",
        "--config",
        str(config),
        "--workers",
        "1",
        "--out",
        str(tmp_path / "o"),
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while not list((tmp_path / "o" / "points").glob("*.json")):
        time.sleep(0.01)
        assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "finished points are kept" in stderr
    assert "Traceback" not in stderr
    config.write_text("\n".join([*lines, "[sweep]", 'link = ["nope:x", "nada:y"]']))
    assert (
        main(
            [
                "sweep",
                "--config",
                str(config),
                "--out",
                str(tmp_path / "p"),
                "--workers",
                "1",
                "--json",
            ]
        )
        == 1
    )
