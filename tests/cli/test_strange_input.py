"""Input that is not what it seems: one line, exit 2, no waiting and no memory."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from flmc.cli import main
from support import full_only


def refused(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 2) -> str:
    """The one line with which a command is refused."""
    capsys.readouterr()
    assert main(list(arguments)) == code
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1
    return lines[0]


def test_a_trace_in_decibels(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    decibels = -95 + 5 * np.random.default_rng(1).standard_normal((6, 4))
    np.savetxt("t.csv", decibels, delimiter=",")
    np.savez("t.npz", h=decibels)
    short = ["plan", "--devices", "4", "--rounds", "6", "--burn-in", "2", "--no-run", "--fading"]
    for name in ("t.csv", "t.npz"):
        line = refused(capsys, *short, f"trace:{name}")
        assert "decibels become amplitudes by 10**(dB/20)" in line
        assert f"got {decibels[0, 0]:g}" in line
    # As amplitudes, below a header, with the number of the round in a column of its own.
    rows = [
        f"{number},{','.join(map(str, row))}"
        for number, row in enumerate(10 ** (decibels / 20) * 2000)
    ]
    Path("a.csv").write_text("\ufeff" + "\n".join(["round,n,e,s,w", *rows]) + "\n")
    assert main([*short, "trace:a.csv"]) == 0
    assert "amplifies" not in capsys.readouterr().out
    # A path loss of 95 dB, taken for an amplitude.
    np.savetxt("loss.csv", -decibels, delimiter=",")
    assert main([*short, "trace:loss.csv"]) == 0
    assert "a path that amplifies" in " ".join(capsys.readouterr().out.split())
    Path("named.csv").write_text("\n".join(["gain_dB,b,c,d", *["0.1,0.1,0.1,0.1"] * 6]))
    assert "its column 'gain_dB' says decibels" in refused(capsys, *short, "trace:named.csv")


@pytest.mark.parametrize("command", [["plan", "--target", "y", "--data-file"]])
@pytest.mark.parametrize("name", ["p.csv", "p.npz", "p.parquet"])
def test_a_pipe_in_place_of_a_file(
    command: list[str], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo(name)
    # A process of its own: a command that waits for the pipe's writer would wait for ever.
    call = [sys.executable, "-m", "flmc", *command, name]
    done = subprocess.run(call, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert f"'{name}' must be a regular file, got a pipe" in done.stderr


@full_only
def test_a_small_file_that_unpacks_to_gigabytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    # Zeros of 1.6 GB, written piece by piece.
    head = {"descr": "<f8", "fortran_order": False, "shape": (2_000_000, 100)}
    with zipfile.ZipFile("bomb.npz", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        with archive.open("X.npy", "w", force_zip64=True) as member:
            np.lib.format.write_array_header_1_0(member, head)
            piece = bytes(16_000_000)
            for _ in range(100):
                member.write(piece)
        with archive.open("Y.npy", "w") as member:
            np.lib.format.write_array(member, np.zeros(3))
    assert Path("bomb.npz").stat().st_size < 8e6
    # A header that claims 8 TB, in a file of some bytes.
    with zipfile.ZipFile("claim.npz", "w") as archive, archive.open("X.npy", "w") as member:
        np.lib.format.write_array_header_1_0(member, {**head, "shape": (10**6, 10**6)})
    most = 1_500_000_000  # bytes of address space beyond which the process is refused memory
    # The limit is set by the process itself: to set it between fork and exec is not safe where
    # this process has threads.
    limited = (
        f"import resource, runpy; resource.setrlimit(resource.RLIMIT_DATA, ({most}, {most}));"
        " runpy.run_module('flmc', run_name='__main__')"
    )
    for name, words in (
        ("bomb.npz", "must unpack to at most 100 times its size, got 1.6 GB"),
        ("claim.npz", "its arrays claim 8000000000000 bytes"),
    ):
        call = [sys.executable, "-c", limited, "plan", "--data-file", name]
        done = subprocess.run(call, capture_output=True, text=True, timeout=60)
        assert done.returncode == 2
        assert words in done.stderr
        assert done.stderr.count("\n") == 1


def test_json_nested_too_deep(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("deep.json").write_text("[" * 100_000 + "]" * 100_000)
    assert "nested too deeply" in refused(capsys, "run", "--plan", "deep.json")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["plan", "--epsilon", "1e400"], "epsilon must be a finite number"),
        (["plan", "--config", "huge.toml"], "epsilon must be a finite number, got inf"),
        (["plan", "--require", "run.epsilon<=1e400"], "needs a number behind <="),
        (["plan", "--rounds", "1" + 400 * "0"], "rounds must be at most 1e+15"),
        (["plan", "--samples", "1" + 400 * "0"], "samples must be at most 1e+15"),
        (["device", "--epsilon", "1e400"], "1e400 is too large"),
        (["device", "--broker", "x", "--config", "budget.toml"], "1e400 is too large"),
        (["device", "--broker", "x", "--config", "deep.toml"], "nested too deeply"),
    ],
)
def test_numbers_beyond_all_bounds(
    arguments: list[str],
    words: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("huge.toml").write_text("epsilon = 1e400\n")
    Path("budget.toml").write_text("[budget]\nepsilon = 1e400\n")
    Path("deep.toml").write_text("a = " + "[" * 100_000)
    assert words in refused(capsys, *arguments)


def test_resume_of_a_finished_run_tells_of_a_damaged_ledger(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    short = ["--rounds", "6", "--burn-in", "2", "--chains", "2", "--engine", "numpy"]
    assert main(["run", *short, "--out", "record"]) == 0
    assert main(["resume", "record"]) == 0
    ledger = Path("record/ledger.txt")
    whole = ledger.read_bytes()
    damaged = whole[:40] + b"x" + whole[41:]
    half = b"".join(whole.splitlines(keepends=True)[:3])
    for content, words in (
        (damaged, "is damaged behind round 0"),
        (half, "ends with round 3, and the run has finished all 6"),
    ):
        ledger.write_bytes(content)
        assert words in refused(capsys, "resume", "record", code=1)
        assert words in refused(capsys, "resume", "record", "--json", code=1)
    ledger.unlink()
    assert "ends with round 0" in refused(capsys, "resume", "record", code=1)
