"""Topics of a federation: ``flmc/1/<run>/<what>``, where 1 is the version of the wire format.

Who may write and read each of them is the trust boundary, which a broker enforces by the identity
in a certificate (:data:`RIGHTS`)."""

from __future__ import annotations

import re
from typing import NamedTuple

from flmc.base.errors import InvalidSetting

WIRE_VERSION = 1
"""Version of topics and payloads."""
SERVER, AIR, OBSERVER, MONITOR = "server", "air", "observer", "monitor"
"""Identities of the roles of which there is one; devices are ``device-0``, ``device-1`` and so
on."""
_RUN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_DEVICE = re.compile(r"device-(0|[1-9][0-9]{0,5})")

PLAN, THETA, ROUND, RECEIVED = "plan", "theta", "round", "y"
"""What the server says once, what it says each round, what the air says before and after it."""
UPLINK, ALIVE = "uplink", "alive"
"""Answers of devices, and who is there; the identity of whoever speaks follows."""
STATUS, AIR_STATUS, END = "status", "air", "end"
"""How the run stands by the server and by the air, and that it has ended."""


def device_name(device: int) -> str:
    """Identity of a device.

    Parameters
    ----------
    device
        Number of the device, from 0.
    """
    return f"device-{device}"


def device_number(identity: str) -> int | None:
    """Number of the device with an identity; None if it is no device's.

    Parameters
    ----------
    identity
        For example ``device-3``.
    """
    match = _DEVICE.fullmatch(identity)
    return int(match[1]) if match else None


def check_run(run: str) -> str:
    """The name of a run, refused if it cannot be part of a topic.

    Parameters
    ----------
    run
        The name.

    Raises
    ------
    InvalidSetting
        If it has characters other than letters, digits, ``_``, ``.`` and ``-``, or is longer than
        64.
    """
    if not _RUN.fullmatch(str(run)):
        raise InvalidSetting(
            "run must be 1 to 64 letters, digits, '_', '.' or '-', beginning with a letter or"
            f" digit; got {run!r}"
        )
    return str(run)


class Topic(NamedTuple):
    """A topic in its parts.

    Attributes
    ----------
    run
        Name of the run; ``+`` for all of them, in a subscription.
    what
        What is said there.
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
        """The parts of a topic; None if it is none of this version.

        Parameters
        ----------
        text
            The topic.
        """
        parts = text.split("/")
        if len(parts) not in (4, 5) or parts[:2] != ["flmc", str(WIRE_VERSION)]:
            return None
        return cls(*parts[2:])


class Rights(NamedTuple):
    """What an identity may write and read, as ends of topics; ``%u`` stands for the identity."""

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
"""Rights by role. Only the air reads uplinks; the server reads what was received, and no symbol;
a device writes its own uplink, and reads nothing of another device."""
