"""Digests of what settings name outside themselves: files with data or a channel, and a user's own
code. Two results are of the same settings only if these are the same too."""

from __future__ import annotations

import glob
import hashlib
import os
import stat
import sys
from collections.abc import Iterator
from functools import lru_cache
from importlib.machinery import PathFinder
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from uuid import uuid4

from flmc.settings.construction import named_code
from flmc.settings.schema import Settings

_UNKNOWN = uuid4().hex
"""Digest of what cannot be read: another one in every process, so that nothing that was computed
from it is taken for something computed now."""


def contents_of(settings: Settings) -> dict[str, str]:
    """Digests of the contents of files and own code that settings name, by what names them; the
    place of a file does not matter, and nothing is imported."""
    found = {f"code {module}": _of_code(module) for module in _modules(settings)}
    if settings.data_file is not None:
        found["data_file"] = _of_data(settings.data_file)
    kind, _, source = str(settings.fading).partition(":")
    if kind == "trace":
        found["fading"] = _of_files([source])
    return found


def _modules(settings: Settings) -> set[str]:
    """Top-level modules or packages of the own code that settings name."""
    texts = named_code(settings.model_dump(mode="json")).values()
    return {text.partition(":")[0].partition(".")[0] for text in texts}


def _of_code(module: str) -> str:
    """Digest of the source of a top-level module, or of all sources of a package: of what it
    imports from its own package, but not of other packages."""
    spec = PathFinder.find_spec(module, [os.getcwd(), *sys.path])
    if spec is None:
        return _UNKNOWN
    folders = list(spec.submodule_search_locations or ())
    if folders:
        return _of_files(sorted(str(path) for each in folders for path in Path(each).rglob("*.py")))
    return _of_files([spec.origin or ""])


def _of_data(source: str) -> str:
    """Digest of the data that ``data_file`` names: a file, a pattern of files, or a data set of
    scikit-learn, which is known by the version of that package."""
    if source.startswith("sklearn:"):
        try:
            return f"{source} of {version('scikit-learn')}"
        except PackageNotFoundError:
            return _UNKNOWN
    return _of_files(sorted(glob.glob(source)) if glob.has_magic(source) else [source])


def _of_files(paths: list[str]) -> str:
    """Digest of the contents of some files in their order; where one cannot be read, or is no
    regular file, a digest that no other process has."""
    try:
        return hashlib.sha256("".join(_digests(paths)).encode()).hexdigest()
    except OSError:
        return _UNKNOWN


def _digests(paths: list[str]) -> Iterator[str]:
    """Digest of every file; ``OSError`` where one cannot be read."""
    for path in paths:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):  # a pipe would wait for somebody who writes
            raise OSError(f"{path} is no regular file")
        yield _of_file(path, status.st_ino, status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=256)
def _of_file(path: str, inode: int, size: int, modified: int) -> str:
    """Digest of one file, read again where inode, size or time of modification (in ns) changed: a
    grid asks for the same files at every point."""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
