"""`flmc sweep`: a grid of plans, each planned and run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from flmc.base import checks
from flmc.base.errors import Interrupted, RunFailed
from flmc.cli.options import with_settings
from flmc.cli.output import Json, print_json
from flmc.cli.signals import interrupting_at_sigterm
from flmc.runs.sweeps import differs, on_dask, on_this_machine, sweep
from flmc.runs.sweeps.grid import SweepGrid


@with_settings
def sweep_command(
    grid: SweepGrid,
    out: Annotated[
        Path,
        typer.Option("--out", metavar="DIR", help="where results go; finished points are kept"),
    ],
    workers: Annotated[
        int | None, typer.Option("--workers", help="processes; default: all processors")
    ] = None,
    scheduler: Annotated[
        str | None,
        typer.Option("--scheduler", metavar="ADDRESS", help="a Dask scheduler, or `local`"),
    ] = None,
    json_: Json = False,
) -> None:
    """A grid of plans, each planned and run: the settings in the table [sweep] of the config file
    vary."""
    from flmc.views.progress import show_progress
    from flmc.views.sweep_figure import draw_sweep_file
    from flmc.views.terminal import show

    count = os.cpu_count() or 1 if workers is None else checks.at_least("workers", workers, 1)
    if differs(grid, out):
        typer.echo(
            f"{str(out)!r} held another sweep: its table is replaced, its finished points are kept",
            err=True,
        )
    try:
        with show_progress("sweeping") as progress, interrupting_at_sigterm():
            if scheduler is None:
                done = sweep(grid, out, on_this_machine(count), progress)
            else:
                with on_dask(scheduler, count) as work:
                    done = sweep(grid, out, work, progress)
    except KeyboardInterrupt:
        raise Interrupted(
            "interrupted; finished points are kept: the same command goes on with the rest"
        ) from None
    picture = draw_sweep_file(done, out)
    if json_:
        print_json({"rows": done.rows, "failed": done.num_failed, "out": str(out)})
    else:
        written = f"table: {out / 'table.csv'}" + (
            "" if picture is None else f", picture: {picture}"
        )
        show(done.table(), written)
    if done.num_failed:
        raise RunFailed(
            f"{done.num_failed} of {len(done.rows)} points failed: see the column `error` of the"
            " table"
        )
