"""Compiled code that cannot be read or written costs a warning and a compilation, not the run."""

from __future__ import annotations

import ctypes
import hashlib
import logging
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from flmc.sampling.compiled import machine_code
from flmc.sampling.compiled.instructions import FLOAT, NUMBER, Code, Value, emitted
from support import full_only


def empty(data: bytes) -> bytes:
    return b""


def cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


def zero(data: bytes) -> bytes:
    return bytes(len(data))


def twice(what: str) -> Callable[[float], float]:
    """An emitted function that doubles a number, from disk if it is there."""

    def body(code: Code, arguments: list[Value]) -> None:
        (place,) = arguments
        number = code.load(place, 0, FLOAT)
        code.store(place, 0, number + number)

    function = ctypes.CFUNCTYPE(None, ctypes.c_uint64)(emitted(what, body, [NUMBER]))

    def call(value: float) -> float:
        array = np.array([value], np.float32)
        function(array.ctypes.data)
        return float(array[0])

    return call


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of this test's own, where code is kept."""
    monkeypatch.setattr(machine_code, "_folder", lambda: tmp_path)
    return tmp_path


def test_code_is_compiled_once(place: Path) -> None:
    assert twice("once")(21) == 42
    (file,) = place.iterdir()
    before = file.stat().st_mtime_ns
    assert twice("once")(21) == 42
    assert file.stat().st_mtime_ns == before
    assert twice("once more")(21) == 42
    assert len(list(place.iterdir())) == 2


@pytest.mark.parametrize("damage", [empty, cut, zero])
def test_damaged_code_is_compiled_again(
    damage: Callable[[bytes], bytes], place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    what = f"damaged by {damage.__name__}"
    assert twice(what)(21) == 42
    (file,) = place.iterdir()
    good = file.read_bytes()
    file.write_bytes(damage(good))
    with caplog.at_level(logging.WARNING):
        assert twice(what)(21) == 42
    assert "is damaged" in caplog.text
    assert str(file) in caplog.text
    # What was compiled has replaced what was damaged.
    caplog.clear()
    assert file.read_bytes()[:32] == hashlib.sha256(file.read_bytes()[32:]).digest()
    assert twice(what)(21) == 42
    assert caplog.text == ""


def test_a_full_disk_keeps_no_code(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, limits[1]))
    try:
        with caplog.at_level(logging.WARNING):
            assert twice("full")(21) == 42
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "cannot be written" in caplog.text
    assert list(place.iterdir()) == []


def test_no_place_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_code, "_folder", lambda: None)
    assert twice("nowhere")(21) == 42


def test_other_text_has_another_name(monkeypatch: pytest.MonkeyPatch) -> None:
    before = machine_code.name_of("what", "machine")
    assert machine_code.name_of("what", "other machine") != before
    monkeypatch.setattr(machine_code, "_sources", lambda: "other text")
    assert machine_code.name_of("what", "machine") != before


@full_only
def test_code_that_was_kept_needs_no_compiler(tmp_path: Path) -> None:
    """The first process compiles, with Numba; the second reads, without it, and gives the same."""
    program = """
import sys, flmc
model = flmc.LinearGaussian(flmc.data.draw_linear(seed=1, num_samples=40, num_devices=4))
plan = flmc.plan(model, flmc.Digital(), num_rounds=40, num_burn_in=10)
print(flmc.run(plan, model, seed=1, engine="numba").draws.tobytes().hex(), "numba" in sys.modules)
"""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", program]
    (drawn, compiled), (again, read) = (
        subprocess.run(
            command, capture_output=True, text=True, env=environment, check=True
        ).stdout.split()
        for _ in range(2)
    )
    assert (compiled, read) == ("True", "False")
    assert again == drawn


@full_only
def test_a_run_whose_cache_is_damaged(tmp_path: Path) -> None:
    """The command says so, naming the file, and computes the same."""
    words = ["run", "--rounds", "40", "--burn-in", "10", "--engine", "numba", "--json"]
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}

    def run() -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "flmc", *words]
        return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)

    first = run()
    assert first.returncode == 0, first.stderr
    indices = list(tmp_path.iterdir())
    assert indices
    for number, file in enumerate(sorted(indices)):
        file.write_bytes(file.read_bytes()[: 20 * (number % 2)])
    again = run()
    assert again.returncode == 0, again.stderr
    assert any(str(file) in again.stderr for file in indices)
    assert without_time(again.stdout) == without_time(first.stdout)


def without_time(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if '"seconds"' not in line)
