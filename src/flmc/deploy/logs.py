"""Logs of the roles: one line for each event, in JSON or, on a terminal, as text.

Logs outlive runs and are read by people without access to the data. Only fields of a fixed list
are written, and only texts and numbers, so that a mistake elsewhere cannot put symbols or
gradients into a log.
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
"""Names of a log call's ``extra=`` fields that are written to the log, in this order; none of them
holds a vector."""
FORMS = ("json", "text", "auto")
"""Formats of a line; ``auto`` means text on a terminal and JSON elsewhere."""
LEVELS = ("debug", "info", "warning", "error")
"""Log levels, the most verbose first."""
_ROOT = "flmc"
_OWN = "flmc.deploy."
_LONGEST = 300
"""Longest text that a log line holds in one field, in characters; the rest is cut off."""
_HIDDEN = "(not logged)"


def setup_logs(level: str = "info", form: str = "auto", stream: TextIO | None = None) -> None:
    """Write the logs of flmc to a stream (None: standard error), from one of ``LEVELS`` on and in
    one of ``FORMS``; a second call replaces the first. Raises ``InvalidSetting`` for another level
    or form."""
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
    # Lines are not passed on to the standard library's root logger, whose handlers would print them
    # a second time, unfiltered.
    root.propagate = False


class _Handler(logging.StreamHandler[TextIO]):
    """Handler that writes flmc's logs to a stream; it has a class of its own, by which
    :func:`setup_logs` finds and replaces an earlier one."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 (logging's name)
        """Drop a line that cannot be written: a closed standard error must not end a role, and
        logging's own message would print the arguments."""


class JsonLines(logging.Formatter):
    """Formatter of a log record as one line of JSON: time, level, role, message, and the fields of
    the record that ``FIELDS`` lists."""

    def format(self, record: logging.LogRecord) -> str:
        """A log record of the standard library as one line of JSON."""
        return json.dumps(_document(record), allow_nan=False)


class TextLines(logging.Formatter):
    """Formatter of a log record as one line of text: time, level, role, message, then the other
    fields as ``name=value``."""

    def format(self, record: logging.LogRecord) -> str:
        """A log record of the standard library as one line of printable text."""
        document = _document(record)
        time, level, role, message = (
            document.pop(name) for name in ("time", "level", "role", "message")
        )
        document.pop("event", None)  # left out: the message says the same in words
        fields = "".join(f"  {name}={value}" for name, value in document.items() if value != "")
        line = f"{time[11:19]} {level:7} {role:6}  {message}{fields}"
        # Topics and reasons may come from strangers: characters that break a line or command a
        # terminal are replaced by spaces.
        return "".join(each if each.isprintable() else " " for each in line)


def _document(record: logging.LogRecord) -> dict[str, Any]:
    """The parts of a log record that may be written, in plain values by name: time, level, role,
    message, the fields in ``FIELDS``, and type and place of an exception."""
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
        # The exception's message is left out because it may quote data: only its type and place are
        # written.
        document["error"] = "" if kind is None else kind.__name__
        document["places"] = _places(trace)
    return document


def _message(record: logging.LogRecord) -> str:
    """The message of a log record with its arguments filled in, or without them if one is neither
    text nor number."""
    arguments = record.args
    values = list(arguments.values()) if isinstance(arguments, dict) else list(arguments or ())
    if any(_plain(value) == _HIDDEN for value in values):
        return f"{record.msg} {_HIDDEN}"[:_LONGEST]
    return record.getMessage()[:_LONGEST]


def _plain(value: object) -> str | int | float | bool | None:
    """The value in a form that may be logged: texts cut to 300 characters, numbers and None as they
    are, and a placeholder for anything else, which could hold data."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, numbers.Integral):  # NumPy's integers are not instances of int
        return int(value)
    if isinstance(value, numbers.Real):
        number = float(value)
        return number if math.isfinite(number) else str(number)
    return value[:_LONGEST] if isinstance(value, str) else _HIDDEN


def _places(trace: TracebackType | None) -> list[str]:
    """Texts ``file:line function`` for every call that led to an exception, the innermost call
    last."""
    return [
        f"{frame.filename.rpartition('/')[2]}:{frame.lineno} {frame.name}"
        for frame in traceback.extract_tb(trace)
    ]
