"""The demonstration as a command: what is left of it when it is asked to stop."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support import full_only


@full_only
@pytest.mark.parametrize("last", ["broker", "air", "device-1"])
def test_a_demonstration_that_is_stopped_leaves_no_process(tmp_path: Path, last: str) -> None:
    """Stopped as soon as its last process is being started, the first ones too."""
    words = ["deploy", "demo", "--devices", "2", "--rounds", "2000", "--burn-in", "1000"]
    place = tmp_path / "here"
    demo = subprocess.Popen(
        [sys.executable, "-m", "flmc", *words, "--out", str(place)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    log = place / "logs" / f"{last}.log"
    until = time.monotonic() + 60
    while not log.exists() and time.monotonic() < until:
        time.sleep(0.001)
    assert log.exists()
    demo.send_signal(signal.SIGTERM)
    assert demo.wait(60) == 130  # as after Ctrl-C
    assert demo.stderr is not None
    said = demo.stderr.read()
    assert b"interrupted" in said
    assert b"Traceback" not in said
    demo.stderr.close()
    for path in Path("/proc").glob("[0-9]*/cwd"):
        try:
            there = path.resolve()
        except OSError:
            continue
        assert not there.is_relative_to(place), path
