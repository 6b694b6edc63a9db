"""Output that commands share: JSON on standard output, one line of error on standard error, notes
about data and model."""

from __future__ import annotations

import json
import re
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flmc.base.tables import Listing, Row

if TYPE_CHECKING:  # not imported at run time: help and --version are faster
    from flmc.models.model import Model
    from flmc.planning.plans import Plan
    from flmc.planning.privacy_cost import Cost
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


def fail(message: str, code: int) -> int:
    """Print the message as one line on standard error, and return the exit code."""
    # A word of the command line need not be text at all.
    text = " ".join(message.split()).encode("utf-8", "backslashreplace").decode()
    sys.stderr.write(f"flmc: {text}\n")
    return code


def with_option_names(message: str) -> str:
    """The message with Python's names of settings replaced by those of options: ``num_rounds``
    becomes ``rounds``."""
    return re.sub(r"(?<!')\bnum_(rounds|burn_in|devices|samples|experiments)\b", r"\1", message)


def with_replacement(message: str) -> str:
    """The message about an unknown option, with what to write instead of a withdrawn one."""
    unknown = re.search(r"No such option: --([a-z-]+)", message)
    if unknown is None:
        return message
    from flmc.settings.schema import WITHDRAWN  # here: help and --version are faster

    instead = WITHDRAWN.get(unknown[1].replace("-", "_"))
    return message if instead is None else f"the option --{unknown[1]} was withdrawn: {instead}"


def model_check(model: Model, plan: Plan) -> list[Listing]:
    """A listing of what a short pilot run finds about a user's own model; no listing for a model
    whose exact posterior is known."""
    if model.posterior is not None:
        return []
    from flmc.evaluation.model_check import check_model  # a plan of a known posterior needs none

    rows = tuple(finding.row for finding in check_model(model, plan))
    nothing = (Row("found", "nothing that does not fit", severity="good"),)
    return [Listing("check of the model by a short pilot", rows or nothing)]


def data_note(settings: Settings) -> list[str]:
    """A line that says that the data are synthetic, how many examples there are and on how many
    devices; no line for a user's own data."""
    if settings.model != "linear":
        return []
    return [
        f"data: synthetic linear regression, {settings.samples} examples on {settings.devices}"
        f" devices, seed {settings.seed}; give --model for your own"
    ]


def cost_fields(cost: Cost | None) -> dict[str, float | None]:
    """The fields ``epsilon`` and ``delta`` of a JSON answer: what two stages cost together in
    privacy; both None if the cost is unknown."""
    if cost is None:
        return {"epsilon": None, "delta": None}
    return {"epsilon": cost.epsilon, "delta": cost.delta}
