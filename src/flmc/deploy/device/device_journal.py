"""The journal of a device, over all runs: the joined runs and the answers, and the ledger that
its owner reads from it.

It is written before anything is sent. An answer is stored sealed, so that the journal on a
stolen disk reveals no more than the air knows.
"""

from __future__ import annotations

import base64
import json
import os
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from flmc.base.documents import ANSWER_VERSION
from flmc.base.errors import InvalidSetting, RunFailed
from flmc.base.tables import Grid, Row, format_up
from flmc.deploy.journal_file import JournalFile
from flmc.runs.files.append_log import read_entries
from flmc.wire.messages import JOURNAL_BYTES

FILE = "journal.txt"
"""Name of the file of a device's journal in its directory."""


@dataclass
class JoinedRun:
    """A device's part in a run.

    Attributes
    ----------
    digest
        Digest of the federation that it agreed to, in hexadecimal.
    epsilon, delta
        Price of the whole run, which counts against the lifetime budget from the first answer.
    air
        Name of the air's journal when the device joined.
    answers
        Number of answered rounds.
    round, binding, sealed
        Last answer: its round, its binding to federation, round and theta, and its bytes; 0 and
        empty before the first.
    """

    digest: str
    epsilon: float
    delta: float
    air: bytes = b""
    answers: int = 0
    round: int = 0
    binding: bytes = b""
    sealed: bytes = b""


class DeviceJournal:
    """The journal of a device over all its runs, open and locked, made if there is none: which runs
    it joined at which privacy price, and its last answer in each."""

    def __init__(self, directory: Path) -> None:
        self._file = JournalFile(directory, FILE)
        self.runs: dict[str, JoinedRun] = {}
        """Joined runs by name."""
        self.epoch = 0
        """Number of entries."""
        name = ""
        try:
            for entry in self._file.entries():
                self.epoch += 1
                name = entry.get("journal", name)
                self._read(entry)
        except (KeyError, ValueError, TypeError) as error:
            self._file.close()
            raise RunFailed(f"{str(self._file.path)!r} is no journal of a device: {error}") from (
                error
            )
        if not name:
            name = os.urandom(JOURNAL_BYTES).hex()
            self._append({"journal": name})
        self.name = bytes.fromhex(name)
        """Eight bytes drawn when the journal was made."""

    def _read(self, entry: dict[str, object]) -> None:
        """Update the joined runs and their last answers by one entry of the file."""
        if "joined" in entry:
            self.runs[str(entry["joined"])] = JoinedRun(
                str(entry["digest"]),
                float(str(entry["epsilon"])),
                float(str(entry["delta"])),
                bytes.fromhex(str(entry["air"])),
            )
        elif "round" in entry:
            run = self.runs[str(entry["run"])]
            run.answers += 1
            run.round = int(str(entry["round"]))
            run.binding = bytes.fromhex(str(entry["binding"]))
            run.sealed = base64.b64decode(str(entry["sealed"]))

    def _append(self, entry: dict[str, object]) -> None:
        self._file.append(entry)
        self.epoch += 1

    def join(self, run: str, digest: str, epsilon: float, delta: float, air: bytes) -> JoinedRun:
        """Record that the device takes part in a run with this price; ``air`` is the name of
        the air's journal."""
        entry = {"joined": run, "digest": digest, "epsilon": epsilon, "delta": delta}
        self._append({**entry, "air": air.hex()})
        self.runs[run] = JoinedRun(digest, epsilon, delta, air)
        return self.runs[run]

    def answer(
        self, run: str, round_number: int, binding: bytes, gain: list[float], sealed: bytes
    ) -> None:
        """Record an answer, which may be sent when this has returned; ``gain`` has one number
        an entry, or one for all of them, and determines its cost."""
        joined = self.runs[run]
        text = base64.b64encode(sealed).decode()
        entry = {"run": run, "round": round_number, "binding": binding.hex()}
        self._append({**entry, "gain": gain, "sealed": text})
        joined.answers += 1
        joined.round, joined.binding, joined.sealed = round_number, binding, sealed

    def rehearse(self, sealed: bytes) -> None:
        """Write bytes to the disk as an answer would be, into a temporary file, to measure the
        time."""
        with tempfile.NamedTemporaryFile(dir=self._file.path.parent, prefix=".rehearsal") as file:
            file.write(base64.b64encode(sealed))
            file.flush()
            os.fsync(file.fileno())

    @property
    def spent(self) -> tuple[float, float]:
        """Sums of epsilon and delta over the runs with at least one answer, which count in
        whole."""
        runs = self.answered
        return sum(run.epsilon for run in runs), sum(run.delta for run in runs)

    @property
    def answered(self) -> list[JoinedRun]:
        """Runs with at least one answer; in the others nothing was ever sent."""
        return [run for run in self.runs.values() if run.answers]

    def close(self) -> None:
        """Release the journal's file and its lock."""
        self._file.close()


