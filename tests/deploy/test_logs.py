"""Logs of roles: what is written, and what never is."""

from __future__ import annotations

import io
import json
import logging
import os
import pty
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

from flmc.base.errors import InvalidSetting
from flmc.deploy.logs import FIELDS, setup_logs
from flmc.wire.drops import Drops

LOG = logging.getLogger("flmc.deploy.air")


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    """The loggers of this process, put back to what they were."""
    root = logging.getLogger("flmc")
    before = (list(root.handlers), root.level, root.propagate)
    yield
    root.handlers[:], root.propagate = before[0], before[2]
    root.setLevel(before[1])


def begin(form: str = "json", level: str = "info") -> io.StringIO:
    stream = io.StringIO()
    setup_logs(level, form, stream)
    return stream


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_says_when_who_and_what() -> None:
    stream = begin()
    LOG.info("round done", extra={"event": "round", "round": 3, "active": 18, "seconds": 0.02})
    (line,) = lines(stream)
    when = datetime.fromisoformat(line.pop("time"))
    assert when.utcoffset() == UTC.utcoffset(None)
    assert line == {
        "level": "info",
        "role": "air",
        "message": "round done",
        "event": "round",
        "round": 3,
        "active": 18,
        "seconds": 0.02,
    }


def test_dropped_messages_are_logged_without_their_payload() -> None:
    stream = begin()
    Drops(LOG).count("late", "flmc/1/demo/uplink/device-3", 33, "after round 7")
    (line,) = lines(stream)
    assert line["level"] == "warning"
    assert (line["reason"], line["bytes"], line["count"]) == ("late", 33, 1)
    assert line["topic"] == "flmc/1/demo/uplink/device-3"


@pytest.mark.parametrize("form", ["json", "text"])
def test_fields_that_are_not_on_the_list_are_not_written(form: str) -> None:
    stream = begin(form)
    LOG.info("answered", extra={"round": 3, "gradient": 0.123456, "symbols": "0.123456"})
    assert "answered" in stream.getvalue()
    assert "123456" not in stream.getvalue()
    assert not {"gradient", "symbols", "theta", "payload", "bits", "y"} & set(FIELDS)


@pytest.mark.parametrize(
    "secret",
    [
        np.array([0.123456, 1.0]),
        [0.123456],
        (0.123456,),
        {"a": 0.123456},
        b"0.123456",
        np.array(0.123456),
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("form", ["json", "text"])
def test_vectors_are_written_nowhere(secret: object, form: str) -> None:
    """Neither as a field of the list nor as an argument of the message."""
    stream = begin(form)
    LOG.info("answered", extra={"detail": secret})
    LOG.info("answered %s", [secret])
    LOG.info("answered %s in round %d", secret, 3)
    assert stream.getvalue().count("answered") == 3
    assert stream.getvalue().count("not logged") == 3
    assert "123456" not in stream.getvalue()


def test_an_exception_is_named_and_placed_but_not_quoted() -> None:
    stream = begin()
    try:
        raise ValueError("bad gradient 0.123456")
    except ValueError:
        LOG.exception("a defect")
    (line,) = lines(stream)
    assert line["error"] == "ValueError"
    assert line["places"][-1].startswith("test_logs.py:")
    assert "123456" not in stream.getvalue()


def test_numbers_of_any_class_are_numbers() -> None:
    stream = begin()
    extra = {"round": np.int64(3), "epsilon": np.float32(0.5), "seconds": float("inf")}
    LOG.info("x", extra=extra)
    (line,) = lines(stream)
    assert (line["round"], line["epsilon"], line["seconds"]) == (3, 0.5, "inf")


@pytest.mark.parametrize("form", ["json", "text"])
def test_foreign_words_stay_on_their_line(form: str) -> None:
    stream = begin(form)
    LOG.warning("dropped", extra={"topic": "a\nfake line \x1b[2J" + "x" * 5000})
    text = stream.getvalue()
    assert text.count("\n") == 1
    assert "\x1b" not in text
    assert len(text) < 1000


def test_words_for_a_terminal() -> None:
    """The form is chosen by where the lines go."""
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as terminal:
        setup_logs("info", "auto", terminal)
        LOG.warning("the broker is not reachable", extra={"event": "lost", "why": "refused"})
        shown = os.read(ours, 10_000).decode()
    os.close(ours)
    assert "warning air     the broker is not reachable  why=refused" in shown
    stream = begin("auto")
    LOG.info("x")
    assert lines(stream)[0]["message"] == "x"


def test_a_second_call_replaces_the_first() -> None:
    first = begin()
    second = begin(level="warning")
    LOG.info("quiet")
    LOG.warning("loud")
    assert first.getvalue() == ""
    assert [line["message"] for line in lines(second)] == ["loud"]


def test_a_closed_stream_ends_nobody(capsys: pytest.CaptureFixture[str]) -> None:
    stream = begin()
    stream.close()
    LOG.info("nobody reads %s", "this")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("level", "form"), [("loud", "json"), ("info", "yaml")])
def test_unknown_levels_and_forms_are_refused(level: str, form: str) -> None:
    with pytest.raises(InvalidSetting, match="must be one of"):
        setup_logs(level, form)
