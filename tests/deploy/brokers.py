"""A real mosquitto with the files of a federation, for tests: started and ended by its process
id."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import aiomqtt
import pytest

from flmc.deploy.setup import directory as setup
from flmc.deploy.setup.broker_files import broker_url
from flmc.wire.mqtt import Credentials, Mqtt
from flmc.wire.transport import Message

HOST = "127.0.0.1"
_SEARCHED = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"))
MOSQUITTO = shutil.which("mosquitto", path=_SEARCHED)
needs_mosquitto = pytest.mark.skipif(
    MOSQUITTO is None, reason="mosquitto is not installed: apt-get install mosquitto"
)
_PATIENCE = 60.0
"""Seconds after which something that must happen is given up; nothing is judged by them."""


def free_port() -> int:
    """A port of this machine at which nobody listens now."""
    with socket.socket() as asked:
        asked.bind((HOST, 0))
        return int(asked.getsockname()[1])


def make_federation(directory: Path, num_devices: int) -> Path:
    """A new directory of a federation whose broker is to listen at a free port of loopback."""
    setup.init(directory, num_devices, hosts=(HOST,), port=free_port())
    return directory


class Broker:
    """A mosquitto that was started with the files of a directory.

    Attributes
    ----------
    directory
        The directory of the federation.
    port
        Where it listens, on loopback.
    log
        File with what it says.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.log = directory / "broker.log"
        self.port = _port_of(directory)
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def url(self) -> str:
        """Address for clients."""
        return broker_url(HOST, self.port)

    @property
    def pid(self) -> int:
        """Number of its process."""
        assert self._process is not None
        return self._process.pid

    def client(self, folder: str | Path) -> Mqtt:
        """How somebody with the certificate of a folder reaches it; a name is that of a folder of
        the federation."""
        place = self.directory / folder
        return Mqtt(self.url, Credentials(place / "ca.pem", place / "cert.pem", place / "key.pem"))

    def start(self) -> None:
        """Start it by its script, and return when it answers."""
        with self.log.open("ab") as log:
            # The script becomes mosquitto (exec), so that its number is mosquitto's.
            self._process = subprocess.Popen(
                [str(self.directory / "broker" / "start.sh")],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        _wait(self._answers)

    def _answers(self) -> bool:
        """Whether it answers. That it listens would not be enough: before its loop runs, a signal
        to read its files again ends it."""
        self.check()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with (
            suppress(OSError),
            socket.create_connection((HOST, self.port), timeout=5) as plain,
            context.wrap_socket(plain),
        ):
            return True
        return False

    def check(self) -> None:
        """Raise if it has ended by itself."""
        assert self._process is not None
        code = self._process.poll()
        assert code is None, f"mosquitto ended with {code}: {self.log.read_text()}"

    def reload(self) -> None:
        """Send SIGHUP, and return when it reads its files again; what is sent to it after that
        finds the new ones, because mosquitto has one thread."""
        before = self._count_reloads()
        os.kill(self.pid, signal.SIGHUP)
        _wait(lambda: self._count_reloads() > before)

    def _count_reloads(self) -> int:
        self.check()
        return self.log.read_text(errors="replace").count("Reloading config")

    def stop(self, number: int = signal.SIGTERM) -> None:
        """End it by a signal, SIGKILL for a crash, and return when it has ended."""
        if self._process is not None:
            if self._process.poll() is None:
                self._process.send_signal(number)
            self._process.wait(_PATIENCE)
            self._process = None


class Plain:
    """A client that sees all that the broker delivers; flmc's own transport leaves out what was not
    asked for, and would hide a leak."""

    def __init__(self, client: aiomqtt.Client) -> None:
        self._client = client

    async def publish(self, messages: Sequence[Message]) -> None:
        """Hand messages over, and return when the broker has acknowledged each."""
        for each in messages:
            await self._client.publish(each.topic, each.payload, qos=1, retain=each.retain)

    async def messages(self) -> AsyncIterator[Message]:
        """Messages that arrive."""
        async for found in self._client.messages:
            assert isinstance(found.payload, bytes)
            yield Message(str(found.topic), found.payload, bool(found.retain))


def context_of(folder: Path, *, authority: Path | None = None) -> ssl.SSLContext:
    """What a client with the certificate of a folder needs for TLS; it trusts the authority of that
    folder, or of another."""
    context = ssl.create_default_context(cafile=str((authority or folder) / "ca.pem"))
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    return context


@asynccontextmanager
async def connected(
    broker: Broker,
    identity: str,
    subscriptions: Sequence[str] = (),
    *,
    will: Message | None = None,
    client_id: str | None = None,
) -> AsyncIterator[Plain]:
    """A plain client with the certificate of an identity."""
    last = None if will is None else aiomqtt.Will(will.topic, will.payload, qos=1)
    async with aiomqtt.Client(
        HOST,
        broker.port,
        identifier=client_id or identity,
        protocol=aiomqtt.ProtocolVersion.V311,
        clean_session=True,
        will=last,
        tls_context=context_of(broker.directory / identity),
    ) as client:
        if subscriptions:
            await client.subscribe([(pattern, 1) for pattern in subscriptions])
        yield Plain(client)


def start(directory: Path) -> Broker:
    """A broker with the files of a directory, which listens; whoever starts it stops it."""
    return Broker(directory)


@contextmanager
def running(directory: Path) -> Iterator[Broker]:
    """A broker that is stopped at the end."""
    broker = start(directory)
    try:
        yield broker
    finally:
        broker.stop()


def _port_of(directory: Path) -> int:
    """The port in the configuration of a directory's broker."""
    for line in (directory / "broker" / "mosquitto.conf").read_text().splitlines():
        if line.startswith("listener "):
            return int(line.split()[1])
    raise AssertionError("the configuration names no listener")


def _wait(happened: Callable[[], bool]) -> None:
    """Return when something has happened."""
    end = time.monotonic() + _PATIENCE
    while not happened():
        assert time.monotonic() < end, "mosquitto did not do it in time"
        time.sleep(0.01)
