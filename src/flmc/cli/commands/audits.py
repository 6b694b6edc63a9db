"""`flmc audit`: an attack on the uplink of a plan, which measures a lower bound of its privacy
loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flmc.base import checks
from flmc.base.documents import ANSWER_VERSION, to_document
from flmc.base.errors import InvalidSetting, RunFailed
from flmc.cli.options import with_settings
from flmc.cli.output import Json, print_json
from flmc.settings.assembly import assemble
from flmc.settings.construction import scheme_of
from flmc.settings.schema import Settings

if TYPE_CHECKING:
    from flmc.evaluation.audit.outcome import Audit
    from flmc.evaluation.audit.resolution import Resolution
    from flmc.evaluation.audit.scene import Scene

_TRIALS, _DEPLOYED_TRIALS = 200_000, 5_000
"""Default numbers of transmissions that are simulated with each of the two neighbouring data sets
that an attack tells apart: for the simulated uplink, and for the roles of a real federation, whose
rounds take about a millisecond each."""
_DEPLOYED_AT_ONCE = 500
"""Number of transmissions of a real federation's roles between two updates of the progress bar."""


@with_settings
def audit_command(
    settings: Settings,
    trials: Annotated[
        int | None,
        typer.Option(
            "--trials",
            help="transmissions in each of the two worlds; default: 200000, --deployed: 5000",
        ),
    ] = None,
    audit_rounds: Annotated[
        int, typer.Option("--audit-rounds", help="length of the short run")
    ] = 4,
    one_run: Annotated[
        bool,
        typer.Option(
            "--one-run", help="also attack all devices at once, in one run of --audit-rounds"
        ),
    ] = False,
    deployed: Annotated[
        bool,
        typer.Option(
            "--deployed", help="attack the roles of a real federation, with the system's entropy"
        ),
    ] = False,
    json_: Json = False,
) -> None:
    """Attack the uplink of a plan: an empirical lower bound on epsilon beside the accountant's
    upper bound, for one round and for a short run. Exit code 1 if the attack refutes the
    accountant."""
    from flmc.evaluation.audit.attack import audit
    from flmc.evaluation.audit.one_run import audit_one_run
    from flmc.evaluation.audit.scene import Scene
    from flmc.views.progress_bars import show_progress

    if scheme_of(settings).noise_is_exact:
        raise InvalidSetting(
            f"the scheme {settings.scheme!r} transmits exact gradients and states no"
            " privacy to audit: choose another"
        )
    checks.at_least("audit_rounds", audit_rounds, 1)
    plan = assemble(settings).plan(forecast=False)
    usual, how = _TRIALS, dict[str, Any]()
    if deployed:
        from flmc.deploy.deployed_audit import DeployedUplink

        usual = _DEPLOYED_TRIALS
        how = {"transmit": DeployedUplink(plan).transmit, "at_once": _DEPLOYED_AT_ONCE}
    audits: list[Audit] = []
    for rounds in dict.fromkeys((1, audit_rounds)):
        scene = Scene.of_plan(plan, rounds, settings.seed)
        with show_progress(f"attacking {rounds} round{'s' * (rounds > 1)}") as progress:
            audits.append(
                audit(
                    scene,
                    settings.delta,
                    usual if trials is None else trials,
                    settings.seed,
                    **how,
                    progress=progress,
                    tell=None if json_ else _resolution_printer(scene),
                )
            )
        if not json_:
            typer.echo(str(audits[-1]))
    single = None
    if one_run:
        scene = Scene.of_plan(plan, audit_rounds, settings.seed)
        single = audit_one_run(scene, settings.run_delta, settings.seed)
        if not json_:
            typer.echo(str(single))
    if json_:
        print_json(
            {
                "schema_version": ANSWER_VERSION,
                "audits": [each.to_document() for each in audits],
                "deployed": deployed,
                "one_run": None if single is None else single.to_document(),
                "gain": to_document(plan.gain.max()),
            }
        )
    for each in (*audits, single):
        if each is not None and each.complaint:
            raise RunFailed(each.complaint)


def _resolution_printer(scene: Scene) -> Callable[[Resolution], None]:
    """A function that prints the resolution of an audit: the factor by which the accountant must
    understate epsilon for the attack to be likely to notice. The audit calls it before the attack
    on ``scene`` begins."""
    rounds = f"{scene.num_rounds} round{'s' * (scene.num_rounds > 1)}"

    def show(resolution: Resolution) -> None:
        typer.echo(f"before the attack on {rounds}: {resolution}")

    return show
