"""Findings: statements about a plan or a result, mostly warnings, with a message for people and a
code and numbers for programs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from flmc.base.tables import Row, Severity

Grade = Literal["note", "unknown", "warning", "infeasible"]
"""Severity of a finding: a ``note`` is good to know, ``unknown`` names something that could not be
judged, a ``warning`` speaks against the plan or result, and ``infeasible`` says that the plan
cannot meet what was asked for."""
Light = Literal["sampling", "privacy", "use"]
"""What a finding is about: whether the samples are those of the posterior (sampling), whether the
privacy budget is kept (privacy), or whether the samples are enough to be useful (use)."""

_SEVERITIES: dict[Grade, Severity] = {
    "note": "plain",
    "unknown": "unknown",
    "warning": "warning",
    "infeasible": "bad",
}
"""Severity with which a finding's row is shown in a table, for each severity of a finding."""


@dataclass(frozen=True)
class Finding:
    """A statement about a plan or a result, mostly against it, as a code, a severity, words and
    numbers.

    Attributes
    ----------
    code
        Name of the finding, for programs; the same in every version.
    severity
        ``note``, ``unknown``, ``warning`` or ``infeasible``.
    message
        A sentence with the cure.
    short
        The message in a few words, for a headline; empty: the message itself is used.
    numbers
        The numbers of the message, by name.
    light
        Which of the three lights of a verdict it is about: ``sampling``, ``privacy`` or ``use``.
    """

    code: str
    severity: Grade
    message: str
    short: str = ""
    numbers: Mapping[str, float] = field(default_factory=dict)
    light: Light = "sampling"

    @property
    def row(self) -> Row:
        """The finding as a row of a table, to be shown with the plan or result that it is about."""
        return Row(self.severity, self.message, severity=_SEVERITIES[self.severity])

    def to_document(self) -> dict[str, Any]:
        """The finding in plain values, for JSON; a number that is not finite is null."""
        numbers = {
            name: value if math.isfinite(value) else None for name, value in self.numbers.items()
        }
        return {
            "code": self.code,
            "severity": self.severity,
            "message": self.message,
            "short": self.short,
            "numbers": numbers,
            "light": self.light,
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Finding:
        """The finding for which :meth:`to_document` made ``document``; a number that is null
        becomes NaN."""
        numbers = {
            name: math.nan if value is None else value
            for name, value in document["numbers"].items()
        }
        return cls(
            document["code"],
            document["severity"],
            document["message"],
            document.get("short", ""),
            numbers,
            document.get("light", "sampling"),
        )


def gravest(findings: Sequence[Finding]) -> list[Finding]:
    """The gravest of the findings: all ``infeasible`` ones, if there are any; else all warnings,
    else all of severity ``unknown``. Notes are never among them."""
    for grade in ("infeasible", "warning", "unknown"):
        graded = [each for each in findings if each.severity == grade]
        if graded:
            return graded
    return []
