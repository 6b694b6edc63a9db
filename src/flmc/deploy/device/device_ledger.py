"""What a device's journal tells its owner: the runs it joined, what they may cost, what it
answered."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from flmc.base.documents import ANSWER_VERSION
from flmc.base.errors import InvalidSetting, RunFailed
from flmc.base.tables import Grid, Row, format_up
from flmc.deploy.device.device_journal import FILE
from flmc.runs.files.append_log import read_entries


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
