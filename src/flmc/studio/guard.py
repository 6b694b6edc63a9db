"""The guard of the studio, which answers only to requests of a browser on this machine, from pages
of the studio itself.

The studio has no users and no passwords. Bound to 127.0.0.1 it answers only requests whose ``Host``
header names this machine, so that a page of another site whose name resolves to this machine (DNS
rebinding) gets no answer. Requests that a browser sends for a page of another site are refused by
their ``Origin``. Bound to another address the studio asks for a token, which the command prints,
and keeps it in a cookie.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Awaitable, Callable, MutableMapping
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

LOOPBACK = ("127.0.0.1", "localhost", "::1")
"""Host names of this machine, which a request may use in its ``Host`` header when the studio is not
open to other machines."""
COOKIE = "flmc_studio"
"""Name of the browser's cookie in which the studio's access token is kept."""


class Guard:
    """ASGI middleware that refuses requests from outside the studio's own pages. ``hosts`` are the
    host names that a request may use in its ``Host`` header; if it is empty any name is accepted,
    and then a ``token`` is required."""

    def __init__(self, app: App, hosts: tuple[str, ...] = LOOPBACK, token: str | None = None):
        if not hosts and token is None:
            raise ValueError("a studio that answers to any name needs a token")
        self.app, self.hosts, self.token = app, hosts, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on to the studio's application, or refuse it with the reason."""
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        # The header x-forwarded-prefix is removed: the studio is behind no proxy that would send
        # it, so it could only come from an attacker.
        scope["headers"] = [pair for pair in scope["headers"] if pair[0] != b"x-forwarded-prefix"]
        headers = {
            name.decode("latin-1").lower(): value.decode("latin-1")
            for name, value in scope["headers"]
        }
        send = _framed_by_nobody(send)
        why = self._refusal(headers)
        if why is not None:
            await _refuse(scope, receive, send, why)
            return
        if self.token is None or self._knows_token(headers):
            await self.app(scope, receive, send)
            return
        query = dict(parse_qsl(scope.get("query_string", b"").decode("latin-1")))
        if scope["type"] == "http" and self._is_token(query.pop("token", "")):
            await self._welcome(scope, send, query)
            return
        await _refuse(scope, receive, send, "a token is needed: open the link that was printed")

    def _refusal(self, headers: dict[str, str]) -> str | None:
        """Reason for which a request with these ``headers`` is refused whatever token it has: a
        wrong host, or the page of another site; None if it is not refused."""
        host = headers.get("host", "")
        if self.hosts and _name(host) not in self.hosts:
            return f"the studio is not called {host!r}"
        origin = headers.get("origin")
        if origin is not None and origin.lower() not in _origins(host):
            return f"a page of {origin!r} may not use the studio"
        # These headers mark requests that come from pages of another site. Following a link from
        # such a page is allowed; showing the studio in a frame of it is not.
        foreign = headers.get("sec-fetch-site") in ("cross-site", "same-site")
        follows = headers.get("sec-fetch-mode") == "navigate"
        if foreign and not (follows and headers.get("sec-fetch-dest", "document") == "document"):
            return "a page of another site may not use the studio"
        return None

    def _knows_token(self, headers: dict[str, str]) -> bool:
        """Whether the cookie of a request has the token that the studio asks for."""
        try:
            cookies = SimpleCookie(headers.get("cookie", ""))
        except CookieError:
            return False
        return COOKIE in cookies and self._is_token(cookies[COOKIE].value)

    def _is_token(self, text: str) -> bool:
        # The texts are compared in constant time, so that the time of a refusal does not reveal how
        # much of a guess was right.
        return self.token is not None and hmac.compare_digest(text.encode(), self.token.encode())

    async def _welcome(self, scope: Scope, send: Send, query: dict[str, str]) -> None:
        """Answer a request whose URL has the studio's token: store the token in a cookie, and
        redirect the browser to the same URL without it."""
        # Leading slashes of the path are reduced to one: with two the browser would be redirected
        # to another host.
        path = "/" + quote(scope["path"].lstrip("/"))
        place = path + (f"?{urlencode(query)}" if query else "")
        cookie = f"{COOKIE}={self.token}; Path=/; HttpOnly; SameSite=Strict"
        headers = [(b"location", place.encode()), (b"set-cookie", cookie.encode())]
        await send({"type": "http.response.start", "status": 303, "headers": headers})
        await send({"type": "http.response.body", "body": b""})


_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9.-]+)(:\d{1,5})?", re.IGNORECASE)


def _name(host: str) -> str:
    """The host name in a ``Host`` header, without the port; empty if the header is malformed."""
    match = _HOST.fullmatch(host)
    return "" if match is None else match[1].strip("[]").lower()


def _origins(host: str) -> tuple[str, str]:
    """Values of the ``Origin`` header that the studio's own pages send, for a ``Host`` header: with
    http, and with https behind a TLS proxy."""
    return f"http://{host.lower()}", f"https://{host.lower()}"


def _framed_by_nobody(send: Send) -> Send:
    """The ASGI function ``send``, changed so that every response gets headers which keep other
    pages from showing it in a frame."""

    async def sending(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            own = [
                (b"content-security-policy", b"frame-ancestors 'none'"),
                (b"x-frame-options", b"DENY"),
            ]
            message["headers"] = [*message.get("headers", ()), *own]
        await send(message)

    return sending


async def _refuse(scope: Scope, receive: Receive, send: Send, why: str) -> None:
    """Refuse a request: answer HTTP with status 403 and the reason ``why`` as text, and close a
    websocket with the reason."""
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": 4403, "reason": why[:100]})
        return
    body = f"flmc studio: {why}\n".encode()
    headers = [(b"content-type", b"text/plain; charset=utf-8")]
    await send({"type": "http.response.start", "status": 403, "headers": headers})
    await send({"type": "http.response.body", "body": body})
