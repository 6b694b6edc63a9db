"""The answers of all commands by name, each with its JSON Schema, and the parts that they share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from flmc.cli.schemas import comparisons, federations, runs, sweeps, two_stages, verdicts
from flmc.planning.plans import schema as plans
from flmc.planning.plans import schema_parts
from flmc.planning.plans.schema_parts import Kind, document_schema

PARTS: Mapping[str, Kind] = {**schema_parts.PARTS, "plan": plans.CONTENT, **runs.PARTS}
"""Objects that stand in several places of the answers, by name."""


class Answer(NamedTuple):
    """What some commands print with ``--json``.

    Attributes
    ----------
    help
        Which commands, in a line.
    content
        The object that they print; it may refer to shared parts.
    """

    help: str
    content: Kind

    def schema(self) -> dict[str, Any]:
        """The JSON Schema of the answer, complete with the parts that it mentions."""
        return document_schema(f"flmc: {self.help}", self.content, PARTS)


ANSWERS: Mapping[str, Answer] = {
    "plan": Answer("what `flmc plan --json` prints, and `flmc plan --out` writes", plans.CONTENT),
    "plan-solve": Answer("what `flmc plan --solve NAME --json` prints", verdicts.SOLVED),
    "run": Answer(
        "what `flmc run`, `flmc resume`, `flmc serve` and `flmc deploy demo` print with `--json`",
        runs.RUN,
    ),
    "plan-two-stages": Answer(
        "what `flmc plan --precondition pilot --json` prints", two_stages.PLANNED
    ),
    "run-two-stages": Answer(
        "what `flmc run --precondition pilot --json` prints", two_stages.RESULTS
    ),
    "compare": Answer("what `flmc compare --json` prints", comparisons.COMPARED),
    "ledger": Answer("what `flmc ledger --json` prints, with and without --at", runs.LEDGER),
    "sweep": Answer("what `flmc sweep --json` prints, with and without --plan-only", sweeps.SWEEP),
    "status": Answer("what `flmc status --json` prints", federations.OBSERVED),
    "deploy": Answer(
        "what `flmc deploy init`, `renew` and `revoke` print with `--json`", federations.DONE
    ),
    "deploy-cost": Answer("what `flmc deploy cost --json` prints", federations.PRICE),
    "deploy-ledger": Answer("what `flmc deploy ledger --json` prints", federations.DEVICE_LEDGER),
    "audit": Answer("what `flmc audit --json` prints", verdicts.AUDITED),
    "reproduce": Answer("what `flmc reproduce --json` prints", verdicts.REPRODUCED),
    "reproduce-wflmc": Answer(
        "what `flmc reproduce --paper wflmc --json` prints", verdicts.PREDECESSOR
    ),
}
"""Every answer by the name that ``flmc schema`` knows."""
