"""Status of a federation: the messages of server and air on the progress of a run."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field
from typing import Any

from flmc.base.tables import Listing, Row, Severity, format_up
from flmc.wire.encoding import Malformed, read_object

PHASES = ("waiting", "running", "finished", "failed")
"""Phases of a run. ``waiting``: devices have yet to join; ``running``: rounds are going on;
``finished``: all rounds are done; ``failed``: the run ended before its last round."""
PARTS = ("answer_seconds", "receive_seconds", "commit_seconds")
"""Fields of a status with the measured parts of a round's time: from theta's arrival at the air
until the last answer, the air's work to add up and record the signal, and the server's work to
make and record the step."""
_MOST_BYTES = 1 << 20
_COUNT_BOUND = 1 << 53
"""Upper limit of whole numbers in a status, below which a double holds each of them exactly; larger
ones are refused."""


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
        Devices of the plan, and devices that transmitted in the last round.
    present
        Number of devices by state: here, joined, refused, gone.
    epsilon, delta
        Epsilon of the whole planned run for the device that spends most, at this delta; it holds
        whenever the run stops. It is 0 before the first round; None: unbounded. With a delta of
        None there is no privacy statement, and epsilon says nothing.
    epsilon_so_far, epsilon_round
        Epsilon of rounds 1 to ``epsilon_round`` alone, valid if the round to stop at was fixed
        beforehand; None: not yet known, or unbounded.
    temperature
        Factor by which the sampled variance exceeds the posterior's at the noise of the last round;
        None: unknown.
    round_seconds
        Median time of the last rounds; None before the first.
    answer_seconds, receive_seconds, commit_seconds
        Median parts of that time: from theta's arrival at the air until the last answer or the
        deadline; the air's time to add and record; the server's time to step and record. None
        before the first.
    dropped, dropped_air
        Messages dropped by the server and by the air, by reason.
    repeats
        Rounds that the air announced again for want of answers.
    why
        What the server waits for, or why the run failed.
    unix_time
        Time of the status, in seconds since 1970, on the server's clock.
    verdict
        Gravest findings on the draws of a finished run, as the server judges them without data;
        empty before, and if nothing speaks against them.
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
    epsilon_so_far: float | None = None
    verdict: str = ""

    def to_document(self) -> dict[str, Any]:
        """The status in plain values, for JSON."""
        return asdict(self)

    def to_bytes(self) -> bytes:
        """The status as the JSON payload that the server publishes."""
        return json.dumps(self.to_document(), allow_nan=False).encode()

    @classmethod
    def from_bytes(cls, payload: bytes) -> Status:
        """The status in a payload of ``to_bytes``; raises ``Malformed`` unless every value has its
        type and is within its bounds."""
        document = read_object(payload, _MOST_BYTES)
        kinds: dict[str, Any] = {
            **dict.fromkeys(("run", "phase", "why"), str),
            **dict.fromkeys(
                ("round", "num_rounds", "num_devices", "active", "epsilon_round", "repeats"), int
            ),
            **dict.fromkeys(("present", "dropped", "dropped_air"), dict),
        }
        costs = ("epsilon", "epsilon_so_far", "delta")
        numbers = (*costs, "temperature", "round_seconds", *PARTS, "unix_time")
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
        values["verdict"] = document.get("verdict", "")  # older servers send no verdict
        if not isinstance(values["verdict"], str):
            raise Malformed("a status names its verdict")
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
            rows.append(Row("epsilon of the run", self.cost_in_words))
        if self.temperature is not None:
            rows.append(Row("temperature", f"{self.temperature:.4g} in the last round"))
        if self.round_seconds is not None:
            rows.append(Row("time of a round", f"{self.round_seconds * 1000:.0f} ms{self._parts}"))
        if self.verdict:
            rows.append(Row("draws", self.verdict, severity="warning"))
        rows.append(Row("repeated rounds", str(self.repeats)))
        rows.append(Row("dropped by the server", _counts(self.dropped) or "nothing"))
        rows.append(Row("dropped by the air", _counts(self.dropped_air) or "nothing"))
        return Listing(f"run {self.run}", tuple(rows))

    @property
    def cost_in_words(self) -> str:
        """Text for epsilon of the whole planned run and, in brackets, for epsilon of the rounds so
        far, which holds only if the round to stop at was fixed beforehand, as the text says."""
        if self.epsilon_round == 0 and self.epsilon == 0:
            return "0: no round is done yet"
        whole = "unbounded" if self.epsilon is None else format_up(self.epsilon)
        text = f"{whole} at delta {self.delta:g}, all planned rounds together"
        if self.epsilon_so_far is None or self.epsilon_round >= self.num_rounds:
            return text
        so_far = f"{format_up(self.epsilon_so_far)} up to round {self.epsilon_round}"
        return f"{text} ({so_far}, valid if the round to stop at was fixed beforehand)"

    @property
    def _parts(self) -> str:
        """Text that splits a round's median time, after which it is printed, into milliseconds
        until the last answer, in the air, in the server and on the way; empty if one is
        unknown."""
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
    """Counts and times in the air's status, which the server repeats in its own status.

    Attributes
    ----------
    dropped
        Messages dropped by the air, by reason.
    repeats
        Rounds announced again for want of answers.
    answer_seconds, receive_seconds
        Median times from theta until the last answer or the deadline, and to add and record a
        signal; None: unknown.
    """

    dropped: dict[str, int] = field(default_factory=dict)
    repeats: int = 0
    answer_seconds: float | None = None
    receive_seconds: float | None = None

    @classmethod
    def from_bytes(cls, payload: bytes) -> AirStatus:
        """The counts and times in the JSON payload of the air's status. Raises ``Malformed`` if
        counts are missing or wrong; a time that is not a finite float counts as unknown."""
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
    """Raise ``Malformed`` if a table of counts has more than a hundred entries, or a count that is
    no whole number from 0."""
    if len(counts) > 100 or not all(map(_is_count, counts.values())):
        raise Malformed("counts are whole numbers")


def _is_count(value: object) -> bool:
    """Whether a value is a whole number from 0 that a double holds exactly."""
    # True is an int in Python, but not a number in JSON, so it is refused.
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _COUNT_BOUND


def _is_finite(value: object) -> bool:
    """Whether a value is a finite float."""
    return isinstance(value, float) and math.isfinite(value)


def _counts(counts: dict[str, int]) -> str:
    """Text of counts sorted by name, such as ``3 late, 1 malformed``; empty if there are none."""
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
