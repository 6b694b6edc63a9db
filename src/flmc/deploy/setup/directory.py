"""The directory of a federation: made once by :func:`init`; :func:`renew` and :func:`revoke`
change its certificates.

It has a folder for each role, with all files that the role's machine needs, and the folder
``authority``, which stays with the operator who set the federation up. The operator's next steps
(``SetupOutcome.steps``) describe SIGHUP as mosquitto 2.0 handles it; tests check that.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from flmc.base import checks
from flmc.base.documents import ANSWER_VERSION
from flmc.base.errors import InvalidSetting
from flmc.deploy.setup import folders
from flmc.deploy.setup.authority import AUTHORITY_DAYS, DAYS, REVOCATIONS, Authority, check_days
from flmc.deploy.setup.broker_files import ACCESS, LOOPBACK, host_name
from flmc.deploy.setup.certificates import BROKER, CLIENT
from flmc.deploy.setup.folders import AUTHORITY, BROKER_FOLDER, Layout
from flmc.runs.files.durable_files import locked
from flmc.wire.topics import AIR, MONITOR, OBSERVER, SERVER, device_name, device_number

_RELOAD = (
    "copy broker/crl.pem and broker/acl to the broker's machine, then send mosquitto SIGHUP"
    " (systemctl reload flmc-broker), by which mosquitto 2.0 reads both again"
)
MOST_DEVICES = 10_000
"""Largest number of devices for which a federation's directory can be set up; more raise
``InvalidSetting``."""
DEFAULT_HOST, DEFAULT_PORT = "127.0.0.1", 8883
"""Default address of the broker, reachable from this machine only."""
DEFAULT_INSTALLED = "/srv/flmc"
"""Default directory into which systemd units expect the roles' folders to be copied."""


@dataclass(frozen=True)
class SetupOutcome:
    """Outcome of ``init``, ``renew`` or ``revoke`` on a federation's directory, with the steps that
    are left to the operator.

    Attributes
    ----------
    action
        ``init``, ``renew`` or ``revoke``.
    directory
        The federation's directory.
    identities
        Names of the roles whose certificates the action issued or revoked.
    changed
        New or rewritten files and folders, relative to the directory.
    steps
        Next steps of the operator, one sentence each.
    """

    action: str
    directory: Path
    identities: tuple[str, ...]
    changed: tuple[str, ...]
    steps: tuple[str, ...]

    def to_document(self) -> dict[str, object]:
        """The outcome of the action, with the operator's next steps, in plain values for JSON."""
        return {
            "schema_version": ANSWER_VERSION,
            "action": self.action,
            "directory": str(self.directory),
            "identities": list(self.identities),
            "changed": list(self.changed),
            "steps": list(self.steps),
        }


def init(
    directory: Path,
    num_devices: int,
    *,
    hosts: Sequence[str] = (DEFAULT_HOST,),
    port: int = DEFAULT_PORT,
    days: int = DAYS,
    authority_days: int = AUTHORITY_DAYS,
    installed: str = DEFAULT_INSTALLED,
) -> SetupOutcome:
    """Set up a federation in a new or empty directory: authority, certificates, broker files,
    scripts and units.

    The broker's certificate names all ``hosts``; start scripts use the first, and if that is a
    loopback name the broker listens on loopback only. ``days`` and ``authority_days`` are lifetimes
    of certificates; ``installed`` is the directory into which systemd units expect the folders to
    be copied. The directory appears complete or, after an error, not at all. Raises
    ``InvalidSetting`` if it is not empty or a setting is out of its bounds.
    """
    checks.at_least("num_devices", num_devices, 1, highest=MOST_DEVICES)
    checks.at_least("port", port, 1, highest=65535)
    check_days("days", days)
    check_days("authority_days", authority_days)
    if not hosts:
        raise InvalidSetting("hosts must name the broker's host")
    names = tuple(dict.fromkeys((*map(host_name, hosts), *LOOPBACK)))
    if not re.fullmatch(r"(/[A-Za-z0-9._-]+)+", installed):
        raise InvalidSetting(
            "installed must be an absolute path of letters, digits, '.', '_' and '-', as systemd"
            f" units have it; got {installed!r}"
        )
    layout = Layout(names[0], port, num_devices, installed, days)
    devices = tuple(map(device_name, range(num_devices)))
    clients = (SERVER, AIR, OBSERVER, MONITOR, *devices)
    with _built(directory) as place:
        folders.make(place / AUTHORITY)
        authority = Authority.create(place / AUTHORITY, days=authority_days)
        folders.write_roles(place, layout)
        folders.write_pair(
            place / BROKER_FOLDER, authority.issue(BROKER_FOLDER, BROKER, names, days=days)
        )
        for identity in clients:
            folders.write_pair(place / identity, authority.issue(identity, CLIENT, days=days))
        folders.write_sealing_keys(place, devices)
        authority.save()
        folders.copy_certificate(place, (BROKER_FOLDER, *clients))
        folders.copy_revocations(place)
        folders.write_access(place, clients)
    return SetupOutcome(
        "init",
        directory,
        (BROKER_FOLDER, *clients),
        (AUTHORITY, BROKER_FOLDER, *clients),
        after_init(layout.url),
    )


