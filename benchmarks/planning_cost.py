"""What planning costs: CPU time and memory of `flmc plan` in processes of its own, beside processes
that only import what it depends on.

CPU seconds are those of all threads of a child, user and system, medians of interleaved repeats;
memory is the largest resident size of any repeat. Two processes only import: one the core
dependencies of ``pyproject.toml`` by their names, of which SciPy and Pydantic then load next to
nothing, and one the very modules of them that an ordinary plan loads."""

from __future__ import annotations

import argparse
import json
import os
import resource
import shlex
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from rendering.markdown import every_column as table

CORE = ("numpy", "scipy", "pydantic", "typer", "rich", "threadpoolctl")
"""The core dependencies of ``pyproject.toml``."""
NAMES_ONLY, MODULES_ONLY = "imports, by name", "imports, what a plan loads"

_MOST_BYTES, _MOST_SECONDS = 6 * 10**9, 60
"""Address space and CPU time that a child may take."""
_EXAMPLE = "plan --neighbouring example --example-clip 1 --scope run"
CASES = {
    "ordinary": "plan",
    "ordinary, analog": "plan --scheme analog",
    "ordinary, budget of the run": "plan --scope run --epsilon 20",
    "adaptive": "plan --scope run --epsilon 20 --allocation adaptive",
    "link chosen": "plan --link auto",
    "everything chosen": "plan --choose clip,link,slope,rounds",
    "dim 10 000": "plan --dim 10000",
    "10 000 devices": "plan --devices 10000 --samples 100000",
    "dim 10 000, 10 000 devices": "plan --dim 10000 --devices 10000 --samples 100000",
    "example": _EXAMPLE,
    "example, linear link": f"{_EXAMPLE} --link linear",
    "example, analog": f"{_EXAMPLE} --scheme analog",
    "example, adaptive": f"{_EXAMPLE} --allocation adaptive",
    "example, by norm": "plan --neighbouring example --example-norm 2 --scope run",
    "example, dim 10 000": f"{_EXAMPLE} --dim 10000",
    "suggest": "plan --suggest",
    "suggest, run": "plan --suggest --scope run",
    "suggest, example": "plan --suggest --neighbouring example --scope run",
    "solve": "plan --solve epsilon --require good --scope run",
}
"""Commands by their names. The suggestions for a run and for examples find that nothing fits, which
takes longest: exit code 1."""


def measure_planning(repeats: int, before: Path | None = None) -> list[dict[str, Any]]:
    """Cost of every case.

    Parameters
    ----------
    repeats
        Children of each case, interleaved; at least 7 for medians that are worth something.
    before
        Sources of another version, the folder that holds ``flmc``, measured in turn with this one.

    Returns
    -------
    list of dict
        For each case ``case``, ``command``, ``cpu_seconds``, ``times_imports`` (over what a plan
        loads), ``peak_mb`` and ``exit_code``; with ``before`` also ``cpu_seconds_before``, None
        where that version does not answer alike.
    """
    python = [sys.executable]
    names = [*python, "-c", f"import {', '.join(CORE)}"]
    modules = [*python, "-c", f"import {', '.join(_modules_of_a_plan())}"]
    commands = {NAMES_ONLY: names, MODULES_ONLY: modules}
    commands |= {case: [*python, "-m", "flmc", *shlex.split(text)] for case, text in CASES.items()}
    # The first of each writes bytecode and warms caches; it says too whether there is an answer.
    jobs: dict[tuple[str, Path | None], list[_Child]] = {}
    for case, command in commands.items():
        now = _run(command, None)
        jobs[case, None] = []
        if before is not None and _run(command, before).exit_code == now.exit_code:
            jobs[case, before] = []
    for _ in range(repeats):
        for (case, source), children in jobs.items():
            children.append(_run(commands[case], source))
    imports = _median(jobs[MODULES_ONLY, None])
    rows = []
    for case in commands:
        children = jobs[case, None]
        row: dict[str, Any] = {
            "case": case,
            "command": "import" if case not in CASES else f"flmc {CASES[case]}",
            "cpu_seconds": _median(children),
            "times_imports": _median(children) / imports,
            "peak_mb": max(child.peak for child in children),
            "exit_code": children[-1].exit_code,
        }
        if before is not None:
            found = jobs.get((case, before))
            row["cpu_seconds_before"] = None if found is None else _median(found)
        rows.append(row)
    return rows


class _Child:
    """What a child took: CPU seconds, largest resident size in MB, and its exit code."""

    def __init__(self, status: int, usage: Any) -> None:
        self.cpu = float(usage.ru_utime + usage.ru_stime)
        self.peak = usage.ru_maxrss / 1000
        self.exit_code = os.waitstatus_to_exitcode(status)


def _median(children: list[_Child]) -> float:
    return statistics.median(child.cpu for child in children)


def _run(command: list[str], source: Path | None) -> _Child:
    """Run a child with the sources of this process, or with others, and bytecode that is kept."""
    process = subprocess.Popen(
        command,
        env=_environment(source),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=_limit,
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return _Child(status, usage)


def _limit() -> None:
    """In a child, before it starts: an older version may want all memory, or never answer."""
    resource.setrlimit(resource.RLIMIT_AS, (_MOST_BYTES, _MOST_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (_MOST_SECONDS, _MOST_SECONDS))


def _environment(source: Path | None) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return kept if source is None else {**kept, "PYTHONPATH": str(source)}


def _modules_of_a_plan() -> list[str]:
    """Modules of the core dependencies that an ordinary plan loads, SciPy's name among them."""
    code = (
        "import sys; from flmc.cli import main; main(['plan']);"
        f"found = [name for name in sys.modules if name.partition('.')[0] in {CORE!r}];"
        "print('MODULES', *found)"
    )
    said = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    found = said.partition("MODULES ")[2].split()
    # Parts of a package that are no files of their own come with the file that makes them.
    ours = [name for name in found if not name.startswith("numpy.") or "._" not in name]
    return [*ours, "scipy"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--before", type=Path, metavar="DIR", help="sources of another version")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    rows = measure_planning(options.repeats, options.before)
    print(table([{k: v for k, v in row.items() if k != "command"} for row in rows]))
    if options.json is not None:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
