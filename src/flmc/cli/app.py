"""The command ``flmc``: its subcommands, and its exit codes.

0: done; 1: a run failed or a requirement is broken; 2: bad input. One line says what is wrong;
there is no traceback for a user's mistake."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from flmc.base.errors import FlmcError
from flmc.base.version import VERSION
from flmc.cli.audit_command import audit_command
from flmc.cli.output import fail, with_option_names
from flmc.cli.plan_command import plan_command
from flmc.cli.reproduce_command import reproduce_command
from flmc.cli.run_commands import ledger_command, resume_command, run_command
from flmc.cli.schema_command import schema_command
from flmc.cli.sweep_command import sweep_command

# The base of typer's own errors. typer exports it from 0.28 on. Before that it is the base of
# UsageError, the base of BadParameter: click's ClickException, or from 0.26 on typer's copy of it.
CommandLineError: Any = getattr(typer, "TyperException", typer.BadParameter.__mro__[2])

app = typer.Typer(add_completion=False, rich_markup_mode=None)
app.command("plan")(plan_command)
app.command("run")(run_command)
app.command("resume")(resume_command)
app.command("audit")(audit_command)
app.command("ledger")(ledger_command)
app.command("sweep")(sweep_command)
app.command("reproduce")(reproduce_command)
app.command("schema")(schema_command)


@app.callback(invoke_without_command=True)
def options(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="print the version and exit")] = False,
) -> None:
    """Federated Langevin Monte Carlo over a noisy uplink: plan it, simulate it, prove its
    privacy."""
    if version:
        print_version()
    elif context.invoked_subcommand is None:
        raise CommandLineError(context.get_help())


@app.command("version")
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
        The exit code: 0 done, 1 failed, 2 bad input.
    """
    try:
        code = app(arguments, standalone_mode=False)
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
        return fail(message, 2)
    except (typer.Abort, KeyboardInterrupt):
        return fail("interrupted", 1)
    return 0
