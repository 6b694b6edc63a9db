"""`flmc device`, `flmc air` and `flmc serve`: the roles of a federation, a process each."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flmc.base.errors import InvalidSetting, RunFailed
from flmc.cli.output import Json, print_json

if TYPE_CHECKING:
    from flmc.deploy.role import Role


Broker = Annotated[
    str,
    typer.Option("--broker", metavar="URL", help="mqtts://HOST:PORT, or mqtt:// without TLS"),
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
        float | None, typer.Option("--epsilon", help="lifetime budget of its data; inf: no limit")
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
    if not given.data.is_file():  # it is told before a run is waited for
        raise InvalidSetting(f"there is no file {str(given.data)!r} with the device's data")
    name = given.run or asyncio.run(find_run(device_name(given.rules.device), given.broker))
    role = make_device(given, name)
    _run(role, given.broker, metrics_port)
    if role.refusal is not None:
        # As bad input: to start it again would not help, and systemd does not.
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
        print_json(result.to_document())
        return
    from flmc.views.terminal import show

    show(result.listing(), f"record: {given.record}")


def _set_up_logs(form: str) -> None:
    """Log as asked for, on standard error."""
    from flmc.deploy.logs import setup_logs

    setup_logs(form=form)


def _run(role: Role, transport: Any, metrics_port: int | None) -> None:
    """Run a role until it is finished or stopped."""
    from flmc.deploy.loop import run_process
    from flmc.deploy.prometheus import serve_metrics

    with serve_metrics(role, metrics_port):
        run_process(role, transport)
