"""Contents of the folders in a federation's directory: the place and the permissions of every
file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from flmc.base.errors import MissingExtra
from flmc.deploy.setup import authority, broker_files, templates
from flmc.deploy.setup.authority import SECRET
from flmc.deploy.setup.certificates import Pair
from flmc.runs.files.durable_files import write_atomically
from flmc.wire.topics import AIR, MONITOR, OBSERVER, SERVER, device_name

AUTHORITY, BROKER_FOLDER = "authority", "broker"
"""Names of the folders of the certificate authority and of the broker; every other folder has the
name of its role, such as ``air`` or ``device-3``."""
JOURNAL = "journal"
"""Name of the subfolder of a role's folder to which the role may write."""
SEALING_KEY, SEALING_PUBLIC = "air.key", "air.pub"
"""Names of the files with the air's secret and public sealing keys, 64 hexadecimal digits each;
devices encrypt their symbols to the public one."""
_PUBLIC, _EXECUTABLE, _FOLDER = 0o644, 0o755, 0o700


@dataclass(frozen=True)
class Layout:
    """Settings of a federation that appear in the files of its roles.

    Attributes
    ----------
    host, port
        Address of the broker.
    num_devices
        Number of devices.
    installed
        Directory into which systemd units expect the folders to be copied.
    days
        Days for which certificates are valid.
    """

    host: str
    port: int
    num_devices: int
    installed: str
    days: int

    @property
    def url(self) -> str:
        """Address ``mqtts://HOST:PORT`` at which the roles reach the broker."""
        return broker_files.broker_url(self.host, self.port)


def make(folder: Path, *, there: bool = False) -> Path:
    """Make a folder that only its owner can read, and return its path. If ``there``, an existing
    folder is left as it is; otherwise it raises ``FileExistsError``."""
    folder.mkdir(mode=_FOLDER, exist_ok=there)
    return folder


def write_roles(place: Path, layout: Layout) -> None:
    """Write a README into ``place``, and make the folders of broker and roles with configurations,
    start scripts and systemd units; other functions write keys and certificates."""
    num_devices = layout.num_devices
    _write(
        place / "README.txt",
        templates.README.format(
            num_devices=num_devices,
            url=layout.url,
            installed=layout.installed,
            days=layout.days,
        ),
    )
    broker = make(place / BROKER_FOLDER)
    _write(
        broker / broker_files.CONFIGURATION,
        broker_files.configuration(
            layout.host, layout.port, num_devices, by_root=os.geteuid() == 0
        ),
    )
    _write_start(broker, templates.broker_script(num_devices), layout)
    federation = templates.FEDERATION.format(quorum=-(-num_devices // 2))
    for role, text in ((AIR, templates.AIR), (SERVER, templates.SERVER)):
        _write_role(place / role, text, layout)
        _write(place / role / "federation.toml", federation)
    for watcher in (OBSERVER, MONITOR):
        _write(make(place / watcher) / "config.toml", templates.OBSERVER)
    for device in range(num_devices):
        text = templates.DEVICE.format(device=device)
        _write_role(place / device_name(device), text, layout)


def write_pair(folder: Path, pair: Pair, *, durable: bool = False) -> None:
    """Write a role's key and certificate into its folder; ``durable`` replaces earlier files
    atomically, without it the files must be new."""
    # The key is written first, because a certificate without its key is worth nothing. If a crash
    # leaves one old and one new file, the role says so when it starts, and renewing again replaces
    # both.
    _write(folder / "key.pem", pair.key, SECRET, durable=durable)
    _write(folder / "cert.pem", pair.certificate, durable=durable)


def write_sealing_keys(place: Path, devices: Sequence[str]) -> list[str]:
    """Make new sealing keys of the air, to which devices encrypt their symbols; write both keys
    into the air's folder and the public one into those folders of ``devices`` that exist; and
    return the written files, relative to ``place``."""
    try:
        from nacl.public import PrivateKey
    except ImportError as error:
        raise MissingExtra(
            "keys for sealing need the extra mqtt: pip install 'flmc[mqtt]'"
        ) from error
    key = PrivateKey.generate()
    make(place / AIR, there=True)
    _write(place / AIR / SEALING_KEY, f"{bytes(key).hex()}\n", SECRET, durable=True)
    written = [f"{AIR}/{SEALING_KEY}"]
    for identity in (AIR, *devices):
        if (place / identity).is_dir():
            public = f"{bytes(key.public_key).hex()}\n"
            # A public key that exists already is replaced atomically and synced. The files of a new
            # federation are synced together when its directory is complete, not one by one in ten
            # thousand folders.
            old = (place / identity / SEALING_PUBLIC).exists()
            _write(place / identity / SEALING_PUBLIC, public, durable=old)
            written.append(f"{identity}/{SEALING_PUBLIC}")
    return written


def copy_certificate(place: Path, identities: Sequence[str]) -> None:
    """Copy the authority's certificate into those folders of ``identities`` that lack it."""
    certificate = (place / AUTHORITY / authority.CERTIFICATE).read_bytes()
    for identity in identities:
        if not (place / identity / authority.CERTIFICATE).exists():
            _write(place / identity / authority.CERTIFICATE, certificate)


def copy_revocations(place: Path) -> None:
    """Copy the authority's revocation list into the broker's folder."""
    revocations = (place / AUTHORITY / authority.REVOCATIONS).read_bytes()
    _write(place / BROKER_FOLDER / authority.REVOCATIONS, revocations, durable=True)


def write_access(place: Path, identities: Sequence[str], *, durable: bool = False) -> None:
    """Write the broker's access list, by which only ``identities`` may write and read topics; with
    ``durable`` it atomically replaces an earlier list, otherwise there must be none."""
    text = broker_files.access_list(identities)
    # Only the owner may read the access list, because mosquitto warns otherwise.
    _write(place / BROKER_FOLDER / broker_files.ACCESS, text, SECRET, durable=durable)


def _write_role(folder: Path, text: str, layout: Layout) -> None:
    """Make a role's folder with a journal folder in it, and write its configuration ``text``, start
    script and systemd unit."""
    make(folder)
    make(folder / JOURNAL)
    _write(folder / "config.toml", text)
    _write_start(folder, templates.script(folder.name, layout.url), layout)


def _write_start(folder: Path, script: str, layout: Layout) -> None:
    """Write a role's start script and systemd unit into its folder."""
    _write(folder / templates.SCRIPT, script, _EXECUTABLE)
    text = templates.unit(
        folder.name, layout.installed, port=layout.port, num_devices=layout.num_devices
    )
    _write(folder / templates.unit_name(folder.name), text)


def _write(path: Path, text: str | bytes, mode: int = _PUBLIC, *, durable: bool = False) -> None:
    """Write a file with the permissions ``mode``: if ``durable``, atomically and synced, in place
    of an earlier file; otherwise not synced, with ``FileExistsError`` if there is one."""
    data = text.encode() if isinstance(text, str) else text
    if durable:
        write_atomically(path, lambda stream: stream.write(data), mode=mode)
        return
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as stream:
        stream.write(data)
