"""Ctrl-C in the first second, and places where nobody may write: one line each."""

from __future__ import annotations

import importlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flmc.cli import main
from support import full, full_only

SCRIPT = Path(sys.executable).parent / "flmc"


@full_only
def test_interrupted_in_the_first_second() -> None:
    """Before Python hears signals at all the process just ends (-2), and while Python itself starts
    it says so in its own way; from the first line of flmc on there is one line, whatever is being
    imported or compiled."""
    rng = random.Random(1)
    for _ in range(full(15, 2)):
        process = subprocess.Popen(
            [SCRIPT, "run", "--rounds", "9000000", "--json"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        time.sleep(rng.uniform(0.02, 1.2))
        process.send_signal(signal.SIGINT)
        try:
            _, said = process.communicate(timeout=60)
        finally:
            process.kill()  # no effect on one that has ended
        assert process.returncode in (-2, 1, 130), said
        if "Traceback" in said:  # at most up to the import of the script's own function
            assert "flmc/cli" not in said
            assert "flmc_command.py" not in said
        elif process.returncode != -2:
            assert "flmc: interrupted" in said


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
