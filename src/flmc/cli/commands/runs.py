"""`flmc run`, `flmc resume` and `flmc ledger`: runs, their records, and the privacy they spent."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from flmc.base.documents import ANSWER_VERSION
from flmc.base.errors import InvalidSetting, RunFailed
from flmc.base.tables import Listing, Row
from flmc.cli.options import Require, check_requirements, refuse_beside_pilot, with_settings
from flmc.cli.output import Json, cost_fields, data_note, print_json
from flmc.cli.signals import stopping_at_signals
from flmc.models.model import Model
from flmc.planning.plans import Plan
from flmc.runs.execution import resume, run
from flmc.runs.ledger_cost import check_ledger, spent
from flmc.runs.records import Record, check_new, clean_up, describe, is_finished, load
from flmc.runs.results import Result
from flmc.runs.two_stage_run import TwoStageResult, run_two_stages
from flmc.sampling.engine_choice import choose_engine
from flmc.settings.assembly import Problem, assemble, assemble_for, planner_arguments, read_plan
from flmc.settings.construction import (
    in_words,
    make_engine,
    make_uplink,
    named_code,
    searching_only,
)
from flmc.settings.schema import Settings, merge

TrustCode = Annotated[
    bool,
    typer.Option("--trust-code", help="import code that the record names (package.module:object)"),
]
CodeFrom = Annotated[
    Path | None,
    typer.Option(
        "--code-from", metavar="DIR", help="the same, and look for it in this directory as well"
    ),
]
Directory = Annotated[Path, typer.Argument(metavar="DIR", help="what `flmc run --out` made")]


@with_settings
def run_command(
    settings: Settings,
    json_: Json = False,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="keep a record in a new directory")
    ] = None,
    plan_file: Annotated[
        Path | None,
        typer.Option(
            "--plan",
            metavar="FILE",
            help="run the plan that `flmc plan --out` wrote; settings then give model, data, seed"
            " and chains only",
        ),
    ] = None,
    plots: Annotated[
        Path | None,
        typer.Option(
            "--plots",
            metavar="DIR",
            help="draw traces, ranks, autocorrelation, pairs and, where classes are predicted,"
            " reliability into this directory, as PNG files",
        ),
    ] = None,
    require: Require = None,
) -> None:
    """Simulate, and print metrics against the exact posterior with their standard errors."""
    from flmc.views.progress_bars import show_progress
    from flmc.views.terminal import show

    if out is not None:
        check_new(out)
    if plots is not None:
        _check_plots(plots, out)
    given = None if plan_file is None else read_plan(plan_file)
    problem = assemble(settings) if given is None else assemble_for(given, settings)
    if problem.settings.precondition == "pilot":
        refuse_beside_pilot(plan=plan_file, require=require)
        result = _run_two_stages(problem, out, json_).main
        if plots is not None:
            _write_plots(result, problem.model, plots, json_)
        return
    settings, planned = problem.settings, problem.plan()
    engine = make_engine(settings)
    # Called for its check: it raises if the engine cannot run the plan, before anything is printed.
    choose_engine(engine, planned, problem.model)
    if not json_:
        show(planned.listing(), *data_note(settings), "")
    check_requirements(planned, require)
    with show_progress("simulating") as progress, stopping_at_signals(out) as stop:
        result = run(
            planned,
            problem.model,
            settings.seed,
            settings.num_chains,
            keep_draws=out is not None or plots is not None,
            thin=settings.thin,
            engine=engine,
            threads=settings.threads,
            progress=progress,
            out=out,
            settings={
                **(problem.asked or settings).model_dump(exclude_defaults=True),
                **({} if given is None else {_GIVEN_PLAN: True}),
            },
            resolved={**settings.model_dump(mode="json"), "chains": settings.num_chains},
            checkpoint_rounds=settings.checkpoint_rounds,
            stop=stop,
        )
    _answer(result, out, json_)
    if plots is not None:
        _write_plots(result, problem.model, plots, json_)


def _run_two_stages(problem: Problem, out: Path | None, json_: bool) -> TwoStageResult:
    """Run a pilot and the second stage, print their results and what both together cost in privacy,
    and return them; ``out`` is the directory for the records of both, None: none are kept."""
    from flmc.views.progress_bars import show_progress
    from flmc.views.terminal import show

    settings, both = problem.settings, problem.two_stages()
    if not json_:
        show(both.listing(), *data_note(settings), "")
    with show_progress("simulating") as progress, stopping_at_signals(out) as stop:
        result = run_two_stages(
            both,
            problem.model,
            settings.seed,
            settings.num_chains,
            thin=settings.thin,
            engine=make_engine(settings),
            progress=progress,
            out=out,
            stop=stop,
        )
    if json_:
        print_json(_two_stage_document(result))
    else:
        show(
            result.listing(),
            *([] if out is None else [f"records: {out / 'pilot'}, {out / 'main'}"]),
        )
    return result


def _two_stage_document(result: TwoStageResult) -> dict[str, Any]:
    """The results of both stages of a run, and what both together cost in privacy, in plain values
    for JSON."""
    return {
        "schema_version": ANSWER_VERSION,
        "pilot": result.pilot.to_document(),
        "main": result.main.to_document(),
        "effective_draws_of_pilot": result.pilot_findings.effective_draws,
        **cost_fields(result.cost),
    }


def _write_plots(result: Result, model: Model, directory: Path, json_: bool) -> None:
    """Draw figures of the draws into ``directory``, and print the names of the files: on standard
    error if the answer is JSON."""
    from flmc.views.plot import shown_entries, write_figures

    written = ", ".join(path.name for path in write_figures(result, model, directory))
    typer.echo(f"figures: {written} in {directory}, of {shown_entries(result)[1]}", err=json_)


def _check_plots(directory: Path, out: Path | None) -> None:
    """Raise ``InvalidSetting`` or ``MissingExtra``, before anything is simulated, if figures could
    not be drawn or written into ``directory``; ``out`` is the directory of the record."""
    from flmc.views.figures import new_figure

    new_figure(columns=1)
    if directory.exists() and not directory.is_dir():
        raise InvalidSetting(f"--plots must be a directory, got the file {str(directory)!r}")
    if out is not None and out.resolve() in directory.resolve().parents:
        raise InvalidSetting(
            f"--plots must be the record's directory {str(out)!r} itself or one outside it, because"
            f" a record holds files only; got {str(directory)!r}"
        )


def _answer(result: Result, out: Path | None, json_: bool) -> None:
    """Print the result of a run, as JSON or in rows with the place of its record."""
    if json_:
        print_json(result.to_document())
        return
    from flmc.views.terminal import show

    show(result.listing(), *([] if out is None else [f"record: {out}"]))


def resume_command(
    directory: Directory,
    threads: Annotated[
        int | None, typer.Option("--threads", help="of the numba engine; default: all")
    ] = None,
    trust_code: TrustCode = False,
    code_from: CodeFrom = None,
    json_: Json = False,
) -> None:
    """Go on with a recorded run after an interruption, to the identical result."""
    from flmc.views.progress_bars import show_progress

    asked = describe(directory)
    if is_finished(directory):
        _show_finished(directory, json_)
        return
    if asked.get("settings") is None:
        how = "was made in Python: go on there, with flmc.resume"
        if "federation" in asked:
            how = "is a federation's: start its server again, with flmc serve"
        raise InvalidSetting(f"the run in {str(directory)!r} {how}")
    _check_trust(directory, named_code(asked["settings"]), trust_code, code_from)
    # To the end of the run, because code may import more of its own when it is called.
    with searching_only(code_from):
        problem = _problem_of(asked)
        engine, planned = make_engine(problem.settings), problem.plan()
        settings = problem.settings
        with show_progress("simulating") as progress, stopping_at_signals(directory) as stop:
            result = resume(
                directory,
                planned,
                problem.model,
                engine=None if isinstance(engine, str) else engine,
                threads=settings.threads if threads is None else threads,
                progress=progress,
                stop=stop,
            )
    _answer(result, directory, json_)


_GIVEN_PLAN = "plan"
"""Key beside the settings in a record of a run whose plan was given in a file."""


def _settings_of(asked: Mapping[str, Any]) -> tuple[Settings, Plan | None]:
    """The settings of a recorded run, and its plan if the user gave one in a file, else None;
    ``asked`` is the content of the record's ``run.json``."""
    kept = dict(asked.get("settings") or {})
    given = kept.pop(_GIVEN_PLAN, False)
    return merge({}, kept), Plan.from_document(asked["plan"]) if given else None


