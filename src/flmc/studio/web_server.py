"""The web server of the studio: its pages behind the guard against foreign requests, its socket,
and its shutdown."""

from __future__ import annotations

import secrets
import signal
import socket
import sys
import webbrowser
from collections.abc import Callable
from threading import Timer

from flmc.base.errors import InvalidSetting, MissingExtra
from flmc.studio.guard import LOOPBACK, App, Guard
from flmc.studio.work.scratch import close_all

_NEEDS = "the studio needs NiceGUI and Matplotlib: pip install 'flmc[studio]'"


def make_app(token: str | None = None) -> App:
    """The studio as an ASGI application behind its guard. With a ``token``, requests under any host
    name must show it; with None, the studio answers only to names of this machine. Raises
    ``MissingExtra`` without the extra ``studio``."""
    try:
        import contourpy  # noqa: F401 - stands for Matplotlib, which draws the saved files
        from fastapi import FastAPI
        from nicegui import app as pages
        from nicegui import ui
    except ImportError as error:
        raise MissingExtra(_NEEDS) from error
    # These modules are imported after the check above, because they import NiceGUI themselves.
    from flmc.studio.pages.page_table import register
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
    """Serve the studio at ``host`` and ``port`` (0: a free one) until the process is interrupted.
    As soon as the studio can be opened, ``say`` is called with its URL. If ``host`` is not a name
    of this machine, the studio asks for a random token, which that URL contains."""
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
        # A computing thread hands the interpreter to the event loop after 0.5 ms instead of
        # Python's default of 5 ms, so that pages stay responsive.
        sys.setswitchinterval(0.0005)
        # On either signal uvicorn stops, and then raises the signal again for the handler that was
        # set before. That handler, set here, does nothing, so that close_all still runs.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda number, frame: None)
        try:
            uvicorn.Server(config).run(sockets=[listening])
        finally:
            close_all()


def _listen(host: str, port: int) -> socket.socket:
    """A socket that listens at host and port; raises ``InvalidSetting`` if the address cannot be
    used."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        # The socket listens before its URL is printed: a browser that opens it at once must not be
        # refused.
        listening.listen(128)
    except (OSError, OverflowError) as error:
        listening.close()
        raise InvalidSetting(
            f"cannot listen at {host}, port {port}: {error}; choose another with --port"
        ) from error
    return listening
