"""Findings: what speaks against a plan or a result, as a value that people and programs read."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from flmc.base.tables import Row, Severity

Grade = Literal["note", "warning", "infeasible"]
"""How much a finding matters: a ``note`` is to be known, a ``warning`` speaks against the result,
``infeasible`` says that it cannot be what was asked for."""

_SEVERITIES: dict[Grade, Severity] = {"note": "plain", "warning": "warning", "infeasible": "bad"}


@dataclass(frozen=True)
class Finding:
    """What speaks against a plan or a result: a code, how much it matters, words and numbers.

    Attributes
    ----------
    code
        Name of what was found, for programs; the same in every version.
    severity
        ``note``, ``warning`` or ``infeasible``.
    message
        A sentence with the cure.
    short
        The same in a few words, for a headline; empty: the message.
    numbers
        The numbers of the sentence, by name.
    """

    code: str
    severity: Grade
    message: str
    short: str = ""
    numbers: Mapping[str, float] = field(default_factory=dict)

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
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Finding:
        """The finding that :meth:`to_document` wrote; a number that is null was not finite."""
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
        )


def gravest(findings: Sequence[Finding]) -> list[Finding]:
    """Those of the findings that matter most: all that make a plan infeasible, if there are any;
    else all warnings. Notes are never among them."""
    for grade in ("infeasible", "warning"):
        graded = [each for each in findings if each.severity == grade]
        if graded:
            return graded
    return []
