"""Every answer of a command with ``--json``, by name, and the fields of its JSON Schema."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, NamedTuple

import typer

from flmc.base.errors import InvalidSetting
from flmc.cli.output import print_json
from flmc.cli.schemas import federations, runs, sweeps, verdicts
from flmc.planning.plans import schema as plans
from flmc.planning.plans.schema import Document, json_schema

Kind = Mapping[str, Any]
"""The JSON Schema of a value."""


class Answer(NamedTuple):
    """The answer of one or several commands."""

    help: str
    model: type[Document]

    def schema(self) -> dict[str, Any]:
        """The JSON Schema of the answer."""
        return json_schema(self.model, f"flmc: {self.help}")


ANSWERS: Mapping[str, Answer] = {
    "plan": Answer(
        "what `flmc plan --json` prints, and `flmc plan --out` writes", plans.PlanDocument
    ),
    "plan-solve": Answer("what `flmc plan --solve NAME --json` prints", verdicts.SolvedDocument),
    "run": Answer(
        "what `flmc run`, `flmc resume`, `flmc serve` and `flmc deploy demo` print with `--json`",
        runs.RunDocument,
    ),
    "plan-two-stages": Answer(
        "what `flmc plan --precondition pilot --json` prints", runs.TwoStagePlanDocument
    ),
    "run-two-stages": Answer(
        "what `flmc run --precondition pilot --json` prints", runs.TwoStageRunDocument
    ),
    "compare": Answer("what `flmc compare --json` prints", runs.ComparisonDocument),
    "ledger": Answer(
        "what `flmc ledger --json` prints, with and without --at", runs.LedgerDocument
    ),
    "sweep": Answer(
        "what `flmc sweep --json` prints, with and without --plan-only", sweeps.SweepDocument
    ),
    "status": Answer("what `flmc status --json` prints", federations.ObservationDocument),
    "deploy": Answer(
        "what `flmc deploy init`, `renew` and `revoke` print with `--json`",
        federations.SetupDocument,
    ),
    "deploy-cost": Answer("what `flmc deploy cost --json` prints", federations.RunCostDocument),
    "deploy-ledger": Answer(
        "what `flmc deploy ledger --json` prints", federations.DeviceLedgerDocument
    ),
    "audit": Answer("what `flmc audit --json` prints", verdicts.AuditsDocument),
    "reproduce": Answer("what `flmc reproduce --json` prints", verdicts.QuantisedStudyDocument),
    "reproduce-wflmc": Answer(
        "what `flmc reproduce --paper wflmc --json` prints", verdicts.PredecessorStudyDocument
    ),
}
"""Every answer by the name that ``flmc schema`` knows."""

PARTS: Mapping[str, type[Document]] = {
    "plan": plans.PlanDocument,
    "finding": plans.FindingDocument,
    "cost": plans.CostDocument,
    "estimate": runs.EstimateDocument,
    "agreement": runs.AgreementDocument,
    "spread": runs.SpreadDocument,
}
"""Objects that several answers contain, or one contains in several places: each has a table of its
own in the documentation."""
_PART_OF = {model.__name__: name for name, model in PARTS.items()}


def schema_command(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="which answer; without: all names")
    ] = None,
) -> None:
    """Print the JSON Schema of what a command prints with --json, or the names of all schemas."""
    if name is None:
        width = max(map(len, ANSWERS))
        for known, answer in ANSWERS.items():
            typer.echo(f"{known:{width}}  {answer.help}")
        return
    if name not in ANSWERS:
        raise InvalidSetting(
            f"there is no schema {name!r}: it must be one of {', '.join(ANSWERS)}; the schema of"
            " `flmc resume` is that of run"
        )
    print_json(ANSWERS[name].schema())


class Field(NamedTuple):
    """A described field of an answer."""

    path: str
    """``metrics.mse`` is within an object, ``audits[].lower`` in every object of a list, and ``*``
    stands for names that the schema does not know."""
    kind: Kind
    words: str


def part_of(kind: Kind) -> str | None:
    """Name of the shared part that a value is; None where it is none."""
    return _PART_OF.get(_referred(kind))


def fields_of(kind: Kind, definitions: Mapping[str, Kind], path: str = "") -> Iterator[Field]:
    """Fields of an object, each followed by those within it; shared parts are not entered.

    ``definitions`` are the ``$defs`` of the whole schema, and ``path`` is the place of the object,
    empty for a whole document.
    """
    for name, inner in children(kind, definitions).items():
        here = path + (name if name == "[]" or not path else f".{name}")
        if "description" in inner:
            yield Field(here, inner, inner["description"])
        if part_of(inner) is None:
            yield from fields_of(inner, definitions, here)
    for choice in kind.get("anyOf", ()):
        if part_of(choice) is None:
            yield from fields_of(choice, definitions, path)


def children(kind: Kind, definitions: Mapping[str, Kind]) -> dict[str, Kind]:
    """Kinds of the values directly within a value: by name, ``*`` for other names, ``[]`` for the
    items of a list."""
    kind = definitions.get(_referred(kind), kind)
    others = [*kind.get("patternProperties", {}).values(), kind.get("additionalProperties")]
    named = [("*", each) for each in others]
    named += [*kind.get("properties", {}).items(), ("[]", kind.get("items"))]
    return {name: each for name, each in named if isinstance(each, Mapping)}


def _referred(kind: Kind) -> str:
    """Name of the definition that a kind refers to; empty where it is none."""
    # Older pydantic puts a reference that has words beside it into an allOf of its own.
    kind, *_ = kind.get("allOf", [kind])
    return str(kind.get("$ref", "")).removeprefix("#/$defs/")
