"""`flmc status` against a real broker."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from flmc.cli import main
from flmc.wire.transport import Message
from studio.small_broker import (
    SmallBroker,
    demo_messages,
    presence_of,
    small_broker,
    status_of,
)
from support import full_only

pytest.importorskip("aiomqtt", reason="needs the extra mqtt")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmallBroker]:
    with small_broker(tmp_path_factory.mktemp("broker")) as started:
        started.publish(demo_messages())
        started.publish([presence_of("device-0", "here", run="early")])
        yield started


def call(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(["status", *words])
    out, err = capsys.readouterr()
    return code, out, err


def test_runs_are_listed(capsys: pytest.CaptureFixture[str], broker: SmallBroker) -> None:
    code, out, err = call(capsys, "--broker", broker.url)
    assert (code, err) == (0, "")
    for words in ("run demo", "7 of 100", "18 of 20", "1.25 at delta 1e-05", "61 ms"):
        assert words in out
    assert "3 late" in out
    assert "device-4: refused: its budget is [1], and the plan needs 5" in " ".join(out.split())
    assert "run early" in out
    assert "its server has not spoken" in out


def test_one_run_as_json(capsys: pytest.CaptureFixture[str], broker: SmallBroker) -> None:
    code, out, _ = call(capsys, "--broker", broker.url, "--run", "demo", "--json")
    assert code == 0
    document = json.loads(out)
    assert list(document["runs"]) == ["demo"]
    demo = document["runs"]["demo"]
    assert demo["status"]["round"] == 7
    assert demo["air"] == {"repeats": 1}
    assert list(demo["roles"])[:3] == ["server", "air", "device-0"]
    assert demo["roles"]["device-11"]["state"] == "gone"
    assert (document["broker"], document["left_out"]) == (broker.url, 0)


def test_nothing_found(capsys: pytest.CaptureFixture[str], broker: SmallBroker) -> None:
    code, out, err = call(capsys, "--broker", broker.url, "--run", "lost", "--wait", "0.2")
    assert (code, out) == (1, "")
    assert "nothing is known of run 'lost'" in err
    assert "flmc/1/lost/status" in err
    assert err.count("\n") == 1


def test_nobody_answers(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = call(capsys, "--broker", "mqtt://127.0.0.1:9")
    assert code == 1
    assert "cannot be reached" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--broker", "http://127.0.0.1"), "mqtt://HOST:PORT"),
        (("--broker", "mqtts://127.0.0.1"), "--tls DIR"),
        (("--broker", "mqtts://127.0.0.1", "--tls", "nowhere"), "ca.pem"),
        (("--broker", "mqtt://127.0.0.1", "--run", "a/b"), "run must be"),
        (("--broker", "mqtt://127.0.0.1", "--wait", "0"), "--wait"),
        (("--broker", "mqtt://127.0.0.1", "--watch"), "needs a terminal"),
    ],
)
def test_bad_input(capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str) -> None:
    code, out, err = call(capsys, *words)
    assert (code, out) == (2, "")
    assert said in err


def test_certificates(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """One certificate is authority, broker and observer here."""
    request = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=x"
    request += " -addext subjectAltName=IP:127.0.0.1 -addext keyUsage=digitalSignature,keyCertSign"
    files = ["-keyout", str(tmp_path / "key.pem"), "-out", str(tmp_path / "cert.pem")]
    subprocess.run(["openssl", *request.split(), *files], check=True, capture_output=True)
    (tmp_path / "ca.pem").write_bytes((tmp_path / "cert.pem").read_bytes())
    names = {"cafile": "ca.pem", "certfile": "cert.pem", "keyfile": "key.pem"}
    lines = [f"{option} {tmp_path / name}" for option, name in names.items()]
    lines += ["require_certificate true", "allow_anonymous true"]
    with small_broker(tmp_path, lines=lines) as broker:
        words = ("--broker", broker.url.replace("mqtt:", "mqtts:"), "--wait", "0.2")
        code, _, err = call(capsys, *words, "--tls", str(tmp_path))
        assert code == 1
        assert "nothing is known" in err  # so there was a connection


def read_until(terminal: int, words: str) -> str:
    """What appears on a terminal until some words do."""
    shown, until = "", time.monotonic() + 60
    while words not in shown:
        assert time.monotonic() < until, shown[-3000:]
        assert select.select([terminal], [], [], 60)[0], shown
        shown += os.read(terminal, 100_000).decode(errors="replace")
    return shown


@full_only
def test_a_live_view(broker: SmallBroker) -> None:
    """It follows the run, and Ctrl-C ends it."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "flmc", "status", "--broker", broker.url, "--watch"]
    environment = {**os.environ, "COLUMNS": "100", "LINES": "60", "TERM": "xterm"}
    process = subprocess.Popen(
        command, stdout=theirs, stderr=subprocess.PIPE, env=environment, stdin=subprocess.DEVNULL
    )
    try:
        read_until(ours, "7 of 100")
        broker.publish([status_of("live", round=41), Message("flmc/1/live/alive/x", b"\xff")])
        read_until(ours, "41 of 100")
        process.send_signal(signal.SIGINT)
        # Whatever is shown while it ends must be read, else it waits for a reader.
        shown = read_until(ours, "\x1b[?25h")
        assert "Traceback" not in shown
        _, said = process.communicate(timeout=60)
        assert (process.returncode, said) == (0, b"")
    finally:
        process.kill()
        process.wait()
        os.close(ours)
        os.close(theirs)
        broker.publish([Message("flmc/1/live/status", b"", retain=True)])


@pytest.mark.parametrize("command", [["status"], ["studio", "--no-browser", "--port", "0"]])
def test_without_the_extra_it_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main([*command, "--broker", "mqtt://127.0.0.1:9"]) == 2
    assert "flmc[mqtt]" in capsys.readouterr().err
