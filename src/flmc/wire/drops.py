"""Reasons for which a role drops (ignores) a message, and the counts of dropped messages."""

from __future__ import annotations

import logging
from collections import Counter

REASONS = {
    "malformed": "not a payload of its topic",
    "oversized": "larger than the plan allows",
    "unknown-topic": "on a topic that the role does not read",
    "wrong-run": "of another run or another federation",
    "wrong-round": "of another round than the current one",
    "wrong-identity": "said to be of another device than its topic's",
    "not-scheduled": "of a device that is not scheduled in the round",
    "not-sealed": "not sealed to the air's key",
    "repeated": "a repetition of what was already taken",
    "late": "after its round was closed",
    "other-theta": "for a round that was answered with another theta",
    "out-of-range": "with numbers that are not finite or too large",
    "over-cap": "louder than the plan allows",
    "stale-journal": "of a device or an air whose journal is older than what it has said",
    "not-joined": "before or without the device's consent to the plan",
}
"""Reasons for which a role drops a message, by name, each with a description of such a message."""

_LOUD = 3
"""Number of messages, dropped for the same reason, that are logged one by one; after them only
every hundredth is logged."""


class Drops:
    """Counts of dropped messages by reason; the role's logger gets topic, reason and size, and
    never a part of the payload."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self.counts: Counter[str] = Counter()

    def count(self, reason: str, topic: str, size: int, detail: str = "") -> None:
        """Count a dropped message of one of the ``REASONS`` and log it; ``size`` is in bytes, and
        ``detail`` must hold no data of the payload."""
        assert reason in REASONS, reason
        self.counts[reason] += 1
        number = self.counts[reason]
        # Only some dropped messages are logged: a flood of bad messages must not become a flood of
        # log lines that fills a small board's disk.
        if number <= _LOUD or number % 100 == 0:
            self._log.warning(
                "dropped a message: %s",
                reason,
                extra={
                    "event": "dropped",
                    "reason": reason,
                    "topic": topic[:200],
                    "bytes": size,
                    "detail": detail[:200],
                    "count": number,
                },
            )

    def to_document(self) -> dict[str, int]:
        """Number of dropped messages by reason, sorted by reason, in plain values for JSON."""
        return dict(sorted(self.counts.items()))
