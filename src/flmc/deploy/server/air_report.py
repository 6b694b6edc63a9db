"""What the air says of itself, as the server reads it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from flmc.wire.frames import Malformed
from flmc.wire.presence import read_object

_MOST_BYTES = 65536


@dataclass(frozen=True)
class AirReport:
    """How the air stands.

    Attributes
    ----------
    dropped
        Messages that it dropped, by reason.
    repeats
        Rounds that it announced again.
    answer_seconds, receive_seconds
        Median times to the last answer, and to add up and record; None: unknown.
    """

    dropped: dict[str, int] = field(default_factory=dict)
    repeats: int = 0
    answer_seconds: float | None = None
    receive_seconds: float | None = None

    @classmethod
    def from_bytes(cls, payload: bytes) -> AirReport:
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
        dropped, repeats = document.get("dropped", {}), document.get("repeats", 0)
        if not isinstance(dropped, dict) or not all(isinstance(n, int) for n in dropped.values()):
            raise Malformed("counts are whole numbers")
        if not isinstance(repeats, int):
            raise Malformed("repeats are a whole number")
        times = (_number(document.get(name)) for name in ("answer_seconds", "receive_seconds"))
        return cls(dropped, repeats, *times)


def _number(value: object) -> float | None:
    """A number; None: it is none."""
    return value if isinstance(value, float) and math.isfinite(value) else None
