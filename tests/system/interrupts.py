"""Interrupts at random instants, beside busy loops: every command ends soon, and loses nothing.

``python tests/system/interrupts.py [COUNT [SEED]]`` sends SIGINT or SIGTERM to COUNT commands (300)
between 0 and 3 seconds after their start, with two busy loops beside them, and prints a table. A
command must end within 10 seconds with exit code 130 and one line, or have finished before; a
record goes on to the bits of a run that nobody interrupted, and every kept point of a sweep can be
read. The first violation ends the program with a traceback of its own."""

from __future__ import annotations

import io
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path

from flmc.base.tables import Grid
from flmc.cli import main as flmc_main
from flmc.runs.files.durable_files import read_json
from flmc.runs.records import load

LONGEST = 10.0
"""Seconds from the signal to the end of the process, at most."""
WITHIN = 3.0
"""Seconds after the start of a command up to which it is interrupted."""
SIZES = ["--devices", "4", "--samples", "80", "--experiments", "2", "--chains", "3"]
RECORDED = [*SIZES, "--rounds", "1500", "--burn-in", "300", "--checkpoint-rounds", "100"]
"""A run of about a second with the numpy engine."""
GRID = """devices = 4
samples = 80
rounds = 600
burn_in = 100
chains = 20
engine = "numpy"
[sweep]
seed = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]
"""


@dataclass
class Tally:
    """What became of the interrupts of one case."""

    interrupted: int = 0
    finished: int = 0
    """Commands that had ended before the signal, or were about to."""
    unheard: int = 0
    """Commands that were interrupted while Python itself started, before the first line of flmc."""
    whole: int = 0
    """Records and sweeps that were looked at afterwards, and lost nothing."""
    seconds: list[float] = field(default_factory=list)
    """From the signal to the end of the process."""


@dataclass(frozen=True)
class Case:
    """A command that is interrupted: its words in a new directory, and a check of what it left."""

    words: Callable[[Path], Sequence[str]]
    check: Callable[[Path], bool] = lambda place: False
    sign: str = ""
    """Files that show that the work itself has begun: every second time, the clock starts then."""


