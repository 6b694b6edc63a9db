"""Options of commands, one for every setting, made from the schema that also checks configuration
files."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flmc.base.errors import InvalidSetting, RunFailed
from flmc.cli.output import fail
from flmc.settings.schema import OF_COMPARISONS, Settings, choices_of, merge, read_file

if TYPE_CHECKING:  # for type checkers only: without these imports help and --version are faster
    from flmc.planning.plans import Plan


def with_settings(command: Callable[..., None]) -> Callable[..., None]:
    """The function ``command``, extended by ``--config`` and one option for every setting, for
    typer.

    ``command`` has a parameter ``settings``, which receives the checked settings of file and
    options; or, for a sweep, ``given``, which receives the settings of the file and those of the
    options, unchecked. Its other parameters are options of its own; those that ``OF_COMPARISONS``
    names (such as ``equal``) may stand in the file, too. Its docstring is the help of the
    command."""
    # The values of all options arrive as text: the schema parses and checks them like those of a
    # file.
    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = inspect.signature(command, eval_str=True).parameters.values()
    own = [p.replace(kind=keyword) for p in parameters if p.name not in ("settings", "given")]
    sweeps = any(p.name == "given" for p in parameters)
    # A command with a parameter ``require`` declares this option itself, because it may be given
    # several times; other commands do not have it.
    takes = any(p.name == "require" for p in own)
    options = [_option(name) for name in Settings.model_fields if name != "require"]
    file = Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="settings in a TOML file")
    ]
    every = [inspect.Parameter("config", keyword, default=None, annotation=file), *options, *own]

    def called(config: Path | None, **values: Any) -> None:
        given = {name: values.pop(name) for name in list(values) if name in Settings.model_fields}
        # Options that are not given are None, or an empty list if they may be given several times.
        options = {
            name: _from_text(name, text) for name, text in given.items() if text not in (None, [])
        }
        document = {} if config is None else read_file(config)
        for name in OF_COMPARISONS:  # the command's own options, which a file may have too
            if name in values and name in document:
                in_file = document.pop(name)
                values[name] = in_file if values[name] is None else values[name]
        if sweeps:
            command(given=(document, options), **values)
        else:
            settings = merge(document, options)
            if takes:
                values["require"] = settings.require
            elif settings.require is not None:
                raise InvalidSetting(
                    "require is for the commands plan and run: leave it out here, got"
                    f" {settings.require!r}"
                )
            command(settings=settings, **values)

    called.__name__, called.__doc__ = command.__name__, command.__doc__
    # typer reads signature and annotations to make options, and ``called``, which takes **values,
    # has neither of its own.
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


def _from_text(name: str, text: str | list[str]) -> Any:
    """The value of the setting ``name`` as the schema takes it, from the text of its option: a list
    for a gain with commas, otherwise the text."""
    return text.split(",") if isinstance(text, str) and name == "gain" and "," in text else text


Equal = Annotated[
    str | None,
    typer.Option(
        "--equal",
        metavar="step|privacy|energy|airtime",
        help="bring all methods to one effective step, epsilon of the run, energy or airtime: the"
        " smallest (airtime: the largest) that one of them has by itself",
    ),
]
"""The option ``--equal`` of commands that compare methods: the quantity in which the plans of all
uplinks are made equal; baselines, which are made from the first uplink, are left as they are."""


Require = Annotated[
    list[str] | None,
    typer.Option(
        "--require", metavar="TEXT", help=str(Settings.model_fields["require"].description)
    ),
]
"""The option ``--require`` of commands that check requirements; it may be given several times, and
a settings file has a list of requirements."""


def check_requirements(plan: Plan, require: Sequence[str] | None) -> None:
    """Raise ``RunFailed`` if a plan does not meet every requirement. Each requirement that it
    breaks is a line on standard error: the error is the last of these lines, the others are printed
    here."""
    if not require:
        return
    from flmc.planning.requirements import read_requirement

    every = (read_requirement(text) for text in require)
    broken = [text for each in every if (text := each.broken(plan)) is not None]
    for text in broken[:-1]:
        fail(text, 1)
    if broken:
        raise RunFailed(broken[-1])


def refuse_beside_pilot(**given: object) -> None:
    """Raise ``InvalidSetting`` if one of the options ``given`` (values by name) is set, which do
    not go with ``precondition`` `pilot`: they are for runs of one stage, and a pilot makes two."""
    named = [name for name, value in given.items() if value]
    if named:
        raise InvalidSetting(
            f"precondition 'pilot' plans two stages; --{named[0].replace('_', '-')} is for one"
        )
