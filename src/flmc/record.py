"""A run on disk, readable without flmc: JSON, npz, and a ledger of text lines.

====================  ==================================================================================================
``run.json``          what was asked: settings, plan, seed, chains, engine, versions; written once
``ledger.txt``        what was spent, round by round (:mod:`flmc.ledger`); always ahead of the checkpoint
``checkpoint.npz``    where the chains stand; ``previous.npz`` is the one before
``draws-A-B.npz``     kept draws number A to B - 1, until the run is finished
``progress.json``     the round and the metrics so far
``draws.npz``         mean, covariance and all kept draws of a finished run
``result.json``       plan, metrics and everything else of a finished run
====================  ==================================================================================================

Version 1 had ``draws.npz`` and ``result.json`` only."""

from __future__ import annotations

import logging
import platform
import re
import shlex
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from flmc import ledger
from flmc.chains import Chains
from flmc.checks import Array
from flmc.errors import InvalidSetting, RunFailed
from flmc.files import Log, locked, read_arrays, read_json, write_arrays, write_json
from flmc.plan import Plan
from flmc.version import VERSION

_log = logging.getLogger(__name__)

SCHEMA_VERSION = 2
CHECKPOINT_SECONDS = 5.0
"""Default interval of checkpoints."""

Arrays = Mapping[str, npt.NDArray[Any]]


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
def _writing(directory: Path) -> Iterator[None]:
    """A failure of the disk becomes one line that says what is left."""
    try:
        yield
    except OSError as error:
        raise RunFailed(
            f"cannot write to {str(directory)!r}: {error.strerror}; what was saved before is whole, and"
            f" `flmc resume {shlex.quote(str(directory))}` goes on from there"
        ) from error


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
    """Remove temporary files of a process that was killed, and of a finished run what only served to go on."""
    names = ["run.json", "result.json", "progress.json", "draws.npz", "checkpoint.npz", "draws-*.npz"]
    leftover = [path for name in names for path in directory.glob(f".{name}.*")]
    if finished:
        leftover += [directory / name for name in ("checkpoint.npz", "previous.npz", "progress.json")]
        leftover += [directory / f"draws-{first}-{last}.npz" for first, last in _parts(directory)]
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
        """Mean (experiment, dim), covariance (experiment, dim, dim) and, if they were kept, draws (experiment, chain,
        draw, dim) of a finished run."""
        if self.result is None:
            raise InvalidSetting(f"the run in {str(self.directory)!r} is not finished: go on with flmc.resume")
        return read_arrays(self.directory / "draws.npz")

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


