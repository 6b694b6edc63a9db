"""Plans, runs and sweeps are the same to the bit for any number of threads and workers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import flmc
from support import full, full_only, many_repetitions, repeated
from system.digests_of_plans import digest_of

CALLS = Path(__file__).with_name("digests_of_plans.py")


def with_threads(threads: int) -> dict[str, str]:
    """The environment of a process whose BLAS uses so many threads."""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    return {**os.environ, **{name: str(threads) for name in names}}


@many_repetitions
@full_only
@pytest.mark.parametrize("part", range(full(4, 1)))
def test_plans(part: int) -> None:
    """A quarter of the settings each, so that two processors share the work."""
    count = repeated(50, 15, 3)
    first, last = part * count, (part + 1) * count
    found = [
        json.loads(
            subprocess.run(
                [sys.executable, CALLS, str(first), str(last)],
                env=with_threads(threads),
                capture_output=True,
                check=True,
                text=True,
            ).stdout
        )
        for threads in (1, 2, 4)
    ]
    assert found[0] == found[1] == found[2]
    assert sum(not each.startswith("refused") for each in found[0]) > count / 2
    # And in this process, whatever was computed here before.
    assert digest_of(first) == found[0][0]


@full_only
@pytest.mark.parametrize("engine", ["numpy", "numba"])
def test_a_record_goes_on_with_fewer_threads(engine: str, tmp_path: Path) -> None:
    """Made with four threads and interrupted, it is finished with one, to the bits of a run that
    was not interrupted."""
    asked = ["--engine", engine, "--dim", "40", "--samples", "4000", "--chains", "3"]
    asked += ["--rounds", "400", "--burn-in", "100", "--scope", "run", "--epsilon", "50"]
    command = [sys.executable, "-m", "flmc"]
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    run = [*command, "run", *asked, "--checkpoint-rounds", "20"]
    subprocess.run(
        [*run, "--out", str(whole)], env=with_threads(4), check=True, stdout=subprocess.DEVNULL
    )
    process = subprocess.Popen(
        [*run, "--out", str(cut)],
        env=with_threads(4),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    while process.poll() is None and not (cut / "checkpoint.npz").exists():
        pass
    process.kill()
    process.wait()
    if not (cut / "result.json").exists():  # a fast machine may have finished it
        subprocess.run(
            [*command, "resume", str(cut)],
            env=with_threads(1),
            check=True,
            stdout=subprocess.DEVNULL,
        )
    assert np.array_equal(flmc.load(cut).draws, flmc.load(whole).draws)


def test_a_sweep_with_one_worker_and_with_two() -> None:
    base = {"rounds": 60, "burn_in": 20, "chains": 2, "scope": "run", "engine": "numpy"}
    vary = {"epsilon": [1, 5], "dim": [5, 40]}
    tables = [flmc.sweep(base, vary=vary, workers=workers).rows for workers in (1, 2)]
    assert tables[0] == tables[1]
