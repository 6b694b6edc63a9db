"""What was done in a directory of a federation, and what is left to its operator.

What is said of SIGHUP is what mosquitto 2.0 does; tests hold it to that."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from flmc.base.documents import ANSWER_VERSION
from flmc.deploy.setup.folders import BROKER_FOLDER
from flmc.wire.topics import AIR

_RELOAD = (
    "copy broker/crl.pem and broker/acl to the broker's machine, then send mosquitto SIGHUP"
    " (systemctl reload flmc-broker), by which mosquitto 2.0 reads both again"
)


@dataclass(frozen=True)
class Done:
    """What was done in a directory, and what is left to the operator.

    Attributes
    ----------
    action
        ``init``, ``renew`` or ``revoke``.
    directory
        Where.
    identities
        Identities whose certificates were issued or revoked.
    changed
        Files or folders that are new, relative to the directory.
    steps
        What the operator must do now, one sentence each.
    """

    action: str
    directory: Path
    identities: tuple[str, ...]
    changed: tuple[str, ...]
    steps: tuple[str, ...]

    def to_document(self) -> dict[str, object]:
        """What was done, in plain values for JSON."""
        return {
            "schema_version": ANSWER_VERSION,
            "action": self.action,
            "directory": str(self.directory),
            "identities": list(self.identities),
            "changed": list(self.changed),
            "steps": list(self.steps),
        }


def after_init(url: str) -> tuple[str, ...]:
    """What is left to do when a directory was made.

    Parameters
    ----------
    url
        Address of the broker.
    """
    return (
        f"the broker will be {url}; README.txt says what each folder is for",
        "keep authority/ here, and copy each other folder to the machine of its role",
    )


def after_renewal(identity: str, ends: str, *, back: bool) -> tuple[str, ...]:
    """What is left to do when a certificate was renewed.

    Parameters
    ----------
    identity
        Whose certificate.
    ends
        Day on which it expires.
    back
        Whether the identity had been revoked.
    """
    broker = identity == BROKER_FOLDER
    use = "send mosquitto SIGHUP (systemctl reload flmc-broker)" if broker else "restart it there"
    told = [
        f"copy {identity}/cert.pem and {identity}/key.pem to the machine of {identity}, and {use};"
        f" the new certificate is valid until {ends}"
    ]
    if back:
        told.append(_RELOAD)
    elif not broker:  # nobody asks the revocation list about the broker
        told.append(
            f"the old certificate stays valid: flmc deploy revoke DIR {identity} --superseded ends"
            " it once the new one is in use"
        )
    if back and identity == AIR:
        told.append(
            "the air has new keys for sealing: copy air/air.key and air/air.pub to the air, and"
            " air.pub to every device, before the next run"
        )
    return tuple(told)


def after_revocation(identity: str, *, superseded: bool) -> tuple[str, ...]:
    """What is left to do when certificates were revoked.

    Parameters
    ----------
    identity
        Whose certificates.
    superseded
        Whether the newest of them stayed valid.
    """
    if superseded:
        return (
            _RELOAD,
            f"a connection that {identity} opened with the old certificate lasts until it is"
            " closed; restarting the broker closes it",
        )
    told: tuple[str, ...] = (
        _RELOAD,
        f"with SIGHUP {identity} can neither connect any more nor write or read by a connection"
        " that it has; restarting the broker closes that one, too",
    )
    if identity == AIR:
        told += (
            "if the air's machine was stolen, so was its key for sealing: no device should take"
            " part in a run until flmc deploy renew DIR air --readmit has made a new one",
        )
    return told