def renew(
    directory: Path, identity: str, *, days: int = DAYS, readmit: bool = False
) -> SetupOutcome:
    """Issue a new key and certificate to an identity. Earlier certificates stay valid until they
    expire or are revoked, so that the role keeps running until it gets the new one.

    ``readmit`` allows a revoked identity, which otherwise raises ``InvalidSetting``. A readmitted
    air also gets new sealing keys, because a thief of its certificate may have had the old ones.
    """
    check_days("days", days)
    with _opened(directory) as authority:
        newest = authority.of(identity)[-1]
        back = not authority.admitted(identity)
        if back and not readmit:
            raise InvalidSetting(
                f"{identity!r} was revoked on {str(newest.revoked)[:10]}: a new certificate would"
                " let it in again; say --readmit if that is meant"
            )
        pair = authority.issue(identity, newest.purpose, newest.names, days=days)
        authority.save()
        # The folder may be missing, because operators often remove it once it is on the role's own
        # machine: then it is made again.
        folders.make(directory / identity, there=True)
        folders.write_pair(directory / identity, pair, durable=True)
        folders.copy_certificate(directory, (identity,))
        changed = [f"{identity}/cert.pem", f"{identity}/key.pem"]
        if back:
            changed += _write_broker(directory, authority)
        if back and identity == AIR:
            devices = [each for each in authority.identities if device_number(each) is not None]
            changed += folders.write_sealing_keys(directory, devices)
    steps = after_renewal(identity, f"{pair.ends:%Y-%m-%d}", back=back)
    return SetupOutcome("renew", directory, (identity,), tuple(changed), steps)


def revoke(directory: Path, identity: str, *, superseded: bool = False) -> SetupOutcome:
    """Revoke all certificates of an identity and its rights at the broker; ``superseded`` keeps the
    newest certificate and the rights, which completes a renewal. Repeating it does no harm. Raises
    ``InvalidSetting`` for the broker, and if ``superseded`` finds a single certificate."""
    with _opened(directory) as authority:
        certificates = authority.of(identity)
        if identity == BROKER_FOLDER:
            raise InvalidSetting(
                "the broker cannot be revoked, because clients do not ask for the revocation list;"
                " if its key was stolen, set the federation up anew, in a new directory"
            )
        if superseded and len(certificates) == 1:
            raise InvalidSetting(
                f"{identity!r} has one certificate, which nothing supersedes: renew it first, or"
                " revoke it without --superseded"
            )
        authority.revoke(identity, keep_newest=superseded)
        authority.save()
        changed = _write_broker(directory, authority)
    steps = after_revocation(identity, superseded=superseded)
    return SetupOutcome("revoke", directory, (identity,), tuple(changed), steps)


