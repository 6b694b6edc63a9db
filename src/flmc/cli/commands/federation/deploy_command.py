"""`flmc deploy`: set a federation up on separate machines."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flmc.cli.commands.federation.demo_command import demo_command
from flmc.cli.output import Json, print_json

if TYPE_CHECKING:
    from flmc.deploy.setup.steps import Done

deploy_app = typer.Typer(
    help="A federation of real processes: certificates, access rights and start scripts for its"
    " broker, air, server and devices.",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
)
"""The command ``flmc deploy`` with its subcommands."""

deploy_app.command("demo")(demo_command)

# Defaults are those of flmc.deploy.setup, which is imported only where it is used, because it needs
# an extra; a test holds the two together.
_Directory = Annotated[Path, typer.Argument(metavar="DIR", help="directory of the federation")]
_Identity = Annotated[
    str,
    typer.Argument(metavar="ID", help="server, air, observer, monitor, or device-3 and so on"),
]
_Days = Annotated[int, typer.Option("--days", help="for how many days a certificate is valid")]


@deploy_app.command("init")
def init_command(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="where to write; a new or empty directory")
    ],
    devices: Annotated[int, typer.Option("--devices", help="how many devices, 1 to 10000")],
    host: Annotated[
        list[str] | None,
        typer.Option(
            "--host",
            metavar="NAME",
            help="name or address by which roles reach the broker; repeatable, start scripts use"
            " the first",
            show_default="127.0.0.1",
        ),
    ] = None,
    port: Annotated[int, typer.Option("--port", help="where the broker listens")] = 8883,
    days: _Days = 365,
    authority_days: Annotated[
        int, typer.Option("--authority-days", help="for how many days the authority is valid")
    ] = 3650,
    installed: Annotated[
        str,
        typer.Option(
            "--installed",
            metavar="PATH",
            help="directory on the roles' machines in which systemd units expect the folders",
        ),
    ] = "/srv/flmc",
    json_: Json = False,
) -> None:
    """Write a certificate authority, certificates, the broker's configuration and access list, and
    a folder with start script and systemd unit for every role."""
    from flmc.deploy.setup import directory as setup

    _tell(
        setup.init(
            directory,
            devices,
            hosts=host or (setup.DEFAULT_HOST,),
            port=port,
            days=days,
            authority_days=authority_days,
            installed=installed,
        ),
        json_,
    )


@deploy_app.command("renew")
def renew_command(
    directory: _Directory,
    identity: _Identity,
    days: _Days = 365,
    readmit: Annotated[
        bool, typer.Option("--readmit", help="also if ID was revoked: let it in again")
    ] = False,
    json_: Json = False,
) -> None:
    """Issue a new key and certificate to ID, which may be the broker, too; the old certificate
    stays valid until it expires or is revoked."""
    from flmc.deploy.setup import directory as setup

    _tell(setup.renew(directory, identity, days=days, readmit=readmit), json_)


@deploy_app.command("revoke")
def revoke_command(
    directory: _Directory,
    identity: _Identity,
    superseded: Annotated[
        bool,
        typer.Option("--superseded", help="only certificates older than the newest of ID"),
    ] = False,
    json_: Json = False,
) -> None:
    """Shut ID out: revoke its certificates, and take its rights at the broker."""
    from flmc.deploy.setup import directory as setup

    _tell(setup.revoke(directory, identity, superseded=superseded), json_)


@deploy_app.command("ledger")
def ledger_command(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="directory of a device's journal")
    ],
    json_: Json = False,
) -> None:
    """Show what a device's data may cost, by run; also while the device is running."""
    from flmc.deploy.device.device_ledger import read_ledger

    ledger = read_ledger(directory)
    if json_:
        print_json(ledger.to_document())
        return
    typer.echo(str(ledger.grid()))


@deploy_app.command("cost")
def cost_command(
    federation: Annotated[
        Path, typer.Argument(metavar="FILE", help="federation.toml of the run, with its plan")
    ],
    delta: Annotated[
        float, typer.Option("--delta", help="delta of the run: that of the budget over its runs")
    ] = 1e-5,
    neighbouring: Annotated[
        str, typer.Option("--neighbouring", help="what is protected: device or example")
    ] = "device",
    json_: Json = False,
) -> None:
    """Show what a run may cost a device in whole, and the digest by which the device knows it."""
    from flmc.base import checks
    from flmc.deploy.accounting import RunPrice
    from flmc.deploy.configuration.role_configuration import read_federation

    checks.between("--delta", delta, 0.0, 1.0)
    checks.one_of("--neighbouring", neighbouring, ("device", "example"))
    price = RunPrice.of(read_federation(federation), delta, neighbouring)
    if json_:
        print_json(price.to_document())
        return
    from flmc.views.terminal import show

    show(price.listing())


_DONE = {"init": "wrote", "renew": "renewed", "revoke": "revoked"}


def _tell(done: Done, json_: bool) -> None:
    """Print what was done, and what the operator must do now."""
    if json_:
        print_json(done.to_document())
        return
    shown = done.identities[:5]
    more = len(done.identities) - len(shown)
    whom = ", ".join(shown) + (f" and {more} more" if more else "")
    typer.echo(f"{_DONE[done.action]} {whom} in {done.directory}")
    for step in done.steps:
        typer.echo(f"- {step}")
