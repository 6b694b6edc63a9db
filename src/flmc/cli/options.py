"""Options of commands, one for every setting, made from the schema that also checks configuration
files."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from flmc.base.errors import InvalidSetting
from flmc.settings.schema import Settings, choices_of, merge, read_file


def with_settings(command: Callable[..., None]) -> Callable[..., None]:
    """The command with ``--config`` and one option for every setting, for typer.

    ``command`` has a parameter ``settings`` (or ``grid``, for a sweep), which receives the checked
    settings, and options of its own; its docstring is the command's help.
    """
    # All options arrive as text: the schema parses and checks them like the values of a file.
    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = inspect.signature(command, eval_str=True).parameters.values()
    own = [p.replace(kind=keyword) for p in parameters if p.name not in ("settings", "grid")]
    sweeps = "grid" in inspect.signature(command).parameters
    options = [_option(name) for name in Settings.model_fields]
    file = Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="settings in a TOML file")
    ]
    every = [inspect.Parameter("config", keyword, default=None, annotation=file), *options, *own]

    def called(config: Path | None, **values: Any) -> None:
        given = {name: values.pop(name) for name in list(values) if name in Settings.model_fields}
        options = {name: _from_text(name, text) for name, text in given.items() if text is not None}
        document = {} if config is None else read_file(config)
        if sweeps:
            from flmc.runs.sweeps.grid import read_grid  # only `flmc sweep` needs it

            command(grid=read_grid(document, options), **values)
        else:
            command(settings=merge(document, options), **values)

    called.__name__, called.__doc__ = command.__name__, command.__doc__
    # typer makes options from the signature and the annotations, which a function with **values
    # does not have by itself.
    called.__signature__ = inspect.Signature(every)  # type: ignore[attr-defined]
    called.__annotations__ = {p.name: p.annotation for p in every}
    return called


def _option(name: str) -> inspect.Parameter:
    """The parameter from which typer makes the option of the setting ``name``, with its help."""
    field = Settings.model_fields[name]
    shown = "" if field.default is None else f" [default: {field.default}]"
    choices = choices_of(name)
    metavar = "|".join(choices) if choices else "VALUE"
    option = typer.Option(
        "--" + name.replace("_", "-"), metavar=metavar, help=f"{field.description}{shown}"
    )
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, default=None, annotation=Annotated[str | None, option])


def _from_text(name: str, text: str) -> Any:
    """A value as the schema takes it: a list is written with commas, everything else stays text."""
    return text.split(",") if name == "gain" and "," in text else text


def refuse_beside_pilot(**given: object) -> None:
    """Raise an error if one of the options ``given`` (values by name) is set: they work for a run
    of one stage, and a pilot makes it two."""
    named = [name for name, value in given.items() if value]
    if named:
        raise InvalidSetting(
            f"precondition 'pilot' plans two stages; --{named[0].replace('_', '-')} is for one"
        )