def _write_broker(directory: Path, authority: Authority) -> list[str]:
    """Write the broker's access list and revocation list anew from the authority's index, and
    return their paths relative to the directory."""
    folders.make(directory / BROKER_FOLDER, there=True)
    folders.copy_revocations(directory)
    shut_out = {BROKER_FOLDER, *authority.excluded}
    left = [each for each in authority.identities if each not in shut_out]
    folders.write_access(directory, left, durable=True)
    return [f"{BROKER_FOLDER}/{name}" for name in (REVOCATIONS, ACCESS)]


@contextmanager
def _opened(directory: Path) -> Iterator[Authority]:
    """The certificate authority of a federation's directory, locked against other processes while
    the context lasts; raises ``InvalidSetting`` if the directory has no authority."""
    folder = directory / AUTHORITY
    if not folder.is_dir():
        raise InvalidSetting(
            f"{str(directory)!r} must be a directory that flmc deploy init wrote: there is no"
            f" {AUTHORITY} in it"
        )
    with locked(folder):
        yield Authority.open(folder)


@contextmanager
def _built(directory: Path) -> Iterator[Path]:
    """A temporary directory that becomes ``directory`` when the context ends, or is removed after
    an exception; raises ``InvalidSetting`` unless ``directory`` is new or empty."""
    target = directory.resolve()
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise InvalidSetting(f"DIR must be a new or empty directory, got {str(directory)!r}")
    if target == Path.cwd():
        raise InvalidSetting("DIR must not be the directory that you are in: name one below it")
    if not target.parent.is_dir():
        raise InvalidSetting(f"there is no directory {str(target.parent)!r}; make it first")
    # The temporary directory lies beside the target, because a rename is atomic within one file
    # system only.
    place = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}."))
    try:
        yield place
        # All files are synced together at the end, because ten thousand folders would take long one
        # by one.
        os.sync()
        os.replace(place, target)
    except BaseException:  # an interrupt must not leave the temporary directory behind either
        shutil.rmtree(place, ignore_errors=True)
        raise


def after_init(url: str) -> tuple[str, ...]:
    """Next steps of the operator after a federation's directory was made, one sentence each."""
    return (
        f"the broker will be {url}; README.txt says what each folder is for",
        "keep authority/ here, and copy each other folder to the machine of its role",
    )


def after_renewal(identity: str, ends: str, *, back: bool) -> tuple[str, ...]:
    """Next steps of the operator after renewing a certificate, which ends on the day ``ends``;
    ``back`` says that the identity had been revoked."""
    broker = identity == BROKER_FOLDER
    use = "send mosquitto SIGHUP (systemctl reload flmc-broker)" if broker else "restart it there"
    steps = [
        f"copy {identity}/cert.pem and {identity}/key.pem to the machine of {identity}, and {use};"
        f" the new certificate is valid until {ends}"
    ]
    if back:
        steps.append(_RELOAD)
    elif not broker:  # the broker's own certificate is not checked against the revocation list
        steps.append(
            f"the old certificate stays valid: flmc deploy revoke DIR {identity} --superseded ends"
            " it once the new one is in use"
        )
    if back and identity == AIR:
        steps.append(
            "the air has new keys for sealing: copy air/air.key and air/air.pub to the air, and"
            " air.pub to every device, before the next run"
        )
    return tuple(steps)


def after_revocation(identity: str, *, superseded: bool) -> tuple[str, ...]:
    """Next steps of the operator after revoking certificates; ``superseded`` says that the
    newest one stays valid."""
    if superseded:
        return (
            _RELOAD,
            f"a connection that {identity} opened with the old certificate lasts until it is"
            " closed; restarting the broker closes it",
        )
    steps: tuple[str, ...] = (
        _RELOAD,
        f"with SIGHUP {identity} can neither connect any more nor write or read by a connection"
        " that it has; restarting the broker closes that one, too",
    )
    if identity == AIR:
        steps += (
            "if the air's machine was stolen, so was its key for sealing: no device should take"
            " part in a run until flmc deploy renew DIR air --readmit has made a new one",
        )
    return steps
