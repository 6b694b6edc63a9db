"""Logs of the roles: a line for each event, as JSON or, on a terminal, in words.

Logs outlive runs and are read by people who may not know the data. So only fields of a list are
written, and only words and numbers: a mistake elsewhere cannot put symbols or gradients into a log.
"""

from __future__ import annotations

import json
import logging
import math
import numbers
import sys
import traceback
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, TextIO

from flmc.base.errors import InvalidSetting

FIELDS = (
    "event", "run", "round", "device", "reason", "topic", "bytes", "detail", "count", "why",
    "state", "phase", "active", "quorum", "epsilon", "delta", "budget", "spent", "temperature",
    "seconds", "retry_seconds", "attempt", "digest", "epoch", "version", "wire", "port", "broker",
    "path", "signal",
)  # fmt: skip
"""Fields of ``extra=`` that are written, in their order. None of them holds a vector."""
FORMS = ("json", "text", "auto")
"""How lines look; ``auto``: in words on a terminal, else JSON."""
LEVELS = ("debug", "info", "warning", "error")
"""Levels by name, the most talkative first."""
_ROOT = "flmc"
_OWN = "flmc.deploy."
_LONGEST = 300
"""Characters of a text that are written."""
_HIDDEN = "(not logged)"


def setup_logs(level: str = "info", form: str = "auto", stream: TextIO | None = None) -> None:
    """Write the logs of flmc to standard error; a second call replaces the first.

    Parameters
    ----------
    level
        One of ``LEVELS``: what is less important is left out.
    form
        One of ``FORMS``.
    stream
        Where to write; None: standard error.

    Raises
    ------
    InvalidSetting
        If there is no such level or form.
    """
    if level not in LEVELS:
        raise InvalidSetting(f"the log level must be one of {', '.join(LEVELS)}, got {level!r}")
    if form not in FORMS:
        raise InvalidSetting(f"the form of logs must be one of {', '.join(FORMS)}, got {form!r}")
    out = sys.stderr if stream is None else stream
    in_words = form == "text" or (form == "auto" and out.isatty())
    handler = _Handler(out)
    handler.setFormatter(TextLines() if in_words else JsonLines())
    root = logging.getLogger(_ROOT)
    for before in [each for each in root.handlers if isinstance(each, _Handler)]:
        root.removeHandler(before)
    root.addHandler(handler)
    root.setLevel(level.upper())
    # Whatever the root logger of the process does would print lines a second time, unfiltered.
    root.propagate = False


class _Handler(logging.StreamHandler[TextIO]):
    """The handler of this module, which a second call finds again."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 (logging's name)
        """Go on without the line: a closed standard error must not end a role, and what logging
        prints by itself would hold the arguments."""


class JsonLines(logging.Formatter):
    """A record as one line of JSON: time, level, role, message, and the fields of the list."""

    def format(self, record: logging.LogRecord) -> str:
        """The line.

        Parameters
        ----------
        record
            What was logged.
        """
        return json.dumps(_document(record), allow_nan=False)


class TextLines(logging.Formatter):
    """A record as one line in words: time, level, role, message, then fields with their names."""

    def format(self, record: logging.LogRecord) -> str:
        """The line.

        Parameters
        ----------
        record
            What was logged.
        """
        document = _document(record)
        time, level, role, message = (
            document.pop(name) for name in ("time", "level", "role", "message")
        )
        document.pop("event", None)  # the message says the same to people
        fields = "".join(f"  {name}={value}" for name, value in document.items() if value != "")
        line = f"{time[11:19]} {level:7} {role:6}  {message}{fields}"
        # A topic or a reason of somebody else's must neither begin a line nor speak to a terminal.
        return "".join(each if each.isprintable() else " " for each in line)


def _document(record: logging.LogRecord) -> dict[str, Any]:
    """What is written of a record, in plain values."""
    document: dict[str, Any] = {
        "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
        "level": record.levelname.lower(),
        "role": record.name.removeprefix(_OWN) if record.name.startswith(_OWN) else record.name,
        "message": _message(record),
    }
    for name in FIELDS:
        if name in record.__dict__:
            document[name] = _plain(record.__dict__[name])
    if record.exc_info:
        kind, _, trace = record.exc_info
        # An exception's own words may hold what it was raised about, so they are not written.
        document["error"] = "" if kind is None else kind.__name__
        document["places"] = _places(trace)
    return document


def _message(record: logging.LogRecord) -> str:
    """The message with its arguments, unless one of them is no word and no number."""
    arguments = record.args
    values = list(arguments.values()) if isinstance(arguments, dict) else list(arguments or ())
    if any(_plain(value) == _HIDDEN for value in values):
        return f"{record.msg} {_HIDDEN}"[:_LONGEST]
    return record.getMessage()[:_LONGEST]


def _plain(value: object) -> str | int | float | bool | None:
    """A word, a number or nothing as it is; anything else is not written."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, numbers.Integral):  # NumPy's are of other classes than int
        return int(value)
    if isinstance(value, numbers.Real):
        number = float(value)
        return number if math.isfinite(number) else str(number)
    return value[:_LONGEST] if isinstance(value, str) else _HIDDEN


def _places(trace: TracebackType | None) -> list[str]:
    """Where an exception came from: module, line and function of every call, the innermost last."""
    return [
        f"{frame.filename.rpartition('/')[2]}:{frame.lineno} {frame.name}"
        for frame in traceback.extract_tb(trace)
    ]
