"""`flmc device`, `flmc air` and `flmc serve`, which run the three roles of a federation, each in a
process of its own; and `flmc status`, which shows the state of runs."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flmc.base import checks
from flmc.base.documents import ANSWER_VERSION
from flmc.base.errors import InvalidSetting, MissingExtra, RunFailed
from flmc.base.tables import Grid, Listing, Row
from flmc.cli.output import Json, print_json, with_answer
from flmc.deploy.loop import stop_event
from flmc.wire.mqtt import Credentials, Mqtt
from flmc.wire.observation import Observed, observe_for, observe_forever, subscriptions
from flmc.wire.transport import Disconnected, Transport

if TYPE_CHECKING:
    from rich.console import RenderableType

    from flmc.deploy.role import Role


Broker = Annotated[
    str, typer.Option("--broker", metavar="URL", help="mqtts://HOST:PORT, or mqtt:// without TLS")
]
Tls = Annotated[
    Path | None,
    typer.Option("--tls", metavar="DIR", help="directory with ca.pem, cert.pem and key.pem"),
]
MetricsPort = Annotated[
    int | None,
    typer.Option("--metrics-port", help="serve Prometheus metrics on this port of 127.0.0.1"),
]
LogFormat = Annotated[
    str, typer.Option("--log", metavar="auto|json|text", help="how to log on standard error")
]
Config = Annotated[Path, typer.Option("--config", metavar="FILE", help="a TOML file")]


def device_command(
    broker: Broker,
    id_: Annotated[int | None, typer.Option("--id", help="number of the device, from 0")] = None,
    data: Annotated[
        Path | None, typer.Option("--data", metavar="FILE", help="its examples: csv, parquet, npz")
    ] = None,
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="a TOML file; options go first")
    ] = None,
    tls: Tls = None,
    run: Annotated[
        str | None, typer.Option("--run", help="name of the run; default: the only one there is")
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", help="model whose gradients it computes")
    ] = None,
    target: Annotated[
        str | None, typer.Option("--target", help="column to be predicted; an npz has its own")
    ] = None,
    air_key: Annotated[
        Path | None, typer.Option("--air-key", metavar="FILE", help="the air's public key")
    ] = None,
    journal: Annotated[
        Path | None, typer.Option("--journal", metavar="DIR", help="where its journal is")
    ] = None,
    epsilon: Annotated[
        float | None,
        typer.Option(
            "--epsilon",
            metavar="NUMBER",
            parser=checks.number_in,
            help="lifetime budget of its data; inf: no limit",
        ),
    ] = None,
    metrics_port: MetricsPort = None,
    log: LogFormat = "auto",
) -> None:
    """Take part in a federation as a device, with data that stay here."""
    from flmc.deploy.configuration import read_device
    from flmc.deploy.role_assembly import make_device
    from flmc.deploy.run_discovery import find_run
    from flmc.wire.topics import device_name

    _set_up_logs(log)
    given = read_device(
        config,
        broker,
        tls,
        id=id_,
        data=data,
        run=run,
        model=model,
        target=target,
        air_key=air_key,
        journal=journal,
        epsilon=epsilon,
    )
    # Checked before the device waits for a run, so that a wrong path fails at once.
    if not given.data.is_file():
        raise InvalidSetting(f"there is no file {str(given.data)!r} with the device's data")
    name = given.run or asyncio.run(find_run(device_name(given.rules.device), given.broker))
    role = make_device(given, name)
    _run(role, given.broker, metrics_port)
    if role.refusal is not None:
        # InvalidSetting gives the exit code 2, after which systemd does not restart the process:
        # the device would refuse the run again.
        raise InvalidSetting(
            f"device {given.rules.device} refused the run {name!r}: {role.refusal}"
        )


def air_command(
    config: Config,
    broker: Broker,
    tls: Tls = None,
    journal: Annotated[
        Path | None, typer.Option("--journal", metavar="DIR", help="where its journal is")
    ] = None,
    receiver: Annotated[
        Path | None,
        typer.Option("--receiver", metavar="FILE", help="npz with what a receiver measured"),
    ] = None,
    metrics_port: MetricsPort = None,
    log: LogFormat = "auto",
) -> None:
    """Be the air of a federation: add up what devices send, and the channel's noise."""
    from flmc.deploy.configuration import read_air
    from flmc.deploy.role_assembly import make_air

    _set_up_logs(log)
    given = read_air(config, broker, tls, journal=journal, receiver=receiver)
    _run(make_air(given), given.broker, metrics_port)


