"""Who may call the studio: a real server, called in ways that a browser would not."""

from __future__ import annotations

import http.client
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Origin

from flmc.studio.guard import Guard
from studio.conftest import Studio, start_studio
from support import full_only

SOCKET = "/_nicegui_ws/socket.io/?EIO=4&transport=websocket"


class Answer(NamedTuple):
    """What a server answered."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes


def ask(address: str, path: str = "/", host: str | None = None, **headers: str) -> Answer:
    """The answer to one request; ``host`` is who is asked, if not the name in the address."""
    place = urlsplit(address)
    asked = http.client.HTTPConnection(host or place.hostname or "", place.port, timeout=30)
    with closing(asked):
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        asked.request("GET", path, headers=named)
        answer = asked.getresponse()
        return Answer(answer.status, answer.headers, answer.read())


def test_its_own_pages_are_served(studio: Studio) -> None:
    assert ask(studio.address).status == 200


def test_foreign_names_are_refused(studio: Studio) -> None:
    """A name of an attacker that was made to point to this machine."""
    port = urlsplit(studio.address).port
    answer = ask(studio.address, Host=f"attacker.example:{port}")
    assert answer.status == 403
    assert b"not called" in answer.body


@pytest.mark.parametrize("path", ["/", "/run", SOCKET.replace("websocket", "polling")])
def test_foreign_origins_are_refused(studio: Studio, path: str) -> None:
    assert ask(studio.address, path, Origin="http://attacker.example").status == 403


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_requests_of_other_sites_are_refused(studio: Studio, site: str) -> None:
    headers = {"Sec_Fetch_Site": site, "Sec_Fetch_Mode": "no-cors"}
    assert ask(studio.address, **headers).status == 403
    # A link on another site may be followed, but not inside a frame.
    headers |= {"Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "iframe"}
    assert ask(studio.address, **headers).status == 403
    headers["Sec_Fetch_Dest"] = "document"
    answer = ask(studio.address, **headers)
    assert answer.status == 200
    assert answer.headers["x-frame-options"] == "DENY"
    assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]


@pytest.mark.parametrize("host", ["[::1", "evil.example@127.0.0.1", "127.0.0.1#evil", "", "a b"])
def test_names_that_are_none_are_refused(studio: Studio, host: str) -> None:
    assert ask(studio.address, Host=host).status == 403


@pytest.mark.parametrize("origin", ["http://[", "null", "ftp://127.0.0.1", "\xff"])
def test_origins_that_are_none_are_refused(studio: Studio, origin: str) -> None:
    assert ask(studio.address, Origin=origin).status == 403


def test_prefixes_of_a_proxy_are_not_believed(studio: Studio) -> None:
    answer = ask(studio.address, X_Forwarded_Prefix="//evil.example")
    assert answer.status == 200
    assert b"evil.example" not in answer.body


@pytest.mark.parametrize(
    "path", ["/?scheme=foo", "/?scheme=", "/run?scope=zzz", "/solve?ask=x", "/compare?a=%22"]
)
def test_bad_addresses_are_pages_all_the_same(studio: Studio, path: str) -> None:
    assert ask(studio.address, path).status == 200


def test_foreign_websockets_are_refused(studio: Studio) -> None:
    place = urlsplit(studio.address).netloc
    with pytest.raises(InvalidStatus, match="403"):
        connect(f"ws://{place}{SOCKET}", origin=Origin("http://attacker.example"))
    with connect(f"ws://{place}{SOCKET}", origin=Origin(f"http://{place}")) as opened:
        assert "sid" in str(opened.recv())


def test_other_addresses_of_this_machine_do_not_answer(studio: Studio) -> None:
    port = urlsplit(studio.address).port or 0
    with socket.socket() as other:
        other.settimeout(5)
        # Another address of the loopback range stands for another interface.
        assert other.connect_ex(("127.0.0.2", port)) != 0


@pytest.fixture(scope="module")
def open_studio() -> Iterator[Studio]:
    """A studio that listens at every address, so that it asks for a token."""
    started = start_studio("--host", "0.0.0.0")
    try:
        yield started
    finally:
        started.stop()


def test_another_host_needs_the_token(open_studio: Studio) -> None:
    place = urlsplit(open_studio.address)
    refused = ask(open_studio.address, "/", host="127.0.0.2")
    assert refused.status == 403
    assert b"token" in refused.body
    assert ask(open_studio.address, "/?token=guessed", host="127.0.0.2").status == 403
    with pytest.raises(InvalidStatus, match="403"):
        connect(f"ws://127.0.0.2:{place.port}{SOCKET}")
    welcome = ask(open_studio.address, f"/run?snr_db=3&{place.query}", host="127.0.0.2")
    assert welcome.status == 303
    assert welcome.headers["location"] == "/run?snr_db=3"
    cookie = welcome.headers["set-cookie"].split(";")
    assert "HttpOnly" in "".join(cookie)
    inside = ask(open_studio.address, "/run", host="127.0.0.2", Cookie=cookie[0])
    assert inside.status == 200
    # Also who knows the token may not be used by a page of another site.
    foreign = {"Cookie": cookie[0], "Origin": "http://attacker.example"}
    assert ask(open_studio.address, "/run", host="127.0.0.2", **foreign).status == 403


def test_a_redirect_stays_here(open_studio: Studio) -> None:
    query = urlsplit(open_studio.address).query
    answer = ask(open_studio.address, f"//attacker.example/?{query}", host="127.0.0.1")
    assert answer.headers["location"] == "/attacker.example/"


@full_only
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_nothing_is_left_at_the_end(tmp_path: Path, number: signal.Signals) -> None:
    """Whoever ends the studio finds no directory of it, and its exit is no failure."""
    started = start_studio(TMPDIR=str(tmp_path))
    assert ask(started.address, "/run").status == 200
    started.process.send_signal(number)
    with started.process:
        assert started.process.wait(30) == 0
    assert [path.name for path in tmp_path.iterdir() if "studio" in path.name] == []


def test_any_name_without_a_token_is_refused() -> None:
    async def app(scope: object, receive: object, send: object) -> None:
        raise AssertionError

    with pytest.raises(ValueError, match="needs a token"):
        Guard(app, ())


def test_a_missing_extra_is_named() -> None:
    """The server's own module imports nothing of the extra: else there would be a traceback."""
    code = (
        "import sys; sys.modules['nicegui'] = None\n"
        "from flmc.base.errors import MissingExtra\n"
        "from flmc.studio.web_server import make_app\n"
        "try: make_app()\n"
        "except MissingExtra as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "flmc[studio]" in done.stdout
