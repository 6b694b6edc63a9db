"""The directive ``registered-names KIND``: the table of one of flmc's registries.

``KIND`` is a key of :data:`flmc.settings.registered.REGISTRIES`, for example ``links``. The table
is made when the page is built, so it cannot differ from what the command line accepts."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from flmc.settings.registered import REGISTRIES
from flmc.settings.registry import Entry, Parameter

HEADER = ("name", "written", "parameters", "what it is")


class RegisteredNames(SphinxDirective):
    """A row for each name: how it is written, its parameters with defaults, and its help."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """The table, as nodes of the page."""
        kind = self.arguments[0]
        if kind not in REGISTRIES:
            raise self.error(f"no registry is called {kind!r}; known are {', '.join(REGISTRIES)}")
        registry = REGISTRIES[kind]
        table = nodes.table(classes=["registered-names"])
        group = nodes.tgroup(cols=len(HEADER))
        table += group
        group += [nodes.colspec(colwidth=1) for _ in HEADER]
        head, body = nodes.thead(), nodes.tbody()
        group += [head, body]
        head += _row([[nodes.paragraph("", title)] for title in HEADER])
        for entry in registry:
            body += _row(_cells(entry))
        return [table]


def _cells(entry: Entry) -> list[list[nodes.Node]]:
    parameters = [_parameter(parameter) for parameter in entry.parameters]
    return [
        [_code(entry.name)],
        [_code(entry.spelling)],
        parameters or [nodes.paragraph("", "none")],
        [nodes.paragraph("", entry.help)],
    ]


def _parameter(parameter: Parameter) -> nodes.paragraph:
    """The name, the default or that there is none, and what the parameter means."""
    given = parameter.default is not None
    default = f"default {parameter.default:g}" if given else "must be given"
    line = _code(parameter.name)
    line += nodes.Text(f" ({default}): {parameter.help}")
    return line


def _code(text: str) -> nodes.paragraph:
    return nodes.paragraph("", "", nodes.literal(text, text))


def _row(cells: list[list[nodes.Node]]) -> nodes.row:
    row = nodes.row()
    row += [nodes.entry("", *cell) for cell in cells]
    return row


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive."""
    app.add_directive("registered-names", RegisteredNames)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
