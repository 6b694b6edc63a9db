"""What the package answers to the cases of the battery, in a process with bounded memory.

Run as a program it reads a case from each line of its input and writes the answer to its output,
so that a case which takes too much memory or time ends that process alone."""

from __future__ import annotations

import json
import math
import resource
import selectors
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from privacy.oracle.battery import Case, case_of, extremes

_MEMORY = 6 << 30
"""Address space of the process that answers, in bytes."""


@dataclass(frozen=True)
class Answer:
    """What an accountant said.

    Attributes
    ----------
    value
        Epsilon, or the gain that a budget allows; not a number where there is no answer.
    cpu
        Processor time in seconds.
    peak
        Largest resident memory of the process so far, in megabytes above that after importing the
        package.
    failure
        Why there is no answer; empty where there is one.
    """

    value: float
    cpu: float
    peak: float = math.nan
    failure: str = ""


def event_of(case: Case) -> Any:
    """The package's privacy event of a case, in noise of variance 1."""
    import flmc
    from flmc.privacy.bit_event import BitEvent
    from flmc.privacy.gaussian import GaussianEvent
    from flmc.privacy.shifted_bit_event import ShiftedBitEvent

    if case.accountant == "analog":
        return GaussianEvent(case.shift, 1.0, case.gains)
    if case.accountant == "asymmetric":
        return BitEvent(case.high, case.low, 1.0, case.gains)
    if case.accountant != "example":
        bits = extremes(case.link, case.reach)
        return BitEvent(float(bits.p), float(bits.q), 1.0, case.gains)
    clip = 1000.0 if case.link == "linear" else case.reach
    links = {
        "sigmoid": flmc.Sigmoid(1.0),
        "probit": flmc.Probit(1.0),
        "linear": flmc.Linear(min(case.reach, 1.0), clip=clip),
    }
    shift = clip * case.shift / case.reach if case.link == "linear" else case.shift
    return ShiftedBitEvent(links[case.link], clip, shift, 1.0, case.gains)


def ask(case: Case) -> float:
    """The accountant's epsilon, or the gain that it allows within the budget of the case."""
    event = event_of(case)
    if case.solves_gain:
        criterion = case.accountant if case.accountant in ("tail", "paper") else "tight"
        return float(event.allowed_gain(case.epsilon, case.delta, criterion, case.num_devices))
    return float(event.epsilon(case.delta))


def answers(cases: list[Case], seconds: float = 120.0) -> Iterator[Answer]:
    """Answers to cases, one after the other; a failure where one took too long or ended the
    process."""
    waiting = list(cases)
    while waiting:
        command = [sys.executable, "-m", "privacy.oracle.asking"]
        with subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=Path(__file__).parents[2],
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            with selectors.DefaultSelector() as selector:
                selector.register(process.stdout, selectors.EVENT_READ)
                while waiting:
                    process.stdin.write(json.dumps(asdict(waiting.pop(0))).encode() + b"\n")
                    process.stdin.flush()
                    line = process.stdout.readline() if selector.select(seconds) else None
                    if not line:
                        why = f"no answer in {seconds:g} s" if line is None else "process ended"
                        cpu = seconds if line is None else math.nan
                        yield Answer(math.nan, cpu, failure=why)
                        process.kill()
                        break
                    yield Answer(**json.loads(line))
            process.stdin.close()


def _resident() -> float:
    """Largest resident memory of this process so far, in megabytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """Answer the cases on the standard input, a line for each."""
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    import flmc  # noqa: F401  # what it takes is not the accountant's

    imported = _resident()
    # What is imported late, or compiled, at the first use of an accountant is not its time.
    for kind in ("device", "asymmetric", "analog"):
        ask(Case(kind, ((0.1, 3),), 1e-3, reach=1.0, shift=0.1, high=0.7, low=0.2))
    ask(Case("example", ((0.1, 3),), 1e-3, "sigmoid", 1.0, 0.1))
    for line in sys.stdin:
        case = case_of(json.loads(line))
        begin = time.process_time()
        try:
            value, failure = ask(case), ""
        except Exception as error:
            value, failure = math.nan, f"{type(error).__name__}: {error}"
        cpu = time.process_time() - begin
        sys.stdout.write(
            json.dumps(asdict(Answer(value, cpu, _resident() - imported, failure))) + "\n"
        )
        sys.stdout.flush()


if __name__ == "__main__":
    main()
