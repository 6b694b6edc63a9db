"""The server of the studio: pages by their paths, and who may call it."""

from __future__ import annotations

import secrets
import signal
import socket
import sys
import webbrowser
from collections.abc import Callable
from functools import cache
from threading import Timer

from fastapi import Request
from nicegui import ui

from flmc.base.errors import InvalidSetting, MissingExtra
from flmc.studio.addresses import given_of, unknown_keys
from flmc.studio.elements.frame import State
from flmc.studio.guard import LOOPBACK, App, Guard
from flmc.studio.pages.compare_page import ComparePage
from flmc.studio.pages.federation_page import FederationPage
from flmc.studio.pages.figures_page import FiguresPage
from flmc.studio.pages.plan_page import PlanPage
from flmc.studio.pages.run_page import RunPage
from flmc.studio.pages.solve_page import SolvePage
from flmc.studio.work.places import close_all
from flmc.views.charts.chart import THEMES

# Paths of the studio and the pages at them.


PAGES: dict[str, Callable[[State], object]] = {
    "/": PlanPage,
    "/solve": SolvePage,
    "/run": RunPage,
    "/compare": ComparePage,
    "/figures": FiguresPage,
    "/federation": FederationPage,
}
"""What draws the page at each path."""

PAGE_KEYS = {
    "/solve": ("ask", "require", "suggest"),
    "/compare": ("a", "b", "c", "d"),
    "/figures": ("paper",),
    "/federation": ("run",),
}
"""Keys of addresses beside settings and theme, by path."""


@cache
def register() -> None:
    """Make all pages known to NiceGUI, once."""
    for path, page in PAGES.items():
        ui.page(path, title="flmc studio")(_drawn(path, page))


def _drawn(path: str, page: Callable[[State], object]) -> Callable[[Request], None]:
    """What NiceGUI calls for a path."""

    def draw(request: Request) -> None:
        query = request.query_params.multi_items()
        theme = request.query_params.get("theme", "light")
        known = PAGE_KEYS.get(path, ())
        own = {name: text for name, text in query if name in known}
        state = State(path, given_of(query), theme if theme in THEMES else "light", own)
        state.unknown = unknown_keys(query, known)
        page(state)

    return draw


_NEEDS = "the studio needs NiceGUI and Matplotlib: pip install 'flmc[studio]'"


def make_app(token: str | None = None) -> App:
    """The studio as an ASGI application, with its guard.

    Parameters
    ----------
    token
        What a browser must know; None: the studio answers to names of this machine only.

    Raises
    ------
    MissingExtra
        If the extra ``studio`` is not installed.
    """
    try:
        import contourpy  # noqa: F401 - of Matplotlib, which draws the files
        from fastapi import FastAPI
        from nicegui import app as pages
        from nicegui import ui
    except ImportError as error:
        raise MissingExtra(_NEEDS) from error
    from flmc.studio.work.watched_federation import FEDERATIONS

    register()
    pages.on_startup(FEDERATIONS.begin)
    pages.on_shutdown(FEDERATIONS.end)
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    ui.run_with(
        app,
        title="flmc studio",
        favicon="📡",
        reconnect_timeout=10.0,
        binding_refresh_interval=None,
    )
    return Guard(app, () if token is not None else LOOPBACK, token)


def serve(host: str, port: int, *, open_browser: bool, say: Callable[[str], None]) -> None:
    """Serve the studio until it is interrupted.

    Parameters
    ----------
    host, port
        Where to listen; port 0: a free one.
    open_browser
        Whether to open a browser.
    say
        Called with the address when the studio is ready to be opened.

    Raises
    ------
    InvalidSetting
        If the address cannot be used.
    """
    local = host in LOOPBACK
    token = None if local else secrets.token_urlsafe(24)
    app = make_app(token)
    import uvicorn

    with _listen(host, port) as listening:
        number = listening.getsockname()[1]
        name = host if ":" not in host else f"[{host}]"
        address = f"http://{name}:{number}/" + ("" if token is None else f"?token={token}")
        say(address)
        if open_browser:
            Timer(1.0, webbrowser.open, (address,)).start()
        config = uvicorn.Config(app, log_level="warning", ws="websockets-sansio", lifespan="on")
        # Threads that compute give way to the page ten times as soon as Python's own 5 ms.
        sys.setswitchinterval(0.0005)
        # Both end the server, which then sends itself the same signal again: by then there is
        # something left to do.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda number, frame: None)
        try:
            uvicorn.Server(config).run(sockets=[listening])
        finally:
            close_all()


def _listen(host: str, port: int) -> socket.socket:
    """A socket that listens there."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen(
            128
        )  # before the address is said: who opens it at once must not be refused
    except (OSError, OverflowError) as error:
        listening.close()
        raise InvalidSetting(
            f"cannot listen at {host}, port {port}: {error}; choose another with --port"
        ) from error
    return listening
