"""`flmc run`, `flmc resume`, `flmc answer` and `flmc ledger`: runs, their records, what the server
knows after them, and the privacy they spent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from flmc.base import checks
from flmc.base.documents import ANSWER_VERSION
from flmc.base.errors import InvalidSetting, RunFailed
from flmc.base.tables import Listing, Row
from flmc.cli.options import Require, check_requirements, refuse_beside_pilot, with_settings
from flmc.cli.output import Json, cost_fields, data_note, print_json, with_answer
from flmc.cli.signals import stopping_at_signals
from flmc.evaluation.answer import Answer
from flmc.evaluation.named_draws import entry_names
from flmc.evaluation.shown_answer import AnswerMode, ShownAnswer
from flmc.evaluation.transcript import check_answerable
from flmc.models.model import Model
from flmc.planning.plans import Plan
from flmc.runs.execution import resume, run
from flmc.runs.files.durable_files import write_arrays, write_table
from flmc.runs.fingerprints import Fingerprints, what_changed
from flmc.runs.ledger_cost import check_ledger, spent
from flmc.runs.records import Record, check_new, clean_up, describe, is_finished, load
from flmc.runs.results import Result
from flmc.runs.two_stage_run import TwoStageResult, run_two_stages
from flmc.sampling.engine_choice import choose_engine
from flmc.sampling.path import MOST_DRAWN_BYTES
from flmc.settings.assembly import Problem, assemble, assemble_for, planner_arguments, read_plan
from flmc.settings.construction import (
    in_words,
    make_engine,
    make_uplink,
    named_code,
    searching_only,
)
from flmc.settings.resolved import resolved
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
    # The engine is chosen before the plan is printed, because the choice raises an error if the
    # engine cannot run the plan.
    chosen = choose_engine(engine, planned, problem.model)
    if not json_:
        show(planned.listing(), *data_note(settings), "")
    check_requirements(planned, require)
    if settings.answer == "aware":
        check_answerable(planned)
        if settings.thin > 1:
            raise InvalidSetting(
                f"answer 'aware' needs all draws: thin must be 1, got {settings.thin}"
            )
    kept_anyway = out is not None or plots is not None
    keep = kept_anyway or _keeps_for_answer(settings, planned, problem.model)
    with show_progress("simulating") as progress, stopping_at_signals(out) as stop:
        result = run(
            planned,
            problem.model,
            settings.seed,
            settings.num_chains,
            keep_draws=keep,
            thin=settings.thin,
            engine=engine,
            threads=settings.threads,
            progress=progress,
            out=out,
            settings={
                **(problem.asked or settings).model_dump(exclude_defaults=True),
                **({} if given is None else {_GIVEN_PLAN: True}),
            },
            resolved=resolved(
                settings, planned, problem.model, chosen.name, given_plan=given is not None
            ),
            checkpoint_rounds=settings.checkpoint_rounds,
            stop=stop,
        )
    if not kept_anyway:
        # Draws that were kept only to compute the answer are taken out of the result, because a
        # printed result judges all draws that it has. With --out or --plots they were asked for,
        # and stay.
        result = replace(result, path=None, predictions=None)
    _show_result(result, settings.answer, out, json_)
    if plots is not None:
        _write_plots(result, problem.model, plots, json_)


def _keeps_for_answer(settings: Settings, planned: Plan, model: Model) -> bool:
    """Whether the draws of a run are kept so that the answer can be computed: the setting
    ``answer`` is `aware`, or it is `auto` and the draws take little memory."""
    if settings.answer == "chain" or settings.thin > 1:
        return False
    num_chains = settings.num_chains * model.num_experiments
    size = 8 * planned.num_rounds * planned.dim * num_chains
    return settings.answer == "aware" or size <= MOST_DRAWN_BYTES


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
        print_json(_two_stage_document(result, settings.answer))
    else:
        show(
            result.listing(settings.answer),
            *([] if out is None else [f"records: {out / 'pilot'}, {out / 'main'}"]),
        )
    return result


def _two_stage_document(result: TwoStageResult, answer: AnswerMode) -> dict[str, Any]:
    """The results of both stages of a run, and what both together cost in privacy, in plain values
    for JSON."""
    return {
        "schema_version": ANSWER_VERSION,
        "pilot": result.pilot.to_document(),
        "main": with_answer(result.main, answer),
        "effective_draws_of_pilot": result.pilot_findings.effective_draws,
        **cost_fields(result.cost),
    }


def _write_plots(result: Result, model: Model, directory: Path, json_: bool) -> None:
    """Draw figures of the draws into ``directory``, and print the names of the files; to standard
    error with ``--json``, whose standard output is one JSON object."""
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


def _show_result(result: Result, answer: AnswerMode, out: Path | None, json_: bool) -> None:
    """Print the result of a run, with what the server knows after it as ``answer`` asks, as JSON or
    in rows; below these the directory ``out`` of the record, if there is one."""
    if json_:
        print_json(with_answer(result, answer))
        return
    from flmc.views.terminal import show

    show(result.listing(answer), *([] if out is None else [f"record: {out}"]))


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
    # The context lasts to the end of the run, because code of the user's own may import further
    # modules when it is called.
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
    _show_result(result, settings.answer, directory, json_)


_GIVEN_PLAN = "plan"
"""Key that stands, with the value true, among the settings in the record of a run whose plan the
user gave in a file."""


def _settings_of(asked: Mapping[str, Any]) -> tuple[Settings, Plan | None]:
    """The settings of a recorded run, and its plan if the user gave one in a file, else None;
    ``asked`` is the content of the record's ``run.json``."""
    kept = dict(asked.get("settings") or {})
    given = kept.pop(_GIVEN_PLAN, False)
    if not given and "draw_at" not in asked.get("plan", {}):
        # A run of a version that knew positions only; today's default is another plan.
        kept["draw_at"] = "positions"
    return merge({}, kept), Plan.from_document(asked["plan"]) if given else None


