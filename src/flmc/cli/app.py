"""The command ``flmc``: its subcommands, and its exit codes.

0: done; 1: a run failed or a requirement is broken; 2: bad input; 130: interrupted; 70: a defect of
flmc. One line says what is wrong; there is no traceback, unless ``--debug`` asks for that of a
defect."""

from __future__ import annotations

import importlib
import io
import os
import sys
from collections.abc import Collection
from contextlib import suppress
from typing import Annotated, Any

import typer

from flmc.base.errors import FlmcError
from flmc.base.start_up import collecting_later
from flmc.base.version import VERSION
from flmc.cli.output import fail, with_option_names, with_replacement
from flmc_command import EXIT_CODE

# The base class of typer's own errors. typer exports it from 0.28 on. Before that it is found as
# the base of UsageError, the base of BadParameter: click's ClickException, or from 0.26 on typer's
# copy of it.
CommandLineError: Any = getattr(typer, "TyperException", typer.BadParameter.__mro__[2])

_COMMANDS = {
    "plan": (
        "commands.plans:plan_command",
        "What the constraints allow: gain, limits, which one binds, temperature, privacy of a round"
        " and of the run.",
    ),
    "run": (
        "commands.runs:run_command",
        "Simulate, and print metrics against the exact posterior with their standard errors.",
    ),
    "resume": (
        "commands.runs:resume_command",
        "Go on with a recorded run after an interruption, to the identical result.",
    ),
    "answer": (
        "commands.runs:answer_command",
        "What the server knows after a recorded run: mean, intervals that hold, how much wider than"
        " without noise, and draws.",
    ),
    "compare": (
        "commands.comparisons:compare_command",
        "Compare uplinks and baselines on one problem: privacy, scores on held-out examples, and"
        " errors against the exact posterior where it is known.",
    ),
    "audit": (
        "commands.audits:audit_command",
        "Attack the uplink of a plan: an empirical lower bound on epsilon beside the accountant's"
        " upper bound, for one round and for a short run. Exit code 1 if the attack refutes the"
        " accountant.",
    ),
    "ledger": (
        "commands.runs:ledger_command",
        "What one chain of a recorded run costs: epsilon of the whole planned run and of its rounds"
        " so far, for the device that spends most, and a picture.",
    ),
    "cite": (
        "commands.citations:cite_command",
        "A paragraph for a methods section and BibTeX entries, of what a record, a sweep or a"
        " reproduced study says.",
    ),
    "sweep": (
        "commands.sweeps:sweep_command",
        "A grid of plans, each planned and run: the settings in the table [sweep] of the config"
        " file vary, and those of --vary.",
    ),
    "reproduce": (
        "commands.studies:reproduce_command",
        "A published study measured again: its figures, its claims or numbers judged, and what a"
        " better design gains.",
    ),
    "status": (
        "commands.federations:status_command",
        "How the runs at a broker stand: rounds, active devices, epsilon of the run, who is there.",
    ),
    "studio": (
        "commands.studio:studio_command",
        "Plan, solve, run and compare in a web browser, with sliders and live pictures.",
    ),
    "device": (
        "commands.federations:device_command",
        "Take part in a federation as a device, with data that stay here.",
    ),
    "air": (
        "commands.federations:air_command",
        "Be the air of a federation: add up what devices send, and the channel's noise.",
    ),
    "serve": (
        "commands.federations:serve_command",
        "Be the server of a federation; a run that was interrupted goes on.",
    ),
    "deploy": (
        "commands.deployment:deploy_app",
        "A federation of real processes: certificates, access rights and start scripts for its"
        " broker, air, server and devices.",
    ),
    "schema": (
        "schemas.catalogue:schema_command",
        "Print the JSON Schema of what a command prints with --json, or the names of all schemas.",
    ),
    "version": ("app:print_version", "Print the version of flmc."),
}
"""For every command, in the order of the help, two texts: its module in :mod:`flmc.cli` and its
function there (a ``typer.Typer`` for a group of commands); and the first paragraph of its help,
which a test compares with the docstring of the command."""


def make_app(names: Collection[str] = tuple(_COMMANDS)) -> typer.Typer:
    """The command ``flmc`` as a typer application in which only the commands ``names`` are
    imported. All others appear in the help, and do nothing: importing NumPy and all commands takes
    ten times as long as printing a help."""
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.callback(invoke_without_command=True)(_options)
    for name, (place, paragraph) in _COMMANDS.items():
        module, _, function = place.partition(":")
        if name not in names:
            app.command(name, help=paragraph)(_not_imported)
            continue
        command = getattr(importlib.import_module(f"flmc.cli.{module}"), function)
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name)
        else:
            app.command(name)(command)
    return app


def _not_imported() -> None:
    """Placeholder for a command that this call of ``flmc`` does not use: it appears in the help
    without being imported."""


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
    """Run the command ``flmc`` and return its exit code: 0 done, 1 failed, 2 bad input, 70 a defect
    of flmc, 130 interrupted. ``arguments`` are the words behind ``flmc`` on the command line; None:
    those of this process. It raises an error only for a defect of flmc, and only with
    ``--debug``."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = DEBUG in words
    words = [word for word in words if word != DEBUG]
    if sys.stdout is None:
        return fail("standard output is closed: there is nowhere to print", 1)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A character that the encoding of standard output lacks is printed as a question mark, and
        # is no error.
        sys.stdout.reconfigure(errors="replace")
    try:
        code = _run(words)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of the output, such as `head`, has ended
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
"""Option, anywhere on the command line, with which an unexpected error (a defect of flmc) shows its
traceback."""


def _forget_output() -> None:
    """Discard output that could not be printed (its reader is gone), so that Python does not try to
    print it again when it ends."""
    with suppress(OSError):  # standard output has no file descriptor, as in tests: nothing to do
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(words: list[str]) -> int:
    """Run the command that ``words`` of the command line name, and return its exit code. Errors
    that flmc or typer raises on purpose are printed and give an exit code; any other is raised."""
    # Answered here without typer, which would import pydantic for the value of a flag.
    if words == ["--version"]:
        print_version()
        return 0
    try:
        # The first word that is no option names the command, and only that is imported.
        called = next((word for word in words if not word.startswith("-")), "")
        with collecting_later():
            app = make_app([called])
        code = app(words, prog_name="flmc", standalone_mode=False)
        # Because of ``standalone_mode=False`` typer returns a number only if the command was
        # interrupted.
        if code:
            return fail("interrupted", int(code))
    except FlmcError as error:
        return fail(with_option_names(str(error)), error.exit_code)
    except typer.Exit as exit_:
        return int(exit_.exit_code)
    except CommandLineError as error:
        message = error.format_message()
        # A message with "Usage:" is the whole help: the command was called without a subcommand.
        if "Usage:" in message:
            sys.stdout.write(message + "\n")
            return 2
        return fail(with_replacement(message), 2)
    except (typer.Abort, KeyboardInterrupt):
        return fail("interrupted", EXIT_CODE)
    return 0
