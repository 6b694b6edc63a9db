"""One direction of imports, and a core that needs NumPy and SciPy only."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "flmc"

MAP = """
    version errors checks config document table special randomness
    clip
    model linear data
    quantise fading channel uplink
    power temperature shrink prediction limits privacy spending allocation
    plan planning
    langevin schedule moments chains engine curve vectors kernel fast engines
    metrics evidence files ledger record run
    diagnostics assemble suggestion audit spent sweep reproduce figures report options signals cli __main__
"""
ORDER = MAP.split()


def imported(path: Path) -> set[str]:
    """Modules of flmc that a file imports, at the top or inside functions."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "flmc":
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("flmc."):
            names.add((node.module or "").split(".")[1])
    return names


def test_every_module_is_on_the_map() -> None:
    modules = {path.stem for path in SOURCE.glob("*.py")} | {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    assert modules - {"__init__"} == set(ORDER)


def test_modules_import_from_their_left_only() -> None:
    for path in SOURCE.rglob("*.py"):
        name = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        if name != "__init__":
            left = ORDER[: ORDER.index(name)] + ([name] if path.parent != SOURCE else [])
            wrong = imported(path) - set(left)
            assert not wrong, f"{path} imports {wrong}, which are not to its left"


def test_the_core_needs_numpy_and_scipy_only() -> None:
    code = """
import sys
import flmc
data = flmc.data.draw_linear(seed=1, num_samples=40, num_devices=4)
model = flmc.LinearGaussian(data)
flmc.run(flmc.plan(model, flmc.Digital(), num_rounds=4, num_burn_in=2), model, engine="numpy")
roots = {name.partition('.')[0] for name in sys.modules}
print(sorted(roots & {'numba', 'matplotlib', 'dp_accounting', 'jax', 'dask', 'pydantic', 'typer', 'rich'}))
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"
