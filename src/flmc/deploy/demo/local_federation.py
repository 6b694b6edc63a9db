"""A federation on this machine: its folders, data and plan, and its processes with a log each."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from flmc.base.errors import InvalidSetting, MissingExtra, RunFailed
from flmc.data.linear_data import LinearData
from flmc.deploy.setup.directory import init
from flmc.planning.plans import Plan
from flmc.runs.files.durable_files import write_arrays
from flmc.settings.schema import to_toml
from flmc.wire.topics import AIR, SERVER, device_name

FLMC = (sys.executable, "-m", "flmc")
"""Beginning of a command line that runs flmc with this process's Python."""
BROKERS = ("embedded", "mosquitto")
"""Kinds of brokers for a federation on this machine: one in Python without TLS, or mosquitto with
certificates and access rights."""
_START_SECONDS = 30.0
"""Seconds after its start within which the broker must accept connections."""


@dataclass(frozen=True)
class LocalFederation:
    """A federation on this machine, with a folder for each role (server, air, devices, broker).

    Attributes
    ----------
    directory
        Directory of ``flmc deploy init``, with plan and data.
    broker, port
        One of ``BROKERS``, and its port on loopback.
    num_devices
        Number of devices.
    """

    directory: Path
    broker: str
    port: int
    num_devices: int

    @classmethod
    def prepare(
        cls,
        directory: Path,
        plan: Plan,
        data: LinearData,
        *,
        broker: str = "embedded",
        run: str = "demo",
        budget: dict[str, Any] | None = None,
        **agreed: Any,
    ) -> LocalFederation:
        """Write everything that the processes need into a new directory: certificates, the plan,
        and for each device a file of its examples and its lifetime privacy ``budget``, settings by
        name (None: no limit). ``agreed`` may set quorum, slot_ms and deadline_ms of the federation.
        Raises ``MissingExtra`` if mosquitto is asked for but not installed."""
        port = free_port()
        federation = cls(directory, broker, port, plan.num_devices)
        if broker not in BROKERS:
            raise InvalidSetting(f"broker must be one of {', '.join(BROKERS)}, got {broker!r}")
        if broker == "mosquitto" and find_mosquitto() is None:
            raise MissingExtra("mosquitto is not installed: install it, or use the embedded broker")
        init(directory, plan.num_devices, port=port)
        federation.write_plan(plan, run, **agreed)
        parts = np.cumsum((0, *data.device_sizes))
        for device in range(plan.num_devices):
            folder, rows = directory / device_name(device), slice(*parts[device : device + 2])
            arrays = {"X": data.features[rows], "Y": data.targets[rows]}
            write_arrays(folder / "data.npz", arrays)
            federation.write_device(device, budget or {})
        return federation

    def write_plan(self, plan: Plan, run: str, **agreed: Any) -> None:
        """Write ``plan.json`` and ``federation.toml`` into the folders of air and server; ``run``
        is the name of the run, and ``agreed`` may set quorum, slot_ms and deadline_ms of the
        federation."""
        # The forecast is left out: it was computed from the devices' data, and air and server need
        # only what the plan fixes.
        document = plan.without_forecast().to_document(with_run=False)
        text = json.dumps(document, allow_nan=False)
        settings = {"run": run, "plan": "plan.json"}
        settings |= {name: value for name, value in agreed.items() if value is not None}
        for role in (AIR, SERVER):
            (self.directory / role / "plan.json").write_text(text)
            (self.directory / role / "federation.toml").write_text(to_toml(settings))

    def write_device(self, device: int, budget: dict[str, Any]) -> None:
        """Write the configuration file of a device (from 0) with its lifetime privacy ``budget``:
        epsilon, delta and other settings by name; an empty budget means no limit."""
        settings = {"id": device, "data": "data.npz", "air_key": "air.pub", "journal": "journal"}
        text = (
            to_toml(settings) + "\n[budget]\n" + (to_toml(budget) if budget else "epsilon = inf\n")
        )
        tls = to_toml({"ca": "ca.pem", "cert": "cert.pem", "key": "key.pem"})
        path = self.directory / device_name(device) / "config.toml"
        path.write_text(text + "\n[tls]\n" + tls)

    @property
    def url(self) -> str:
        """Address at which the roles reach the broker, such as ``mqtt://127.0.0.1:1883``."""
        scheme = "mqtts" if self.broker == "mosquitto" else "mqtt"
        return f"{scheme}://127.0.0.1:{self.port}"

    @property
    def record(self) -> Path:
        """Directory in which the server records the run."""
        return self.directory / SERVER / "journal" / "record"

    def start(self, processes: Processes, role: str, more: Sequence[str] = ()) -> None:
        """Start the process of ``role`` (``air``, ``server``, or a device such as ``device-3``)
        with the command-line options ``more``; or start the ``broker``, and wait until it accepts
        connections."""
        folder = self.directory / role
        if role == "broker":
            processes.start(role, self._broker_command(), folder)
            self._wait_for_broker(processes)
            return
        name = {AIR: "air", SERVER: "serve"}.get(role, "device")
        words = [*FLMC, name, "--config", "config.toml", "--broker", self.url, "--log", "json"]
        processes.start(role, [*words, *more], folder)

    def _broker_command(self) -> list[str]:
        """Command, as a list of words, that starts the broker on its port."""
        if self.broker == "mosquitto":
            return [find_mosquitto() or "mosquitto", "-c", "mosquitto.conf"]
        module = "flmc.deploy.demo.embedded_broker"
        return [sys.executable, "-m", module, "--port", str(self.port)]

    def _wait_for_broker(self, processes: Processes) -> None:
        """Return when the broker accepts connections; raises ``RunFailed`` if its process ends, or
        after 30 seconds."""
        until = time.monotonic() + _START_SECONDS
        while time.monotonic() < until and processes.code("broker") is None:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            time.sleep(0.02)
        raise RunFailed(f"the broker did not start: {processes.log('broker')[-500:]}")


