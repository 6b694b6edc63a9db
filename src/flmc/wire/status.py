"""Status of a federation: what server and air publish about the progress of a run."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field
from typing import Any

from flmc.base.tables import Listing, Row, Severity, format_up
from flmc.wire.encoding import Malformed, read_object

PHASES = ("waiting", "running", "finished", "failed")
"""``waiting`` for devices to join; ``running`` rounds; ``finished``; ``failed``: cannot go on."""
PARTS = ("answer_seconds", "receive_seconds", "commit_seconds")
"""Names of the measured parts of a round's time: until the last answer, in the air, in the
server."""
_MOST_BYTES = 1 << 20
_COUNT_BOUND = 1 << 53
"""Whole numbers of a status are below this bound: a double holds each of them exactly."""


@dataclass(frozen=True)
class Status:
    """Progress of a run, as the server publishes it.

    Attributes
    ----------
    run, phase
        Name of the run, and one of ``PHASES``.
    round, num_rounds
        Finished rounds, and rounds of the plan.
    num_devices, active
        Devices of the plan, and devices in the last round.
    present
        Number of devices by state: here, joined, refused, gone.
    epsilon, delta, epsilon_round
        Epsilon spent by the device that spent most, at this delta, up to this round; None: not yet
        known, or unbounded.
    temperature
        Temperature of the last round; None: unknown.
    round_seconds
        Median time of the last rounds; None before the first.
    answer_seconds, receive_seconds, commit_seconds
        Parts of it: from theta at the air to the last answer, slot included; the air's time to add
        and record; the server's time to step and record. None before the first.
    dropped, dropped_air
        Messages dropped by the server and by the air, by reason.
    repeats
        Rounds that the air announced again for want of answers.
    why
        What the server waits for, or why the run failed.
    unix_time
        Time of the status, in seconds since 1970, on the server's clock.
    """

    run: str
    phase: str
    round: int
    num_rounds: int
    num_devices: int
    active: int = 0
    present: dict[str, int] = field(default_factory=dict)
    epsilon: float | None = None
    delta: float | None = None
    epsilon_round: int = 0
    temperature: float | None = None
    round_seconds: float | None = None
    answer_seconds: float | None = None
    receive_seconds: float | None = None
    commit_seconds: float | None = None
    dropped: dict[str, int] = field(default_factory=dict)
    dropped_air: dict[str, int] = field(default_factory=dict)
    repeats: int = 0
    why: str = ""
    unix_time: float = 0.0

    def to_document(self) -> dict[str, Any]:
        """The status in plain values, for JSON."""
        return asdict(self)

    def to_bytes(self) -> bytes:
        """The status as a JSON payload."""
        return json.dumps(self.to_document(), allow_nan=False).encode()

    @classmethod
    def from_bytes(cls, payload: bytes) -> Status:
        """The status in a payload; raises ``Malformed`` unless every value has its type and
        bounds."""
        document = read_object(payload, _MOST_BYTES)
        kinds: dict[str, Any] = {
            **dict.fromkeys(("run", "phase", "why"), str),
            **dict.fromkeys(
                ("round", "num_rounds", "num_devices", "active", "epsilon_round", "repeats"), int
            ),
            **dict.fromkeys(("present", "dropped", "dropped_air"), dict),
        }
        numbers = ("epsilon", "delta", "temperature", "round_seconds", *PARTS, "unix_time")
        values: dict[str, Any] = {}
        for name, kind in kinds.items():
            value = document.get(name)
            if not (_is_count(value) if kind is int else isinstance(value, kind)):
                raise Malformed(f"a status names its {name}")
            values[name] = value
        for counts in (values["present"], values["dropped"], values["dropped_air"]):
            _check_counts(counts)
        for name in numbers:
            value = document.get(name)
            if not (value is None or _is_count(value) or _is_finite(value)):
                raise Malformed(f"{name} must be a number")
            values[name] = value
        if values["phase"] not in PHASES:
            raise Malformed(f"there is no phase {values['phase']!r}")
        values["unix_time"] = values["unix_time"] or 0.0
        return cls(**values)

    def listing(self) -> Listing:
        """The status as a table of named rows, for the terminal and for the studio (the pages in a
        browser)."""
        rows = [
            Row("phase", self.phase + (f": {self.why}" if self.why else ""), severity=self._mood),
            Row("round", f"{self.round} of {self.num_rounds}"),
            Row("active devices", f"{self.active} of {self.num_devices} in the last round"),
            Row("devices", _counts(self.present) or "none has come yet"),
        ]
        if self.delta is not None:
            spent = "unbounded" if self.epsilon is None else format_up(self.epsilon)
            cost = f"{spent} at delta {self.delta:g}, up to round {self.epsilon_round}"
            rows.append(Row("epsilon spent", cost))
        if self.temperature is not None:
            rows.append(Row("temperature", f"{self.temperature:.4g} in the last round"))
        if self.round_seconds is not None:
            rows.append(Row("time of a round", f"{self.round_seconds * 1000:.0f} ms{self._parts}"))
        rows.append(Row("repeated rounds", str(self.repeats)))
        rows.append(Row("dropped by the server", _counts(self.dropped) or "nothing"))
        rows.append(Row("dropped by the air", _counts(self.dropped_air) or "nothing"))
        return Listing(f"run {self.run}", tuple(rows))

    @property
    def _parts(self) -> str:
        """The parts of a round's median time in milliseconds, in words; empty if one is unknown."""
        answer, receive, commit = (getattr(self, name) for name in PARTS)
        if self.round_seconds is None or None in (answer, receive, commit):
            return ""
        rest = max(0.0, self.round_seconds - answer - receive - commit)
        return (
            f": {1000 * answer:.0f} until the last answer, {1000 * receive:.1f} in the air,"
            f" {1000 * commit:.1f} in the server, {1000 * rest:.0f} on the way"
        )

    @property
    def _mood(self) -> Severity:
        """Severity with which the row of the run's phase is shown: ``warning`` if the run failed,
        ``good`` if it finished, ``plain`` otherwise."""
        moods: dict[str, Severity] = {"failed": "warning", "finished": "good"}
        return moods.get(self.phase, "plain")


