"""Cases, each in a child process of its own that takes its turn when it is asked."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

HERE = Path(__file__).parents[1]
"""The folder of the benchmarks."""


class Case(NamedTuple):
    """A job by its name in ``jobs.JOBS``, and its arguments as JSON values."""

    job: str
    arguments: dict[str, Any]


class Measured(NamedTuple):
    """What came out of a case.

    Attributes
    ----------
    seconds
        Median CPU seconds of a turn, all threads; None where the case did not run.
    times
        CPU seconds of all turns, in order.
    peak_megabytes
        Largest resident memory of the child process, with the interpreter and all imports.
    facts
        What the job says of itself.
    absent
        Why the case did not run; empty if it did.
    """

    seconds: float | None
    times: list[float]
    peak_megabytes: float | None
    facts: dict[str, Any]
    absent: str = ""

    @property
    def row(self) -> dict[str, Any]:
        """The same without single times, for the JSON."""
        found = {
            "seconds": self.seconds,
            "peak_megabytes": self.peak_megabytes,
            **{name: value for name, value in self.facts.items() if name != "peak_megabytes"},
        }
        return {**found, "absent": self.absent} if self.absent else found


class Worker:
    """A child process that has prepared a case and waits for its turns.

    Parameters
    ----------
    case
        What it does.
    sources
        Folder of the flmc to be measured; None: whatever the environment imports.
    environment
        Variables beside those of this process.
    """

    def __init__(
        self,
        case: Case,
        sources: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        paths = [str(HERE)] + ([str(sources)] if sources else [])
        if "PYTHONPATH" in os.environ:
            paths.append(os.environ["PYTHONPATH"])
        self._case = case
        self._process = subprocess.Popen(
            [sys.executable, "-m", "measuring.serving", case.job, json.dumps(case.arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={
                **os.environ,
                # Threads of OpenMP that wait must not count as work.
                "OMP_WAIT_POLICY": "passive",
                **(environment or {}),
                "PYTHONPATH": os.pathsep.join(paths),
            },
        )
        self._times: list[float] = []
        self._last: dict[str, Any] = {}
        self.absent = self._answer().get("absent", "")

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait()

    def _answer(self) -> dict[str, Any]:
        """The next line of the child; where it died, that is the answer, and its own words are on
        standard error."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            return {"absent": f"it failed with exit code {self._process.wait()}"}
        answer: dict[str, Any] = json.loads(line)
        return answer

    def turn(self, count: bool = True) -> float:
        """CPU seconds of one turn; one that does not count only warms up. NaN if it cannot run."""
        if not self.absent:
            assert self._process.stdin is not None
            self._process.stdin.write("\n")
            self._process.stdin.flush()
            answer = self._answer()
            self.absent = answer.get("absent", "")
            if not self.absent:
                self._last = answer
                if count:
                    self._times.append(answer["seconds"])
                return float(answer["seconds"])
        return float("nan")

    @property
    def measured(self) -> Measured:
        """What came out of the turns so far."""
        if self.absent or not self._times:
            return Measured(None, [], None, {}, self.absent or "it had no turn")
        return Measured(
            statistics.median(self._times),
            self._times,
            self._last["peak_megabytes"],
            self._last["facts"],
        )


def measure(cases: Mapping[str, Case], repeats: int) -> dict[str, Measured]:
    """Measure cases that take turns, ``repeats`` each after one that warms up.

    All children live at the same time, so the memory of the machine must hold them together."""
    with ExitStack() as stack:
        workers = {name: stack.enter_context(Worker(case)) for name, case in cases.items()}
        for worker in workers.values():
            worker.turn(count=False)
        for _ in range(repeats):
            for worker in workers.values():
                worker.turn()
        found = {name: worker.measured for name, worker in workers.items()}
    for name, each in found.items():
        said = each.absent or f"{1e3 * (each.seconds or 0):10.2f} ms"
        print(f"  {name}: {said}", file=sys.stderr, flush=True)
    return found
