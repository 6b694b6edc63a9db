"""Provenance of results: which flmc, which libraries and which processor computed them."""

from __future__ import annotations

import hashlib
import json
import platform
import sys
from functools import cache, lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import threadpoolctl

from flmc.base.version import VERSION
from flmc.sampling.engine_choice import libraries_of

_LIBRARIES = {
    "numpy": "numpy",
    "scipy": "scipy",
    "numba": "numba",
    "llvmlite": "llvmlite",
    "jax": "jax",
    "jaxlib": "jaxlib",
    "dp_accounting": "dp-accounting",
    "prv_accountant": "prv-accountant",
    "pandas": "pandas",
    "pyarrow": "pyarrow",
    "sklearn": "scikit-learn",
    "torch": "torch",
    "numpyro": "numpyro",
    "distributed": "distributed",
}
"""Libraries that may compute part of a result, or carry it from another machine: the name of each
module, and the name under which it is installed."""
_PACKAGE = Path(__file__).resolve().parents[1]


def provenance(engine: str | None = None) -> dict[str, Any]:
    """Everything about flmc, libraries and machine that may decide the bits of a result, as plain
    values: ``flmc``, ``commit`` and ``sources`` (SHA-256 of flmc's own source files), versions of
    the libraries that this process has imported and of those of the ``engine`` that ran chains,
    Python, system, processor and its features, BLAS. What is not known is None."""
    # SciPy and the libraries of the engine count even if they are not imported: machine code that
    # an engine loads from a file comes without an import of its compiler.
    used = {"scipy"} if engine is None else {"scipy", *libraries_of(engine)}
    loaded = [name for name in _LIBRARIES if name in sys.modules or name in used]
    return {
        "flmc": VERSION,
        "commit": _commit(),
        "sources": _sources(),
        "libraries": {name: _version(name) for name in loaded},
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "features": _features(),
        "blas": _blas(),
    }


def digest_of(document: dict[str, Any]) -> str:
    """First 12 hexadecimal digits of the SHA-256 of the provenance ``document``. It names the file
    of the provenance, so that equal provenances are stored once."""
    text = json.dumps(document, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


@cache
def _version(module: str) -> str | None:
    """Version of a library: the module's own ``__version__`` if the module is imported and has one,
    else the version of the installed package; None if neither is known."""
    stated = getattr(sys.modules.get(module), "__version__", None)
    if isinstance(stated, str):
        return stated
    try:
        return metadata.version(_LIBRARIES[module])
    except metadata.PackageNotFoundError:
        return None


@lru_cache(maxsize=1)
def _commit() -> str | None:
    """Git commit of the checkout from which flmc runs; None for an installed package, or where it
    cannot be read. Changes since the commit show in ``sources`` only."""
    # The commit is read only for src/flmc in a checkout of flmc, because an installed package may
    # lie in the checkout of another project, whose commit says nothing.
    root = _PACKAGE.parents[1]
    if _PACKAGE.parent.name != "src" or not (root / "CITATION.cff").is_file():
        return None
    try:
        place = root / ".git"
        if place.is_file():  # in a worktree .git is a file that names the directory
            place = root / place.read_text().removeprefix("gitdir:").strip()
        head = (place / "HEAD").read_text().strip()
        if not head.startswith("ref:"):
            return head
        common = place / "commondir"
        shared = place / common.read_text().strip() if common.is_file() else place
        name = head.removeprefix("ref:").strip()
        if (shared / name).is_file():
            return (shared / name).read_text().strip()
        packed = (line.split() for line in (shared / "packed-refs").read_text().splitlines())
        return next((words[0] for words in packed if words[1:] == [name]), None)
    except OSError:
        return None


@lru_cache(maxsize=1)
def _sources() -> str | None:
    """SHA-256 of the names and contents of flmc's own source files; None where they cannot be
    read."""
    digest = hashlib.sha256()
    try:
        for path in sorted(_PACKAGE.rglob("*.py")):
            digest.update(f"{path.relative_to(_PACKAGE).as_posix()}\0".encode())
            digest.update(path.read_bytes())
    except OSError:
        return None
    return digest.hexdigest()


@lru_cache(maxsize=1)
def _processor() -> str | None:
    """Name of the processor; None where the system tells none."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or None


@lru_cache(maxsize=1)
def _features() -> list[str] | None:
    """Features of the processor that NumPy has detected, such as AVX2; None where NumPy does not
    tell them."""
    core = getattr(np, "_core", None) or getattr(np, "core", None)
    found = getattr(getattr(core, "_multiarray_umath", None), "__cpu_features__", None)
    return None if found is None else sorted(name for name, there in found.items() if there)


@lru_cache(maxsize=1)
def _blas() -> str | None:
    """Name, version and kernels of the BLAS library; None where it is not known."""
    for each in threadpoolctl.threadpool_info():
        if each["user_api"] == "blas":
            parts = (each["internal_api"], each["version"], each.get("architecture"))
            return " ".join(part for part in parts if part)
    return None
