"""Random command lines: an answer, or one line that says what is wrong; never a traceback, never
another answer for the same words, never minutes or gigabytes."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from evidence import State
from flmc.cli import main
from support import full, many_repetitions, repeated
from system.command_lines import as_options, as_toml, random_settings, random_words

CHUNKS, EACH = repeated(30, 10, 2), full(98, 16)
"""30 x 98 command lines in process and 60 in processes of their own are 3000."""
MOST_SECONDS, MOST_BYTES = 60.0, 2e9
CODES = (0, 1, 2)


@pytest.fixture(autouse=True)
def _little_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FLMC_MEMORY", "1")
    monkeypatch.chdir(tmp_path)


def answer(capsys: pytest.CaptureFixture[str], words: list[str]) -> tuple[int, str]:
    """Exit code and output of a command that may be anything, with all that is promised of it."""
    capsys.readouterr()
    # Processor time: a busy machine does not make a command costly.
    began = time.process_time()
    code = main(words)
    took = time.process_time() - began
    out, err = capsys.readouterr()
    complaints = [line for line in err.splitlines() if line.startswith("flmc: ")]
    assert code in CODES, (words, err)
    assert "Traceback" not in err + out, (words, err)
    # A plan that breaks several requirements has a line for each of them.
    most = max(1, words.count("--require")) if code == 1 else int(code != 0)
    assert (code != 0) <= len(complaints) <= most, (words, code, out, err)
    assert took < MOST_SECONDS, words
    if code == 0 and "--json" in words and "--help" not in words:
        json.loads(out)
    return code, out


def memory_of_process(name: str) -> float:
    """Bytes that the kernel states for this process: ``VmRSS`` now, ``VmHWM`` at most."""
    status = Path("/proc/self/status").read_text()
    found = re.search(rf"^{name}:\s+(\d+) kB", status, re.MULTILINE)
    assert found is not None
    return 1024.0 * int(found[1])


@many_repetitions
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_random_command_lines(
    chunk: int, capsys: pytest.CaptureFixture[str], tmp_path: Path, evidence: State
) -> None:
    rng, seen = random.Random(chunk), Counter[int]()
    # The process has run other tests: forget their peak, and count from what it holds now.
    Path("/proc/self/clear_refs").write_text("5")
    before = memory_of_process("VmRSS")
    for number in range(EACH):
        kind = rng.choices(("plan", "run", "audit", "sweep"), (70, 20, 2, 8))[0]
        words = random_words(rng, kind)
        if kind == "audit":
            words += ["--trials", rng.choice(("1000", "1", "0", "10000000000000"))]
        if kind == "sweep":
            grid = tmp_path / f"{number}.toml"
            axis = rng.choice(("snr_db = [1, 20]", "clip = [3, inf]", "seed = []", "link = 3"))
            grid.write_text(f"[sweep]\n{axis}\n")
            words += ["--config", str(grid), "--plan-only"]
        seen[answer(capsys, words)[0]] += 1
    # Else the generator makes nothing but errors, or none.
    assert seen[0] > EACH // 12, seen
    assert seen[2] > EACH // 12, seen
    assert memory_of_process("VmHWM") - before < MOST_BYTES
    evidence("commands", "random command lines", EACH, "exit 0, 1 or 2, one line of complaint")


@many_repetitions
@pytest.mark.parametrize("chunk", range(repeated(10, 4, 1)))
def test_a_file_and_options_say_the_same(
    chunk: int, capsys: pytest.CaptureFixture[str], tmp_path: Path, evidence: State
) -> None:
    """Nothing is changed in silence: the same settings give the same answer as options and from a
    file, now and again."""
    rng, both = random.Random(f"file {chunk}"), 0
    file = tmp_path / "settings.toml"
    for _ in range(full(30, 10)):
        given = random_settings(rng)
        file.write_text(as_toml(given))
        by_options = answer(capsys, ["plan", *as_options(given), "--json"])
        by_file = answer(capsys, ["plan", "--config", str(file), "--json"])
        # A list of gains is written with commas on the command line only.
        if "," not in given.get("gain", ""):
            assert by_file == by_options, given
        both += by_options[0] == 0
    assert both > 0
    count = full(30, 10)
    evidence("commands", "the same settings as options and as a file", count, "the same answer")


@many_repetitions
@pytest.mark.parametrize("chunk", range(repeated(6, 2, 1)))
def test_random_processes(chunk: int, capsys: pytest.CaptureFixture[str]) -> None:
    """Processes of their own answer as this one does."""
    rng = random.Random(f"process {chunk}")
    for _ in range(full(10, 2)):
        words = random_words(rng, rng.choice(("plan", "plan", "run")))
        words = [word for word in words if word.isprintable() and len(word) < 1000 and word]
        if "--json" not in words:
            words.append("--json")
        process = subprocess.run(
            [sys.executable, "-m", "flmc", *words],
            capture_output=True,
            text=True,
            timeout=MOST_SECONDS,
            check=False,
            env=os.environ,
        )
        assert "Traceback" not in process.stderr
        code, out = answer(capsys, words)
        assert process.returncode == code, (words, process.stderr)
        if words[0] == "plan":
            assert process.stdout == out, words
