"""`flmc status`: how the runs of a broker stand, and who is there."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flmc.base import checks
from flmc.base.documents import ANSWER_VERSION
from flmc.base.errors import InvalidSetting, RunFailed
from flmc.base.tables import Grid, Listing, Row
from flmc.cli.options import Broker, Tls, transport_to
from flmc.cli.output import Json, print_json
from flmc.deploy.loop import stop_event
from flmc.wire.observation import Observed, observe_for, observe_forever, subscriptions
from flmc.wire.transport import Disconnected, Transport

if TYPE_CHECKING:
    from rich.console import RenderableType


_REFRESH = 0.5
"""Seconds between two pictures of a live view."""


_LISTING = 16
"""Lines of a run beside those of its devices: its rows, and what frames the grid."""


def status_command(
    broker: Broker,
    run: Annotated[
        str | None, typer.Option("--run", metavar="RUN", help="this run only; default: all")
    ] = None,
    tls: Tls = None,
    json_: Json = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="keep a live view on the terminal until Ctrl-C")
    ] = False,
    wait: Annotated[
        float, typer.Option("--wait", metavar="SECONDS", help="how long to listen")
    ] = 1.0,
) -> None:
    """How the runs at a broker stand: rounds, active devices, epsilon spent, who is there."""
    checks.positive("--wait", wait, extreme=3600.0)
    subscriptions(run)  # refuses a name that no run can have
    transport = transport_to(broker, tls)
    if watch:
        if json_ or not sys.stdout.isatty():
            raise InvalidSetting("--watch needs a terminal and no --json; use --json alone")
        _watch(transport, broker, run)
        return
    observed = Observed()
    try:
        asyncio.run(observe_for(transport, observed.take, wait, run))
    except Disconnected as error:
        raise RunFailed(f"the broker cannot be reached: {error}") from error
    if not observed.runs:
        what = "any run" if run is None else f"run {run!r}"
        raise RunFailed(
            f"nothing is known of {what} at {broker}: no message under"
            f" {', '.join(subscriptions(run))} in {wait:g} s; the server may not have started, or"
            " this certificate may not read it"
        )
    if json_:
        print_json(to_document(observed, broker))
        return
    from flmc.views.terminal import show

    show(*things_of(observed))


def to_document(observed: Observed, broker: str) -> dict[str, Any]:
    """What is known of all runs in plain values, for JSON.

    Parameters
    ----------
    observed, broker
        What was heard, and where.
    """
    return {
        "schema_version": ANSWER_VERSION,
        "broker": broker,
        "runs": {name: run.to_document() for name, run in sorted(observed.runs.items())},
        "left_out": observed.left_out,
    }


def things_of(observed: Observed, most: int | None = None) -> list[Listing | Grid]:
    """What is known of all runs, as rows and grids: how each stands, then who is there.

    Parameters
    ----------
    observed
        What was heard.
    most
        Rows of a grid that are shown; None: all.
    """
    things: list[Listing | Grid] = []
    for name, run in sorted(observed.runs.items()):
        if run.status is None:
            unknown = Row("phase", "unknown: its server has not spoken", severity="warning")
            things.append(Listing(f"run {name}", (unknown,)))
        else:
            things.append(run.status.listing())
        if run.presences:
            things.append(run.grid(most))
    return things


def _watch(transport: Transport, broker: str, run: str | None) -> None:
    """Show a live view until Ctrl-C."""
    from rich.live import Live

    observed = Observed()
    trouble: list[str | None] = ["connecting"]

    def say(words: str | None) -> None:
        trouble[0] = words

    async def keep(live: Live) -> None:
        asked = asyncio.create_task(stop_event().wait())
        listening = asyncio.create_task(observe_forever(transport, observed.take, run, say))
        try:
            while not (listening.done() or asked.done()):
                height = live.console.height
                live.update(_picture(observed, broker, trouble[0], height), refresh=True)
                await asyncio.wait(
                    {listening, asked}, timeout=_REFRESH, return_when=asyncio.FIRST_COMPLETED
                )
            if listening.done():
                listening.result()
        finally:
            for task in (listening, asked):
                task.cancel()
            await asyncio.gather(listening, asked, return_exceptions=True)

    with Live(auto_refresh=False, vertical_overflow="crop") as live:
        asyncio.run(keep(live))


def _picture(observed: Observed, broker: str, trouble: str | None, height: int) -> RenderableType:
    """What a live view shows: at most as many lines as the terminal has."""
    from rich.console import Group

    from flmc.views.terminal import render

    state = "connected" if trouble is None else f"not connected: {trouble}"
    empty = "" if observed.runs else "; nothing is known yet"
    head = f"{broker}: {state}{empty} (Ctrl-C ends)"
    # Every run has its share of the lines that its own rows and the line above leave.
    share = (height - 1) // max(1, len(observed.runs)) - _LISTING
    return Group(*map(render, (head, *things_of(observed, max(1, share)))))
