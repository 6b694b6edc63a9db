"""A run that dies before each of its file events, one after the other, and goes on each time.

It is a program of its own, because it forks: a child runs the command with a hook of the
interpreter that ends it at the n-th event, as a kill would; another child goes on with what is
there. Printed is the number of events; the first difference ends the program with 1."""

from __future__ import annotations

import io
import json
import os
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

from flmc.cli import main

EVENTS = {
    "open",
    "os.rename",
    "os.remove",
    "os.truncate",
    "os.mkdir",
    "os.chmod",
    "fcntl.flock",
}
DIED = 99


def in_child(words: list[str], place: Path, last: int | None = None) -> int:
    """Exit code of a command in a child that dies before its event number ``last``."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    sink = os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, 1)
    os.dup2(sink, 2)
    count = 0

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal count
        if event in EVENTS and (event == "fcntl.flock" or str(place) in str(arguments[0])):
            if count == last:
                os._exit(DIED)
            count += 1

    sys.addaudithook(hook)
    os._exit(main(words))


def essence(out: Path) -> tuple[bytes, bytes, dict[str, object]]:
    """Draws, ledger, and the result without its time and what covers that."""
    result = json.loads((out / "result.json").read_text())
    del result["seconds"], result["sha256"]
    return (out / "draws.npz").read_bytes(), (out / "ledger.txt").read_bytes(), result


def die_everywhere(words: list[str], place: Path, first: int, stride: int) -> int:
    """How many events there were; each ``stride``-th from ``first`` on was died at."""
    # In this process, so that its children find everything imported and compiled.
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        assert main(["run", *words, "--out", str(place / "whole")]) == 0
    truth = essence(place / "whole")
    for event in range(first, 10_000, stride):
        out = place / f"died-{event}"
        code = in_child(["run", *words, "--out", str(out)], out, event)
        if code == 0:
            return event
        assert code == DIED, code
        if not (out / "run.json").exists():
            code = in_child(["run", *words, "--out", str(out)], out)
        else:
            code = in_child(["resume", str(out)], out)
        assert code == 0, (event, code)
        assert essence(out) == truth, event
        hidden = [path.name for path in out.iterdir() if path.name.startswith(".")]
        assert hidden in ([], [".lock"]), hidden
    raise AssertionError("the run never ended")


if __name__ == "__main__":
    print(die_everywhere(sys.argv[4:], Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))  # noqa: T201
