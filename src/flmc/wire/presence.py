"""Presence of a role: its state in a message that the broker retains, and replaces by the role's
last will when the role dies."""

from __future__ import annotations

import json
from dataclasses import dataclass

from flmc.base.version import VERSION
from flmc.wire.encoding import Malformed, read_object
from flmc.wire.topics import WIRE_VERSION

STATES = ("here", "joined", "refused", "gone")
"""States of a role. ``here``: connected; ``joined``: takes part in the run; ``refused``: declined
the run; ``gone``: left or died."""
_MOST_BYTES = 4096
_MOST_CHARACTERS = 300
"""Longest reason of a refusal that is sent, in characters; the rest is cut off: JSON may need
twelve bytes for one character, and readers refuse a presence of more than ``_MOST_BYTES`` bytes."""


@dataclass(frozen=True)
class Presence:
    """State of a role, as the role publishes it or, after its death, its last will.

    Attributes
    ----------
    state
        One of ``STATES``.
    why
        Reason of a refusal, in words; ``finished`` or ``stopped`` for a role that left by itself;
        else empty.
    digest
        Digest of the federation that the role joined, in hexadecimal; may be empty in other states.
    version
        Version of flmc that the role runs.
    wire
        Version of the wire format that the role speaks.
    """

    state: str
    why: str = ""
    digest: str = ""
    version: str = VERSION
    wire: int = WIRE_VERSION

    def to_bytes(self) -> bytes:
        """The presence as a JSON payload, with the reason ``why`` cut to a length that readers
        accept."""
        why = self.why[:_MOST_CHARACTERS]
        document = {"state": self.state, "why": why, "digest": self.digest}
        return json.dumps({**document, "flmc": self.version, "wire": self.wire}).encode()

    @classmethod
    def from_bytes(cls, payload: bytes) -> Presence:
        """The presence in a payload of ``to_bytes``, with long texts cut; raises ``Malformed`` if
        the payload holds none."""
        document = read_object(payload, _MOST_BYTES)
        state, wire = document.get("state"), document.get("wire")
        why, digest, version = (document.get(name, "") for name in ("why", "digest", "flmc"))
        if state not in STATES:
            raise Malformed("this is no presence")
        if not (isinstance(why, str) and isinstance(digest, str) and isinstance(version, str)):
            raise Malformed("a presence holds texts")
        if not isinstance(wire, int):
            raise Malformed("a presence names its wire version")
        # Texts from other machines are cut to a bounded length before anyone stores or prints them.
        return cls(str(state), why[:500], digest[:64], version[:40], wire)
