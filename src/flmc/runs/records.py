"""A run on disk, readable without flmc: JSON, npz, and a ledger of text lines.

* ``run.json``: what was asked (settings, plan, seed, chains, engine, versions); written once.
* ``ledger.txt``: what was spent, round by round (:mod:`flmc.runs.ledger`); always ahead of the
  checkpoint.
* ``checkpoint.npz``: where the chains stand; ``previous.npz`` is the one before.
* ``draws-A-B.npz``: kept draws number A to B - 1, until the run is finished.
* ``progress.json``: the round and the metrics so far.
* ``draws.npz``: mean, covariance and all kept draws of a finished run.
* ``result.json``: plan, metrics and everything else of a finished run.

Version 1 had ``draws.npz`` and ``result.json`` only."""

from __future__ import annotations

import platform
import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.runs.durable_files import Log, locked, read_arrays, read_json, write_arrays, write_json
from flmc.base.version import VERSION

SCHEMA_VERSION = 2


def check_new(directory: Path) -> None:
    """Refuse a directory that holds something but what a record that never began left."""
    if directory.exists() and (
        not directory.is_dir() or any(not p.name.startswith((".lock", ".run.json.")) for p in directory.iterdir())
    ):
        unfinished = (directory / "run.json").exists() and not is_finished(directory)
        go_on = f"; to go on with the run in it: {how_to_resume(directory)}" if unfinished else ""
        raise InvalidSetting(f"out must be a new or empty directory, got {str(directory)!r}{go_on}")


def how_to_resume(directory: Path) -> str:
    """On the command line if the run was made there, else in Python."""
    if read_json(directory / "run.json").get("settings") is None:
        return f"flmc.resume({str(directory)!r}, plan, model)"
    return f"flmc resume {shlex.quote(str(directory))}"


@contextmanager
def create(directory: Path, description: Mapping[str, Any]) -> Iterator[None]:
    """A new record with its ``run.json``, locked while in use."""
    check_new(directory)
    with ExitStack() as held:
        try:
            directory.mkdir(parents=True, exist_ok=True)
            held.enter_context(locked(directory))
            check_new(directory)
            write_json(directory / "run.json", {**_head(), **description})
        except OSError as error:
            raise InvalidSetting(f"cannot write to {str(directory)!r}: {error.strerror}") from error
        yield


def _head() -> dict[str, Any]:
    versions = {"flmc": VERSION, "numpy": np.__version__, "python": platform.python_version()}
    return {"schema_version": SCHEMA_VERSION, "versions": versions}


@contextmanager
def reopen(directory: Path) -> Iterator[dict[str, Any]]:
    """The ``run.json`` of a record that is to go on, locked while in use."""
    document = describe(directory)
    with ExitStack() as held:
        try:
            held.enter_context(locked(directory))
        except OSError as error:
            raise InvalidSetting(f"cannot write to {str(directory)!r}: {error.strerror}") from error
        if is_finished(directory):
            raise InvalidSetting(f"the run in {str(directory)!r} is finished: there is nothing to go on with")
        clean_up(directory, finished=False)
        yield document


def clean_up(directory: Path, *, finished: bool = True) -> None:
    """Remove temporary files of a process that was killed; if the run is finished, its checkpoints
    and parts of draws too, which were needed for going on after an interruption."""
    names = ["run.json", "result.json", "progress.json", "draws.npz", "checkpoint.npz", "draws-*.npz"]
    leftover = [path for name in names for path in directory.glob(f".{name}.*")]
    if finished:
        leftover += [directory / name for name in ("checkpoint.npz", "previous.npz", "progress.json")]
        leftover += [directory / f"draws-{first}-{last}.npz" for first, last in parts_of_draws(directory)]
    for path in leftover:
        path.unlink(missing_ok=True)


def is_finished(directory: Path) -> bool:
    """Whether the result is there."""
    return (directory / "result.json").exists()


def describe(directory: Path) -> dict[str, Any]:
    """What was asked of a run; for a record of version 1 only its version is known."""
    if not directory.is_dir():
        raise InvalidSetting(f"{str(directory)!r} is not a directory with a record")
    if not (directory / "run.json").exists():
        if (directory / "result.json").exists():
            return {"schema_version": 1}
        raise InvalidSetting(f"{str(directory)!r} holds no record: there is no run.json in it")
    document = read_json(directory / "run.json")
    version = document.get("schema_version")
    if version != SCHEMA_VERSION:
        raise InvalidSetting(
            f"{str(directory)!r} has schema_version {version!r}, and this flmc ({VERSION}) reads 1 to {SCHEMA_VERSION}:"
            " use the flmc that made it, or a newer one"
        )
    return document


@dataclass(frozen=True)
class Record:
    """A finished run, or one that is under way."""

    directory: Path
    schema_version: int
    asked: dict[str, Any] = field(repr=False)
    """``run.json``; empty for version 1."""
    result: dict[str, Any] | None = field(repr=False)
    """``result.json``, once finished."""
    ledger: list[str] = field(repr=False)
    ledger_damaged: bool = False
    """Whether the ledger has entries that cannot be read, behind the last one that can."""

    @property
    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Mean (experiment, dim), covariance (experiment, dim, dim) and, if they were kept, draws
        (experiment, chain, draw, dim) of a finished run."""
        if self.result is None:
            raise InvalidSetting(f"the run in {str(self.directory)!r} is not finished: go on with flmc.resume")
        return read_arrays(self.directory / "draws.npz")

    @property
    def kept_draws(self) -> Array | None:
        """Kept draws, (experiment, chain, draw, dim); None if they were not kept."""
        return self.arrays.get("draws")

    @property
    def draws(self) -> Array:
        """Kept draws with axes (experiment or chain, draw, dim), as :attr:`flmc.Result.draws`."""
        arrays = self.arrays
        if "draws" not in arrays:
            raise InvalidSetting("this run kept no draws: run it with keep_draws=True")
        return np.asarray(arrays["draws"].reshape(-1, *arrays["draws"].shape[2:]))


def load(directory: str | Path) -> Record:
    """Open a record of this version or the one before."""
    directory = Path(directory)
    asked = describe(directory)
    finished = directory / "result.json"
    result = read_json(finished) if finished.exists() else None
    entries, damaged = Log.read(directory / "ledger.txt")
    return Record(directory, asked["schema_version"], asked if "seed" in asked else {}, result, entries, damaged)


def parts_of_draws(directory: Path) -> list[tuple[int, int]]:
    """First and last number of every part of the draws."""
    found = []
    for path in directory.glob("draws-*-*.npz"):
        match = re.fullmatch(r"draws-(\d+)-(\d+)\.npz", path.name)
        if match:
            found.append((int(match[1]), int(match[2])))
    return found