def serve_command(
    config: Config,
    broker: Broker,
    tls: Tls = None,
    record: Annotated[
        Path | None, typer.Option("--record", metavar="DIR", help="where the run is recorded")
    ] = None,
    metrics_port: MetricsPort = None,
    log: LogFormat = "auto",
    json_: Json = False,
) -> None:
    """Be the server of a federation; a run that was interrupted goes on."""
    from flmc.deploy.configuration import read_server
    from flmc.deploy.role_assembly import EndedServer, make_server
    from flmc.deploy.server.federation_result import result_of_record
    from flmc.deploy.server.server_record import check_same_run
    from flmc.runs.records import is_finished

    _set_up_logs(log)
    given = read_server(config, broker, tls, record=record)
    if is_finished(given.record):
        check_same_run(given.record, given.federation)
        _run(EndedServer(given.federation.run), given.broker, metrics_port)
    else:
        role = make_server(given)
        _run(role, given.broker, metrics_port)
        if role.failure is not None:
            raise RunFailed(role.failure)
        if not role.finished:
            done, planned = role.record.round, given.federation.plan.num_rounds
            raise RunFailed(f"stopped after round {done} of {planned}; the same command goes on")
    result = result_of_record(given.record)
    if json_:
        print_json(with_answer(result, "auto"))
        return
    from flmc.views.terminal import show

    show(result.listing(), f"record: {given.record}")


def _set_up_logs(form: str) -> None:
    """Send logs to standard error in the format ``form``, the value of ``--log``."""
    from flmc.deploy.logs import setup_logs

    setup_logs(form=form)


def _run(role: Role, transport: Any, metrics_port: int | None) -> None:
    """Run a role (device, air or server) over the given transport until its run is finished or it
    is stopped; serve metrics at ``metrics_port`` unless that is None."""
    from flmc.deploy.loop import run_process
    from flmc.deploy.prometheus import serve_metrics

    with serve_metrics(role, metrics_port):
        run_process(role, transport)


_REFRESH = 0.5
"""Seconds between two updates of the live view."""
_LISTING = 16
"""Number of terminal lines that one run takes in the live view, in addition to a line for each
role: its status, and the frame of the table."""


def transport_to(broker: str, tls: Path | None) -> Mqtt:
    """The MQTT transport to the broker at the URL ``broker``; ``tls`` is a directory with
    certificates, None: without TLS. Raises ``MissingExtra`` without the extra ``mqtt``."""
    if importlib.util.find_spec("aiomqtt") is None:
        raise MissingExtra("a broker needs the extra mqtt: pip install 'flmc[mqtt]'")
    files = None
    if tls is not None:
        files = Credentials(tls / "ca.pem", tls / "cert.pem", tls / "key.pem")
    return Mqtt(broker, files)


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
    """How the runs at a broker stand: rounds, active devices, epsilon of the run, who is there."""
    checks.positive("--wait", wait, extreme=3600.0)
    subscriptions(run)  # called for its check only: it raises if no run can have this name
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

    show(*tables_of(observed))


def to_document(observed: Observed, broker: str) -> dict[str, Any]:
    """The observed state of all runs at a broker, in plain values for JSON."""
    return {
        "schema_version": ANSWER_VERSION,
        "broker": broker,
        "runs": {name: run.to_document() for name, run in sorted(observed.runs.items())},
        "left_out": observed.left_out,
    }


def tables_of(observed: Observed, most: int | None = None) -> list[Listing | Grid]:
    """Tables of all observed runs: for each run a listing of its state and a grid of its roles
    (server, air, devices) with at most ``most`` rows (None: all)."""
    tables: list[Listing | Grid] = []
    for name, run in sorted(observed.runs.items()):
        if run.status is None:
            unknown = Row("phase", "unknown: its server has not spoken", severity="warning")
            tables.append(Listing(f"run {name}", (unknown,)))
        else:
            tables.append(run.status.listing())
        if run.presences:
            tables.append(run.grid(most))
    return tables


def _watch(transport: Transport, broker: str, run: str | None) -> None:
    """Show the state of the runs at a broker on the terminal, updated until Ctrl-C; ``run`` names
    the only run to show, None: all runs."""
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
    """The live view at one moment, for a terminal of ``height`` lines: the observed runs, and the
    ``trouble`` with the connection (None: connected)."""
    from rich.console import Group

    from flmc.views.terminal import render

    state = "connected" if trouble is None else f"not connected: {trouble}"
    empty = "" if observed.runs else "; nothing is known yet"
    head = f"{broker}: {state}{empty} (Ctrl-C ends)"
    # Each run gets an equal number of the terminal's lines. Its status and the frame of its table
    # take ``_LISTING`` of them, and the rest, at least one, show roles.
    share = (height - 1) // max(1, len(observed.runs)) - _LISTING
    return Group(*map(render, (head, *tables_of(observed, max(1, share)))))
