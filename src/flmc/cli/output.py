"""Output that commands share: JSON on standard output, one line of error on standard error, notes
about data and model."""

from __future__ import annotations

import json
import re
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:  # for type checkers only: without these imports help and --version are faster
    from flmc.evaluation.shown_answer import AnswerMode
    from flmc.planning.privacy_cost import Cost
    from flmc.runs.results import Result
    from flmc.settings.schema import Settings

Json = Annotated[
    bool,
    typer.Option(
        "--json", help="one JSON object on standard output, everything else on standard error"
    ),
]


def print_json(document: dict[str, Any]) -> None:
    """Print one JSON object on a line of standard output; NaN and infinity raise ``ValueError``."""
    sys.stdout.write(json.dumps(document, allow_nan=False) + "\n")


def with_answer(result: Result, answer: AnswerMode) -> dict[str, Any]:
    """A result in plain values, for JSON; unless the setting ``answer`` is `chain`, with what the
    server knows after the run in the field ``answer``."""
    document = result.to_document()
    if answer != "chain":
        document["answer"] = result.shown_answer(answer).to_document()
    return document


def fail(message: str, code: int) -> int:
    """Print the message as one line on standard error, and return the exit code."""
    # Words of the command line in the message may hold bytes that are no valid text; these are
    # printed as escapes.
    text = " ".join(message.split()).encode("utf-8", "backslashreplace").decode()
    sys.stderr.write(f"flmc: {text}\n")
    return code


def with_option_names(message: str) -> str:
    """The message with Python's names of settings replaced by those of options: ``num_rounds``
    becomes ``rounds``."""
    return re.sub(r"(?<!')\bnum_(rounds|burn_in|devices|samples|experiments)\b", r"\1", message)


def with_replacement(message: str) -> str:
    """An error message of typer; if it is about an option that was withdrawn, a message that says
    what to write instead."""
    unknown = re.search(r"No such option: --([a-z-]+)", message)
    if unknown is None:
        return message
    # Imported here, because the help and --version are faster without it.
    from flmc.settings.schema import WITHDRAWN

    instead = WITHDRAWN.get(unknown[1].replace("-", "_"))
    return message if instead is None else f"the option --{unknown[1]} was withdrawn: {instead}"


def data_note(settings: Settings) -> list[str]:
    """List with one line about the synthetic data (numbers of examples and devices, seed); an empty
    list for a data file or for a model of the user's own."""
    if settings.model != "linear" or settings.data_file is not None:
        return []
    return [
        f"data: synthetic linear regression, {settings.samples} examples on {settings.devices}"
        f" devices, seed {settings.seed}; give --model for your own"
    ]


def cost_fields(cost: Cost | None) -> dict[str, float | None]:
    """The fields ``epsilon`` and ``delta`` of a JSON answer about a run in two stages, from the
    privacy cost of both stages together; both None if the cost is unknown."""
    if cost is None:
        return {"epsilon": None, "delta": None}
    return {"epsilon": cost.epsilon, "delta": cost.delta}
