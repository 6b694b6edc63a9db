"""How an answer compares with the truth, and the table of all of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

SHARE, LEAST = 0.02, 1e-3
"""By how much an epsilon may be above the truth: a share of it, or a number where that is more. A
gain may be below the truth by the same share."""
_ROUNDING = 1e-6
"""Relative difference that is no violation: both sides are rounded."""
_CAUTION = 3.0
"""How many of the oracle's errors are no violation: an error is itself an estimate, from the
difference of two computations."""


@dataclass(frozen=True)
class Verdict:
    """An answer and its truth.

    Attributes
    ----------
    group
        Row of the table: the accountant, or the kind of a plan.
    name
        What was asked, in words.
    truth, error
        What is true, and how exactly the oracle knows.
    value
        What was answered; not a number where there was no answer.
    cpu
        Processor time of the answer, in seconds.
    converged
        Whether the oracle knows the truth well enough.
    of_gain
        Whether the answer is a gain, which must not be above the truth.
    structural
        Why the answer may be looser than the bar; empty where it may not.
    failure
        Why there was no answer.
    peak
        Largest resident memory of the accountants' process, in megabytes above importing them.
    """

    group: str
    name: str
    truth: float
    error: float
    value: float
    cpu: float
    converged: bool = True
    of_gain: bool = False
    structural: str = ""
    failure: str = ""
    peak: float = math.nan

    @property
    def slack(self) -> float:
        """By how much the answer is on the safe side of the truth, as a share."""
        if self.of_gain:
            return self.truth / self.value - 1 if self.value > 0 else math.inf
        return self.value / self.truth - 1 if self.truth > 0 else math.inf

    @property
    def violates(self) -> bool:
        """Whether the answer promises more privacy than there is."""
        margin = _ROUNDING * self.truth + (_CAUTION * self.error if self.converged else math.inf)
        if self.of_gain:
            return self.value > self.truth + margin
        return self.value < self.truth - margin

    @property
    def loose(self) -> bool:
        """Whether the answer is further from the truth than the bar allows, or missing."""
        if self.failure or math.isnan(self.value):
            return True
        if self.of_gain:
            return self.value < self.truth * (1 - SHARE) - self.error
        return self.value > self.truth + max(SHARE * self.truth, LEAST) + self.error

    def __str__(self) -> str:
        what = "gain" if self.of_gain else "epsilon"
        said = self.failure or f"{self.value:.6g}"
        return (
            f"{self.group}: {self.name}: {what} {said}, true {self.truth:.6g} +- {self.error:.1g}"
        )


def table(verdicts: Sequence[Verdict]) -> str:
    """A row for each group: cases, violations, looseness of what was answered, processor time."""
    head = (
        f"{'accountant':34} {'cases':>5} {'open':>4} {'wrong':>5} {'loose':>5} {'no answer':>9}"
        f" {'median %':>9} {'largest %':>9} {'median ms':>9} {'largest ms':>10} {'MB':>5}"
    )
    lines = [head, "-" * len(head)]
    for group in dict.fromkeys(v.group for v in verdicts):
        rows = [v for v in verdicts if v.group == group]
        answered = [v for v in rows if not math.isnan(v.value)]
        slack = [100 * v.slack for v in answered if v.converged] or [math.nan]
        times = [1e3 * v.cpu for v in rows if not math.isnan(v.cpu)] or [math.nan]
        peak = np.nanmax([0.0, *(v.peak for v in rows)])
        bar = "-" if all(v.structural for v in rows) else str(sum(v.loose for v in answered))
        lines.append(
            f"{group:34} {len(rows):5} {sum(not v.converged for v in rows):4}"
            f" {sum(v.violates for v in answered):5} {bar:>5} {len(rows) - len(answered):9}"
            f" {float(np.median(slack)):9.3f} {max(slack):9.3f}"
            f" {float(np.median(times)):9.1f} {max(times):10.1f}"
            f" {peak:5.0f}"
        )
    return "\n".join(lines)
