"""What JSON Schemas are made of: kinds of values, objects with described fields, shared parts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, get_args

from flmc.base.findings import Grade

Kind = Mapping[str, Any]
"""The JSON Schema of a value."""
Fields = Mapping[str, tuple[Kind, str]]
"""Fields of an object by name, each with its kind and one line that says what it is."""

NUMBER: Kind = {"type": "number"}
COUNT: Kind = {"type": "integer", "minimum": 0}
WORD: Kind = {"type": "string"}
FLAG: Kind = {"type": "boolean"}
_REFERENCE = "#/$defs/"


def or_null(kind: Kind) -> Kind:
    """A value of some kind, or null.

    Parameters
    ----------
    kind
        The kind of the value where there is one.
    """
    return {"anyOf": [kind, {"type": "null"}]}


def list_of(kind: Kind) -> Kind:
    """A list of values of one kind.

    Parameters
    ----------
    kind
        The kind of every value.
    """
    return {"type": "array", "items": kind}


def by_name(kind: Kind) -> Kind:
    """An object whose fields have names that the schema does not know, and values of one kind.

    Parameters
    ----------
    kind
        The kind of every value.
    """
    return {"type": "object", "additionalProperties": kind}


def described(fields: Fields, optional: tuple[str, ...] = ()) -> dict[str, Any]:
    """An object that has the described fields and no others.

    Parameters
    ----------
    fields
        The fields.
    optional
        Names of those that may be missing.
    """
    return {
        "type": "object",
        "properties": {
            name: {**kind, "description": words} for name, (kind, words) in fields.items()
        },
        "required": [name for name in fields if name not in optional],
        "additionalProperties": False,
    }


def part(name: str) -> Kind:
    """A value that a shared part describes.

    Parameters
    ----------
    name
        Name of the part, a key of the parts that :func:`document_schema` is given.
    """
    return {"$ref": _REFERENCE + name}


def part_named_by(kind: Kind) -> str | None:
    """Name of the part that describes a value; None where the kind describes it itself.

    Parameters
    ----------
    kind
        The kind of the value.
    """
    reference = kind.get("$ref")
    return None if reference is None else str(reference).removeprefix(_REFERENCE)


def document_schema(title: str, content: Kind, parts: Mapping[str, Kind]) -> dict[str, Any]:
    """The JSON Schema of a whole document, with the parts that it mentions.

    Parameters
    ----------
    title
        What the document is.
    content
        The object that :func:`described` made.
    parts
        Shared parts by name; those that are not mentioned are left out.
    """
    needed: dict[str, Kind] = {}
    _gather(content, parts, needed)
    definitions = {"$defs": needed} if needed else {}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": title,
        **content,
        **definitions,
    }


def _gather(kind: Kind, parts: Mapping[str, Kind], found: dict[str, Kind]) -> None:
    """Enter the parts that a kind mentions, and those that these mention."""
    for name in _mentioned(kind):
        if name not in found:
            found[name] = parts[name]
            _gather(parts[name], parts, found)


def _mentioned(value: Any) -> Iterator[str]:
    """Names of the parts that are mentioned anywhere within a kind."""
    if isinstance(value, Mapping):
        name = part_named_by(value)
        if name is not None:
            yield name
        for inner in value.values():
            yield from _mentioned(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _mentioned(inner)


FINDING = described(
    {
        "code": (WORD, "name of what was found, for programs; the same in every version"),
        "severity": (
            {"enum": list(get_args(Grade))},
            "how much it matters: a note is to be known, a warning speaks against the result,"
            " infeasible says that it cannot be what was asked for",
        ),
        "message": (WORD, "a sentence with the cure"),
        "short": (WORD, "the same in a few words; empty: the message is short enough"),
        "numbers": (by_name(or_null(NUMBER)), "the numbers of the sentence; null: not finite"),
    }
)
"""What speaks against a plan or a result, as ``Finding.to_document`` writes it."""

COST = described(
    {
        "epsilon": (or_null(NUMBER), "upper bound of epsilon; null: there is none"),
        "delta": (NUMBER, "delta that epsilon is stated at"),
        "delta_at_zero": (
            NUMBER,
            "only where epsilon is 0: the delta that goes with it, smaller than the one asked for",
        ),
        "rounds": (
            COUNT,
            "only of a run: rounds that are counted for the device that transmits most",
        ),
    },
    optional=("delta_at_zero", "rounds"),
)
"""An (epsilon, delta) statement."""

PARTS: Mapping[str, Kind] = {"finding": FINDING, "cost": COST}
"""Parts that a plan's schema and those of other documents share, by name."""
