"""Messages that a role dropped, counted by their reason."""

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
"""Why messages are dropped, in words."""

_LOUD = 3
"""Messages of a reason that are logged one by one; of later ones every hundredth is."""


class Drops:
    """Counts of dropped messages, and where they are logged.

    Parameters
    ----------
    log
        The role's logger. Nothing of a payload is logged, only topic, reason and size.
    """

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self.counts: Counter[str] = Counter()

    def count(self, reason: str, topic: str, size: int, detail: str = "") -> None:
        """Count a dropped message, and log it.

        Parameters
        ----------
        reason
            One of ``REASONS``.
        topic, size
            Where it came from, and its bytes.
        detail
            What was wrong, in words that hold no data.
        """
        assert reason in REASONS, reason
        self.counts[reason] += 1
        number = self.counts[reason]
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
        """Counts by reason, for JSON."""
        return dict(sorted(self.counts.items()))
