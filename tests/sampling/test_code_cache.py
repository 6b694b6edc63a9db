"""Compiled code that cannot be read or written costs a warning and a compilation, not the run."""

from __future__ import annotations

import importlib.util
import logging
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import pytest

from flmc.sampling.compiled.code_cache import CodeCache
from support import full

SOURCE = "def double(number):\n    return 2 * number\n"


def empty(data: bytes) -> bytes:
    return b""


def cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


def zero(data: bytes) -> bytes:
    return bytes(len(data))


def compiled(place: Path) -> Any:
    """A function of a file in a place, with its cache beside it."""
    spec = importlib.util.spec_from_file_location("doubling", place / "doubling.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    function = numba.njit(module.double)
    function._cache = CodeCache(module.double)
    return function


@pytest.mark.parametrize("suffix", ["nbi", "nbc"])
@pytest.mark.parametrize("damage", [empty, cut, zero])
def test_damaged_code_is_compiled_again(
    suffix: str,
    damage: Callable[[bytes], bytes],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    (tmp_path / "doubling.py").write_text(SOURCE)
    assert compiled(tmp_path)(21) == 42
    (file,) = (tmp_path / "__pycache__").glob(f"*.{suffix}")
    good = file.read_bytes()
    again = compiled(tmp_path)
    assert again(21) == 42
    assert sum(again.stats.cache_hits.values()) == 1
    file.write_bytes(damage(good))
    with caplog.at_level(logging.WARNING):
        again = compiled(tmp_path)
        assert again(21) == 42
    assert "cannot be read" in caplog.text
    assert str(file).partition(".")[0] in caplog.text
    # What was compiled has replaced what was damaged.
    caplog.clear()
    again = compiled(tmp_path)
    assert again(21) == 42
    assert sum(again.stats.cache_hits.values()) == 1
    assert caplog.text == ""


def test_a_full_disk_keeps_no_code(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "doubling.py").write_text(SOURCE)
    function = compiled(tmp_path)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, limits[1]))
    try:
        with caplog.at_level(logging.WARNING):
            assert function(21) == 42
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "cannot be written" in caplog.text


@pytest.mark.skipif(not full(1, 0), reason="compiles the kernel twice: in the full run only")
def test_a_run_whose_cache_is_damaged(tmp_path: Path) -> None:
    """The command says so, naming the file, and computes the same."""
    words = ["run", "--rounds", "40", "--burn-in", "10", "--engine", "numba", "--json"]
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}

    def run() -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "flmc", *words]
        return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)

    first = run()
    assert first.returncode == 0, first.stderr
    indices = list(tmp_path.rglob("*.nbi"))
    assert indices
    for number, file in enumerate(sorted(indices)):
        file.write_bytes(file.read_bytes()[: 20 * (number % 2)])
    again = run()
    assert again.returncode == 0, again.stderr
    assert any(str(file) in again.stderr for file in indices)
    assert without_time(again.stdout) == without_time(first.stdout)


def without_time(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if '"seconds"' not in line)
