"""How commands answer: a JSON object on standard output, or a line on standard error."""

from __future__ import annotations

import json
import re
import sys
from typing import Annotated, Any

import typer

Json = Annotated[
    bool,
    typer.Option(
        "--json", help="one JSON object on standard output, everything else on standard error"
    ),
]


def print_json(document: dict[str, Any]) -> None:
    """One object, one line."""
    sys.stdout.write(json.dumps(document, allow_nan=False) + "\n")


def fail(message: str, code: int) -> int:
    """Say in one line what is wrong; returns the exit code."""
    sys.stderr.write(f"flmc: {' '.join(message.split())}\n")
    return code


def with_option_names(message: str) -> str:
    """Python's names of settings as the command line has them: num_rounds is --rounds."""
    return re.sub(r"\bnum_(rounds|burn_in|devices|samples|experiments)\b", r"\1", message)
