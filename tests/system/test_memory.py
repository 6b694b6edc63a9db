"""Memory: large problems stay small, and what is too large is refused with the number."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from flmc.base.errors import InvalidSetting
from flmc.base.memory import available_bytes, fits
from flmc.cli import main
from support import few, full, full_only

PEAK = """
import re, sys
from pathlib import Path
from flmc.cli import main
code = main(sys.argv[1:])
# Not ru_maxrss, which remembers the process that this one was forked from.
peak = re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]
print(code, int(peak) // 1024, file=sys.stderr)
"""


def peak_megabytes(*words: str) -> int:
    """Largest resident memory of a process that runs a command."""
    done = subprocess.run(
        [sys.executable, "-c", PEAK, *words], capture_output=True, text=True, check=True
    )
    code, peak = done.stderr.split()[-2:]
    assert code == "0", done.stderr
    return int(peak)


@full_only
@pytest.mark.parametrize(
    ("words", "most"),
    [
        (f"plan --devices {full(200_000, 5_000)} --samples 400000 --no-run", full(500, 250)),
        # A thousand drawn rounds of them are held, up to 256 MB.
        (f"plan --devices {full(20_000, 500)} --samples 400000 --fading rayleigh --no-run", 900),
        (
            f"plan --allocation adaptive --scope run --rounds {full(1_000_000, 5_000)}"
            " --burn-in 1000 --no-run",
            450,
        ),
        (f"plan --rounds {full(10_000_000, 10_000)} --fading rayleigh --json --no-run", 300),
    ],
)
def test_large_plans_stay_small(words: str, most: int) -> None:
    assert peak_megabytes(*words.split()) < most


@pytest.mark.parametrize(
    "words",
    few(
        [
            "plan --devices 1000000000 --samples 2000000000 --data sufficient",
            "run --dim 1000000",
            "plan --dim 1000000 --fading selective",
            "plan --rounds 1000000000000",
            "plan --rounds 100000000 --allocation adaptive --scope run",
            "run --experiments 1000000000",
            "run --chains 1000000000",
            "audit --trials 1000000000000",
        ],
        2,
    ),
)
def test_what_is_too_large_is_refused_with_the_number(
    words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLMC_MEMORY", "2")
    assert main(words.split()) == 2
    said = capsys.readouterr().err
    assert "GB of memory, and 2 GB may be used" in said, said


def test_what_may_be_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("FLMC_MEMORY", raising=False)
    assert 1e8 < available_bytes() < 1e15
    monkeypatch.setattr("flmc.base.memory._CGROUP", tmp_path / "limit")
    (tmp_path / "limit").write_text("200000000\n")
    assert available_bytes() == 2e8
    fits("a small thing", 1e8)
    with pytest.raises(InvalidSetting, match=r"0\.5 GB of memory, and 0\.2 GB may be used"):
        fits("a large thing", 5e8)
    (tmp_path / "limit").write_text("max\n")
    assert available_bytes() > 2e8
    for wrong in ("x", "0", "-1", "nan"):
        monkeypatch.setenv("FLMC_MEMORY", wrong)
        with pytest.raises(InvalidSetting, match="FLMC_MEMORY must be a positive number"):
            available_bytes()
