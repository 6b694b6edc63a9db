"""The journal of a device: which runs it joined, and what it answered, across all runs.

It is written before anything is sent. The answer itself is kept sealed, so that the journal on
a stolen disk tells no more than the air knows."""

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
"""Name of the journal's file in its directory."""


@dataclass
class JoinedRun:
    """What a device did in a run.

    Attributes
    ----------
    digest
        Digest of the federation that it agreed to, as hexadecimal text.
    epsilon, delta
        What the whole run may cost, which counts against the lifetime budget from then on.
    air
        Name of the air's journal when the device joined.
    answers
        Rounds that it answered.
    round, binding, sealed
        Its last answer: the round, what it is bound to, and its bytes; 0 and empty: none.
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
    """The journal of a device, open and locked.

    Parameters
    ----------
    directory
        Where it is; a new one is made if there is none.
    """

    def __init__(self, directory: Path) -> None:
        self._file = JournalFile(directory, FILE)
        self.runs: dict[str, JoinedRun] = {}
        """Runs that were joined, by name."""
        self.epoch = 0
        """Entries so far."""
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
        """Eight bytes that were drawn when the journal was made."""

    def _read(self, entry: dict[str, object]) -> None:
        """Follow one entry."""
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
        """Record that the device takes part in a run; what it may cost is spent from now on.

        Parameters
        ----------
        run, digest
            Name of the run, and digest of the federation.
        epsilon, delta
            What the whole run may cost.
        air
            Name of the air's journal.
        """
        entry = {"joined": run, "digest": digest, "epsilon": epsilon, "delta": delta}
        self._append({**entry, "air": air.hex()})
        self.runs[run] = JoinedRun(digest, epsilon, delta, air)
        return self.runs[run]

    def answer(
        self, run: str, round_number: int, binding: bytes, gain: list[float], sealed: bytes
    ) -> None:
        """Record an answer; it may be sent when this has returned.

        Parameters
        ----------
        run, round_number, binding
            What is answered.
        gain
            Gain of every entry, one number where they are equal: what the answer costs.
        sealed
            The bytes that will be sent.
        """
        joined = self.runs[run]
        text = base64.b64encode(sealed).decode()
        entry = {"run": run, "round": round_number, "binding": binding.hex()}
        self._append({**entry, "gain": gain, "sealed": text})
        joined.answers += 1
        joined.round, joined.binding, joined.sealed = round_number, binding, sealed

    def rehearse(self, sealed: bytes) -> None:
        """Write bytes to the disk as an answer would be, into a file of their own that is removed.

        Parameters
        ----------
        sealed
            The bytes.
        """
        with tempfile.NamedTemporaryFile(dir=self._file.path.parent, prefix=".rehearsal") as file:
            file.write(base64.b64encode(sealed))
            file.flush()
            os.fsync(file.fileno())

    @property
    def spent(self) -> tuple[float, float]:
        """Sums of epsilon and delta of all runs that were answered at least once."""
        runs = self.answered
        return sum(run.epsilon for run in runs), sum(run.delta for run in runs)

    @property
    def answered(self) -> list[JoinedRun]:
        """Runs that were answered at least once: nothing was ever sent in the others."""
        return [run for run in self.runs.values() if run.answers]

    def close(self) -> None:
        """Release the file and the lock."""
        self._file.close()


@dataclass(frozen=True)
class LedgerRow:
    """A run in a device's ledger.

    Attributes
    ----------
    run, digest
        Its name, and the digest of the federation that was agreed to.
    epsilon, delta
        What the whole run may cost, which is spent since its first answer.
    answers, last_round
        Rounds that were answered, and the last of them.
    """

    run: str
    digest: str
    epsilon: float
    delta: float
    answers: int
    last_round: int


@dataclass(frozen=True)
class DeviceLedger:
    """All runs in a device's journal, in the order in which they were joined."""

    rows: tuple[LedgerRow, ...]

    @property
    def spent(self) -> tuple[float, float]:
        """Sums of epsilon and delta of the runs that were answered; the others cost nothing."""
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
        """A table of the runs, with their sum."""
        rows = tuple(
            (row.run, format_up(row.epsilon), f"{row.delta:g}", str(row.answers))
            for row in self.rows
        )
        epsilon, delta = self.spent
        said = f"all answered runs together: epsilon {format_up(epsilon)} at delta {delta:g}"
        note = Row("", said if self.rows else "no run was joined yet")
        title = "what this device's data may cost, by run, counted in whole since its first answer"
        return Grid(("run", "epsilon", "delta", "rounds answered"), rows, title, (note,))


def read_ledger(directory: Path) -> DeviceLedger:
    """The ledger of a device, also while the device is running.

    Parameters
    ----------
    directory
        The directory of its journal.

    Raises
    ------
    InvalidSetting
        If there is no journal.
    RunFailed
        If it is damaged.
    """
    path = directory / FILE
    if not path.is_file():
        raise InvalidSetting(f"there is no journal of a device in {str(directory)!r}")
    joined: dict[str, dict[str, Any]] = {}
    try:
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