def _check_trust(
    directory: Path, named: Mapping[str, str], trust_code: bool, code_from: Path | None
) -> None:
    """Raise ``InvalidSetting`` if a record names Python code to import (``named``, by setting),
    unless the user trusts its author, as ``--trust-code`` says, or ``--code-from`` with a
    directory."""
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
    """Print the result of a run that is finished already, remove temporary files and checkpoints
    that its process left in ``directory``, the run's record, and raise ``RunFailed`` if its ledger
    is damaged."""
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
        # Records of earlier versions have no quality of single chains.
        rows += tuple(
            Row(f"one chain: {name.replace('_', ' ')}", _with_error(value))
            for name, value in (finished.get("one_chain") or {}).items()
            if value is not None and value["mean"] is not None
        )
        typer.echo(str(Listing(f"the run in {str(directory)!r} is finished", rows)))
    clean_up(directory)
    # Only a run that was recorded has a ledger to check. The record that ``Result.save`` made of a
    # finished result has none, and neither of these two keys.
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
    # The record of a federation holds its plan in full, because the plan was sent to the devices as
    # a document; other plans need the settings.
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


def answer_command(
    directory: Directory,
    interval: Annotated[
        float, typer.Option("--interval", metavar="NUMBER", help="probability of the intervals")
    ] = 0.9,
    draws: Annotated[
        int | None, typer.Option("--draws", metavar="N", help="draws for --out; default: 1000")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="write draws to a file, .npz or .csv"),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(
            "--plot",
            metavar="FILE",
            help="draw the intervals of all entries, beside the exact ones where these are known,"
            " as PNG",
        ),
    ] = None,
    all_chains: Annotated[
        bool,
        typer.Option(
            "--all-chains",
            help="from all chains together; without: from the first, whose privacy is stated",
        ),
    ] = False,
    trust_code: TrustCode = False,
    code_from: CodeFrom = None,
    json_: Json = False,
) -> None:
    """What the server knows after a recorded run: mean, intervals that hold, how much wider than
    without noise, and draws."""
    checks.between("--interval", interval, 0.0, 1.0)
    _check_answer_files(draws, out, plot)
    record = load(directory)
    with searching_only(code_from):
        shown = _answer_of(record, all_chains, trust_code, code_from)
        document = shown.to_document(interval)
    assert shown.answer is not None
    if out is not None:
        _write_draws(shown.answer, 1000 if draws is None else draws, out)
    if plot is not None:
        from flmc.views.figures import write_png
        from flmc.views.plot import intervals

        write_png(intervals(shown.answer, interval), plot)
    if json_:
        print_json({"schema_version": ANSWER_VERSION, **document})
        return
    from flmc.views.terminal import show

    written = [f"{what}: {path}" for what, path in (("draws", out), ("picture", plot)) if path]
    show(shown.listing(interval), *written)


