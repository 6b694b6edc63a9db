"""The command line ``flmc``, one file for each group of commands: it translates options and
settings into calls of the library, and prints the results."""

from flmc.cli.app import main

__all__ = ["main"]