@dataclass(frozen=True)
class LedgerRow:
    """One run in a device's ledger, the list of what each run cost its data.

    Attributes
    ----------
    run, digest
        Name, and digest of the federation that the device agreed to.
    epsilon, delta
        Price of the whole run, spent since its first answer.
    answers, last_round
        Number of answered rounds, and the last of them.
    """

    run: str
    digest: str
    epsilon: float
    delta: float
    answers: int
    last_round: int


@dataclass(frozen=True)
class DeviceLedger:
    """Ledger of a device for its owner: all runs in its journal with their privacy prices, in the
    order of joining."""

    rows: tuple[LedgerRow, ...]

    @property
    def spent(self) -> tuple[float, float]:
        """Sums of epsilon and delta over the answered runs; the others cost nothing."""
        rows = [row for row in self.rows if row.answers]
        return sum(row.epsilon for row in rows), sum(row.delta for row in rows)

    def to_document(self) -> dict[str, Any]:
        """The ledger in plain values, for JSON."""
        epsilon, delta = self.spent
        return {
            "schema_version": ANSWER_VERSION,
            "runs": [asdict(row) for row in self.rows],
            "epsilon": epsilon,
            "delta": delta,
        }

    def grid(self) -> Grid:
        """Table of the runs with their prices, and the sums of epsilon and delta as a note."""
        rows = tuple(
            (row.run, format_up(row.epsilon), f"{row.delta:g}", str(row.answers))
            for row in self.rows
        )
        epsilon, delta = self.spent
        total = f"all answered runs together: epsilon {format_up(epsilon)} at delta {delta:g}"
        note = Row("", total if self.rows else "no run was joined yet")
        title = "what this device's data may cost, by run, counted in whole since its first answer"
        return Grid(("run", "epsilon", "delta", "rounds answered"), rows, title, (note,))


def read_ledger(directory: Path) -> DeviceLedger:
    """The ledger in a journal's directory, also while the device is running."""
    path = directory / FILE
    if not path.is_file():
        raise InvalidSetting(f"there is no journal of a device in {str(directory)!r}")
    joined: dict[str, dict[str, Any]] = {}
    try:
        # Read without the lock, which a running device holds: an incomplete last line is ignored.
        for text in read_entries(path)[0]:
            entry = json.loads(text)
            if "joined" in entry:
                known = {name: entry[name] for name in ("digest", "epsilon", "delta")}
                joined[entry["joined"]] = {**known, "answers": 0, "last_round": 0}
            elif "round" in entry:
                joined[entry["run"]]["answers"] += 1
                joined[entry["run"]]["last_round"] = entry["round"]
        rows = tuple(LedgerRow(run, **values) for run, values in joined.items())
    except (ValueError, KeyError, TypeError) as error:
        raise RunFailed(f"{str(path)!r} is no journal of a device: {error}") from error
    return DeviceLedger(rows)