@dataclass
class Keeper:
    """Writes the record of a run while it goes: the ledger before the rounds, checkpoints after them."""

    directory: Path
    plan: Plan
    metrics: Callable[[Chains], dict[str, Any] | None]
    """The metrics so far."""
    identity: str
    """Digest of all that decides the result: plan, data, seed, chains, engine."""
    every_rounds: int | None = None
    """Rounds between checkpoints; None: as many as pass in ``CHECKPOINT_SECONDS``."""
    _saved_round: int = 0
    _saved_at: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self._log = Log(self.directory / "ledger.txt")
        if self._log.num_cut:
            cut = f"a tail of {self._log.num_cut} bytes was not whole, it was cut off"
            _log.warning("%s: %s and kept in %s.cut", self._log.path, cut, self._log.path.name)
        ledger.check(self._log, self.plan)

    def begins(self, until: int) -> None:
        """Rounds up to ``until`` are going to be used: they count as spent from now on."""
        with _writing(self.directory):
            ledger.spend(self._log, self.plan, until)

    def ended(self, chains: Chains, *, now: bool = False) -> None:
        """Save where the chains stand, if it is time or ``now``."""
        if self.every_rounds is None:
            due = time.monotonic() - self._saved_at >= CHECKPOINT_SECONDS
        else:
            due = chains.round - self._saved_round >= self.every_rounds
        if (due or now) and chains.round > self._saved_round:
            with _writing(self.directory):
                self._save(chains)

    def _save(self, chains: Chains) -> None:
        kept = range(*(max(0, r - self.plan.num_burn_in) for r in (self._saved_round, chains.round)))
        if chains.draws is not None and len(kept):
            part = np.ascontiguousarray(chains.draws[:, :, kept.start : kept.stop])
            write_arrays(self.directory / f"draws-{kept.start}-{kept.stop}.npz", {"draws": part})
        current = self.directory / "checkpoint.npz"
        if current.exists():
            current.replace(self.directory / "previous.npz")
        write_arrays(
            current,
            {
                "round": np.array(chains.round),
                "position": chains.position,
                "sums": chains.moments.sums,
                "products": chains.moments.products,
                "num_clipped": np.array(chains.num_clipped),
                "num_undefined": np.array(chains.num_undefined),
                "identity": np.array(self.identity),
            },
        )
        write_json(
            self.directory / "progress.json",
            {"round": chains.round, "num_rounds": self.plan.num_rounds, "metrics": self.metrics(chains)},
        )
        self._saved_round, self._saved_at = chains.round, time.monotonic()

    def restore(self, chains: Chains) -> None:
        """Put chains that are at their start where the last whole checkpoint was; at worst they stay at the start,
        from where everything is the same again."""
        for name in ("checkpoint.npz", "previous.npz"):
            path = self.directory / name
            if not path.exists():
                continue
            try:
                self._restore_from(read_arrays(path), chains)
            except InvalidSetting:
                raise
            except (RunFailed, KeyError, ValueError) as error:
                _log.warning("%s is damaged (%s) and not used", path, error)
            else:
                self._saved_round = chains.round
                return

    def _restore_from(self, saved: Arrays, chains: Chains) -> None:
        if str(saved["identity"]) != self.identity:
            raise InvalidSetting(f"the checkpoint in {str(self.directory)!r} belongs to another run")
        moments = chains.moments
        pairs = [(saved["position"], chains.position), (saved["sums"], moments.sums)]
        pairs.append((saved["products"], moments.products))
        if any(new.shape != old.shape or new.dtype != old.dtype for new, old in pairs):
            raise ValueError("its arrays have other shapes")
        done = int(saved["round"])
        if chains.draws is not None:
            num_kept = max(0, done - self.plan.num_burn_in)
            pairs.append((self._read_draws(num_kept, chains.draws), chains.draws[:, :, :num_kept]))
        # Nothing can fail from here on: the chains are where they were, or where they are to be.
        for new, old in pairs:
            old[...] = new
        chains.round = done
        chains.num_clipped, chains.num_undefined = int(saved["num_clipped"]), int(saved["num_undefined"])

    def _read_draws(self, num_kept: int, like: Array) -> Array:
        """The first ``num_kept`` draws from their parts, which may overlap after an interruption."""
        draws = np.empty((*like.shape[:2], num_kept, like.shape[3]))
        done = 0
        for first, last in sorted(_parts(self.directory)):
            if first <= done < min(last, num_kept):
                path = self.directory / f"draws-{first}-{last}.npz"
                try:
                    part = read_arrays(path)["draws"]
                except RunFailed as error:
                    _log.warning("%s is damaged and removed", error)
                    path.unlink()
                    continue
                stop = min(last, num_kept)
                draws[:, :, done:stop] = part[:, :, done - first : stop - first]
                done = stop
        if done < num_kept:
            raise ValueError(f"draws number {done} to {num_kept} are missing")
        return draws

    def finish(self, document: Mapping[str, Any], arrays: Arrays) -> None:
        """The result; what only served to go on is removed."""
        with _writing(self.directory):
            if not self._log.is_ours:
                raise RunFailed(f"{str(self._log.path)!r} was changed by somebody else while the run went on")
            write_arrays(self.directory / "draws.npz", arrays)
            write_json(self.directory / "result.json", document)
            clean_up(self.directory)


def _parts(directory: Path) -> list[tuple[int, int]]:
    """First and last number of every part of the draws."""
    found = []
    for path in directory.glob("draws-*-*.npz"):
        match = re.fullmatch(r"draws-(\d+)-(\d+)\.npz", path.name)
        if match:
            found.append((int(match[1]), int(match[2])))
    return found
