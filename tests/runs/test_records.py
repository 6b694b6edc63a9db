"""Runs that survive: killed at any instant, on a full disk, with damaged files, they go on to the
identical result."""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import flmc
from evidence import State
from flmc.base.errors import Interrupted, InvalidSetting, RunFailed
from flmc.cli import main
from flmc.runs import records as record
from flmc.runs.files.append_log import Log
from flmc.runs.files.durable_files import locked, read_arrays, write_arrays
from flmc.runs.ledger import Ledger
from support import full, full_only, many_repetitions, repeated

KINDS = {
    "numba-digital": ["--engine", "numba"],
    "numpy-digital": ["--engine", "numpy"],
    "numba-analog": ["--engine", "numba", "--scheme", "analog"],
    "numpy-fading": ["--engine", "numpy", "--fading", "rayleigh:0.2"],
    "numba-fading": ["--engine", "numba", "--fading", "rayleigh:0.2"],
    "numpy-analog-fading": ["--engine", "numpy", "--scheme", "analog", "--fading", "rayleigh:0.2"],
    "numba-analog-fading": ["--engine", "numba", "--scheme", "analog", "--fading", "rayleigh:0.2"],
    "numpy-analog": ["--engine", "numpy", "--scheme", "analog"],
    "numpy-ideal": ["--engine", "numpy", "--scheme", "ideal"],
    "numba-ideal": ["--engine", "numba", "--scheme", "ideal"],
}
SMALL = [
    "--devices",
    "4",
    "--samples",
    "80",
    "--rounds",
    "290",
    "--burn-in",
    "40",
    "--experiments",
    "2",
    "--chains",
    "3",
]
OFTEN = ["--checkpoint-rounds", "7"]


def flmc_command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "flmc", *map(str, arguments)]


def essence(directory: Path) -> tuple[bytes, bytes, dict[str, Any]]:
    """Draws and ledger byte for byte, and the result without its time."""
    result = json.loads((directory / "result.json").read_text())
    del result["seconds"], result["sha256"]  # the digest covers the time
    return (directory / "draws.npz").read_bytes(), (directory / "ledger.txt").read_bytes(), result


