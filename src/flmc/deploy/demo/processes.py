"""Processes of a federation on one machine, each by its name, with a log of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

FLMC = (sys.executable, "-m", "flmc")
"""How to start a command of flmc with this Python."""


class Processes:
    """Processes that are all ended when the context ends.

    Parameters
    ----------
    logs
        Directory for what they print, a file each.
    environment
        Variables beside those of this process.
    """

    def __init__(self, logs: Path, environment: Mapping[str, str] | None = None) -> None:
        self._logs, self._running = logs, dict[str, subprocess.Popen[bytes]]()
        # One thread each: many processes share few processors.
        threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
        self._environment = {**os.environ, **threads, **(environment or {})}
        logs.mkdir(parents=True, exist_ok=True)

    def start(self, name: str, command: Sequence[str], folder: Path) -> None:
        """Start a process.

        Parameters
        ----------
        name, command
            What it is called here, and its words.
        folder
            Where it runs.
        """
        with (self._logs / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen(
                list(command),
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment,
                start_new_session=True,  # Ctrl-C in a terminal is for whoever started them
            )

    def code(self, name: str) -> int | None:
        """Exit code of a process; None: it is running.

        Parameters
        ----------
        name
            Its name.
        """
        return self._running[name].poll()

    def pid(self, name: str) -> int:
        """Number of a process.

        Parameters
        ----------
        name
            Its name.
        """
        return self._running[name].pid

    def ended(self) -> dict[str, int]:
        """Exit codes of those that have ended, by name."""
        codes = {name: process.poll() for name, process in self._running.items()}
        return {name: code for name, code in codes.items() if code is not None}

    def kill(self, name: str) -> None:
        """End a process without a warning (SIGKILL), and wait until it has ended.

        Parameters
        ----------
        name
            Its name.
        """
        self._running[name].kill()
        self._running[name].wait()

    def wait(self, name: str, seconds: float) -> int:
        """Exit code of a process, which is waited for.

        Parameters
        ----------
        name, seconds
            Its name, and how long to wait at most.
        """
        return self._running[name].wait(seconds)

    def log(self, name: str) -> str:
        """What a process has printed.

        Parameters
        ----------
        name
            Its name.
        """
        return (self._logs / f"{name}.log").read_text(errors="replace")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in self._running.values():
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self._running.values():
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
