"""`flmc plan`: limits and gain of an uplink, suggestions for open settings, the setting that meets
given requirements, and checks of requirements."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from flmc.base.documents import ANSWER_VERSION
from flmc.base.errors import InvalidSetting
from flmc.cli.options import Require, check_requirements, refuse_beside_pilot, with_settings
from flmc.cli.output import Json, cost_fields, data_note, print_json
from flmc.planning.plans import Plan
from flmc.planning.requirements import Requirement, read_requirement
from flmc.settings.assembly import Problem, assemble
from flmc.settings.questions import AXES, Solution
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
            help="propose what is left open of link, clip, example clip and rounds, from public"
            " knowledge; exit 1 and say what stands in the way if nothing fits",
        ),
    ] = False,
    solve_: Annotated[
        str | None,
        typer.Option(
            "--solve",
            metavar="NAME",
            help=f"the smallest or best value that meets the requirements, of {', '.join(AXES)}",
        ),
    ] = None,
    require: Require = None,
    write: Annotated[
        Path | None,
        typer.Option(
            "--write", metavar="FILE.toml", help="keep the settings in a new file for --config"
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="keep the plan in a new JSON file"),
    ] = None,
    schema: Annotated[
        bool, typer.Option("--schema", help="print the JSON Schema of what --json prints, and exit")
    ] = False,
) -> None:
    """What the constraints allow: gain, limits, which one binds, temperature, privacy of a round
    and of the run."""
    # Modules that not every plan needs are imported where they are used, because importing takes
    # most of the time of `flmc plan`.
    if schema:
        from flmc.planning.plans.plan_schema import schema as plan_schema

        print_json(plan_schema())
        return
    requirements = [read_requirement(text) for text in require or ()]
    for path in (write, out):
        if path is not None and path.exists():
            raise InvalidSetting(f"{str(path)!r} exists: name a new file")
    settings, above, solution = _chosen(settings, suggest_, solve_, requirements)
    problem = assemble(settings)
    if problem.settings.precondition == "pilot":
        refuse_beside_pilot(solve=solve_, require=require, write=write, out=out)
        _plan_two_stages(problem, json_)
        return
    began = time.perf_counter()
    planned = problem.plan()
    took = time.perf_counter() - began
    document = planned.to_document(with_run=not no_run) if json_ or out is not None else {}
    if write is not None or out is not None:
        _write_files(write, problem.settings, out, document)
    if json_:
        for each in above:
            typer.echo(f"{each}\n", err=True)
        if solution is not None:
            solved = solution.to_document()
            document = {"schema_version": ANSWER_VERSION, "solved": solved, "plan": document}
        print_json(document)
        for line in _pilot_line(planned, took):
            typer.echo(line, err=True)
    else:
        from flmc.views.terminal import show

        below = [] if above else [problem.what_if(planned).grid(with_run=not no_run)]
        shown = planned.listing(with_run=not no_run)
        show(*above, shown, *below, *data_note(settings), *_pilot_line(planned, took))
    check_requirements(planned, require)


def _pilot_line(planned: Plan, seconds: float) -> list[str]:
    """List with one line that says how many seconds planning with a pilot took; empty if the plan
    needed no pilot."""
    pilot = next((each for each in planned.findings if each.code == "pilot"), None)
    if pilot is None:
        return []
    return [f"pilot: {pilot.numbers['batches']:.0f} batches of gradients, {seconds:.2g} s"]


def _plan_two_stages(problem: Problem, json_: bool) -> None:
    """Print the plan of a run in two stages (a pilot, and a run in the coordinates that it finds),
    as JSON or in rows."""
    both = problem.two_stages()
    if json_:
        print_json(
            {
                "schema_version": ANSWER_VERSION,
                "pilot": both.pilot.to_document(),
                "main_rounds": both.main_rounds,
                "most_gain": both.most_gain,
                **cost_fields(both.cost),
            }
        )
        return
    from flmc.views.terminal import show

    show(both.listing(), *data_note(problem.settings))


def _write_files(
    write: Path | None, settings: Settings, out: Path | None, document: dict[str, Any]
) -> None:
    """Write the settings into the new file ``write`` and the plan's document into the new file
    ``out``; None: not written."""
    from flmc.runs.files.durable_files import write_new_text
    from flmc.settings.schema import to_toml

    if write is not None:
        write_new_text(write, to_toml(settings.model_dump(exclude_unset=True)))
    if out is not None:
        write_new_text(out, json.dumps(document, allow_nan=False, indent=1) + "\n")


def _chosen(
    settings: Settings, suggest: bool, name: str | None, requirements: Sequence[Requirement]
) -> tuple[Settings, list[Any], Solution | None]:
    """Three values: the settings to plan with, texts and tables to show above the plan, and the
    solution of ``--solve`` for the setting ``name`` (None without that option). Settings are those
    that ``--solve`` or ``--suggest`` found, if one of these options is given."""
    if name is not None:
        from flmc.settings.questions import Unsolved, solve
        from flmc.views.progress_bars import show_progress

        try:
            with show_progress(f"solving for {name}") as progress:
                solution = solve(settings, name, requirements, suggest=suggest, progress=progress)
        except Unsolved as error:
            typer.echo(str(error.grid()), err=True)
            raise
        listing = [] if solution.suggested is None else [solution.suggested]
        return solution.settings, [solution.words, solution.grid(), *listing], solution
    if not suggest:
        return settings, [], None
    from flmc.settings.questions import suggest_settings

    suggested = suggest_settings(settings, requirements)
    given = settings.model_dump(exclude_unset=True)
    return merge({}, {**given, **suggested.settings}), [suggested.listing()], None
