"""What a case does, and how it says that this machine cannot."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, NamedTuple


class Job(NamedTuple):
    """What a case does at every turn.

    Attributes
    ----------
    turn
        What is timed.
    facts
        What is to be known of the case beside its time, as JSON values; a turn may add to it.
    before
        Prepares a turn; not timed.
    """

    turn: Callable[[], Any]
    facts: dict[str, Any]
    before: Callable[[], Any] = lambda: None


class Absent(Exception):  # noqa: N818 (no error: the machine lacks what the case needs)
    """A case that this machine cannot run; the text says why."""


def need(package: str) -> None:
    """Leave the case out where a package is not installed."""
    if find_spec(package) is None:
        raise Absent(f"{package} is not there")
