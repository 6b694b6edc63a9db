"""Who is there: what a role says when it comes, and what the broker says for it when it dies."""

from __future__ import annotations

import json
from dataclasses import dataclass

from flmc.base.version import VERSION
from flmc.wire.frames import Malformed
from flmc.wire.topics import WIRE_VERSION

STATES = ("here", "joined", "refused", "gone")
"""It is connected; it takes part in the run; it does not want to; it left or died."""
_MOST_BYTES = 4096
_MOST_CHARACTERS = 300
"""Characters of a reason that travel: JSON may need twelve bytes for one of them."""


@dataclass(frozen=True)
class Presence:
    """State of a role.

    Attributes
    ----------
    state
        One of ``STATES``.
    why
        Reason of a refusal, in words.
    digest
        Digest of the federation that it is about, as hexadecimal text; empty: none yet.
    version
        Version of flmc that speaks.
    wire
        Version of the wire format that it speaks.
    """

    state: str
    why: str = ""
    digest: str = ""
    version: str = VERSION
    wire: int = WIRE_VERSION

    def to_bytes(self) -> bytes:
        """The payload, with a reason that is cut where readers would refuse its length."""
        why = self.why[:_MOST_CHARACTERS]
        document = {"state": self.state, "why": why, "digest": self.digest}
        return json.dumps({**document, "flmc": self.version, "wire": self.wire}).encode()

    @classmethod
    def from_bytes(cls, payload: bytes) -> Presence:
        """What a payload says.

        Parameters
        ----------
        payload
            The bytes.

        Raises
        ------
        Malformed
            If it is no such payload.
        """
        document = read_object(payload, _MOST_BYTES)
        state, wire = document.get("state"), document.get("wire")
        why, digest, version = (document.get(name, "") for name in ("why", "digest", "flmc"))
        if state not in STATES:
            raise Malformed("this is no presence")
        if not (isinstance(why, str) and isinstance(digest, str) and isinstance(version, str)):
            raise Malformed("a presence holds texts")
        if not isinstance(wire, int):
            raise Malformed("a presence names its wire version")
        return cls(str(state), why[:500], digest[:64], version[:40], wire)


def read_object(payload: bytes, most_bytes: int) -> dict[str, object]:
    """The JSON object in a payload.

    Parameters
    ----------
    payload, most_bytes
        The bytes, and how many there may be.

    Raises
    ------
    Malformed
        If the payload is larger, or holds no object.
    """
    if len(payload) > most_bytes:
        raise Malformed(f"{len(payload)} bytes where {most_bytes} are allowed")
    try:
        document = json.loads(payload)
    except (ValueError, RecursionError) as error:
        raise Malformed("this is not JSON") from error
    if not isinstance(document, dict):
        raise Malformed("this is not a JSON object")
    return document
