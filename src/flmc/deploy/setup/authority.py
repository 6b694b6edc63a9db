"""The certificate authority of a federation: its key, and a list of what it issued and revoked.

Its folder holds ``ca.pem``, ``ca.key``, ``index.json`` and ``crl.pem``. The index is what
certificates are renewed and revoked by; the revocation list is made from it."""

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
"""Files of an authority."""
AUTHORITY_DAYS, DAYS = 3650, 365
"""Days for which an authority and the certificates that it issues are valid, unless asked
otherwise."""
SECRET = 0o600
"""Permissions of a file that holds a secret: its owner reads and writes it, nobody else."""
_INDEX_VERSION = 1


@dataclass(frozen=True)
class Issued:
    """A certificate in the index.

    Attributes
    ----------
    serial
        Its number, in hexadecimal digits.
    identity, purpose, names
        Whose it is, what it is for, and hosts that it names.
    begins, ends
        When it is valid, in ISO 8601, UTC.
    revoked
        When it was revoked, in ISO 8601, UTC; None if it was not.
    """

    serial: str
    identity: str
    purpose: Purpose
    names: tuple[str, ...]
    begins: str
    ends: str
    revoked: str | None = None


class Authority:
    """An authority with its index in memory; :meth:`save` writes what has changed.

    Parameters
    ----------
    folder
        Where its files are.
    signer
        Its key.
    issued
        All certificates that it issued, oldest first.
    number, updated
        Number and time of the newest revocation list.
    """

    def __init__(
        self, folder: Path, signer: Signer, issued: Sequence[Issued], number: int, updated: datetime
    ) -> None:
        self._folder, self._signer = folder, signer
        self._issued = list(issued)
        self._number, self._updated = number, updated

    @classmethod
    def create(cls, folder: Path, *, days: int = AUTHORITY_DAYS) -> Authority:
        """A new authority, with its key and certificate written; :meth:`save` writes the rest.

        Parameters
        ----------
        folder
            An empty directory.
        days
            For how many days it is valid.
        """
        now = datetime.now(UTC)
        # A number of its own, so that two authorities are not taken for each other in a log.
        name = f"flmc authority {secrets.token_hex(4)}"
        pair = new_authority(name, now, check_days("authority_days", days))
        write_atomically(folder / KEY, lambda stream: stream.write(pair.key), mode=SECRET)
        write_atomically(folder / CERTIFICATE, lambda stream: stream.write(pair.certificate))
        updated = (now - SKEW).replace(microsecond=0)
        return cls(folder, Signer(pair.certificate, pair.key), (), 0, updated)

    @classmethod
    def open(cls, folder: Path) -> Authority:
        """The authority of a folder.

        Parameters
        ----------
        folder
            Where its files are.

        Raises
        ------
        InvalidSetting
            If there is no authority.
        RunFailed
            If its files are damaged.
        """
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
        """Write the index, and a new revocation list with a later time than the last.

        The index is written first: whatever fails in between, saving again makes the list from
        it."""
        self._number += 1
        # Of two lists OpenSSL takes that with the later time, which counts in whole seconds. A time
        # in the future is refused, hence lists lie as far in the past as certificates begin.
        now = (datetime.now(UTC) - SKEW).replace(microsecond=0)
        self._updated = max(now, self._updated + timedelta(seconds=1))
        document: dict[str, Any] = {
            "index_version": _INDEX_VERSION,
            "list_number": self._number,
            "list_updated": self._updated.isoformat(),
            "issued": [asdict(each) for each in self._issued],
        }
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
        """All identities with a certificate, in the order of their first ones."""
        return tuple(dict.fromkeys(each.identity for each in self._issued))

    def of(self, identity: str) -> tuple[Issued, ...]:
        """All certificates of an identity, oldest first.

        Parameters
        ----------
        identity
            Whose certificates.

        Raises
        ------
        InvalidSetting
            If it has none; the message names those that have.
        """
        found = tuple(each for each in self._issued if each.identity == identity)
        if not found:
            known = self.identities
            shown = ", ".join(known if len(known) <= 8 else (*known[:6], "...", known[-1]))
            raise InvalidSetting(f"no certificate was issued to {identity!r}; known are: {shown}")
        return found

    def admitted(self, identity: str) -> bool:
        """Whether an identity has a certificate that is not revoked.

        Parameters
        ----------
        identity
            Whose certificates.
        """
        return any(each.revoked is None for each in self.of(identity))

    @property
    def excluded(self) -> frozenset[str]:
        """Identities all of whose certificates are revoked."""
        left = {each.identity for each in self._issued if each.revoked is None}
        return frozenset(self.identities) - left

    def issue(
        self, identity: str, purpose: Purpose, names: Sequence[str] = (), *, days: int = DAYS
    ) -> Pair:
        """A new key and certificate for an identity; earlier ones of it stay valid.

        Parameters
        ----------
        identity
            The common name.
        purpose
            Whether the holder is a client or the broker.
        names
            Hosts that the certificate names; none for a client.
        days
            For how many days it is valid, but never longer than the authority.

        Raises
        ------
        InvalidSetting
            If the authority has expired.
        """
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
        """Revoke certificates of an identity, and return how many had not been revoked before.

        Parameters
        ----------
        identity
            Whose certificates.
        keep_newest
            Whether the newest stays valid.
        """
        found = self.of(identity)
        chosen = {each.serial for each in (found[:-1] if keep_newest else found)}
        now = datetime.now(UTC).replace(microsecond=0).isoformat()
        fresh = 0
        for place, each in enumerate(self._issued):
            if each.serial in chosen and each.revoked is None:
                self._issued[place] = replace(each, revoked=now)
                fresh += 1
        return fresh


def check_days(name: str, days: int) -> int:
    """A lifetime in days, refused unless it is from 1 to 36500.

    Parameters
    ----------
    name
        What it is called in the error message.
    days
        The lifetime.
    """
    return checks.at_least(name, days, 1, highest=36500)


def _from_document(entry: Any) -> Issued:
    """A certificate of the index; a damaged one is a RunFailed."""
    try:
        found = Issued(**{**entry, "names": tuple(entry["names"])})
        if found.purpose in get_args(Purpose):
            return found
    except (TypeError, KeyError):
        pass
    raise RunFailed(f"the index of certificates holds {entry!r}, which is no certificate")
