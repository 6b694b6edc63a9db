"""`flmc deploy demo`: a whole federation on this machine, from the plan to the report."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flmc.base.errors import InvalidSetting
from flmc.cli.output import Json, print_json

if TYPE_CHECKING:
    from flmc.wire.status import Status


def demo_command(
    devices: Annotated[int, typer.Option("--devices", help="device processes")] = 20,
    rounds: Annotated[int, typer.Option("--rounds", help="rounds, burn-in included")] = 400,
    burn_in: Annotated[int, typer.Option("--burn-in", help="rounds that are not kept")] = 200,
    samples: Annotated[int, typer.Option("--samples", help="examples on all devices")] = 1200,
    dim: Annotated[int, typer.Option("--dim", help="entries of theta")] = 5,
    scheme: Annotated[
        str, typer.Option("--scheme", metavar="digital|analog", help="how gradients are sent")
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
    from flmc.settings.making.models import draw_examples
    from flmc.settings.schema import merge
    from flmc.views.progress import show_progress
    from flmc.views.terminal import show

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

        found = demonstrate(federation, plan, problem.model, tell)
    if json_:
        print_json(found.result.to_document())
        return
    status = found.status
    pace = ""
    if status is not None and status.round_seconds is not None:
        each = 1000 * status.round_seconds
        pace = f"; {each:.0f} ms a round, of which {slot_ms} ms are the devices' answer slot"
    safety = "TLS and access rights" if broker == "mosquitto" else "no TLS and no access rights"
    said = [f"federation: {found.seconds:.1f} s with {broker} ({safety}){pace}"]
    kept = f"record: {federation.record}; journals and logs: {out}"
    said.append("nothing of it was kept: --out DIR keeps it" if out is None else kept)
    show(found.result.listing(), *said)
