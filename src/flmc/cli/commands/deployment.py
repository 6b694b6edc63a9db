"""`flmc deploy`: set a federation up on separate machines, or demonstrate one on this machine."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flmc.base.errors import InvalidSetting
from flmc.cli.output import Json, print_json, with_answer

if TYPE_CHECKING:
    from flmc.deploy.setup.directory import SetupOutcome
    from flmc.wire.status import Status


# `flmc deploy demo`: a whole federation on this machine, from the plan to the report.


def demo_command(
    devices: Annotated[int, typer.Option("--devices", help="device processes")] = 20,
    rounds: Annotated[int, typer.Option("--rounds", help="rounds, burn-in included")] = 400,
    burn_in: Annotated[int, typer.Option("--burn-in", help="rounds that are not kept")] = 200,
    samples: Annotated[int, typer.Option("--samples", help="examples on all devices")] = 1200,
    dim: Annotated[int, typer.Option("--dim", help="entries of theta")] = 5,
    scheme: Annotated[
        str,
        typer.Option("--scheme", metavar="SCHEME", help="how devices send, as in flmc plan"),
    ] = "digital",
    epsilon: Annotated[
        float | None, typer.Option("--epsilon", help="privacy budget of the run; default: none")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="of the synthetic data only")] = 0,
    slot_ms: Annotated[
        int, typer.Option("--slot-ms", help="milliseconds after which devices answer")
    ] = 50,
    broker: Annotated[
        str,
        typer.Option(
            "--broker",
            metavar="auto|embedded|mosquitto",
            help="mosquitto: with TLS and access rights; auto: mosquitto if it is installed",
        ),
    ] = "auto",
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="keep folders, journals, logs and record"),
    ] = None,
    json_: Json = False,
) -> None:
    """Run linear regression over real processes on this machine: broker, air, server, devices."""
    from flmc.deploy.demo.demonstration import demonstrate, public_curvature
    from flmc.deploy.demo.local_federation import BROKERS, LocalFederation, find_mosquitto
    from flmc.runs.records import check_new
    from flmc.settings.assembly import assemble
    from flmc.settings.construction import draw_examples
    from flmc.settings.schema import merge
    from flmc.views.progress_bars import show_progress
    from flmc.views.terminal import show
    from flmc.wire.federation import Federation, refuse_foreign

    if broker == "auto":
        broker = "mosquitto" if find_mosquitto() else "embedded"
    if broker not in BROKERS:
        raise InvalidSetting(f"--broker must be auto, embedded or mosquitto, got {broker!r}")
    if out is not None:
        check_new(out)
    largest, smallest = public_curvature(max(samples, 1), max(dim, 1))
    given: dict[str, Any] = {
        "devices": devices,
        "rounds": rounds,
        "burn_in": burn_in,
        "samples": samples,
        "dim": dim,
        "scheme": scheme,
        "seed": seed,
        "start": "zero",
        "public_smoothness": largest,
        "public_convexity": smallest,
        "data": "examples",
    }
    if epsilon is not None:
        given |= {"epsilon": epsilon, "scope": "run"}
    settings = merge({}, given)
    problem = assemble(settings)
    plan = problem.plan()
    # What a federation cannot run is refused before anything is shown or started.
    refuse_foreign(plan)
    Federation.of("demo", plan, slot_ms=slot_ms)
    if not json_:
        show(plan.listing(), "")
    with ExitStack() as held:
        place = out
        if place is None:
            parent = Path(tempfile.mkdtemp(prefix="flmc-demo-"))
            held.callback(shutil.rmtree, parent, ignore_errors=True)
            place = parent / "federation"
        federation = LocalFederation.prepare(
            place, plan, draw_examples(settings, None), broker=broker, slot_ms=slot_ms
        )
        what = f"{devices} devices, air, server and {broker} as processes"
        progress = held.enter_context(show_progress(what))

        def tell(status: Status) -> None:
            progress(status.round / status.num_rounds)

        outcome = demonstrate(federation, plan, problem.model, tell)
    if json_:
        print_json(with_answer(outcome.result, "auto"))
        return
    status = outcome.status
    pace = ""
    if status is not None and status.round_seconds is not None:
        each = 1000 * status.round_seconds
        pace = f"; {each:.0f} ms a round, of which {slot_ms} ms are the devices' answer slot"
    safety = "TLS and access rights" if broker == "mosquitto" else "no TLS and no access rights"
    lines = [f"federation: {outcome.seconds:.1f} s with {broker} ({safety}){pace}"]
    kept = f"record: {federation.record}; journals and logs: {out}"
    lines.append("nothing of it was kept: --out DIR keeps it" if out is None else kept)
    show(outcome.result.listing(), *lines)


deploy_app = typer.Typer(
    help="A federation of real processes: certificates, access rights and start scripts for its"
    " broker, air, server and devices.",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
)
"""The command ``flmc deploy`` with its subcommands."""

deploy_app.command("demo")(demo_command)

# The defaults of options repeat those of flmc.deploy.setup, which needs an optional extra and is
# therefore imported only where it is used. A test compares the two.
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

    _report(
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

    _report(setup.renew(directory, identity, days=days, readmit=readmit), json_)


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
    """Shut ID out: revoke its certificates, and remove its access rights at the broker."""
    from flmc.deploy.setup import directory as setup

    _report(setup.revoke(directory, identity, superseded=superseded), json_)


@deploy_app.command("ledger")
def ledger_command(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="directory of a device's journal")
    ],
    json_: Json = False,
) -> None:
    """Show what the data of a device may cost in privacy, in all and by run; also while the device
    is running."""
    from flmc.deploy.device.device_journal import read_ledger

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
    relation: Annotated[
        str, typer.Option("--relation", help="how it differs: replace, add_remove or zero_out")
    ] = "replace",
    runs: Annotated[
        int, typer.Option("--runs", help="runs of this plan, a chain each, that cost is of")
    ] = 1,
    json_: Json = False,
) -> None:
    """Show what a whole run may cost a device in privacy, and the digest by which the device knows
    the run."""
    from flmc.base import checks
    from flmc.deploy.accounting import RunPrice
    from flmc.deploy.configuration import read_federation
    from flmc.privacy.neighbours import RELATIONS, UNITS

    checks.between("--delta", delta, 0.0, 1.0)
    checks.one_of("--neighbouring", neighbouring, UNITS)
    checks.one_of("--relation", relation, RELATIONS)
    checks.at_least("--runs", runs, 1)
    price = RunPrice.of(read_federation(federation), delta, neighbouring, runs, relation)
    if json_:
        print_json(price.to_document())
        return
    from flmc.views.terminal import show

    show(price.listing())


@deploy_app.command("together")
def together_command(
    records: Annotated[
        list[Path], typer.Argument(metavar="DIR...", help="records of the runs' servers")
    ],
    json_: Json = False,
) -> None:
    """Judge several finished runs of one plan together, as chains that began at places of their
    own: whether they agree, their answer, and what they cost in privacy in all."""
    from flmc.deploy.server.pooled_runs import pool

    pooled = pool(records)
    if json_:
        print_json(pooled.to_document())
        return
    from flmc.views.terminal import show

    show(pooled.listing())


_DONE = {"init": "wrote", "renew": "renewed", "revoke": "revoked"}


def _report(done: SetupOutcome, json_: bool) -> None:
    """Print what was changed in the directory of a federation and which steps are left to its
    operator, as JSON or as text."""
    if json_:
        print_json(done.to_document())
        return
    shown = done.identities[:5]
    more = len(done.identities) - len(shown)
    whom = ", ".join(shown) + (f" and {more} more" if more else "")
    typer.echo(f"{_DONE[done.action]} {whom} in {done.directory}")
    for step in done.steps:
        typer.echo(f"- {step}")