def _check_answer_files(draws: int | None, out: Path | None, plot: Path | None) -> None:
    """Raise ``InvalidSetting`` or ``MissingExtra``, before anything is computed, if the files of
    ``--out`` or ``--plot`` could not be written, or ``--draws`` is given without ``--out``."""
    if draws is not None:
        checks.at_least("--draws", draws, 1)
        if out is None:
            raise InvalidSetting("--draws needs --out FILE.npz or FILE.csv, where they are written")
    for name, path, endings in (("--out", out, (".npz", ".csv")), ("--plot", plot, (".png",))):
        if path is None:
            continue
        if path.suffix not in endings:
            raise InvalidSetting(f"{name} must end in {' or '.join(endings)}, got {str(path)!r}")
        if not path.parent.is_dir() or path.is_dir():
            raise InvalidSetting(
                f"{name} must be a file in a directory that exists, got {str(path)!r}"
            )
    if plot is not None:
        from flmc.views.figures import new_figure

        new_figure(columns=1)


def _answer_of(
    record: Record, all_chains: bool, trust_code: bool, code_from: Path | None
) -> ShownAnswer:
    """The answer of a recorded run, from its model rebuilt from the record's settings; Python code
    that the record names is imported only with ``trust_code`` or ``code_from``. ``InvalidSetting``
    if the record does not tell enough, or a file that it names was changed."""
    asked, place = record.asked, repr(str(record.directory))
    if record.result is None:
        raise InvalidSetting(f"the run in {place} is not finished: go on with flmc resume")
    if "federation" in asked:
        from flmc.deploy.server.server_prior import PRIOR_UNKNOWN, prior_in

        prior = prior_in(asked)
        if prior is None:
            raise InvalidSetting(PRIOR_UNKNOWN)
        return record.shown_answer(prior)
    settings = asked.get("settings")
    if settings is None:
        raise InvalidSetting(
            f"{place} was made from Python, or is a stage of two, whose model is not recorded: use"
            " flmc.load(DIR).posterior(model)"
        )
    if asked.get("thin", 1) > 1:
        raise InvalidSetting(
            f"an answer needs all draws, and the record in {place} kept one in {asked['thin']}: run"
            " with thin 1"
        )
    _check_trust(record.directory, named_code(settings), trust_code, code_from)
    now, then = Fingerprints().of_settings(settings), asked.get("contents")
    if then is None and named_code(settings):
        raise InvalidSetting(
            f"the record in {place} has no digests of the code that it names: whether that was"
            " changed since the run is not known"
        )
    known = {name: (then or now).get(name, "") for name in now}
    changed = what_changed(known, now, place)
    if changed is not None:
        raise InvalidSetting(changed)
    plan = _plan_of(record, trust_code=trust_code, code_from=code_from)
    return record.shown_answer(_problem_of(asked).model, plan, all_chains=all_chains)


def _write_draws(answer: Answer, num_draws: int, path: Path) -> None:
    """Write draws of the answer of the first data set to a file, in place of an older one: an npz
    with ``draws`` (draw, dim), ``mean``, ``covariance``, the names ``entries``, and ``doubts``,
    sentences that say why the answer may be wrong; or a CSV with a column for each entry."""
    drawn = answer.draws(num_draws)[0]
    names = entry_names(drawn.shape[1], answer.layout)
    if path.suffix == ".npz":
        arrays = {"mean": answer.mean[0], "covariance": answer.covariance[0]}
        doubts = np.array([each.message for each in answer.doubts], dtype=np.str_)
        words = {"entries": np.array(names), "doubts": doubts}
        write_arrays(path, {"draws": drawn, **arrays, **words})
    else:
        write_table(path, [dict(zip(names, map(float, row), strict=True)) for row in drawn])
