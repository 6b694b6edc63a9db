"""`flmc schema`: JSON Schemas of what the commands print."""

from __future__ import annotations

from typing import Annotated

import typer

from flmc.base.errors import InvalidSetting
from flmc.cli.output import print_json
from flmc.cli.schemas import ANSWERS


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