class Processes:
    """Child processes by name, all of which end when the context ends. Each prints to a file of its
    own in the directory ``logs``; its environment variables are those of this process and
    ``environment``."""

    def __init__(self, logs: Path, environment: Mapping[str, str] | None = None) -> None:
        self._logs, self._running = logs, dict[str, subprocess.Popen[bytes]]()
        # Linear algebra uses one thread in each process, because there are more processes than
        # processors.
        threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
        self._environment = {**os.environ, **threads, **(environment or {})}
        logs.mkdir(parents=True, exist_ok=True)

    def start(self, name: str, command: Sequence[str], folder: Path) -> None:
        """Start a command in a folder, as the process ``name``."""
        with (self._logs / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen(
                list(command),
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment,
                # A child in a session of its own does not get the terminal's Ctrl-C: only this
                # process does, and then ends its children.
                start_new_session=True,
            )

    def code(self, name: str) -> int | None:
        """Exit code of a process; None while it is running."""
        return self._running[name].poll()

    def pid(self, name: str) -> int:
        """Identifier that the operating system gave to the process ``name``."""
        return self._running[name].pid

    def ended(self) -> dict[str, int]:
        """Exit codes of the ended processes by name."""
        codes = {name: process.poll() for name, process in self._running.items()}
        return {name: code for name, code in codes.items() if code is not None}

    def kill(self, name: str) -> None:
        """Kill a process (SIGKILL), and wait until it has ended."""
        self._running[name].kill()
        self._running[name].wait()

    def wait(self, name: str, seconds: float) -> int:
        """Exit code of a process, after waiting for its end; raises ``subprocess.TimeoutExpired``
        after ``seconds``."""
        return self._running[name].wait(seconds)

    def log(self, name: str) -> str:
        """Text that a process has printed so far."""
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


def free_port() -> int:
    """A loopback port that is free at the moment."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def find_mosquitto() -> str | None:
    """Path of the broker's program mosquitto; None if it is not installed."""
    return shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/sbin")
