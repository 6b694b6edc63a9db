"""A tiny run in a new process: the first on a machine, where all code is compiled, and from the
cache."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

from measuring.job import Job

_CODE = """
import sys
from flmc.cli import main
main(["run", "--rounds", "3", "--burn-in", "1", "--chains", "1", "--json"])
from measuring.timing import peak_megabytes
print(peak_megabytes())
"""


def _start(cache: str) -> float:
    """Peak memory, in megabytes, of a new process with its compiled code in a directory."""
    # Modules compiled before every start would be counted as part of the start.
    environment = {**os.environ, "NUMBA_CACHE_DIR": cache}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    done = subprocess.run(
        [sys.executable, "-c", _CODE], capture_output=True, text=True, check=True, env=environment
    )
    return float(done.stdout.split()[-1])


def first_start() -> Job:
    """A new process that finds no compiled code."""
    facts: dict[str, float] = {}

    def turn() -> None:
        with tempfile.TemporaryDirectory() as cache:
            facts["peak_megabytes"] = _start(cache)

    return Job(turn, facts)


def cached_start() -> Job:
    """A new process that finds the code which an earlier one compiled."""
    # Lives as long as the closure below: it is removed with it.
    cache = tempfile.TemporaryDirectory()
    facts: dict[str, float] = {}

    def turn() -> None:
        facts["peak_megabytes"] = _start(cache.name)

    return Job(turn, facts)


JOBS = {"first start": first_start, "cached start": cached_start}
