"""The certificate authority of a federation: its key, and an index of issued and revoked
certificates.

Its folder holds ``ca.pem``, ``ca.key``, ``index.json`` and ``crl.pem``. The index decides about
renewals and revocations; the revocation list is made from it.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, get_args

from flmc.base import checks
from flmc.base.errors import InvalidSetting, RunFailed
from flmc.deploy.setup.certificates import SKEW, Pair, Purpose, Signer, new_authority
from flmc.runs.files.durable_files import read_json, write_atomically, write_json
from flmc.runs.files.regular_files import read_regular

CERTIFICATE, KEY, INDEX, REVOCATIONS = "ca.pem", "ca.key", "index.json", "crl.pem"
"""Names of the files in an authority's folder: its certificate, its secret key, the index of issued
certificates, and the list of revoked ones."""
AUTHORITY_DAYS, DAYS = 3650, 365
"""Default lifetimes of an authority's own certificate and of the certificates that it issues, in
days."""
SECRET = 0o600
"""Permissions of a secret file: its owner reads and writes it, nobody else."""
_INDEX_VERSION = 1


@dataclass(frozen=True)
class Issued:
    """A certificate that the authority issued, as its index lists it.

    Attributes
    ----------
    serial
        Serial number in hexadecimal.
    identity, purpose, names
        Name of the role that holds it, its purpose, and the broker's hosts (empty for clients).
    begins, ends
        Validity, in ISO 8601, UTC.
    revoked
        Time of revocation, in ISO 8601, UTC; None: not revoked.
    """

    serial: str
    identity: str
    purpose: Purpose
    names: tuple[str, ...]
    begins: str
    ends: str
    revoked: str | None = None


class Authority:
    """The certificate authority of a federation, with the index of its certificates in memory
    (``issued``, oldest first); :meth:`save` writes changes. ``number`` and ``updated`` are the
    number and the time of the newest revocation list."""

    def __init__(
        self, folder: Path, signer: Signer, issued: Sequence[Issued], number: int, updated: datetime
    ) -> None:
        self._folder, self._signer = folder, signer
        self._issued = list(issued)
        self._number, self._updated = number, updated

    @classmethod
    def create(cls, folder: Path, *, days: int = AUTHORITY_DAYS) -> Authority:
        """Make a new certificate authority, valid for ``days``, and write its key and certificate
        into an existing folder; :meth:`save` writes the index of certificates and the revocation
        list."""
        now = datetime.now(UTC)
        # A random number in the name tells two authorities apart in a log.
        name = f"flmc authority {secrets.token_hex(4)}"
        pair = new_authority(name, now, check_days("authority_days", days))
        write_atomically(folder / KEY, lambda stream: stream.write(pair.key), mode=SECRET)
        write_atomically(folder / CERTIFICATE, lambda stream: stream.write(pair.certificate))
        updated = (now - SKEW).replace(microsecond=0)
        return cls(folder, Signer(pair.certificate, pair.key), (), 0, updated)

    @classmethod
    def open(cls, folder: Path) -> Authority:
        """The certificate authority whose files are in ``folder``; raises ``InvalidSetting`` if the
        folder has none, and ``RunFailed`` if the files are damaged."""
        if not (folder / INDEX).is_file():
            raise InvalidSetting(
                f"{str(folder.parent)!r} must be a directory that flmc deploy init wrote: there is"
                f" no {folder.name}/{INDEX}"
            )
        document = read_json(folder / INDEX, signed=True)
        if document.get("index_version") != _INDEX_VERSION:
            raise RunFailed(
                f"{str(folder / INDEX)!r} has version {document.get('index_version')!r}; this flmc"
                f" reads {_INDEX_VERSION}"
            )
        try:
            signer = Signer(read_regular(folder / CERTIFICATE), read_regular(folder / KEY))
        except (OSError, ValueError) as error:
            raise RunFailed(f"the authority in {str(folder)!r} cannot be used: {error}") from error
        issued = [_from_document(each) for each in document["issued"]]
        updated = datetime.fromisoformat(document["list_updated"])
        return cls(folder, signer, issued, document["list_number"], updated)

    def save(self) -> None:
        """Write the index of certificates to the authority's folder, and then a revocation list
        with a later time than the last one."""
        self._number += 1
        # OpenSSL prefers the list with the later time, in whole seconds, and refuses a time in the
        # future. So lists are dated back as far as certificates are, and each is at least a second
        # later than the one before.
        now = (datetime.now(UTC) - SKEW).replace(microsecond=0)
        self._updated = max(now, self._updated + timedelta(seconds=1))
        document: dict[str, Any] = {
            "index_version": _INDEX_VERSION,
            "list_number": self._number,
            "list_updated": self._updated.isoformat(),
            "issued": [asdict(each) for each in self._issued],
        }
        # The index is written first: whatever fails afterwards, saving again makes the revocation
        # list from it.
        write_json(self._folder / INDEX, document)
        revoked = {
            int(each.serial, 16): datetime.fromisoformat(each.revoked)
            for each in self._issued
            if each.revoked is not None
        }
        text = self._signer.revocation_list(revoked, self._number, self._updated)
        write_atomically(self._folder / REVOCATIONS, lambda stream: stream.write(text))

    @property
    def identities(self) -> tuple[str, ...]:
        """All identities (names of roles) to which a certificate was issued, in the order of their
        first certificates."""
        return tuple(dict.fromkeys(each.identity for each in self._issued))

    def of(self, identity: str) -> tuple[Issued, ...]:
        """All certificates of an identity, oldest first; raises ``InvalidSetting`` with the
        known identities if it has none."""
        certificates = tuple(each for each in self._issued if each.identity == identity)
        if not certificates:
            known = self.identities
            shown = ", ".join(known if len(known) <= 8 else (*known[:6], "...", known[-1]))
            raise InvalidSetting(f"no certificate was issued to {identity!r}; known are: {shown}")
        return certificates

    def admitted(self, identity: str) -> bool:
        """Whether an identity has a certificate that is not revoked; raises ``InvalidSetting`` if
        it never had one."""
        return any(each.revoked is None for each in self.of(identity))

    @property
    def excluded(self) -> frozenset[str]:
        """Identities whose certificates are all revoked, so that the broker refuses them."""
        left = {each.identity for each in self._issued if each.revoked is None}
        return frozenset(self.identities) - left

    def issue(
        self, identity: str, purpose: Purpose, names: Sequence[str] = (), *, days: int = DAYS
    ) -> Pair:
        """A new key and certificate for an identity, valid for ``days`` and never longer than
        the authority; ``names`` are the broker's hosts. Earlier certificates stay valid. Raises
        ``InvalidSetting`` if the authority has expired."""
        now = datetime.now(UTC)
        check_days("days", days)
        if now >= self._signer.ends:
            raise InvalidSetting(
                f"the authority expired on {self._signer.ends:%Y-%m-%d}: set the federation up"
                " anew, in a new directory"
            )
        pair = self._signer.sign(identity, purpose, names, now, days)
        self._issued.append(
            Issued(
                f"{pair.serial:x}",
                identity,
                purpose,
                tuple(names),
                pair.begins.isoformat(),
                pair.ends.isoformat(),
            )
        )
        return pair

    def revoke(self, identity: str, *, keep_newest: bool = False) -> int:
        """Revoke the certificates of an identity (all but the newest, if ``keep_newest``), and
        return the number of newly revoked ones."""
        certificates = self.of(identity)
        chosen = {each.serial for each in (certificates[:-1] if keep_newest else certificates)}
        now = datetime.now(UTC).replace(microsecond=0).isoformat()
        fresh = 0
        for place, each in enumerate(self._issued):
            if each.serial in chosen and each.revoked is None:
                self._issued[place] = replace(each, revoked=now)
                fresh += 1
        return fresh


def check_days(name: str, days: int) -> int:
    """Return ``days``, a certificate's lifetime in days, unchanged; raises ``InvalidSetting``
    unless it is a whole number from 1 to 36500. The error calls the setting ``name``."""
    return checks.at_least(name, days, 1, highest=36500)


def _from_document(entry: Any) -> Issued:
    """The certificate that an entry of the index file describes; raises ``RunFailed`` if the entry
    is damaged."""
    try:
        issued = Issued(**{**entry, "names": tuple(entry["names"])})
        if issued.purpose in get_args(Purpose):
            return issued
    except (TypeError, KeyError):
        pass
    raise RunFailed(f"the index of certificates holds {entry!r}, which is no certificate")
