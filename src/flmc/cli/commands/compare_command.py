"""`flmc compare`: a plan's sampler beside other methods, on examples that were held out."""

from __future__ import annotations

from typing import Annotated

import typer

from flmc.base.errors import InvalidSetting
from flmc.cli.options import with_settings
from flmc.cli.output import Json, print_json
from flmc.evaluation.model_check import check_model
from flmc.models.model import Model
from flmc.planning.plans import Plan
from flmc.settings.assembly import assemble_with_held_out
from flmc.settings.schema import Settings

_CHAINS = 4
"""Chains of every method unless settings say more: each is a release of its own."""


def _found(model: Model, plan: Plan) -> list[str]:
    """What a pilot found to be wrong with a model whose posterior is not known."""
    if model.posterior is not None:
        return []
    return [each.message for each in check_model(model, plan) if each.severity != "note"]


@with_settings
def compare_command(
    settings: Settings,
    json_: Json = False,
    baselines: Annotated[
        bool,
        typer.Option(
            "--baselines",
            help="FedSGD, majority vote, DP-FedSGD, noiseless Langevin sampling and posteriors of"
            " single devices, with the plan's channel, rounds and budget",
        ),
    ] = False,
    hold_out: Annotated[
        float,
        typer.Option(
            "--hold-out",
            metavar="SHARE",
            help="share of every device's examples to predict, which nobody learns from",
        ),
    ] = 0.2,
) -> None:
    """Compare a plan's sampler with other methods: privacy, and scores on examples held out."""
    from flmc.runs.baselines import compare_baselines  # SciPy takes long to import
    from flmc.views.progress_bars import show_progress
    from flmc.views.terminal import show

    if not baselines:
        raise InvalidSetting(
            "give --baselines, the methods to compare with; uplinks are compared by flmc sweep, or"
            " by flmc.compare in Python"
        )
    problem, test = assemble_with_held_out(settings, hold_out, settings.seed)
    chains = _CHAINS if settings.chains is None else settings.chains
    plan = problem.plan()
    for text in [*plan.warnings, *_found(problem.model, plan)]:
        typer.echo(f"warning: {text}", err=True)
    with show_progress("comparing") as progress:
        found = compare_baselines(
            plan,
            problem.model,
            test,
            settings.seed,
            chains=chains,
            engine=settings.engine,
            progress=progress,
        )
    if json_:
        print_json(found.to_document())
    else:
        show(found.grid())
