"""What the command imports before it answers, and the lines of its help."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest
import typer

from flmc.cli.app import _COMMANDS

HEAVY = {"numpy", "scipy", "pydantic", "rich", "asyncio", "numba", "jax", "matplotlib"}


@pytest.mark.parametrize("word", ["--version", "--help"])
def test_version_and_help_import_no_command(word: str) -> None:
    code = f"""
import sys
sys.argv = ["flmc", {word!r}]
from flmc_command import main
code = main()
heavy = sorted({HEAVY!r} & set(sys.modules))
ours = [name for name in sys.modules if name.startswith("flmc.")]
print(code, heavy, [name for name in ours if name.count(".") > 2 or "settings" in name])
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.splitlines()[-1] == "0 [] []"


@pytest.mark.parametrize("name", _COMMANDS)
def test_the_line_of_a_command_is_that_of_its_own_help(name: str) -> None:
    place, line = _COMMANDS[name]
    module, _, function = place.partition(":")
    command = getattr(importlib.import_module(f"flmc.cli.{module}"), function)
    own = command.info.help if isinstance(command, typer.Typer) else command.__doc__
    assert own is not None
    assert line == " ".join(own.split("\n\n")[0].split())
