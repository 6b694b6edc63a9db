"""`flmc cite`: how to cite a recorded run, a sweep or a reproduced study."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flmc.cli.output import Json, print_json
from flmc.runs.citation import cite


def cite_command(
    directory: Annotated[
        Path,
        typer.Argument(
            metavar="DIR", help="what `flmc run`, `flmc sweep` or `flmc reproduce` made with --out"
        ),
    ],
    json_: Json = False,
) -> None:
    """A paragraph for a methods section and BibTeX entries, of what a record, a sweep or a
    reproduced study says."""
    citation = cite(directory)
    if json_:
        print_json(citation.to_document())
    else:
        typer.echo(str(citation))
