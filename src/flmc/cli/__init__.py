"""The command line: one file for each group of commands; it translates settings into calls, and
prints."""

from flmc.cli.app import main

__all__ = ["main"]
