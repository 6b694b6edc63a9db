"""The architecture: one direction of imports between packages, and a core that needs NumPy and
SciPy only."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import flmc

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "flmc"

PACKAGES = (
    "base",
    "data",
    "models",
    "privacy",
    "uplink",
    "planning",
    "sampling",
    "evaluation",
    "settings",
    "runs",
    "views",
    "papers",
    "wire",
    "deploy",
    "studio",
    "cli",
)
"""A package imports from itself and from those before it."""
LEAVES = {"papers"}
"""Packages that no other imports, by an import statement."""


def package_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0]


def modules() -> list[Path]:
    return sorted(path for path in SOURCE.rglob("*.py") if path.parent != SOURCE)


def imported(path: Path) -> set[str]:
    """Packages of flmc that a file imports, at the top or inside functions."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "flmc":
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("flmc."):
            names.add((node.module or "").split(".")[1])
        elif isinstance(node, ast.Import):
            names |= {
                alias.name.split(".")[1] for alias in node.names if alias.name.startswith("flmc.")
            }
    return names


def test_every_folder_is_a_package_of_the_map() -> None:
    assert {path.parent.name for path in SOURCE.glob("*/__init__.py")} == set(PACKAGES)
    assert {path.name for path in SOURCE.glob("*.py")} == {
        "__init__.py",
        "__main__.py",
        "interface.py",
    }


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_imports_from_those_before_it(package: str) -> None:
    before = {*PACKAGES[: PACKAGES.index(package)], package} - (LEAVES - {package})
    for path in modules():
        if package_of(path) == package:
            wrong = imported(path) - before
            assert not wrong, f"{path} imports {wrong}, which do not come before {package}"


def test_every_package_says_what_lives_there() -> None:
    for init in SOURCE.rglob("__init__.py"):
        assert ast.get_docstring(ast.parse(init.read_text())), f"{init} says nothing"


def test_no_module_is_named_like_a_public_function() -> None:
    functions = {name for name in flmc.__all__ if name.islower() and callable(getattr(flmc, name))}
    stems = {path.stem for path in modules()} | {path.parent.name for path in modules()}
    assert not functions & stems


def test_tests_mirror_the_packages() -> None:
    folders = {
        path.name
        for path in (ROOT / "tests").iterdir()
        if path.is_dir() and any(path.glob("test_*.py"))
    }
    assert folders <= {*PACKAGES, "contracts", "system"}


def test_the_map_in_the_docs_is_the_one_enforced() -> None:
    text = (ROOT / "docs" / "development.md").read_text()
    assert tuple(re.findall(r"^\| `(\w+)` \|", text, flags=re.MULTILINE)) == PACKAGES


def test_the_core_needs_numpy_and_scipy_only() -> None:
    code = """
import sys
import flmc
data = flmc.data.draw_linear(seed=1, num_samples=40, num_devices=4)
model = flmc.LinearGaussian(data)
flmc.run(flmc.plan(model, flmc.Digital(), num_rounds=4, num_burn_in=2), model, engine="numpy")
roots = {name.partition('.')[0] for name in sys.modules}
extras = {'numba', 'matplotlib', 'dp_accounting', 'jax', 'dask', 'pydantic', 'typer', 'rich'}
print(sorted(roots & extras))
print([name for name in sys.modules if name.startswith(('flmc.papers', 'flmc.views', 'flmc.cli'))])
"""
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert out.split() == ["[]", "[]"]
