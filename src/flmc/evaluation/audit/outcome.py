"""The outcome of an audit, which attacks flmc's own privacy: a class with the bounds of epsilon,
which can be printed and written as JSON."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from flmc.base.tables import Listing, Row, format_up
from flmc.evaluation.audit.resolution import Resolution
from flmc.planning.privacy_cost import risk_in_words
from flmc.privacy.neighbours import told_apart
from flmc.privacy.trade_off import TradeOff

_ROUNDING = 1e-9
"""Relative excess of a gain over its cap that rounding alone may cause."""


@dataclass(frozen=True)
class Audit:
    """Outcome of an attack on the uplink with ``trials`` simulated transmissions of ``num_rounds``
    rounds in each of two neighbouring worlds: epsilon at ``delta`` is at least ``lower`` with
    probability ``confidence``, ``upper`` is the accountant's bound, and ``most`` is the largest
    lower bound that so many trials can give."""

    num_rounds: int
    delta: float
    trials: int
    lower: float
    upper: float
    confidence: float
    most: float
    neighbouring: str = "device"
    """Unit in which the two neighbouring worlds of the attack differ: all data of a ``device``, or
    one ``example``."""
    loudest: float = 1.0
    """Largest gain at which devices really transmit, over the cap that the accountant assumes;
    above 1 the stated epsilon does not hold."""
    resolution: Resolution | None = None
    """Smallest understatement of epsilon by the accountant that the audit could detect, computed
    before the attack; None if it was not computed."""

    risk: TradeOff | None = None
    """What any attacker achieves at most after these rounds, as the accountant states; None if no
    finite epsilon is known."""

    @property
    def too_loud(self) -> bool:
        """Whether devices transmit at a gain above the cap that the accountant assumes."""
        return self.loudest > 1.0 + _ROUNDING

    @property
    def broken(self) -> bool:
        """Whether the attack's lower bound of epsilon exceeds the accountant's upper bound, or
        devices transmit above the cap of the gain."""
        return self.lower > self.upper or self.too_loud

    @property
    def complaint(self) -> str:
        """A sentence that says why the mechanism, the accountant or the power control must be
        broken; empty where the attack does not show it."""
        if self.lower > self.upper:
            return (
                f"over {self.num_rounds} rounds epsilon is at least {self.lower:.4g}, and the"
                f" accountant states {self.upper:.4g}: the mechanism or the accountant is broken"
            )
        if self.too_loud:
            return (
                f"devices transmit with {self.loudest:.4g} times the cap of the gain that the"
                " accountant was told of: the schedule or the power control is broken"
            )
        return ""

    def to_document(self) -> dict[str, Any]:
        """The fields of the audit by name as plain values, for JSON; an infinite epsilon is
        null."""
        upper = None if math.isinf(self.upper) else self.upper
        resolution = None if self.resolution is None else self.resolution.to_document()
        return {
            **vars(self),
            "upper": upper,
            "resolution": resolution,
            "risk": None if self.risk is None else self.risk.to_document(self.delta),
            "broken": self.broken,
        }

    def __str__(self) -> str:
        return str(self.listing())

    def listing(self) -> Listing:
        """Resolution, loudest gain, lower and upper bound of epsilon, and verdict, as rows for
        printing."""
        verdict = Row("verdict", "not refuted", severity="good")
        if self.too_loud:
            text = f"REFUTED: gains are up to {self.loudest:.4g} times their cap"
            verdict = Row("verdict", text, severity="bad")
        elif self.broken:
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
            f" each world, which differ in one {self.neighbouring}"
        )
        return Listing(
            title,
            (
                *([] if self.resolution is None else [Row("resolution", str(self.resolution))]),
                Row("loudest gain", f"{self.loudest:.4g} times its cap"),
                Row(
                    "epsilon is at least",
                    f"{self.lower:.4g} (with confidence {100 * self.confidence:g} %)",
                ),
                Row("epsilon is at most", f"{format_up(self.upper)} (accountant)"),
                Row("risk", risk_in_words(self.risk, told_apart(self.neighbouring), self.delta)),
                verdict,
            ),
        )
