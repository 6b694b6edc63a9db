"""`flmc reproduce`: measure a published study again, and write a report."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
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
        str, typer.Option("--figure", metavar="2|3|4|beyond|best|all", help="which figures")
    ] = "all",
    experiments: Annotated[
        int | None,
        typer.Option(
            "--experiments",
            help="qflmc: data sets per point, 1000 or 50 for a preview; wflmc: experiments of 100"
            " runs, 20 or 1 for a preview",
            show_default="all of the study",
        ),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="of all randomness")] = 0,
    data: Annotated[
        str, typer.Option("--data", metavar="sufficient|examples", help="how data are drawn")
    ] = "sufficient",
    data_file: Annotated[
        Path | None,
        typer.Option(
            "--data-file",
            metavar="FILE",
            help="wflmc: its data, an npz with X and Y; beside it wflmc_snr.csv, as published",
        ),
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="NAME=VALUE", help="change a setting of the base case; repeatable"
        ),
    ] = None,
    curves: Annotated[
        list[str] | None,
        typer.Option(
            "--add-curve",
            metavar="NAME=FILE.toml",
            help="put your own settings beside the published curves; repeatable",
        ),
    ] = None,
    engine: Annotated[
        str, typer.Option("--engine", metavar="|".join(ENGINES.names), help="what simulates")
    ] = "auto",
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="where results go")] = Path(
        "reproduction"
    ),
    force: Annotated[bool, typer.Option("--force", help="overwrite what is there")] = False,
    json_: Json = False,
) -> None:
    """A published study measured again: its figures, its claims or numbers judged, and what a
    better design gains."""
    from flmc.views.progress_bars import show_stages
    from flmc.views.terminal import show

    PAPERS.check_name(paper)
    if out.exists() and not force and (not out.is_dir() or any(out.iterdir())):
        raise InvalidSetting(
            f"out must be a new or empty directory, or use --force; got {str(out)!r}"
        )
    with show_stages() as stage, one_blas_thread(), _few_full_collections():
        study = PAPERS[paper].maker(
            out=out,
            figure=figure,
            experiments=experiments,
            seed=seed,
            data=data,
            data_file=data_file,
            engine=engine,
            changes=_pairs("set", changes),
            curves={name: Path(text) for name, text in _pairs("add-curve", curves).items()},
            stage=stage,
        )
    if json_:
        print_json(study.to_document())
    else:
        show(study.grid(), f"report: {out / 'report.html'}")


@contextmanager
def _few_full_collections() -> Iterator[None]:
    """Context in which full collections of Python's garbage collector, which search its oldest
    objects, are about a hundred times rarer."""
    # The oldest objects, about a million, belong to imported libraries and are never freed. Drawing
    # the figures of a study makes so many new objects that the collector would search all the old
    # ones nine times.
    youngest, middle, oldest = gc.get_threshold()
    gc.set_threshold(youngest, middle, 100 * oldest)
    try:
        yield
    finally:
        gc.set_threshold(youngest, middle, oldest)


def _pairs(option: str, texts: list[str] | None) -> dict[str, str]:
    """Values by name, as text, from ``texts`` NAME=VALUE of the option ``--set`` or
    ``--add-curve``, which error messages name. In names of settings hyphens become underscores."""
    pairs: dict[str, str] = {}
    for text in texts or []:
        name, sign, value = text.partition("=")
        name = name.strip().replace("-", "_") if option == "set" else name.strip()
        if not name or not sign or not value:
            raise InvalidSetting(f"--{option} takes NAME=VALUE, got {text!r}")
        if name in pairs:
            raise InvalidSetting(f"--{option} names {name!r} twice; give it once")
        pairs[name] = value
    return pairs