@dataclass(frozen=True)
class AirStatus:
    """The air's counts and times, which the server takes over into its own status.

    Attributes
    ----------
    dropped
        Messages dropped by the air, by reason.
    repeats
        Rounds announced again for want of answers.
    answer_seconds, receive_seconds
        Median times to the last answer, and to add and record; None: unknown.
    """

    dropped: dict[str, int] = field(default_factory=dict)
    repeats: int = 0
    answer_seconds: float | None = None
    receive_seconds: float | None = None

    @classmethod
    def from_bytes(cls, payload: bytes) -> AirStatus:
        """The counts and times in a payload of the air; raises ``Malformed`` if counts are
        missing, and takes times that are no finite numbers as unknown."""
        document = read_object(payload, 65536)
        dropped, repeats = document.get("dropped"), document.get("repeats")
        if not isinstance(dropped, dict) or not isinstance(repeats, int):
            raise Malformed("the air's status names dropped and repeats")
        _check_counts({**dropped, "": repeats})
        times = (document.get(name) for name in ("answer_seconds", "receive_seconds"))
        known = (
            each if isinstance(each, float) and math.isfinite(each) else None for each in times
        )
        return cls(dropped, repeats, *known)


def _check_counts(counts: dict[str, Any]) -> None:
    """Raise ``Malformed`` if a table of counts has more than a hundred entries, or one that is not
    a whole number from 0."""
    if len(counts) > 100 or not all(map(_is_count, counts.values())):
        raise Malformed("counts are whole numbers")


def _is_count(value: object) -> bool:
    """Whether a value is a whole number from 0 that a double holds exactly."""
    # In Python True is an int; in JSON it is not a number.
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _COUNT_BOUND


def _is_finite(value: object) -> bool:
    """Whether a value is a finite float."""
    return isinstance(value, float) and math.isfinite(value)


def _counts(counts: dict[str, int]) -> str:
    """Counts in words, sorted by name, such as ``3 late, 1 malformed``; empty if there are none."""
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
