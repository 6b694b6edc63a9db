"""The directive ``json-fields NAME``: the table of the fields that a JSON Schema describes.

``NAME`` is a key of :data:`flmc.cli.schemas.ANSWERS` or :data:`flmc.cli.schemas.PARTS`. The table
is made when the page is built, so it cannot differ from what ``flmc schema`` prints. A field that
is a shared part leads to the section of that part, which has the part's name as its anchor."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from flmc.cli.schemas import ANSWERS, PARTS
from flmc.cli.schemas.catalogue import Field, fields_of, part_of
from flmc.planning.plans.plan_schema import json_schema

HEADER = ("field", "type", "what it is")
WIDTHS = (30, 20, 50)


class JsonFields(SphinxDirective):
    """A row for each field: where it is, its type, and what it is."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """The table, as nodes of the page."""
        known = {**PARTS, **{name: answer.model for name, answer in ANSWERS.items()}}
        name = self.arguments[0]
        if name not in known:
            raise self.error(f"no schema is called {name!r}; known are {', '.join(known)}")
        table = nodes.table(classes=["json-fields"])
        group = nodes.tgroup(cols=len(HEADER))
        table += group
        group += [nodes.colspec(colwidth=width) for width in WIDTHS]
        head, body = nodes.thead(), nodes.tbody()
        group += [head, body]
        head += _row([nodes.paragraph("", title) for title in HEADER])
        schema = json_schema(known[name], name)
        for field in fields_of(schema, schema.get("$defs", {})):
            body += _row(_cells(field))
        return [table]


def _cells(field: Field) -> list[nodes.paragraph]:
    kind = nodes.paragraph()
    kind += list(_type(field.kind))
    path = nodes.paragraph("", "", nodes.literal(field.path, field.path))
    words = nodes.paragraph()
    # The name of an option as code: in prose Sphinx would make one dash of its two.
    for index, piece in enumerate(re.split(r"(--[a-z-]+)", field.words)):
        words += nodes.literal(piece, piece) if index % 2 else nodes.Text(piece)
    return [path, kind, words]


def _type(kind: Mapping[str, Any]) -> Iterator[nodes.Node]:
    """The type of a value in words; a shared part is a link to its section."""
    part = part_of(kind)
    if part is not None:
        yield nodes.reference("", part, refid=f"json-{part}", internal=True)
    elif "$ref" in kind or "allOf" in kind:  # an object whose fields have rows of their own
        yield nodes.Text("object")
    elif "anyOf" in kind:
        yield from _joined(kind["anyOf"], " or ")
    elif "const" in kind or "enum" in kind:
        values = [kind["const"]] if "const" in kind else kind["enum"]
        for index, text in enumerate(map(json.dumps, values)):
            if index:
                yield nodes.Text(" or ")
            yield nodes.literal(text, text)
    elif "prefixItems" in kind:
        yield nodes.Text("[")
        yield from _joined(kind["prefixItems"], ", ")
        yield nodes.Text("]")
    elif kind.get("items"):
        items = kind["items"]
        several, simple = "anyOf" in items, "prefixItems" not in items and part_of(items) is None
        yield nodes.Text("list of (" if several else "list of ")
        yield from _type(items)
        yield nodes.Text(")" if several else "s" if simple else "")
    elif isinstance(kind.get("additionalProperties"), Mapping):
        yield nodes.Text("object by name: ")
        yield from _type(kind["additionalProperties"])
    else:
        word = kind.get("type", "any")
        yield nodes.Text({"array": "list"}.get(word, word))


def _joined(kinds: list[Mapping[str, Any]], between: str) -> Iterator[nodes.Node]:
    for index, kind in enumerate(kinds):
        if index:
            yield nodes.Text(between)
        yield from _type(kind)


def _row(cells: list[nodes.paragraph]) -> nodes.row:
    row = nodes.row()
    row += [nodes.entry("", cell) for cell in cells]
    return row


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive."""
    app.add_directive("json-fields", JsonFields)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
