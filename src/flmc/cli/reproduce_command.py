"""`flmc reproduce`: a published study, measured again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flmc.base.arrays import one_blas_thread
from flmc.base.errors import InvalidSetting
from flmc.cli.output import Json, print_json
from flmc.settings.registered import ENGINES, PAPERS


def reproduce_command(
    paper: Annotated[
        str, typer.Option("--paper", metavar="|".join(PAPERS.names), help="which study")
    ] = "qflmc",
    figure: Annotated[
        str, typer.Option("--figure", metavar="2|3|4|beyond|all", help="which figures")
    ] = "all",
    experiments: Annotated[
        int, typer.Option("--experiments", help="data sets per point; 50 for a preview")
    ] = 1000,
    seed: Annotated[int, typer.Option("--seed", help="of all randomness")] = 0,
    data: Annotated[
        str, typer.Option("--data", metavar="sufficient|examples", help="how data are drawn")
    ] = "sufficient",
    engine: Annotated[
        str, typer.Option("--engine", metavar="|".join(ENGINES.names), help="what simulates")
    ] = "auto",
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="where results go")] = Path(
        "reproduction"
    ),
    force: Annotated[bool, typer.Option("--force", help="overwrite what is there")] = False,
    json_: Json = False,
) -> None:
    """The published figures under four readings, their claims judged one by one, and what a better
    design gains."""
    from flmc.views.progress import show_stages
    from flmc.views.terminal import show

    PAPERS.check_name(paper)
    if out.exists() and not force and (not out.is_dir() or any(out.iterdir())):
        raise InvalidSetting(
            f"out must be a new or empty directory, or use --force; got {str(out)!r}"
        )
    with show_stages() as stage, one_blas_thread():
        study = PAPERS[paper].maker(
            figure=figure,
            experiments=experiments,
            seed=seed,
            data=data,
            engine=engine,
            out=out,
            stage=stage,
        )
    if json_:
        print_json(study.to_document())
    else:
        show(study.grid(), f"report: {out / 'report.html'}")