def _check_trust(
    directory: Path, named: Mapping[str, str], trust_code: bool, code_from: Path | None
) -> None:
    """Raise an error if a record names Python code to import (``named``), unless the user trusts
    its author: said by ``--trust-code``, or by a directory for ``--code-from``."""
    if named and not trust_code and code_from is None:
        raise InvalidSetting(
            f"the record in {str(directory)!r} names code of its own, {in_words(named)}, which"
            " would be imported and run: add --trust-code if you trust its author, or"
            " --code-from DIR to look for it in a directory as well"
        )


def _plan_of(record: Record, *, trust_code: bool, code_from: Path | None) -> Plan:
    """The plan of a recorded run, restored from the record; Python code that the record names is
    imported only with ``trust_code`` or ``code_from``. Raises ``RunFailed`` if the plan does not
    fit its digest."""
    asked = record.asked
    settings = dict(asked.get("settings") or {})
    named = {
        name: text for name, text in named_code(settings).items() if name not in ("model", "engine")
    }
    _check_trust(record.directory, named, trust_code, code_from)
    own: dict[str, Any] = {}
    if named:
        whole, _ = _settings_of(asked)
        own["uplink"] = make_uplink(whole)
        asked_for = planner_arguments(whole)
        if "scheduling" in named:
            own["scheduler"] = asked_for["scheduler"]
        if "update" in named:
            own["update"] = asked_for["update"]
    plan = Plan.from_document(asked["plan"], **own)
    if plan.digest != asked.get("plan_digest", plan.digest):
        raise RunFailed(
            f"run.json in {str(record.directory)!r} is damaged: its plan has the digest"
            f" {plan.digest[:12]}, and it says {str(asked['plan_digest'])[:12]}"
        )
    return plan


