"""Progress without a terminal: plain lines on standard error, now and then, and none for short
work."""

from __future__ import annotations

import io
import itertools
import json
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from flmc.cli import main
from flmc.views import progress_bars
from flmc.views.progress_bars import Stage, show_progress, show_stages

LINE = re.compile(r"[a-z0-9 ]+: \d+ %(, about \d+(\.\d)? (s|min|h) left)?")


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time runs a hundred times as fast for whoever prints lines."""
    for name in ("_QUIET", "_EVERY", "_LONGEST"):
        monkeypatch.setattr(progress_bars, name, getattr(progress_bars, name) / 100)
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE"):  # they make anything pass for a terminal
        monkeypatch.delenv(name, raising=False)


def until(condition: Callable[[], bool]) -> None:
    """Wait until something holds: half a minute at most, whatever the load of the machine is."""
    for _ in range(3000):
        if condition():
            return
        time.sleep(0.01)
    pytest.fail("nothing was printed")


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, str]]:
    """When each line was printed, and the line; it is printed all the same."""
    lines: list[tuple[float, str]] = []
    say = progress_bars._print

    def listen(line: str) -> None:
        say(line)
        lines.append((time.monotonic(), line))

    monkeypatch.setattr(progress_bars, "_print", listen)
    return lines


Said = list[tuple[float, str]]


def test_what_a_line_prints() -> None:
    stage = Stage("attacking 4 rounds", 100.0)
    assert stage.line(103.0) == "attacking 4 rounds: 0 %"
    stage.report(0.0, 100.0)
    stage.report(0.4, 104.0)
    assert stage.line(104.0) == "attacking 4 rounds: 40 %, about 6 s left"
    assert stage.line(106.0) == "attacking 4 rounds: 40 %, about 4 s left"
    assert stage.line(111.0) == "attacking 4 rounds: 40 %"  # later than the pace had promised
    stage.report(0.999, 109.99)
    assert stage.line(109.99).startswith("attacking 4 rounds: 99 %, about 1 s")
    stage.report(1.0, 110.0)
    assert stage.line(110.0) == "attacking 4 rounds: 100 %"


def test_the_pace_of_resumed_work_is_that_of_the_rest() -> None:
    """A run that goes on at 90 % has not done them in no time."""
    stage = Stage("simulating", 0.0)
    stage.report(0.90, 1.0)
    assert stage.line(1.0) == "simulating: 90 %"
    stage.report(0.92, 61.0)
    assert stage.line(61.0) == "simulating: 92 %, about 4 min left"
    stage.report(0.93, 3601.0)
    assert stage.line(3601.0) == "simulating: 93 %, about 2.3 h left"


@pytest.mark.usefixtures("hurried")
def test_lines_come_now_and_then(said: Said, capsys: pytest.CaptureFixture[str]) -> None:
    with show_progress("digging") as report:
        for step in range(1001):
            report(step / 1000)
            time.sleep(0.0005)
    times, lines = zip(*said, strict=True)
    captured = capsys.readouterr()
    assert captured.err.splitlines() == list(lines)
    assert captured.out == ""
    assert len(lines) >= 2
    assert all(LINE.fullmatch(line) for line in lines)
    # Two lines are the shortest pause apart, less what it takes to print the first of them.
    gaps = [after - before for before, after in itertools.pairwise(times)]
    assert min(gaps) > 0.9 * progress_bars._EVERY


@pytest.mark.usefixtures("hurried")
def test_work_that_reports_nothing_shows_a_sign_of_life(said: Said) -> None:
    with show_progress("compiling"):
        until(lambda: bool(said))
        time.sleep(3 * progress_bars._EVERY)
    assert [line for _, line in said] == ["compiling: 0 %"]  # what did not change is said once


@pytest.mark.usefixtures("hurried")
def test_stages_are_named(said: Said) -> None:
    with show_stages() as stage:
        for count, name in enumerate(("figures", "search"), start=1):
            stage(name)(0.0)
            until(lambda count=count: len(said) >= count)  # type: ignore[misc]
    assert [line for _, line in said] == ["figures: 0 %", "search: 0 %"]


def test_short_work_prints_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert progress_bars._QUIET == 2.0
    monkeypatch.setattr(progress_bars, "_QUIET", 3600.0)
    with show_progress("blinking") as report:
        report(0.5)
    with show_stages() as stage:
        stage("blinking")(0.5)
    assert capsys.readouterr() == ("", "")


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize("gone", ["none", "closed"])
def test_without_standard_error_nothing_is_printed_anywhere(
    gone: str, said: Said, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    closed = io.StringIO()
    closed.close()
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stderr", None if gone == "none" else closed)
        with show_progress("whispering"):
            until(lambda: bool(said))
    assert capsys.readouterr() == ("", "")


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize("command", ["run", "sweep", "reproduce", "audit"])
def test_every_long_command_prints_lines(
    command: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    grid, out = tmp_path / "grid.toml", str(tmp_path / "out")
    grid.write_text("rounds = 60\nburn_in = 40\nengine = 'numpy'\n[sweep]\nsnr_db = [20, 25]\n")
    slow = ["--engine", "numpy", "--chains", "20", "--rounds", "600"]
    preview = ["--experiments", "2", "--figure", "2", "--out", out]
    one_by_one = ["--config", str(grid), "--out", out, "--workers", "1"]
    arguments, what = {
        "run": (slow, "simulating"),
        "sweep": (one_by_one, "sweeping"),
        "reproduce": (preview, "figures"),
        "audit": (["--trials", "20000"], "attacking 1 round"),
    }[command]
    assert main([command, *arguments, "--json"]) == 0
    captured = capsys.readouterr()
    lines = [line for line in captured.err.splitlines() if line.startswith(f"{what}: ")]
    assert lines
    assert all(LINE.fullmatch(line) for line in lines)
    json.loads(captured.out)  # nothing but the result