class Prepared:
    """Records that cases begin with, and the result of an uninterrupted run."""

    def __init__(self, place: Path) -> None:
        self.place = place
        _quietly("run", *RECORDED, "--engine", "numpy", "--out", str(place / "whole"))
        self.essence = _essence(place / "whole")
        (place / "grid.toml").write_text(GRID)
        # Killed when its record has begun: that is where a resumption starts.
        started = subprocess.Popen(
            _command("run", *RECORDED, "--engine", "numpy", "--out", str(place / "begun")),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        while not (place / "begun" / "checkpoint.npz").exists() and started.poll() is None:
            time.sleep(0.005)
        started.kill()
        started.wait()

    def cases(self) -> dict[str, Case]:
        """Every case by name."""
        record = [*RECORDED, "--engine", "numpy", "--json", "--out"]
        endless = ["run", *SIZES, "--rounds", "9000000", "--json"]
        sweep = ["sweep", "--config", str(self.place / "grid.toml"), "--out"]
        return {
            "help": Case(lambda place: ["--help"]),
            "plan": Case(lambda place: ["plan", "--json"]),
            "run": Case(lambda place: endless),
            "run, recorded": Case(
                lambda place: ["run", *record, str(place / "r")], self.goes_on, "r/ledger.txt"
            ),
            "run, recorded, numba": Case(
                lambda place: [*endless, "--out", str(place / "r")],
                self.can_be_read,
                "r/ledger.txt",
            ),
            "resume": Case(self.resumption, self.goes_on),
            "sweep": Case(
                lambda place: [*sweep, str(place), "--workers", "1"], points_whole, "points/*.json"
            ),
            "sweep, two processes": Case(
                lambda place: [*sweep, str(place), "--workers", "2"], points_whole, "points/*.json"
            ),
            "reproduce": Case(
                lambda place: ["reproduce", "--experiments", "2", "--out", str(place / "r")]
            ),
            "ledger": Case(lambda place: ["ledger", str(self.place / "whole"), "--json"]),
        }

    def resumption(self, place: Path) -> list[str]:
        """Words that go on with a copy of the record that was begun."""
        shutil.copytree(self.place / "begun", place / "r")
        return ["resume", str(place / "r"), "--json"]

    def goes_on(self, place: Path) -> bool:
        """Whether there is a record; it then goes on to the bits of the uninterrupted run."""
        if not (place / "r" / "run.json").exists():
            return False
        _quietly("resume", str(place / "r"), "--json")
        assert _essence(place / "r") == self.essence, place
        return True

    def can_be_read(self, place: Path) -> bool:
        """Whether there is a record; all of it can then be read, and it is not finished."""
        if not (place / "r" / "run.json").exists():
            return False
        assert load(place / "r").result is None, place
        return True


def points_whole(place: Path) -> bool:
    """Whether a sweep has finished points; each has the digest that it was written with."""
    points = list((place / "points").glob("*.json"))
    for point in points:
        assert read_json(point, signed=True), point
    return bool(points)


def interrupt(case: Case, tally: Tally, rng: random.Random, longest: float) -> None:
    """Start the command of a case, interrupt it, and note what became of it.

    An end that comes later than ``longest`` seconds after the signal is refused."""
    with tempfile.TemporaryDirectory(prefix="flmc-interrupts-") as name:
        place = Path(name)
        number = rng.choice([signal.SIGINT, signal.SIGTERM])
        after = rng.uniform(0.0, WITHIN)
        process = subprocess.Popen(
            _command(*case.words(place)),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            if case.sign and rng.random() < 0.5:
                after /= 3
                while not any(place.glob(case.sign)) and process.poll() is None:
                    time.sleep(0.01)
            time.sleep(after)
            # A terminal sends SIGINT to all processes of the command, kill sends to one of them.
            if number == signal.SIGINT and process.poll() is None:
                os.killpg(process.pid, number)
            else:
                process.send_signal(number)
            began = time.monotonic()
            # Only what the process itself says: workers of a sweep may hold the stream for longer.
            process.wait(longest)
            tally.seconds.append(time.monotonic() - began)
            said = process.communicate(timeout=longest)[1]
        finally:
            process.kill()  # no effect on one that has ended
        _judge(process.returncode, said, tally, (after, number))
        tally.whole += case.check(place)


def _judge(code: int, said: str, tally: Tally, where: object) -> None:
    """Count an end under its kind; refuse one that is none of them."""
    if code == 0:
        tally.finished += 1
    elif code == 130:
        assert "flmc: interrupted" in said, (where, said)
        assert "Traceback" not in said, (where, said)
        tally.interrupted += 1
    else:
        # Up to the first line of flmc a signal ends the process without a word (by its number), or
        # Python says in its own way what it was doing.
        assert code < 0 or code in (1, 130), (where, code, said)
        assert "flmc_command.py" not in said, (where, said)
        assert "/flmc/" not in said, (where, said)
        tally.unheard += 1


def _command(*words: str) -> list[str]:
    """A command line as the installed script runs it."""
    return [sys.executable, "-c", "from flmc_command import main\nexit(main())", *words]


def _quietly(*words: str) -> None:
    """Run a command in this process, without its output; it must succeed."""
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()) as said:
        code = flmc_main(list(words))
    assert code == 0, (words, said.getvalue())


def _essence(record: Path) -> tuple[bytes, bytes, dict[str, object]]:
    """Draws, ledger, and the result without its time and the digest that covers it."""
    result = json.loads((record / "result.json").read_text())
    del result["seconds"], result["sha256"]
    return (record / "draws.npz").read_bytes(), (record / "ledger.txt").read_bytes(), result


@contextmanager
def busy_loops(count: int) -> Iterator[None]:
    """While this lasts, some processes compute without end."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def run_all(count: int, seed: int, loops: int = 2, longest: float = LONGEST) -> dict[str, Tally]:
    """Interrupt ``count`` commands, the cases in turn, and return what became of each case."""
    # A child inherits that SIGINT is ignored, as in jobs that a shell started in the background,
    # and Python then starts deaf.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    rng = random.Random(seed)
    try:
        with tempfile.TemporaryDirectory(prefix="flmc-interrupts-") as name:
            cases = Prepared(Path(name)).cases()
            tallies = {case: Tally() for case in cases}
            with busy_loops(loops):
                for trial in range(count):
                    case = list(cases)[trial % len(cases)]
                    interrupt(cases[case], tallies[case], rng, longest)
    finally:
        signal.signal(signal.SIGINT, before)
    return tallies


def table(tallies: dict[str, Tally]) -> Grid:
    """What became of every case, and of all."""
    rows = []
    for name, tally in tallies.items():
        slowest = sorted(tally.seconds)
        rows.append(
            (
                name,
                *(str(n) for n in (len(slowest), tally.interrupted, tally.finished)),
                *(str(n) for n in (tally.unheard, tally.whole)),
                f"{slowest[len(slowest) // 2]:.2f}",
                f"{slowest[-1]:.2f}",
            )
        )
    header = (
        "command",
        "signals",
        "exit code\n130",
        "finished\nbefore",
        "while Python\nstarted",
        "records or\npoints whole",
        "median s\nto the end",
        "longest s",
    )
    return Grid(header, tuple(rows), "interrupts at random instants from 0 to 3 s")


def main(words: Sequence[str]) -> int:
    """Print the table; see the docstring of the module."""
    count, seed = [*map(int, words), *(300, 1)[len(words) :]]
    print(table(run_all(count, seed)))  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
