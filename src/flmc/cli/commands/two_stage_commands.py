"""`flmc plan` and `flmc run` with ``--precondition pilot``: two stages with one budget."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flmc.base.documents import ANSWER_VERSION
from flmc.base.errors import InvalidSetting
from flmc.cli.output import print_json, said_of
from flmc.cli.signals import stopping_at_signals
from flmc.planning.privacy_cost import Cost
from flmc.runs.two_stage_run import TwoStageResult, run_two_stages
from flmc.settings.assembly import Problem


def plan_two(problem: Problem, json_: bool) -> None:
    """Print the plan of two stages.

    Parameters
    ----------
    problem
        What settings describe.
    json_
        Whether to print JSON.
    """
    both = problem.two_stages()
    if json_:
        print_json(
            {
                "schema_version": ANSWER_VERSION,
                "pilot": both.pilot.to_document(),
                "main_rounds": both.main_rounds,
                "most_gain": both.most_gain,
                **_cost_fields(both.cost),
            }
        )
        return
    from flmc.views.terminal import show

    show(both.listing(), *said_of(problem.settings))


def run_two(problem: Problem, out: Path | None, json_: bool) -> TwoStageResult:
    """Run both stages, and print what they gave and cost.

    Parameters
    ----------
    problem
        What settings describe.
    out
        Where records of both stages are kept, if they are.
    json_
        Whether to print JSON.
    """
    from flmc.views.progress_bars import show_progress
    from flmc.views.terminal import show

    settings, both = problem.settings, problem.two_stages()
    if not json_:
        show(both.listing(), *said_of(settings), "")
    with show_progress("simulating") as progress, stopping_at_signals() as stop:
        result = run_two_stages(
            both,
            problem.model,
            settings.seed,
            settings.num_chains,
            thin=settings.thin,
            engine=settings.engine,
            progress=progress,
            out=out,
            stop=stop,
        )
    if json_:
        print_json(_document(result))
    else:
        show(
            result.listing(),
            *([] if out is None else [f"records: {out / 'pilot'}, {out / 'main'}"]),
        )
    return result


def refuse_beside_pilot(**given: object) -> None:
    """Refuse options of a command that make no sense with two stages.

    Parameters
    ----------
    **given
        Options by name; those that are set are refused.
    """
    named = [name for name, value in given.items() if value]
    if named:
        raise InvalidSetting(
            f"precondition 'pilot' plans two stages; --{named[0].replace('_', '-')} is for one"
        )


def _document(result: TwoStageResult) -> dict[str, Any]:
    """Both results and what they cost together, ready for JSON."""
    return {
        "schema_version": ANSWER_VERSION,
        "pilot": result.pilot.to_document(),
        "main": result.main.to_document(),
        "effective_draws_of_pilot": result.found.effective_draws,
        **_cost_fields(result.cost),
    }


def _cost_fields(cost: Cost | None) -> dict[str, float | None]:
    """Epsilon and delta of both stages; null where unknown."""
    if cost is None:
        return {"epsilon": None, "delta": None}
    return {"epsilon": cost.epsilon, "delta": cost.delta}
