"""`flmc plan`: what the constraints allow."""

from __future__ import annotations

from typing import Annotated

import typer

from flmc.cli.options import with_settings
from flmc.cli.output import Json, model_check, print_json
from flmc.planning.plans.schema import schema as plan_schema
from flmc.settings.assembly import assemble, suggest_settings
from flmc.settings.schema import Settings, merge


@with_settings
def plan_command(
    settings: Settings,
    json_: Json = False,
    no_run: Annotated[
        bool, typer.Option("--no-run", help="leave out the privacy of the whole run")
    ] = False,
    suggest_: Annotated[
        bool,
        typer.Option(
            "--suggest",
            help="propose link, clip, step and rounds from public knowledge, and plan with them",
        ),
    ] = False,
    schema: Annotated[
        bool, typer.Option("--schema", help="print the JSON Schema of what --json prints, and exit")
    ] = False,
) -> None:
    """What the constraints allow: gain, limits, which one binds, temperature, privacy of a round
    and of the run."""
    if schema:
        print_json(plan_schema())
        return
    suggestion = None
    if suggest_:
        suggestion = suggest_settings(settings)
        settings = merge({}, {**suggestion.settings, **settings.model_dump(exclude_unset=True)})
        typer.echo(f"{suggestion}\n", err=json_)
    problem = assemble(settings)
    planned = problem.plan(settings)
    if json_:
        print_json(planned.to_document(with_run=not no_run))
        return
    from flmc.views.terminal import show

    alternatives = problem.what_if(settings, planned).grid(with_run=not no_run)
    misfit = None if suggestion is None else suggestion.misfit(planned)
    checked = model_check(problem.model, planned)
    show(
        planned.listing(with_run=not no_run),
        *checked,
        alternatives,
        *([] if misfit is None else [misfit]),
    )
