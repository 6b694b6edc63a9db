"""`flmc compare`: several uplinks and baselines on the same model and data, as ``flmc.compare``
does it."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from flmc.base.errors import InvalidSetting
from flmc.cli.options import Equal, with_settings
from flmc.cli.output import Json, print_json
from flmc.planning.fairness import Equality
from flmc.planning.plans import Plan
from flmc.settings.assembly import Problem, assemble, assemble_with_held_out
from flmc.settings.construction import make_engine
from flmc.settings.schema import OF_THE_DATA, Settings, merge

_CHAINS = 4
"""Number of chains of every method unless the setting ``chains`` is given; each chain is a release
of its own."""
_HELD_OUT = 0.2
"""Share of every device's examples that is held out, to score predictions with, if there is one
data set and the option ``--hold-out`` is not given."""
_OWN = "flmc"
"""Name, in the tables, of the plan that the settings themselves describe."""
_OF_THE_PROBLEM = (
    *OF_THE_DATA,
    *("precondition", "pilot_rounds", "chains", "engine", "threads"),
)
"""Names of the settings of data, chains and engine, which all methods of a comparison share."""


def _changes(text: str) -> dict[str, str]:
    """The settings in the text of one option ``--beside``, such as ``scheme=analog clip=20``:
    values as text, by name. Raises ``InvalidSetting`` for other texts, and for settings of data,
    chains and engine, which all methods share."""
    pairs = [word.partition("=") for word in text.split()]
    for name, equals, value in pairs:
        if not (name and equals and value):
            raise InvalidSetting(
                f"--beside takes SETTING=VALUE, several with spaces between them, got {text!r}"
            )
    changes = {name.replace("-", "_"): value for name, _, value in pairs}
    for name in changes:
        if name in _OF_THE_PROBLEM:
            raise InvalidSetting(
                f"--beside must not change {name}: all methods have the same data and seed"
            )
    if not changes:
        raise InvalidSetting("--beside needs at least one SETTING=VALUE, got none")
    return changes


def _plans(
    problem: Problem, settings: Settings, beside: list[str], equal: str | None
) -> tuple[dict[str, Plan], Equality | None]:
    """The plans to compare, by name: the plan of the settings themselves, and one for each text of
    ``--beside``, which changes some of the settings. If ``equal`` names a quantity (``step``,
    ``privacy``, ``energy`` or ``airtime``), all plans are brought to one value of it, which is
    returned with it as the second value; else that is None."""
    given = settings.model_dump(exclude_unset=True)
    problems = {_OWN: problem}
    for text in beside:
        problems[text] = assemble(merge(given, _changes(text)), problem.model)
    if equal is None:
        return {name: each.plan() for name, each in problems.items()}, None
    plans = {name: each.plan(forecast=False) for name, each in problems.items()}
    shared = Equality.among(equal, tuple(plans.values()))
    made = {name: each.made_equal(shared, plans[name]) for name, each in problems.items()}
    return {name: each.plan() for name, each in made.items()}, shared


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
    beside: Annotated[
        list[str] | None,
        typer.Option(
            "--beside",
            metavar="SETTING=VALUE",
            help="another uplink on the same data: the same settings but for these, several with"
            " spaces between them; may be repeated",
        ),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="METHOD", help="a method to run; may be repeated"),
    ] = None,
    equal: Equal = None,
    hold_out: Annotated[
        float | None,
        typer.Option(
            "--hold-out",
            metavar="SHARE",
            help="share of every device's examples to predict, which nobody learns from; 0: none"
            " [default: 0.2, or 0 for several data sets]",
        ),
    ] = None,
) -> None:
    """Compare uplinks and baselines on one problem: privacy, scores on held-out examples, and
    errors against the exact posterior where it is known."""
    # Imported here, because ``compare`` imports SciPy, which is slow.
    from flmc.runs.comparison import compare
    from flmc.views.progress_bars import show_progress
    from flmc.views.terminal import show

    if not (baselines or beside):
        raise InvalidSetting(
            "give --baselines, the methods to compare with, or --beside SETTING=VALUE, another"
            " uplink"
        )
    if equal is not None and not beside:
        raise InvalidSetting(
            f"--equal {equal} needs another uplink, --beside SETTING=VALUE: baselines are made from"
            " the first uplink"
        )
    if hold_out is None:  # examples are held out of one data set only
        hold_out = _HELD_OUT if settings.experiments == 1 else 0
    if hold_out == 0:
        problem, test = assemble(settings), None
    else:
        problem, test = assemble_with_held_out(settings, hold_out, settings.seed)
    plans, shared = _plans(problem, settings, beside or [], equal)
    with show_progress("comparing") as progress:
        compared = compare(
            plans,
            problem.model,
            baselines=baselines,
            test=test,
            only=only or None,
            seed=settings.seed,
            chains=_CHAINS if settings.chains is None else settings.chains,
            engine=make_engine(settings),
            progress=progress,
        )
    compared = replace(compared, shared=shared)
    if not json_:
        show(*compared.grids())
        return
    for name, result in compared.results.items():
        for text in result.warnings:
            typer.echo(f"warning: {name}: {text}", err=True)
    print_json(compared.to_document())