def _problem_of(asked: Mapping[str, Any]) -> Problem:
    """The problem of a recorded run (model with data, uplink and limits); ``asked`` is the content
    of the record's ``run.json``."""
    settings, given = _settings_of(asked)
    return assemble(settings) if given is None else assemble_for(given, settings)


def _show_finished(directory: Path, json_: bool) -> None:
    """Print the result of a finished run, and remove files that an interrupted clean-up left; an
    error follows if its ledger is damaged."""
    record = load(directory)
    finished = record.result or {}
    if json_:
        print_json({"schema_version": record.schema_version, **finished})
    else:
        metrics = (finished.get("metrics") or {}).items()
        rows = tuple(
            Row(name.replace("_", " "), "-" if value["mean"] is None else _with_error(value))
            for name, value in metrics
        )
        # Records of earlier versions have no numbers of single chains.
        rows += tuple(
            Row(f"one chain: {name.replace('_', ' ')}", _with_error(value))
            for name, value in (finished.get("one_chain") or {}).items()
            if value is not None and value["mean"] is not None
        )
        typer.echo(str(Listing(f"the run in {str(directory)!r} is finished", rows)))
    clean_up(directory)
    # A result that was kept from memory (Result.save) has no ledger, and no identity of a run.
    if "identity" in record.asked or "federation" in record.asked:
        check_ledger(record)


def _with_error(value: Mapping[str, float | None]) -> str:
    """A metric as text, with its standard error if that is known."""
    error = value["se"]
    return f"{value['mean']:.4g}" + ("" if error is None else f" ± {error:.2g}")


def ledger_command(
    directory: Directory,
    at: Annotated[
        int | None,
        typer.Option("--at", metavar="ROUND", help="also what the rounds up to this one cost"),
    ] = None,
    trust_code: TrustCode = False,
    code_from: CodeFrom = None,
    json_: Json = False,
) -> None:
    """What one chain of a recorded run costs: epsilon of the whole planned run and of its rounds so
    far, for the device that spends most, and a picture."""
    from flmc.views.run_figures import draw_ledger_file

    record = load(directory)
    # The plan of a federation is whole in its record, because it was sent as a document.
    travelled = "federation" in record.asked
    if record.ledger and record.asked.get("settings") is None and not travelled:
        raise InvalidSetting(
            f"{str(directory)!r} was made from Python, with a plan that is known there only: use"
            " flmc.spent(flmc.load(DIR), plan)"
        )
    if not record.asked:
        raise InvalidSetting(f"{str(directory)!r} holds no ledger")
    with searching_only(code_from):
        plan = _plan_of(record, trust_code=trust_code, code_from=code_from)
    curve = spent(record, plan, at=at)
    if json_:
        print_json(curve.to_document())
        return
    typer.echo(str(curve))
    picture = None if at is not None else draw_ledger_file(curve, directory)
    if picture is not None:
        typer.echo(f"picture: {picture}")