@many_repetitions
@full_only
def test_killed_at_any_instant(tmp_path: Path, evidence: State) -> None:
    """A run that is killed (kill -9) at many random instants goes on to the identical result, with
    all engines, schemes and kinds of fading."""
    rng = random.Random(1)
    expected: dict[str, Any] = {}
    for name, options in KINDS.items():
        assert main(["run", *SMALL, *options, *OFTEN, "--json", "--out", str(tmp_path / name)]) == 0
        expected[name] = essence(tmp_path / name)
    interrupted, wanted = 0, repeated(100, 20, 1)
    for trial in itertools.count():
        # Every kind several times, and as many kills as are wanted: how many of them come before
        # the end depends on how fast the machine is.
        if trial >= repeated(68, len(KINDS), 1) and interrupted >= wanted:
            break
        assert trial < 400, "most kills came after the end: the test has tested nothing"
        name = list(KINDS)[trial % len(KINDS)]
        out = tmp_path / f"killed-{trial}"
        command = flmc_command("run", *SMALL, *KINDS[name], *OFTEN, "--json", "--out", out)
        for _ in range(50):
            process = subprocess.Popen(
                command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            begins = time.monotonic()
            while not (out / "run.json").exists() and process.poll() is None:
                time.sleep(0.002)
                assert time.monotonic() - begins < 120
            time.sleep(rng.random() * 0.25)
            process.send_signal(signal.SIGKILL)
            process.wait()
            if (out / "result.json").exists():
                break
            interrupted += 1
            spent = Log(out / "ledger.txt").entries
            if (out / "checkpoint.npz").exists():
                try:
                    assert len(spent) >= int(read_arrays(out / "checkpoint.npz")["round"])
                except RunFailed:
                    pytest.fail("a checkpoint was left half-written")
            command = flmc_command("resume", out, "--json")
            if rng.random() < 0.5:  # go on to the end at once, or be killed again
                subprocess.run(command, check=True, capture_output=True)
                break
        for ours, theirs in zip(essence(out), expected[name], strict=True):
            assert ours == theirs, (name, trial)
        shutil.rmtree(out)
    outcome = "every one went on to the same draws, ledger and result, byte for byte"
    evidence("kills", "kill -9 of a recorded run at a random instant", interrupted, outcome)


@full_only
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("engine", ["numpy", "numba"])
def test_signals_finish_the_round_and_save(
    tmp_path: Path, number: signal.Signals, engine: str
) -> None:
    out = tmp_path / "run"
    rounds = {"numpy": 20_000, "numba": 600_000}[engine]
    long = [
        "--rounds",
        rounds,
        "--burn-in",
        rounds - 10,
        "--experiments",
        "40",
        "--engine",
        engine,
        "--chains",
        "3",
    ]
    process = subprocess.Popen(
        flmc_command("run", *long, "--out", out, "--json"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    begins = time.monotonic()
    while not (out / "ledger.txt").exists():
        time.sleep(0.01)
        assert time.monotonic() - begins < 120
        assert process.poll() is None
    time.sleep(0.3)
    process.send_signal(number)
    stdout, stderr = process.communicate(timeout=120)
    assert process.returncode == 130
    assert stdout == ""
    assert "interrupted after round" in stderr
    assert f"go on with: flmc resume {out}" in stderr
    assert "Traceback" not in stderr
    saved = int(read_arrays(out / "checkpoint.npz")["round"])
    assert 0 < saved < rounds
    assert len(Log(out / "ledger.txt").entries) == saved


def start_and_stop(
    out: Path, small: flmc.LinearGaussian, after: int = 60, **settings: Any
) -> flmc.Plan:
    """A run in Python that stops after some rounds."""
    plan = flmc.plan(small, flmc.Digital(), num_rounds=200, num_burn_in=20)
    seen: list[float] = []

    def stop() -> bool:
        return bool(seen) and seen[-1] * 200 >= after

    with pytest.raises(Interrupted, match="interrupted after round"):
        flmc.run(
            plan,
            small,
            seed=3,
            chains=2,
            out=out,
            checkpoint_rounds=10,
            progress=seen.append,
            stop=stop,
            **settings,
        )
    return plan


@pytest.mark.parametrize("engine", ["numpy", "numba"])
@pytest.mark.parametrize("keep", [True, False])
def test_going_on_in_python(
    tmp_path: Path, small: flmc.LinearGaussian, engine: str, keep: bool
) -> None:
    plan = start_and_stop(tmp_path / "cut", small, engine=engine, keep_draws=keep)
    progress = json.loads((tmp_path / "cut" / "progress.json").read_text())
    assert progress["round"] == 60
    assert progress["metrics"]["mse"]["mean"] > 0
    whole = flmc.run(
        plan, small, seed=3, chains=2, out=tmp_path / "whole", engine=engine, keep_draws=keep
    )
    result = flmc.resume(tmp_path / "cut", plan, small)
    assert result.metrics == whole.metrics
    assert essence(tmp_path / "cut") == essence(tmp_path / "whole")
    files = {path.name for path in (tmp_path / "cut").iterdir()}
    assert files == {".lock", "run.json", "ledger.txt", "draws.npz", "result.json"}
    with pytest.raises(InvalidSetting, match="is finished"):
        flmc.resume(tmp_path / "cut", plan, small)


def test_another_plan_is_refused(tmp_path: Path, small: flmc.LinearGaussian) -> None:
    start_and_stop(tmp_path / "cut", small)
    other = flmc.plan(small, flmc.Digital(), num_rounds=201, num_burn_in=20)
    with pytest.raises(InvalidSetting, match="has another plan"):
        flmc.resume(tmp_path / "cut", other, small)


@pytest.mark.parametrize("damage", ["truncated", "flipped", "empty", "not a zip", "both"])
def test_damaged_checkpoints(
    tmp_path: Path, small: flmc.LinearGaussian, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    """If the checkpoint is damaged the previous one is used, and a warning says so; without any the
    run begins anew. The result is the same."""
    out = tmp_path / "cut"
    plan = start_and_stop(out, small)
    current, previous = out / "checkpoint.npz", out / "previous.npz"
    data = bytearray(current.read_bytes())
    if damage in ("flipped", "both"):
        for place in range(40, len(data), 97):
            data[place] ^= 0x10
    current.write_bytes(
        {"truncated": bytes(data[: len(data) // 2]), "empty": b"", "not a zip": b"x" * 500}.get(
            damage, bytes(data)
        )
    )
    if damage == "both":
        previous.write_bytes(b"")
    result = flmc.resume(out, plan, small)
    assert "is damaged" in caplog.text
    whole = flmc.run(plan, small, seed=3, chains=2)
    np.testing.assert_array_equal(result.draws, whole.draws)


def test_any_flipped_byte_is_noticed_or_harmless(tmp_path: Path) -> None:
    arrays = {"x": np.arange(50.0), "round": np.array(3)}
    write_arrays(tmp_path / "a.npz", arrays)
    data = (tmp_path / "a.npz").read_bytes()
    for place in range(0, len(data), full(1, 7)):
        (tmp_path / "b.npz").write_bytes(
            data[:place] + bytes([data[place] ^ 0x04]) + data[place + 1 :]
        )
        try:
            read = read_arrays(tmp_path / "b.npz")
        except RunFailed:
            continue
        for name in set(read) & set(arrays):
            np.testing.assert_array_equal(read[name], arrays[name])


def test_missing_draws_are_noticed(
    tmp_path: Path, small: flmc.LinearGaussian, caplog: pytest.LogCaptureFixture
) -> None:
    out = tmp_path / "cut"
    plan = start_and_stop(out, small)
    parts = sorted(out.glob("path-*.npz"))
    parts[0].unlink()
    result = flmc.resume(out, plan, small)
    assert "are missing" in caplog.text
    np.testing.assert_array_equal(result.draws, flmc.run(plan, small, seed=3, chains=2).draws)


def test_half_written_ledger(
    tmp_path: Path, small: flmc.LinearGaussian, caplog: pytest.LogCaptureFixture
) -> None:
    out = tmp_path / "cut"
    plan = start_and_stop(out, small)
    with (out / "ledger.txt").open("ab") as stream:
        stream.write(b'35 00000000 {"round":6')
    flmc.resume(out, plan, small)
    assert "a tail of 22 bytes was not whole, it was cut off" in caplog.text
    flmc.run(plan, small, seed=3, chains=2, out=tmp_path / "whole")
    assert essence(out) == essence(tmp_path / "whole")


@given(
    texts=st.lists(st.text(max_size=30)),
    cut=st.integers(0, 200),
    more=st.lists(st.text(max_size=5), max_size=3),
)
def test_logs(
    texts: list[str], cut: int, more: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Whatever is cut off the end, whole entries from the beginning remain, and the log can grow
    again."""
    path = tmp_path_factory.mktemp("log") / "log.txt"
    Log(path).append(texts)
    assert Log(path).entries == texts
    data = path.read_bytes()
    path.write_bytes(data[: max(0, len(data) - cut)])
    log = Log(path)
    assert log.entries == texts[: len(log.entries)]
    assert cut > 0 or log.num_cut == 0
    log.append(more)
    assert Log(path).entries == log.entries


def test_ledger_without_this_package(tmp_path: Path, small: flmc.LinearGaussian) -> None:
    plan = start_and_stop(tmp_path / "cut", small)
    flmc.resume(tmp_path / "cut", plan, small)
    lines = (tmp_path / "cut" / "ledger.txt").read_text().splitlines()
    entries = [json.loads(line.split(" ", 2)[2]) for line in lines]
    assert [entry["round"] for entry in entries] == list(range(1, 201))
    assert entries[0]["gain"] == [pytest.approx(float(plan.gain[0, 0]))]


def test_two_processes_in_one_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    long = ["--rounds", "100000", "--burn-in", "10", "--engine", "numpy", "--chains", "20"]
    process = subprocess.Popen(
        flmc_command("run", *long, "--out", out),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        begins = time.monotonic()
        while not (out / "run.json").exists():
            time.sleep(0.01)
            assert time.monotonic() - begins < 60
        assert main(["resume", str(out)]) == 2
        assert f"another process (number {process.pid}) works in" in capsys.readouterr().err
    finally:
        process.kill()
        process.wait()
    with locked(out):
        pass


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Any:
    """A file system of its own with little space."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", str(place)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip(f"a small tmpfs cannot be mounted here: {mounted.stderr.decode().strip()}")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_full_disk(tiny_disk: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _run_out_of_space(tiny_disk / "run", tmp_path, capsys, lambda: None)


def _run_out_of_space(
    out: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], free: Any
) -> None:
    """The run fails with one line; what was saved is whole and can be moved and gone on with."""
    options = [*SMALL, "--experiments", "20", "--engine", "numpy", *OFTEN]
    assert main(["run", *options, "--json", "--out", str(out)]) == 1
    message = capsys.readouterr().err
    assert "cannot write to" in message
    assert message.count("\n") == 1
    free()
    moved = tmp_path / "moved"
    shutil.copytree(out, moved)
    assert not list(moved.glob(".checkpoint*"))
    assert main(["resume", str(moved), "--json"]) == 0
    assert main(["run", *options, "--json", "--out", str(tmp_path / "whole")]) == 0
    assert essence(moved) == essence(tmp_path / "whole")


def test_a_disk_that_fills_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk, imitated by a limit on the size of files, where no file system can be
    mounted."""
    code = (
        "import resource, signal, sys\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (9000, 9000))\n"
        "from flmc.cli import main\n"
        "sys.exit(main(sys.argv[1:]))"
    )
    options = [*SMALL, "--experiments", "20", "--engine", "numpy", *OFTEN]
    out = tmp_path / "run"
    done = subprocess.run(
        [sys.executable, "-c", code, "run", *options, "--json", "--out", str(out)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1, done.stderr
    assert "cannot write to" in done.stderr
    assert "File too large" in done.stderr
    assert "Traceback" not in done.stderr
    assert main(["resume", str(out), "--json"]) == 0
    assert main(["run", *options, "--json", "--out", str(tmp_path / "whole")]) == 0
    assert essence(out) == essence(tmp_path / "whole")


def test_a_directory_that_cannot_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", *SMALL, "--out", "/proc/flmc"]) == 2
    assert "cannot write to '/proc/flmc'" in capsys.readouterr().err
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    if os.access(closed, os.W_OK):  # a superuser may write anywhere
        return
    assert main(["run", *SMALL, "--out", str(closed)]) == 2
    assert "Permission denied" in capsys.readouterr().err


def test_records_of_other_versions(
    tmp_path: Path, small: flmc.LinearGaussian, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = flmc.plan(small, flmc.Digital(), num_rounds=20, num_burn_in=10)
    result = flmc.run(plan, small, chains=2, out=tmp_path / "new")
    new = flmc.load(tmp_path / "new")
    assert new.schema_version == 3
    assert new.asked["seed"] == 0
    assert len(new.ledger) == 20
    np.testing.assert_array_equal(new.arrays["draws"], result.chains)
    # Version 1 had two files.
    old = tmp_path / "old"
    old.mkdir()
    for name in ("draws.npz", "result.json"):
        shutil.copy(tmp_path / "new" / name, old)
    opened = flmc.load(old)
    assert opened.schema_version == 1
    assert opened.result is not None
    assert opened.result["seed"] == 0
    assert opened.arrays["mean"].shape == (3, 3)
    assert main(["resume", str(old)]) == 0
    # A version to come.
    document = json.loads((tmp_path / "new" / "run.json").read_text())
    (tmp_path / "new" / "run.json").write_text(json.dumps({**document, "schema_version": 4}))
    with pytest.raises(
        InvalidSetting, match=r"has schema_version 4, and this flmc .* reads 1 to 3"
    ):
        flmc.load(tmp_path / "new")
    capsys.readouterr()
    for wrong, message in (
        (tmp_path / "none", "is not a directory"),
        (tmp_path, "holds no record"),
    ):
        assert main(["resume", str(wrong)]) == 2
        assert message in capsys.readouterr().err
    (tmp_path / "new" / "run.json").write_text("{")
    assert main(["resume", str(tmp_path / "new")]) == 1
    assert "cannot be read" in capsys.readouterr().err


def test_saved_results_are_records(tmp_path: Path, small: flmc.LinearGaussian) -> None:
    plan = flmc.plan(small, flmc.Digital(), num_rounds=20, num_burn_in=10)
    flmc.run(plan, small, chains=2).save(tmp_path / "saved")
    assert flmc.load(tmp_path / "saved").schema_version == record.SCHEMA_VERSION


def test_readers_change_nothing(tmp_path: Path, small: flmc.LinearGaussian) -> None:
    """Reading a record leaves its files as they are, even where one is damaged or just being
    written."""
    plan = flmc.plan(small, flmc.Digital(), num_rounds=20, num_burn_in=10)
    flmc.run(plan, small, chains=2, out=tmp_path / "run")
    path = tmp_path / "run" / "ledger.txt"
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    assert len(flmc.load(tmp_path / "run").ledger) < 20
    assert path.read_bytes() == bytes(data)


def test_other_data_are_refused(tmp_path: Path) -> None:
    """A record with other data is refused, even where the plan is the same because it depends on
    the features only."""
    data = flmc.data.draw_linear(seed=1, num_samples=80, num_devices=4, dim=3)
    model = flmc.LinearGaussian(data)
    other = flmc.LinearGaussian(
        flmc.LinearData(data.features, data.targets + 50, data.device_sizes)
    )
    plan = start_and_stop(tmp_path / "cut", model)
    assert plan.digest == flmc.plan(other, flmc.Digital(), num_rounds=200, num_burn_in=20).digest
    with pytest.raises(InvalidSetting, match="was made with other data"):
        flmc.resume(tmp_path / "cut", plan, other)
    flmc.resume(tmp_path / "cut", plan, model)


def test_parts_of_another_run_are_refused(tmp_path: Path, small: flmc.LinearGaussian) -> None:
    plan = start_and_stop(tmp_path / "cut", small)
    with pytest.raises(Interrupted):
        flmc.run(
            plan,
            small,
            seed=4,
            chains=2,
            out=tmp_path / "other",
            checkpoint_rounds=10,
            stop=lambda: True,
        )
    shutil.copy(tmp_path / "cut" / "checkpoint.npz", tmp_path / "other" / "checkpoint.npz")
    with pytest.raises(InvalidSetting, match="belongs to another run"):
        flmc.resume(tmp_path / "other", plan, small)


def test_stray_files_and_damaged_parts(tmp_path: Path, small: flmc.LinearGaussian) -> None:
    out = tmp_path / "cut"
    plan = start_and_stop(out, small)
    (out / "path-old-copy.npz").write_text("x")
    (out / "path-0-500-bak.npz").write_text("x")
    part = sorted(out.glob("path-?-*.npz"))[0]
    part.write_bytes(part.read_bytes()[:100])
    result = flmc.resume(out, plan, small)
    np.testing.assert_array_equal(result.draws, flmc.run(plan, small, seed=3, chains=2).draws)
    assert (out / "path-old-copy.npz").exists()


def test_a_record_that_never_began(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".lock").write_text("1")
    assert main(["run", *SMALL, "--json", "--out", str(tmp_path / "run")]) == 0


def test_a_failing_model_is_not_a_failing_disk(tmp_path: Path) -> None:
    def gradient(theta: Any) -> Any:
        raise FileNotFoundError(2, "no such table")

    own = flmc.Model.from_gradient(
        gradient, prior=flmc.Normal(), dim=2, num_devices=2, smoothness=1.0
    )
    plan = flmc.plan(own, flmc.Digital(), num_rounds=5, num_burn_in=1, forecast=False)
    with pytest.raises(FileNotFoundError, match="no such table"):
        flmc.run(plan, own, out=tmp_path / "run")


def test_two_signals_stop_at_once(tmp_path: Path) -> None:
    command = flmc_command(
        "run",
        "--rounds",
        200_000,
        "--chains",
        40,
        "--engine",
        "numpy",
        "--json",
        "--out",
        tmp_path / "r",
    )
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while not (tmp_path / "r" / "ledger.txt").exists():
        time.sleep(0.01)
    for _ in range(2):
        process.send_signal(signal.SIGINT)
        time.sleep(0.02)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted" in stderr
    assert "Traceback" not in stderr


def test_files_can_be_read_by_others(tmp_path: Path, small: flmc.LinearGaussian) -> None:
    plan = flmc.plan(small, flmc.Digital(), num_rounds=5, num_burn_in=1)
    flmc.run(plan, small, out=tmp_path / "run")
    plain = tmp_path / "plain"
    plain.write_text("x")
    assert (tmp_path / "run" / "result.json").stat().st_mode == plain.stat().st_mode


@full_only
def test_two_signals_lose_nothing_that_was_saved(tmp_path: Path) -> None:
    """A second signal ends a run in the middle of anything; it goes on to the same result."""
    options = [*SMALL, *KINDS["numpy-digital"], *OFTEN, "--rounds", "900", "--json", "--out"]
    assert main(["run", *options, str(tmp_path / "whole")]) == 0
    rng = random.Random(2)
    for trial in range(full(8, 1)):
        out = tmp_path / str(trial)
        command = flmc_command("run", *options, out)
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while not (out / "checkpoint.npz").exists() and process.poll() is None:
            time.sleep(0.002)
        time.sleep(rng.random() * 0.1)
        process.send_signal(signal.SIGINT)
        time.sleep(rng.random() * 0.01)
        process.send_signal(signal.SIGINT)
        process.wait(timeout=60)
        if not (out / "result.json").exists():
            # Between two checkpoints only the previous one is there.
            there = [out / name for name in ("checkpoint.npz", "previous.npz")]
            saved = int(read_arrays(next(path for path in there if path.exists()))["round"])
            assert saved >= 7
            assert len(Log(out / "ledger.txt").entries) >= saved
            assert main(["resume", str(out), "--json"]) == 0
        assert essence(out) == essence(tmp_path / "whole")


def test_a_clock_that_jumps(
    tmp_path: Path, small: flmc.LinearGaussian, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Time decides when checkpoints are made, nothing else: forwards by days, or backwards."""
    plan = flmc.plan(small, flmc.Digital(), num_rounds=60, num_burn_in=10)
    flmc.run(plan, small, engine="numpy", out=tmp_path / "calm")
    rng = random.Random(3)
    for name in ("time", "monotonic", "perf_counter"):
        monkeypatch.setattr(time, name, lambda: rng.uniform(-1e7, 1e7))
    flmc.run(plan, small, engine="numpy", out=tmp_path / "jumping")
    for name in ("draws.npz", "ledger.txt"):
        assert (tmp_path / "jumping" / name).read_bytes() == (tmp_path / "calm" / name).read_bytes()


def test_two_writers_without_locks_are_told_so(tmp_path: Path, small: flmc.LinearGaussian) -> None:
    plan = flmc.plan(small, flmc.Digital(), num_rounds=40, num_burn_in=10)
    with pytest.raises(Interrupted):
        flmc.run(plan, small, engine="numpy", out=tmp_path, stop=lambda: True, checkpoint_rounds=10)
    log = Log(tmp_path / "ledger.txt")
    job = Ledger(plan, 0, small.num_experiments)
    log.append(job.entries(len(log.entries), 20))
    log.append(job.entries(5, 12))  # of another process that had begun earlier
    with pytest.raises(InvalidSetting, match="names round 6 again behind round 20: two processes"):
        flmc.resume(tmp_path, plan, small)


@full_only
@pytest.mark.parametrize("engine", ["numpy", "numba"])
def test_a_signal_is_heard_between_checkpoints(engine: str, tmp_path: Path) -> None:
    """However far apart checkpoints are: the run is saved and stops, and would take minutes."""
    out = tmp_path / "record"
    asked = ["run", "--engine", engine, "--rounds", 5_000_000, "--burn-in", 4_999_900]
    process = subprocess.Popen(
        flmc_command(*asked, "--chains", 40, "--checkpoint-rounds", 10**8, "--out", out),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    deadline = time.monotonic() + 60
    while not (out / "ledger.txt").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(1.0)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert b"go on with" in said
    assert (out / "checkpoint.npz").exists()
