"""Every answer of a command with ``--json``, by name, and the fields of its JSON Schema."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, NamedTuple

import typer

from flmc.base.errors import InvalidSetting
from flmc.cli.output import print_json
from flmc.cli.schemas import federation_answers, run_answers, sweep_answers, verdict_answers
from flmc.planning.plans import plan_schema
from flmc.planning.plans.plan_schema import Document, json_schema

Kind = Mapping[str, Any]
"""The JSON Schema of a value, as a mapping."""


class AnswerSchema(NamedTuple):
    """JSON answer of one or several commands: a description in words (``help``), and the pydantic
    model from which the JSON Schema is made."""

    help: str
    model: type[Document]

    def schema(self) -> dict[str, Any]:
        """The JSON Schema of what the commands print."""
        return json_schema(self.model, f"flmc: {self.help}")


ANSWERS: Mapping[str, AnswerSchema] = {
    "plan": AnswerSchema(
        "what `flmc plan --json` prints, and `flmc plan --out` writes", plan_schema.PlanDocument
    ),
    "plan-solve": AnswerSchema(
        "what `flmc plan --solve NAME --json` prints", verdict_answers.SolvedDocument
    ),
    "run": AnswerSchema(
        "what `flmc run`, `flmc resume`, `flmc serve` and `flmc deploy demo` print with `--json`",
        run_answers.RunDocument,
    ),
    "plan-two-stages": AnswerSchema(
        "what `flmc plan --precondition pilot --json` prints", run_answers.TwoStagePlanDocument
    ),
    "run-two-stages": AnswerSchema(
        "what `flmc run --precondition pilot --json` prints", run_answers.TwoStageRunDocument
    ),
    "answer": AnswerSchema(
        "what `flmc answer` prints with `--json`", run_answers.ServerAnswerDocument
    ),
    "compare": AnswerSchema("what `flmc compare --json` prints", run_answers.ComparisonDocument),
    "cite": AnswerSchema("what `flmc cite --json` prints", run_answers.CitationDocument),
    "ledger": AnswerSchema(
        "what `flmc ledger --json` prints, with and without --at", run_answers.LedgerDocument
    ),
    "sweep": AnswerSchema(
        "what `flmc sweep --json` prints, with and without --plan-only", sweep_answers.SweepDocument
    ),
    "status": AnswerSchema(
        "what `flmc status --json` prints", federation_answers.ObservationDocument
    ),
    "deploy": AnswerSchema(
        "what `flmc deploy init`, `renew` and `revoke` print with `--json`",
        federation_answers.SetupDocument,
    ),
    "deploy-cost": AnswerSchema(
        "what `flmc deploy cost --json` prints", federation_answers.RunCostDocument
    ),
    "deploy-together": AnswerSchema(
        "what `flmc deploy together --json` prints", federation_answers.PooledRunsDocument
    ),
    "deploy-ledger": AnswerSchema(
        "what `flmc deploy ledger --json` prints", federation_answers.DeviceLedgerDocument
    ),
    "audit": AnswerSchema("what `flmc audit --json` prints", verdict_answers.AuditsDocument),
    "reproduce": AnswerSchema(
        "what `flmc reproduce --json` prints", verdict_answers.QuantisedStudyDocument
    ),
    "reproduce-wflmc": AnswerSchema(
        "what `flmc reproduce --paper wflmc --json` prints",
        verdict_answers.PredecessorStudyDocument,
    ),
}
"""Every answer of a command with ``--json``, by the name that ``flmc schema`` takes."""

PARTS: Mapping[str, type[Document]] = {
    "plan": plan_schema.PlanDocument,
    "finding": plan_schema.FindingDocument,
    "cost": plan_schema.CostDocument,
    "estimate": run_answers.EstimateDocument,
    "agreement": run_answers.AgreementDocument,
    "spread": run_answers.SpreadDocument,
    "middle": run_answers.MiddleDocument,
    "paired": run_answers.PairedDocument,
}
"""Pydantic models of objects that stand in several places of JSON answers, by name. Each has a
table of its own in the documentation."""
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
    """A field of a JSON answer: its place in the answer (``path``), the part of the JSON Schema
    that describes it (``kind``), and its description (``words``)."""

    path: str
    """Place of the field in the answer: ``metrics.mse`` is within an object, ``audits[].lower`` in
    every object of a list, and ``*`` stands for names that the schema does not know."""
    kind: Kind
    words: str


def part_of(kind: Kind) -> str | None:
    """Name in ``PARTS`` of the object that the schema ``kind`` refers to; None if it refers to none
    of them."""
    return _PART_OF.get(_referred(kind))


def fields_of(kind: Kind, definitions: Mapping[str, Kind], path: str = "") -> Iterator[Field]:
    """All described fields of a JSON object with the schema ``kind``, each followed by the fields
    within it, except within the objects of ``PARTS``.

    ``definitions`` are the ``$defs`` of the whole schema, and ``path`` is the place of the object,
    empty for a whole document."""
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
    """Schemas of the values directly within a value of the schema ``kind``: by name for the fields
    of an object, under ``*`` for fields of any other name, under ``[]`` for the items of a list."""
    kind = definitions.get(_referred(kind), kind)
    others = [*kind.get("patternProperties", {}).values(), kind.get("additionalProperties")]
    named = [("*", each) for each in others]
    named += [*kind.get("properties", {}).items(), ("[]", kind.get("items"))]
    return {name: each for name, each in named if isinstance(each, Mapping)}


def _referred(kind: Kind) -> str:
    """Name of the definition in ``$defs`` that a schema refers to; empty if it refers to none."""
    # Older versions of pydantic put a reference that has a description beside it into a list
    # ``allOf`` of its own.
    kind, *_ = kind.get("allOf", [kind])
    return str(kind.get("$ref", "")).removeprefix("#/$defs/")
