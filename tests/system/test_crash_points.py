"""Runs that die before each of their file events go on to the same bits, of every kind."""

from __future__ import annotations

import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest

from evidence import State
from support import full, many_repetitions, repeated

SIZES = "--rounds 40 --burn-in 10 --dim 2 --devices 3 --samples 60 --chains 3 --threads 1 --json"
KINDS = [
    (engine, scheme, fading)
    for engine, scheme, fading in product(
        ("numpy", "numba"), ("digital", "analog", "ideal"), ("0.04", "rayleigh:0.2")
    )
    # The ideal uplink has no channel.
    if scheme != "ideal" or fading == "0.04"
]


@many_repetitions
@pytest.mark.parametrize(("engine", "scheme", "fading"), KINDS[:: full(1, 3)])
def test_dying_at_every_file_event(
    engine: str, scheme: str, fading: str, tmp_path: Path, evidence: State
) -> None:
    """At every event for the evidence; else at every fifth, from another one for each kind, so that
    two kinds die at each."""
    stride = repeated(1, 5, 19)
    first = KINDS.index((engine, scheme, fading)) % stride
    kind = ["--engine", engine, "--scheme", scheme]
    kind += [] if scheme == "ideal" else ["--fading", fading]
    words = [*kind, *SIZES.split(), "--checkpoint-rounds", str(full(14, 20))]
    program = Path(__file__).parent / "dying_runs.py"
    done = subprocess.run(
        [sys.executable, str(program), str(tmp_path), str(first), str(stride), *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    events = int(done.stdout)
    assert events > 30  # else the hook has heard nothing
    evidence("kills", f"death before a file event, {' '.join(kind)}", events // stride, "same bits")
