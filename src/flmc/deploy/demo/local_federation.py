"""A federation on this machine: folders, data, plan; and how its processes are started."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from flmc.base.errors import InvalidSetting, MissingExtra, RunFailed
from flmc.data.linear import LinearData
from flmc.deploy.demo.processes import FLMC, Processes
from flmc.deploy.setup.directory import init
from flmc.planning.plans import Plan
from flmc.runs.files.durable_files import write_arrays
from flmc.settings.toml import to_toml
from flmc.wire.topics import AIR, SERVER, device_name

BROKERS = ("embedded", "mosquitto")
"""A broker in Python without TLS, or mosquitto with certificates and rights."""
_START_SECONDS = 30.0


def free_port() -> int:
    """A port of loopback that nobody uses now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def find_mosquitto() -> str | None:
    """Path of mosquitto; None: it is not installed."""
    return shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/sbin")


@dataclass(frozen=True)
class LocalFederation:
    """Folders of a federation on this machine.

    Attributes
    ----------
    directory
        What ``flmc deploy init`` wrote, with plan and data.
    broker, port
        One of ``BROKERS``, and where it listens.
    num_devices
        Devices.
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
        """Write all that the processes of a federation need.

        Parameters
        ----------
        directory
            A new directory.
        plan, data
            The plan, and the examples of all devices, which are written to a file for each.
        broker
            One of ``BROKERS``.
        run
            Name of the run.
        budget
            Lifetime budget of every device; None: no limit.
        **agreed
            Quorum, slot_ms and deadline_ms, where they are not the usual ones.
        """
        port = free_port()
        found = cls(directory, broker, port, plan.num_devices)
        if broker not in BROKERS:
            raise InvalidSetting(f"broker must be one of {', '.join(BROKERS)}, got {broker!r}")
        if broker == "mosquitto" and find_mosquitto() is None:
            raise MissingExtra("mosquitto is not installed: install it, or use the embedded broker")
        init(directory, plan.num_devices, port=port)
        found.write_plan(plan, run, **agreed)
        parts = np.cumsum((0, *data.device_sizes))
        for device in range(plan.num_devices):
            folder, rows = directory / device_name(device), slice(*parts[device : device + 2])
            arrays = {"X": data.features[rows], "Y": data.targets[rows]}
            write_arrays(folder / "data.npz", arrays)
            found.write_device(device, budget or {})
        return found

    def write_plan(self, plan: Plan, run: str, **agreed: Any) -> None:
        """Write plan and federation into the folders of air and server.

        Parameters
        ----------
        plan, run
            The plan, and the name of the run.
        **agreed
            Quorum, slot_ms and deadline_ms, where they are not the usual ones.
        """
        text = json.dumps(plan.to_document(with_run=False), allow_nan=False)
        settings = {"run": run, "plan": "plan.json"}
        settings |= {name: value for name, value in agreed.items() if value is not None}
        for role in (AIR, SERVER):
            (self.directory / role / "plan.json").write_text(text)
            (self.directory / role / "federation.toml").write_text(to_toml(settings))

    def write_device(self, device: int, budget: dict[str, Any]) -> None:
        """Write the configuration of a device.

        Parameters
        ----------
        device, budget
            Its number, and its lifetime budget; empty: no limit.
        """
        settings = {"id": device, "data": "data.npz", "air_key": "air.pub", "journal": "journal"}
        text = (
            to_toml(settings) + "\n[budget]\n" + (to_toml(budget) if budget else "epsilon = inf\n")
        )
        tls = to_toml({"ca": "ca.pem", "cert": "cert.pem", "key": "key.pem"})
        path = self.directory / device_name(device) / "config.toml"
        path.write_text(text + "\n[tls]\n" + tls)

    @property
    def url(self) -> str:
        """Address of the broker."""
        scheme = "mqtts" if self.broker == "mosquitto" else "mqtt"
        return f"{scheme}://127.0.0.1:{self.port}"

    @property
    def record(self) -> Path:
        """Directory of the server's record."""
        return self.directory / SERVER / "journal" / "record"

    def start(self, processes: Processes, role: str, more: Sequence[str] = ()) -> None:
        """Start a role, or the broker, which is waited for.

        Parameters
        ----------
        processes
            Where it belongs.
        role
            ``broker``, ``air``, ``server`` or a device's identity.
        more
            Further words of its command.
        """
        folder = self.directory / role
        if role == "broker":
            processes.start(role, self._broker_command(), folder)
            self._wait_for_broker(processes)
            return
        name = {AIR: "air", SERVER: "serve"}.get(role, "device")
        words = [*FLMC, name, "--config", "config.toml", "--broker", self.url, "--log", "json"]
        processes.start(role, [*words, *more], folder)

    def _broker_command(self) -> list[str]:
        """What starts the broker."""
        if self.broker == "mosquitto":
            return [find_mosquitto() or "mosquitto", "-c", "mosquitto.conf"]
        module = "flmc.deploy.demo.embedded_broker"
        return [sys.executable, "-m", module, "--port", str(self.port)]

    def _wait_for_broker(self, processes: Processes) -> None:
        """Return when the broker takes connections."""
        until = time.monotonic() + _START_SECONDS
        while time.monotonic() < until and processes.code("broker") is None:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            time.sleep(0.02)
        raise RunFailed(f"the broker did not start: {processes.log('broker')[-500:]}")
