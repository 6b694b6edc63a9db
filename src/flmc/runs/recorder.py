"""The recorder of a run: it writes the ledger before the rounds, and checkpoints after them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting, RunFailed
from flmc.runs.files.append_log import Log
from flmc.runs.files.durable_files import read_arrays, write_arrays, write_json
from flmc.runs.files.regular_files import digest_of_file
from flmc.runs.ledger import Ledger
from flmc.runs.records import SCHEMA_VERSION, clean_up, how_to_resume, parts_of_path
from flmc.sampling.chains import Chains

_log = logging.getLogger(__name__)

CHECKPOINT_SECONDS = 5.0
"""Seconds between checkpoints, where the user gives no number of rounds between them."""

Arrays = Mapping[str, npt.NDArray[Any]]
"""Arrays by name, as they are written to an npz file."""


@contextmanager
def _writing(directory: Path) -> Iterator[None]:
    """Turn an ``OSError`` inside the context into ``RunFailed``, whose message says how to go
    on."""
    try:
        yield
    except OSError as error:
        raise RunFailed(
            f"cannot write to {str(directory)!r}: {error.strerror}; what was saved before is whole,"
            f" and `{how_to_resume(directory)}` goes on from there"
        ) from error


@dataclass
class Recorder:
    """Writes the record of a run: the ledger before the rounds, checkpoints after them.

    This order makes the ledger an upper bound of what was spent: a round may be in it and not have
    happened, never the other way round."""

    directory: Path
    """The directory of the record, whose lock this process holds."""
    ledger: Ledger
    """Makes the entries of the run's ledger, round by round."""
    metrics: Callable[[Chains], dict[str, Any] | None]
    """Computes the metrics of the rounds so far, as plain values for ``progress.json``; None where
    there are none."""
    identity: str
    """SHA-256 of all that decides the result (plan, data, seed, chains, engine), by which a
    checkpoint is recognised."""
    every_rounds: int | None = None
    """Rounds between checkpoints; None: as many as pass in ``CHECKPOINT_SECONDS``."""
    _saved_round: int = 0
    _saved_at: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self._log = Log(self.directory / "ledger.txt")
        if self._log.num_cut:
            cut = f"a tail of {self._log.num_cut} bytes was not whole, it was cut off"
            _log.warning("%s: %s and kept in %s.cut", self._log.path, cut, self._log.path.name)
        self.ledger.check(self._log)

    def begins(self, until: int) -> None:
        """Enter the rounds up to number ``until`` (the first is 1) into the ledger, as spent;
        called before these rounds are run."""
        with _writing(self.directory):
            self.ledger.spend(self._log, until)

    def ended(self, chains: Chains, *, now: bool = False) -> None:
        """Write a checkpoint of the chains if ``every_rounds`` rounds (or five seconds, if that is
        None) have passed since the last one, or if the run stops ``now``."""
        if self.every_rounds is None:
            due = time.monotonic() - self._saved_at >= CHECKPOINT_SECONDS
        else:
            due = chains.round - self._saved_round >= self.every_rounds
        if (due or now) and chains.round > self._saved_round:
            with _writing(self.directory):
                self._save(chains)

    def _save(self, chains: Chains) -> None:
        """Write the positions of the chains since the last checkpoint (if the run stores
        positions), then a new checkpoint, then the progress file."""
        # Positions are written first: a checkpoint must not count any that are not on the disk. A
        # file of positions without its checkpoint does no harm, because the resumed run writes the
        # same positions again.
        path = chains.path
        if path is not None:
            # The first stored position may be one before the stored rounds, such as the start of
            # the chain. No round writes it, so counting from 0 adds it to the first file.
            done = path.places_until(self._saved_round) if self._saved_round else 0
            new = range(done, path.places_until(chains.round))
            if len(new):
                part = np.ascontiguousarray(path.positions[:, :, new.start : new.stop])
                name = f"path-{new.start}-{new.stop}.npz"
                write_arrays(self.directory / name, {"positions": part})
        current = self.directory / "checkpoint.npz"
        # The last checkpoint is kept as ``previous.npz``: if the new one is damaged later, the run
        # goes on from there.
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
                **({} if chains.memory is None else {"memory": chains.memory}),
                **({} if chains.local is None else {"local": chains.local}),
            },
        )
        write_json(
            self.directory / "progress.json",
            {
                "schema_version": SCHEMA_VERSION,
                "round": chains.round,
                "num_rounds": self.ledger.plan.num_rounds,
                "metrics": self.metrics(chains),
            },
        )
        self._saved_round, self._saved_at = chains.round, time.monotonic()

    def restore(self, chains: Chains) -> None:
        """Set chains that have not begun to the last undamaged checkpoint, in place. Without a
        checkpoint they stay before round 1, and running all rounds again gives the same result.
        ``InvalidSetting`` if the checkpoint belongs to another run."""
        for name in ("checkpoint.npz", "previous.npz"):
            path = self.directory / name
            if not path.exists():
                continue
            try:
                self._restore_from(read_arrays(path), chains)
            # InvalidSetting, which is a ValueError too, means a checkpoint of another run; the
            # errors caught below mean a damaged file.
            except InvalidSetting:
                raise
            except (RunFailed, KeyError, ValueError) as error:
                _log.warning("%s is damaged (%s) and not used", path, error)
            else:
                self._saved_round = chains.round
                return

    def _restore_from(self, saved: Arrays, chains: Chains) -> None:
        """Set the chains, in place, to the state in one checkpoint; if that is not possible, raise
        an error and leave them as they are."""
        if str(saved["identity"]) != self.identity:
            raise InvalidSetting(
                f"the checkpoint in {str(self.directory)!r} belongs to another run"
            )
        moments = chains.moments
        pairs = [(saved["position"], chains.position), (saved["sums"], moments.sums)]
        pairs.append((saved["products"], moments.products))
        if chains.memory is not None:
            pairs.append((saved["memory"], chains.memory))
        if chains.local is not None:
            pairs.append((saved["local"], chains.local))
        # All of the checkpoint is read and its shapes are compared before the chains are changed.
        if any(new.shape != old.shape or new.dtype != old.dtype for new, old in pairs):
            raise ValueError("its arrays have other shapes")
        done = int(saved["round"])
        if chains.path is not None:
            count, stored = chains.path.places_until(done), chains.path.positions
            pairs.append((self._read_path(count, stored), stored[:, :, :count]))
        # All that can fail has been done: from here on the chains are restored completely.
        for new, old in pairs:
            old[...] = new
        chains.round = done
        chains.num_clipped, chains.num_undefined = (
            int(saved["num_clipped"]),
            int(saved["num_undefined"]),
        )

    def _read_path(self, count: int, like: Array) -> Array:
        """The first ``count`` stored positions of all chains, (experiment, chain, position, dim),
        from the files ``path-A-B.npz``, whose ranges may overlap after an interruption. ``like`` is
        an array with the same axes, which has the sizes of all but the third. A damaged file is
        removed; ``ValueError`` if positions are missing."""
        path = np.empty((*like.shape[:2], count, like.shape[3]), like.dtype)
        # Files are read in the order of their first positions; of each, only positions beyond those
        # already read are used.
        done = 0
        for first, last in sorted(parts_of_path(self.directory)):
            if first <= done < min(last, count):
                file = self.directory / f"path-{first}-{last}.npz"
                try:
                    part = read_arrays(file)["positions"]
                except RunFailed as error:
                    # Without the positions of the damaged file this checkpoint fails. An earlier
                    # one is used, and the rounds that made these positions run again.
                    _log.warning("%s is damaged and removed", error)
                    file.unlink()
                    continue
                stop = min(last, count)
                path[:, :, done:stop] = part[:, :, done - first : stop - first]
                done = stop
        if done < count:
            raise ValueError(f"positions number {done} to {count} are missing")
        return path

    def finish(self, document: Mapping[str, Any], arrays: Arrays) -> None:
        """Write the result and remove the checkpoints; ``RunFailed`` if another process changed the
        ledger."""
        with _writing(self.directory):
            # If another process wrote into the ledger, the ledger does not prove what was spent.
            if not self._log.is_ours:
                raise RunFailed(
                    f"{str(self._log.path)!r} was changed by somebody else while the run went on"
                )
            finish_record(self.directory, document, arrays)


def finish_record(directory: Path, document: Mapping[str, Any], arrays: Arrays) -> None:
    """Write ``result.json`` and ``draws.npz`` of a finished run, and remove its checkpoints."""
    # ``result.json`` marks a run as finished. So it is written after ``draws.npz``, and before the
    # removal of the checkpoints, with which the run could be continued.
    draws = directory / "draws.npz"
    write_arrays(draws, arrays)
    files = {draws.name: digest_of_file(draws)}
    write_json(directory / "result.json", {**document, "files": files})
    clean_up(directory)
