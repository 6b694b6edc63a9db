"""All fields that a JSON Schema describes, with those of the objects within it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from flmc.planning.plans.schema_parts import Kind


class Field(NamedTuple):
    """A field of an object.

    Attributes
    ----------
    path
        Where it is: ``metrics.mse`` is within an object, ``audits[].lower`` in every object of a
        list, and ``*`` stands for names that the schema does not know.
    kind
        The JSON Schema of its value.
    words
        What it is.
    """

    path: str
    kind: Kind
    words: str


def fields_of(kind: Kind, path: str = "") -> Iterator[Field]:
    """Fields of an object, each followed by those within it. Shared parts are not entered.

    Parameters
    ----------
    kind
        The JSON Schema of the object.
    path
        Where the object is; empty for a whole document.
    """
    for name, inner in children(kind).items():
        here = name if name == "[]" or not path else f".{name}"
        if "description" in inner:
            yield Field(path + here, inner, inner["description"])
        yield from fields_of(inner, path + here)
    for choice in kind.get("anyOf", ()):
        yield from fields_of(choice, path)


def children(kind: Kind) -> dict[str, Kind]:
    """Kinds of the values directly within a value: by name, ``*`` for other names, ``[]`` for the
    items of a list.

    Parameters
    ----------
    kind
        The JSON Schema of the value.
    """
    others = [*kind.get("patternProperties", {}).values(), kind.get("additionalProperties")]
    found = [("*", each) for each in others]
    found += [*kind.get("properties", {}).items(), ("[]", kind.get("items"))]
    return {name: each for name, each in found if isinstance(each, Mapping)}
