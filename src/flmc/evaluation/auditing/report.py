"""What an audit found, as a value, in rows and for JSON."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from flmc.base.tables import Listing, Row, format_up


@dataclass(frozen=True)
class Audit:
    """What an attack found: ``lower`` holds with probability ``confidence``, ``upper`` is the
    accountant's, and ``most`` is the largest lower bound that so many trials could have given."""

    num_rounds: int
    delta: float
    trials: int
    lower: float
    upper: float
    confidence: float
    most: float

    @property
    def broken(self) -> bool:
        """Whether the attack refutes the accountant."""
        return self.lower > self.upper

    def to_document(self) -> dict[str, Any]:
        """The audit as plain values, for JSON; an unbounded value is null."""
        upper = None if math.isinf(self.upper) else self.upper
        return {**vars(self), "upper": upper, "broken": self.broken}

    def __str__(self) -> str:
        return str(self.listing())

    def listing(self) -> Listing:
        """The two bounds and the verdict, in rows."""
        verdict = Row("verdict", "not refuted", severity="good")
        if self.broken:
            verdict = Row(
                "verdict", "REFUTED: the mechanism leaks more than it states", severity="bad"
            )
        elif self.most <= self.upper:
            text = (
                f"cannot decide: {self.trials} trials can refute an epsilon below {self.most:.3g}"
                " only"
            )
            verdict = Row("verdict", text, severity="warning")
        title = (
            f"audit over {self.num_rounds} rounds, delta {self.delta:g}, {self.trials} trials in"
            " each world"
        )
        return Listing(
            title,
            (
                Row(
                    "epsilon is at least",
                    f"{self.lower:.4g} (with confidence {100 * self.confidence:g} %)",
                ),
                Row("epsilon is at most", f"{format_up(self.upper)} (accountant)"),
                verdict,
            ),
        )
