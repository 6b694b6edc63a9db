"""Parts that time their own jobs: each runs as a whole in one child process."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from measuring.job import Job, need


def part(module: str, function: str, repeats: int, needs: str = "") -> Job:
    """Calls ``module.function(repeats)``; its rows are a fact of the job.

    Parameters
    ----------
    module, function
        What is called, with the number of repeats; it returns rows.
    repeats
        Of every row.
    needs
        A package without which the part is left out.
    """
    for name in filter(None, (module, needs)):
        need(name)
    facts: dict[str, Any] = {}

    def turn() -> None:
        facts["rows"] = getattr(import_module(module), function)(repeats)

    return Job(turn, facts)


JOBS = {"part": part}
