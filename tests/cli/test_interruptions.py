"""Ctrl-C and SIGTERM at any time, and places where nobody may write: one line each."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from evidence import State
from flmc.base.errors import Interrupted
from flmc.cli import main
from flmc.runs.records import load
from flmc_command import EXIT_CODE
from support import EVIDENCE, few, full_only, many_repetitions, repeated
from system.interrupts import LONGEST, WITHIN, run_all, table


@full_only
@many_repetitions
@pytest.mark.parametrize("part", range(repeated(10, 1, 1)))
def test_interrupts_at_random_instants(part: int, evidence: State) -> None:
    """Every command ends soon after a signal, with one line, and loses nothing: the program itself
    asserts that."""
    # How soon is measured for the evidence; elsewhere the limit is against hanging only, and busy
    # loops would disturb the tests beside.
    loops, longest = (2, LONGEST) if EVIDENCE else (0, 120.0)
    count = repeated(30, 21, 7)
    tallies = run_all(count, seed=7 + part, loops=loops, longest=longest)
    interrupted = sum(tally.interrupted for tally in tallies.values())
    assert interrupted >= repeated(15, 7, 2), str(table(tallies))
    for name, tally in tallies.items():
        tried = (
            f"SIGINT or SIGTERM between 0 and {WITHIN:g} s after the start, {loops} busy loops"
            f" beside it: {name}"
        )
        for number, what in (
            (tally.interrupted, f"exit code 130 and one line, within {longest:g} s"),
            (tally.finished, "had finished before"),
            (tally.unheard, "ended while Python itself started"),
        ):
            if number:
                evidence("Interrupts", tried, number, what)
        if tally.whole:
            tried = f"records and sweeps after such an interrupt: {name}"
            evidence("Interrupts", tried, tally.whole, "whole; a record goes on to the same bits")


def start(code: str, *words: str) -> subprocess.Popen[str]:
    """A process that runs some lines and then the command ``flmc``."""
    return subprocess.Popen(
        [sys.executable, "-c", f"{code}\nfrom flmc_command import main\nexit(main())", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


DEAF = """
import ctypes, os, signal, sys, threading
signal.signal(signal.SIGINT, signal.SIG_IGN)  # as in the background of a shell

def interrupt_now(*given, **options):
    threading.Timer(0.2, os.kill, (os.getpid(), {number})).start()
    {work}

import flmc.planning.planner
import flmc.settings.assembly
flmc.settings.assembly.Problem.plan = interrupt_now
"""


@pytest.mark.parametrize("number", few([signal.SIGINT, signal.SIGTERM], 1))
@pytest.mark.parametrize(
    "work",
    [
        "ctypes.CDLL(None).sleep(60)",  # foreign code that lets other threads run
        "[None for _ in iter(int, 1)]",  # Python that never ends
        "threading.Event().wait()",
    ],
)
def test_nothing_that_computes_outlasts_a_signal(number: int, work: str) -> None:
    """Neither foreign code, nor an endless loop, nor a lock; also where a shell ignores Ctrl-C."""
    process = start(DEAF.format(number=int(number), work=work), "plan")
    try:
        out, said = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (process.returncode, out, said) == (EXIT_CODE, "", "flmc: interrupted\n")


UNWILLING = """
import ctypes, os, signal, sys, threading
import flmc_command
flmc_command.PATIENCE = 0.5
import flmc.runs.job

def never_ends(self, *given, **options):
    for delay in {delays}:
        threading.Timer(delay, os.kill, (os.getpid(), signal.SIGINT)).start()
    while True:  # a signal wakes it up
        ctypes.CDLL(None).sleep(60)

flmc.runs.job.Job._run = never_ends
"""


@full_only
@pytest.mark.parametrize("delays", [(0.1,), (0.1, 0.2)])
def test_a_run_that_does_not_stop_is_left(delays: tuple[float, ...], tmp_path: Path) -> None:
    """After its patience, or at the second signal; the record is whole."""
    place = str(tmp_path / "r")
    process = start(UNWILLING.format(delays=delays), "run", "--json", "--out", place)
    try:
        out, said = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (process.returncode, out) == (EXIT_CODE, "")
    assert said.split("\n") == [
        "",
        "stopping after the rounds in hand; once more stops at once",
        f"flmc: interrupted; what was recorded in {place!r} is whole",
        "",
    ]
    assert load(place).result is None


def test_one_exit_code_says_interrupted() -> None:
    assert Interrupted.exit_code == EXIT_CODE


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_places_that_cannot_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["--rounds", "30", "--burn-in", "10"]
    assert main(["run", *sizes]) == 0  # everything that is imported is, while it can be read
    importlib.import_module("concurrent.futures.process")  # of a sweep
    assert main(["ledger", str(tmp_path)]) == 2
    place = tmp_path / "locked"
    place.mkdir(mode=0o700)
    inside = str(place / "inside")
    grid = tmp_path / "grid.toml"
    grid.write_text("rounds = 30\nburn_in = 10\n[sweep]\nsnr_db = [1, 2]\n")
    tmp_path.chmod(0o755)
    for parent in tmp_path.parents:
        if parent.stat().st_uid == 0 and parent != Path("/"):
            parent.chmod(parent.stat().st_mode | 0o055)
    os.seteuid(65534)
    try:
        for words in (
            ["run", *sizes, "--out", inside],
            ["sweep", "--config", str(grid), "--out", inside],
            ["resume", inside],
            ["ledger", inside],
            ["plan", "--out", inside],
            ["plan", "--config", inside],
            ["run", *sizes, "--plan", inside],
            ["reproduce", "--out", inside],
        ):
            capsys.readouterr()
            assert main(words) == 2, words
            said = capsys.readouterr().err
            assert said.count("\n") == 1, said
            assert inside in said
            assert "Permission denied" in said
    finally:
        os.seteuid(0)
