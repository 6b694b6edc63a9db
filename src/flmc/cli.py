"""The command line: translates settings into calls, prints, and nothing else.

Exit codes: 0 done, 1 a run failed, 2 bad input. One line says what is wrong; there is no traceback for a user's
mistake."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

import flmc
from flmc import checks
from flmc.assemble import Problem, assemble, make_limits, make_uplink
from flmc.config import Settings, merge
from flmc.engines import choose
from flmc.errors import FlmcError, Interrupted, InvalidSetting, RunFailed
from flmc.options import with_settings
from flmc.plan import Plan
from flmc.record import check_new, clean_up, describe, is_finished, load
from flmc.run import Result, resume, run
from flmc.signals import interrupting_at_sigterm, stopping_at_signals
from flmc.spent import spent_under
from flmc.sweep import Grid, differs, on_dask, on_this_machine, sweep
from flmc.table import format_pairs

app = typer.Typer(add_completion=False, rich_markup_mode=None)


Json = Annotated[
    bool, typer.Option("--json", help="one JSON object on standard output, everything else on standard error")
]


@app.command("plan")
@with_settings
def plan_command(
    settings: Settings,
    json_: Json = False,
    no_run: Annotated[bool, typer.Option("--no-run", help="leave out the privacy of the whole run")] = False,
    suggest_: Annotated[
        bool,
        typer.Option("--suggest", help="propose link, clip, step and rounds from public knowledge, and plan with them"),
    ] = False,
) -> None:
    """What the constraints allow: gain, limits, which one binds, temperature, privacy of a round and of the run."""
    suggestion = None
    if suggest_:
        from flmc.suggestion import suggest

        suggestion = suggest(settings)
        given = settings.model_dump(exclude_unset=True)
        settings = merge({}, {**suggestion.settings, **given})
        typer.echo(f"{suggestion}\n  options: {suggestion.options}\n", err=json_)
    problem = assemble(settings)
    plan = problem.plan(settings)
    if json_:
        _print_json(plan.to_document(with_run=not no_run))
        return
    from flmc.report import print_plan

    print_plan(plan, _what_if(problem, settings, plan), with_run=not no_run)
    misfit = None if suggestion is None else suggestion.misfit(plan)
    if misfit is not None:
        typer.echo(misfit)


@app.command("run")
@with_settings
def run_command(
    settings: Settings,
    json_: Json = False,
    out: Annotated[Path | None, typer.Option("--out", metavar="DIR", help="keep a record in a new directory")] = None,
) -> None:
    """Simulate, and print metrics against the exact posterior with their standard errors."""
    from flmc.report import print_plan, show_progress

    if out is not None:
        check_new(out)
    problem = assemble(settings)
    plan = problem.plan(settings)
    choose(settings.engine, plan, problem.model)  # or say why it cannot run, before anything is printed
    if not json_:
        print_plan(plan, {})
    with show_progress("simulating") as progress, stopping_at_signals() as stop:
        result = run(
            plan,
            problem.model,
            settings.seed,
            settings.num_chains,
            keep_draws=out is not None,
            engine=settings.engine,
            threads=settings.threads,
            progress=progress,
            out=out,
            settings=settings.model_dump(exclude_defaults=True),
            checkpoint_rounds=settings.checkpoint_rounds,
            stop=stop,
        )
    _show(result, out, json_)


def _show(result: Result, out: Path | None, json_: bool) -> None:
    if json_:
        _print_json(result.to_document())
        return
    from flmc.report import print_result

    print_result(result, out)


@app.command("resume")
def resume_command(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="what `flmc run --out` made")],
    threads: Annotated[int | None, typer.Option("--threads", help="of the numba engine; default: all")] = None,
    json_: Json = False,
) -> None:
    """Go on with a recorded run after an interruption, to the identical result."""
    from flmc.report import show_progress

    asked = describe(directory)
    if is_finished(directory):
        finished = load(directory).result or {}
        if json_:
            _print_json(finished)
        else:
            metrics = (finished.get("metrics") or {}).items()
            rows = [(name, f"{value['mean']:.5g}") for name, value in metrics]
            typer.echo(format_pairs(f"the run in {str(directory)!r} is finished", rows))
        clean_up(directory)
        return
    if asked.get("settings") is None:
        raise InvalidSetting(f"the run in {str(directory)!r} was made in Python: go on there, with flmc.resume")
    settings = merge({}, asked["settings"])
    problem = assemble(settings)
    with show_progress("simulating") as progress, stopping_at_signals() as stop:
        result = resume(
            directory,
            problem.plan(settings),
            problem.model,
            threads=settings.threads if threads is None else threads,
            progress=progress,
            stop=stop,
        )
    _show(result, directory, json_)


@app.command("audit")
@with_settings
def audit_command(
    settings: Settings,
    trials: Annotated[int, typer.Option("--trials", help="transmissions in each of the two worlds")] = 200_000,
    audit_rounds: Annotated[int, typer.Option("--audit-rounds", help="length of the short run")] = 4,
    json_: Json = False,
) -> None:
    """Attack the uplink of a plan: an empirical lower bound on epsilon beside the accountant's upper bound, for one
    round and for a short run. Exit code 1 if the attack refutes the accountant."""
    from flmc.audit import Scene, audit
    from flmc.report import show_progress

    if settings.scheme == "ideal":
        raise InvalidSetting("scheme must be digital or analog: the ideal uplink states no privacy to audit")
    if settings.neighbouring == "example":
        raise InvalidSetting("an audit attacks whole devices: use neighbouring = 'device'")
    checks.at_least("audit_rounds", audit_rounds, 1)
    problem = assemble(settings)
    plan = problem.plan(settings, forecast=False)
    found = []
    for rounds in dict.fromkeys((1, audit_rounds)):
        with show_progress(f"attacking {rounds} rounds") as progress:
            found.append(audit(Scene.of_plan(plan, rounds), settings.delta, trials, settings.seed, progress=progress))
    if json_:
        _print_json({"audits": [each.to_document() for each in found], "gain": float(plan.gain.max())})
    else:
        for each in found:
            typer.echo(str(each))
    broken = [each for each in found if each.broken]
    if broken:
        worst = broken[0]
        raise RunFailed(
            f"over {worst.num_rounds} rounds epsilon is at least {worst.lower:.4g}, and the accountant states"
            f" {worst.upper:.4g}: the mechanism or the accountant is broken"
        )


@app.command("ledger")
def ledger_command(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="what `flmc run --out` made")],
    json_: Json = False,
) -> None:
    """What a recorded run has spent: epsilon against round, for the device that spent most, and a picture."""
    from flmc.figures import draw_ledger_file

    record = load(directory)
    if record.ledger and record.asked.get("settings") is None:
        raise InvalidSetting(
            f"{str(directory)!r} was made from Python, with a plan that is known there only: use"
            " flmc.spent(flmc.load(DIR), plan)"
        )
    settings = merge({}, record.asked.get("settings") or {})
    curve = spent_under(record, make_uplink(settings), make_limits(settings))
    if json_:
        _print_json(
            {
                "run_delta": settings.run_delta,
                "curve": curve.points,
                "transmitted": curve.transmitted,
                "devices": curve.devices,
                "budget": curve.budget,
                "unfinished": curve.unfinished,
            }
        )
        return
    typer.echo(str(curve))
    picture = draw_ledger_file(curve, directory)
    if picture is not None:
        typer.echo(f"picture: {picture}")


@app.command("sweep")
@with_settings
def sweep_command(
    grid: Grid,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="where results go; finished points are kept")],
    workers: Annotated[int | None, typer.Option("--workers", help="processes; default: all processors")] = None,
    scheduler: Annotated[
        str | None, typer.Option("--scheduler", metavar="ADDRESS", help="a Dask scheduler, or `local`")
    ] = None,
    json_: Json = False,
) -> None:
    """A grid of plans, each planned and run: the settings in the table [sweep] of the config file vary."""
    from flmc.figures import draw_sweep_file
    from flmc.report import print_sweep, show_progress

    count = os.cpu_count() or 1 if workers is None else checks.at_least("workers", workers, 1)
    if differs(grid, out):
        typer.echo(f"{str(out)!r} held another sweep: its table is replaced, its finished points are kept", err=True)
    try:
        with show_progress("sweeping") as progress, interrupting_at_sigterm():
            if scheduler is None:
                done = sweep(grid, out, on_this_machine(count), progress)
            else:
                with on_dask(scheduler, count) as work:
                    done = sweep(grid, out, work, progress)
    except KeyboardInterrupt:
        raise Interrupted("interrupted; finished points are kept: the same command goes on with the rest") from None
    picture = draw_sweep_file(done, out)
    if json_:
        _print_json({"rows": done.rows, "failed": done.num_failed, "out": str(out)})
    else:
        print_sweep(done, out, picture)
    if done.num_failed:
        raise RunFailed(f"{done.num_failed} of {len(done.rows)} points failed: see the column `error` of the table")


@app.command()
def reproduce(
    figure: Annotated[str, typer.Option("--figure", metavar="2|3|4|beyond|all", help="which figures")] = "all",
    experiments: Annotated[int, typer.Option("--experiments", help="data sets per point; 50 for a preview")] = 1000,
    seed: Annotated[int, typer.Option("--seed", help="of all randomness")] = 0,
    data: Annotated[
        str, typer.Option("--data", metavar="sufficient|examples", help="how data are drawn")
    ] = "sufficient",
    engine: Annotated[str, typer.Option("--engine", metavar="auto|numba|numpy", help="what simulates")] = "auto",
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="where results go")] = Path("reproduction"),
    force: Annotated[bool, typer.Option("--force", help="overwrite what is there")] = False,
    json_: Json = False,
) -> None:
    """The published figures under three readings, their claims judged one by one, and what a better design gains."""
    from flmc.figures import draw_study, new_figure
    from flmc.report import print_study, show_stages
    from flmc.reproduce.study import conduct, write

    if out.exists() and not force and (not out.is_dir() or any(out.iterdir())):
        raise InvalidSetting(f"out must be a new or empty directory, or use --force; got {str(out)!r}")
    new_figure(columns=1)  # or say what is missing, before anything is computed
    with show_stages() as stage, _single_threaded_blas():
        study = conduct(figure, experiments, seed, stage, data=data, engine=engine)
    command = f"flmc reproduce --figure {figure} --experiments {experiments} --seed {seed} --data {data}"
    try:
        write(study, out, command, draw_study)
    except OSError as error:
        raise InvalidSetting(f"cannot write to {str(out)!r}: {error.strerror}") from error
    if json_:
        _print_json(study.to_document())
    else:
        print_study(study, out)


@app.callback(invoke_without_command=True)
def options(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="print the version and exit")] = False,
) -> None:
    """Federated Langevin Monte Carlo over a noisy uplink: plan it, simulate it, prove its privacy."""
    if version:
        print_version()
    elif context.invoked_subcommand is None:
        raise typer.TyperException(context.get_help())


@app.command("version")
def print_version() -> None:
    """The version of flmc."""
    sys.stdout.write(flmc.__version__ + "\n")


def _what_if(problem: Problem, settings: Settings, plan: Plan) -> dict[str, Plan]:
    """Plans with one constraint relaxed: 3 dB more power, twice the budget, twice the step."""
    changes: dict[str, dict[str, Any]] = {}
    if settings.scheme != "ideal":
        changes["power + 3 dB"] = {"snr_db": settings.snr_db + 3}
        if settings.privacy != "off":
            changes["epsilon x 2"] = {"epsilon": 2 * settings.epsilon}
    changes["step / 2"] = {"step_size": plan.step_size / 2}
    changes["step x 2"] = {"step_size": plan.step_size * 2}
    relaxed = {name: settings.model_copy(update=change) for name, change in changes.items()}
    return {name: assemble(other, problem.model).plan(other, forecast=False) for name, other in relaxed.items()}


def _print_json(document: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(document, allow_nan=False) + "\n")


def main(arguments: list[str] | None = None) -> int:
    """The entry point; returns the exit code."""
    try:
        code = app(arguments, standalone_mode=False)
        if code:  # typer makes a number of an interrupt
            return _fail("interrupted", int(code))
    except FlmcError as error:
        return _fail(_with_option_names(str(error)), error.exit_code)
    except typer.Exit as exit_:
        return int(exit_.exit_code)
    except typer.TyperException as error:
        message = error.format_message()
        if "Usage:" in message:  # called without a command
            sys.stdout.write(message + "\n")
            return 2
        return _fail(message, 2)
    except (typer.Abort, KeyboardInterrupt):
        return _fail("interrupted", 1)
    return 0


def _single_threaded_blas() -> AbstractContextManager[object]:
    """The matrices here are small: threads inside BLAS would only wait for each other, and cost twice the CPU."""
    if importlib.util.find_spec("threadpoolctl") is None:
        return nullcontext()
    from threadpoolctl import threadpool_limits

    limits: AbstractContextManager[object] = threadpool_limits(1, user_api="blas")
    return limits


def _with_option_names(message: str) -> str:
    """Python's names of settings as the command line has them: num_rounds is --rounds."""
    return re.sub(r"\bnum_(rounds|burn_in|devices|samples|experiments)\b", r"\1", message)


def _fail(message: str, code: int) -> int:
    sys.stderr.write(f"flmc: {' '.join(message.split())}\n")
    return code
