"""`flmc sweep`: plan and run every point of a grid of settings."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from flmc.base import checks
from flmc.base.errors import InvalidSetting, RunFailed
from flmc.cli.options import Equal, with_settings
from flmc.cli.output import Json, print_json
from flmc.runs.sweeps.grid import OF_SINGLE_RUNS, read_grid, read_variation
from flmc.runs.sweeps.grid_run import differs, run_grid
from flmc.runs.sweeps.workers import on_dask, on_this_machine
from flmc_command import WorkInHand


@with_settings
def sweep_command(
    given: tuple[dict[str, Any], dict[str, Any]],
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="where results go; finished points are kept"),
    ] = None,
    plan_only: Annotated[
        bool,
        typer.Option("--plan-only", help="plan every point, simulate none; --out may be left out"),
    ] = False,
    workers: Annotated[
        int | None,
        typer.Option(
            "--workers", help="processes; default: all processors, with --plan-only this process"
        ),
    ] = None,
    scheduler: Annotated[
        str | None,
        typer.Option("--scheduler", metavar="ADDRESS", help="a Dask scheduler, or `local`"),
    ] = None,
    vary: Annotated[
        list[str] | None,
        typer.Option(
            "--vary",
            metavar="NAME=VALUES",
            help="a setting that varies, as in the table [sweep]: VALUE,VALUE or"
            " START:STOP:COUNT[:log]; with ';' between values that have commas; may be repeated",
        ),
    ] = None,
    equal: Equal = None,
    across: Annotated[
        str | None,
        typer.Option(
            "--across",
            metavar="SETTING",
            help="the varying setting whose values are compared, paired by data set; default: the"
            " scheme, or the first whose values are words",
        ),
    ] = None,
    hold_out: Annotated[
        float | None,
        typer.Option(
            "--hold-out",
            metavar="SHARE",
            help="share of every device's examples to predict, which nobody learns from",
        ),
    ] = None,
    json_: Json = False,
) -> None:
    """A grid of plans, each planned and run: the settings in the table [sweep] of the config file
    vary, and those of --vary."""
    from flmc.views.progress_bars import show_progress
    from flmc.views.sweep_figure import draw_sweep_file
    from flmc.views.terminal import show

    document, options = given
    varied = dict(read_variation(text) for text in vary or [])
    if varied:
        # An option beats the file: where an option makes a setting vary, its fixed value in the
        # file does not count.
        fixed = {name: value for name, value in document.items() if name not in varied}
        document = {**fixed, "sweep": {**document.get("sweep", {}), **varied}}
    # The file of a single run may be used for a sweep: settings that only single runs have are left
    # out, and a message names them.
    idle = [name for name in OF_SINGLE_RUNS if name in document]
    if idle:
        document = {name: value for name, value in document.items() if name not in idle}
        typer.echo(f"without effect in a sweep, from the file: {', '.join(idle)}", err=True)
    compared = {"equal": equal, "across": across, "hold_out": hold_out}
    grid = read_grid({**document, **{n: v for n, v in compared.items() if v is not None}}, options)
    if out is None and not plan_only:
        raise InvalidSetting(
            "a sweep needs --out DIR, where finished points are kept; only --plan-only goes without"
        )
    default = 1 if plan_only and scheduler is None else os.cpu_count() or 1
    count = default if workers is None else checks.at_least("workers", workers, 1)
    if out is not None and differs(grid, out, plan_only=plan_only):
        typer.echo(
            f"{str(out)!r} held another sweep: its table is replaced, its finished points are kept",
            err=True,
        )
    # There is nothing to save when a sweep is interrupted: every finished point is in a file of its
    # own already.
    hint = "finished points are kept: the same command goes on with the rest"
    in_hand = WorkInHand("" if out is None else hint, saves=False)
    with show_progress("sweeping") as progress, in_hand:
        if scheduler is None:
            work = on_this_machine(count, plan_only=plan_only)
            done = run_grid(grid, out, work, progress, plan_only=plan_only)
        else:
            with on_dask(scheduler, count, plan_only=plan_only) as work:
                done = run_grid(grid, out, work, progress, plan_only=plan_only)
    picture = None if out is None else draw_sweep_file(done, out)
    if json_:
        print_json({**done.to_document(), "out": None if out is None else str(out)})
    else:
        written = [] if out is None else [f"table: {out / 'table.csv'}"]
        written += [] if picture is None else [f"picture: {picture}"]
        missing = done.missing_tables
        written += [missing] if missing and out is not None else []
        show(*done.grids(), *([", ".join(written)] if written else []))
    if done.num_failed:
        raise RunFailed(
            f"{done.num_failed} of {len(done.rows)} points failed: see the column `error` of the"
            " table"
        )
