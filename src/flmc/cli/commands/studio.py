"""`flmc studio`: a local web page with sliders, which shows how settings trade privacy against
accuracy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flmc.base.errors import InvalidSetting


def studio_command(
    host: Annotated[
        str,
        typer.Option(
            "--host",
            help="address to listen at; any but this machine's own asks the browser for a token",
        ),
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", help="port to listen at; 0: a free one")] = 8765,
    report: Annotated[
        list[Path] | None,
        typer.Option(
            "--report", metavar="DIR", help="a report of `flmc reproduce` to show; repeatable"
        ),
    ] = None,
    broker: Annotated[
        str | None,
        typer.Option(
            "--broker", metavar="URL", help="broker of federations to watch, on page Federation"
        ),
    ] = None,
    broker_tls: Annotated[
        Path | None,
        typer.Option(
            "--broker-tls",
            metavar="DIR",
            help="directory with ca.pem, cert.pem and key.pem of the monitor at the broker",
        ),
    ] = None,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="do not open a browser")] = False,
) -> None:
    """Plan, solve, run and compare in a web browser, with sliders and live pictures."""
    # Imported here, because other front ends are not loaded with the command line.
    from flmc.studio.web_server import serve
    from flmc.studio.work.reproduction import REPORT, REPORTS

    if not 0 <= port <= 65535:
        raise InvalidSetting(f"port must be from 0 to 65535, got {port}")
    for directory in report or ():
        if not (directory / REPORT).is_file():
            raise InvalidSetting(
                f"--report must be a directory that flmc reproduce wrote, got {str(directory)!r}"
            )
        REPORTS.offer(directory)
    if broker is not None:
        from flmc.cli.commands.federations import transport_to
        from flmc.studio.work.watched_federation import FEDERATIONS

        if broker.startswith("mqtts:") and broker_tls is None:
            raise InvalidSetting(
                f"{broker!r} needs certificates: use --broker-tls DIR with ca.pem, cert.pem and"
                " key.pem in it"
            )
        FEDERATIONS.offer(broker, transport_to(broker, broker_tls))
    elif broker_tls is not None:
        raise InvalidSetting("--broker-tls needs --broker, the address that it is for")
    serve(host, port, open_browser=not no_browser, say=_print_address)


def _print_address(address: str) -> None:
    """Print the address of the studio, and how to end it."""
    typer.echo(f"flmc studio: {address} (Ctrl-C ends it)")
