"""Topics of a federation, ``flmc/1/<run>/<what>``, where 1 is the version of the wire format, and
the rights to them.

The rights to write and read topics (:data:`RIGHTS`) are the trust boundary of a federation; the
broker enforces them by the identity in each client's certificate.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from flmc.base.errors import InvalidSetting

WIRE_VERSION = 1
"""Version of the wire format, that is of topics and payloads; it is a part of every topic."""
SERVER, AIR, OBSERVER, MONITOR = "server", "air", "observer", "monitor"
"""Identities (names in certificates) of the roles that exist once; devices are ``device-0``,
``device-1`` and so on."""
_RUN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_DEVICE = re.compile(r"device-(0|[1-9][0-9]{0,5})")

PLAN, THETA, ROUND, RECEIVED = "plan", "theta", "round", "y"
"""Topics of the server (``plan``: the federation; ``theta``: the chain's position before a round)
and of the air (``round``: the announcement of a round; ``y``: the received signal after it)."""
UPLINK, ALIVE = "uplink", "alive"
"""Topics of devices' answers and of presences; the speaker's identity follows as the last part."""
STATUS, AIR_STATUS, END = "status", "air", "end"
"""Topics of the status of server and air, and of the end of the run."""


def device_name(device: int) -> str:
    """Identity of the device with a number from 0, such as ``device-3``; its certificate and its
    topics carry it."""
    return f"device-{device}"


def device_number(identity: str) -> int | None:
    """Number of the device with an identity such as ``device-3``; None if the identity is no
    device's."""
    match = _DEVICE.fullmatch(identity)
    return int(match[1]) if match else None


def check_run(run: str) -> str:
    """Return the name ``run`` of a run unchanged; raises ``InvalidSetting`` unless it has 1 to 64
    letters, digits, ``_``, ``.`` or ``-``, the first a letter or digit, and so fits into a
    topic."""
    if not _RUN.fullmatch(str(run)):
        raise InvalidSetting(
            "run must be 1 to 64 letters, digits, '_', '.' or '-', beginning with a letter or"
            f" digit; got {run!r}"
        )
    return str(run)


class Topic(NamedTuple):
    """The parts of a topic ``flmc/1/<run>/<what>`` or ``flmc/1/<run>/<what>/<who>``.

    Attributes
    ----------
    run
        Name of the run; ``+`` for all runs, in a subscription.
    what
        Kind of message, such as ``theta`` or ``uplink``.
    who
        Identity of the speaker, where the topic names it; ``+`` for all, in a subscription.
    """

    run: str
    what: str
    who: str | None = None

    def __str__(self) -> str:
        base = f"flmc/{WIRE_VERSION}/{self.run}/{self.what}"
        return base if self.who is None else f"{base}/{self.who}"

    @classmethod
    def parse(cls, text: str) -> Topic | None:
        """The parts of a topic given as text; None if it is not a topic of this wire version."""
        parts = text.split("/")
        if len(parts) not in (4, 5) or parts[:2] != ["flmc", str(WIRE_VERSION)]:
            return None
        return cls(*parts[2:])


class Rights(NamedTuple):
    """Topics that an identity may write and read, given by their parts after ``flmc/1/<run>/``;
    ``%u`` stands for the identity itself, and ``+`` for any one part."""

    write: tuple[str, ...]
    read: tuple[str, ...]


_OWN_ALIVE = f"{ALIVE}/%u"
_WATCHES = Rights((), (STATUS, AIR_STATUS, f"{ALIVE}/+", PLAN, END))
RIGHTS = {
    SERVER: Rights(
        (PLAN, THETA, STATUS, END, _OWN_ALIVE),
        (RECEIVED, AIR_STATUS, f"{ALIVE}/+", PLAN, END),
    ),
    AIR: Rights(
        (ROUND, RECEIVED, AIR_STATUS, _OWN_ALIVE),
        (PLAN, THETA, END, f"{UPLINK}/+", f"{ALIVE}/+"),
    ),
    OBSERVER: _WATCHES,
    MONITOR: _WATCHES,
    "device": Rights((f"{UPLINK}/%u", _OWN_ALIVE), (PLAN, THETA, ROUND, END, f"{ALIVE}/{SERVER}")),
}
"""Rights by role. The air alone reads devices' answers, on the topics ``uplink``; the server reads
the received sum and no single symbol; a device writes its own answers and reads nothing of another
device."""
