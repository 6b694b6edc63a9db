"""The command ``flmc``: its subcommands, and its exit codes.

0: done; 1: a run failed or a requirement is broken; 2: bad input; 70: a defect of flmc. One line
says what is wrong; there is no traceback, unless ``--debug`` asks for that of a defect."""

from __future__ import annotations

import importlib
import io
import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import Annotated, Any

import typer

from flmc.base.errors import FlmcError
from flmc.base.start_up import collecting_later
from flmc.base.version import VERSION
from flmc.cli.output import fail, with_option_names, with_replacement

# The base of typer's own errors. typer exports it from 0.28 on. Before that it is the base of
# UsageError, the base of BadParameter: click's ClickException, or from 0.26 on typer's copy of it.
CommandLineError: Any = getattr(typer, "TyperException", typer.BadParameter.__mro__[2])

_COMMANDS = {
    "plan": "commands.plans:plan_command",
    "run": "commands.runs:run_command",
    "resume": "commands.runs:resume_command",
    "compare": "commands.comparison:compare_command",
    "audit": "commands.audits:audit_command",
    "ledger": "commands.runs:ledger_command",
    "sweep": "commands.sweeps:sweep_command",
    "reproduce": "commands.studies:reproduce_command",
    "status": "commands.federations:status_command",
    "studio": "commands.studio:studio_command",
    "device": "commands.federations:device_command",
    "air": "commands.federations:air_command",
    "serve": "commands.federations:serve_command",
    "deploy": "commands.deployment:deploy_app",
    "schema": "schemas.catalogue:schema_command",
    "version": "app:print_version",
}
"""Module in :mod:`flmc.cli` and function of every command, in the order of the help; a command that
has subcommands is a ``typer.Typer`` there."""


def make_app(names: Iterable[str] = _COMMANDS) -> typer.Typer:
    """The command ``flmc`` with some of its subcommands.

    Parameters
    ----------
    names
        Subcommands to import; all by default. A call needs one of them, and importing the others
        and making their options takes a quarter of the time of a plan.
    """
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.callback(invoke_without_command=True)(_options)
    for name in names:
        module, _, function = _COMMANDS[name].partition(":")
        found = getattr(importlib.import_module(f"flmc.cli.{module}"), function)
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=name)
        else:
            app.command(name)(found)
    return app


def _options(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="print the version and exit")] = False,
) -> None:
    """Federated Langevin Monte Carlo over a noisy uplink: plan it, simulate it, prove its
    privacy."""
    if version:
        print_version()
    elif context.invoked_subcommand is None:
        raise CommandLineError(context.get_help())


def print_version() -> None:
    """Print the version of flmc."""
    sys.stdout.write(VERSION + "\n")


def main(arguments: list[str] | None = None) -> int:
    """Run the command ``flmc``, the entry point of the package's script.

    Parameters
    ----------
    arguments
        Words of the command line behind ``flmc``; None: those of this process.

    Returns
    -------
    int
        The exit code: 0 done, 1 failed, 2 bad input, 70 a defect of flmc.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = DEBUG in words
    words = [word for word in words if word != DEBUG]
    if sys.stdout is None:
        return fail("standard output is closed: there is nowhere to print", 1)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A terminal that knows ASCII only gets a question mark for what it cannot show.
        sys.stdout.reconfigure(errors="replace")
    try:
        code = _run(words)
        sys.stdout.flush()
    except BrokenPipeError:  # whoever read the answer has seen enough
        _forget_output()
        return 0
    except OSError as error:
        if error.filename is not None:
            return fail(f"cannot use {str(error.filename)!r}: {error.strerror}", 2)
        _forget_output()
        return fail(f"cannot print: {error.strerror}", 1)
    except MemoryError:
        return fail("there is not enough memory for this; use smaller sizes", 1)
    except Exception as error:
        if debug:
            raise
        return fail(
            f"a defect of flmc {VERSION}: {type(error).__name__}: {error}; the same with {DEBUG}"
            " shows where. Please report both, with the command",
            70,
        )
    return code


DEBUG = "--debug"
"""Word anywhere on the command line with which a defect of flmc shows its traceback."""


def _forget_output() -> None:
    """Give up what could not be printed, so that Python does not try again when it ends."""
    with suppress(OSError):  # a stream without a file has nothing to give up
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(words: list[str]) -> int:
    """Run a command, and return its exit code; whatever is no mistake of the user's is raised."""
    try:
        # Only the command that is called is imported; where none is named, help names all.
        with collecting_later():
            app = make_app(words[:1] if words and words[0] in _COMMANDS else _COMMANDS)
        code = app(words, standalone_mode=False)
        # Without its standalone mode typer returns a number where it was interrupted.
        if code:
            return fail("interrupted", int(code))
    except FlmcError as error:
        return fail(with_option_names(str(error)), error.exit_code)
    except typer.Exit as exit_:
        return int(exit_.exit_code)
    except CommandLineError as error:
        message = error.format_message()
        if "Usage:" in message:  # called without a command
            sys.stdout.write(message + "\n")
            return 2
        return fail(with_replacement(message), 2)
    except (typer.Abort, KeyboardInterrupt):
        return fail("interrupted", 1)
    return 0
