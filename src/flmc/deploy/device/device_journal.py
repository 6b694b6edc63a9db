"""The journal of a device over all runs, with the runs that it joined and its answers (the symbols
that it sent); and the ledger of privacy prices that its owner reads from it.

An answer is written before it is sent. It is stored encrypted to the air's key, so that a stolen
disk reveals no symbol.
"""

from __future__ import annotations

import base64
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flmc.base.documents import ANSWER_VERSION
from flmc.base.errors import InvalidSetting, RunFailed
from flmc.base.tables import Grid, Row, format_up
from flmc.deploy.journal_file import JournalFile
from flmc.privacy.neighbours import relation_argument
from flmc.runs.files.append_log import read_entries
from flmc.wire.messages import JOURNAL_BYTES

FILE = "journal.txt"
"""Name of the file of a device's journal in its directory."""


UNKNOWN = 1e300
"""Number in place of an epsilon that is infinite or not known: JSON has no infinity."""


@dataclass(frozen=True)
class Price:
    """Privacy price of a whole run for a device's data: one epsilon for a neighbouring data set in
    which all data of the device are replaced, one for a data set in which one example is. Prices of
    the two kinds must not be added to each other, nor prices of different relations."""

    neighbouring: str | None
    """Neighbouring relation that the device's budget protected when the run was joined, ``device``
    or ``example``; None in journals of earlier versions, which did not record it."""
    device: float | None
    """Epsilon that protects all data of the device together; None: not known."""
    example: float | None
    """Epsilon that protects one example of the device's data; None: not known."""
    delta: float
    """Delta at which the epsilons for all data and for one example are stated."""
    relation: str = "replace"
    """How the unit differs in neighbouring data: ``replace``, ``add_remove`` or ``zero_out``."""

    def epsilon(self, neighbouring: str) -> float:
        """Upper bound of the epsilon that a run costs, where ``neighbouring`` data sets differ in
        all data of the ``device`` or in one ``example``; ``UNKNOWN`` where no bound is known.
        Replacing one example is a way to replace a device's data, so the price for a device also
        bounds that for an example. Of a device that is absent or put to zero this does not hold."""
        known = [self.device] if neighbouring == "device" else [self.example]
        if neighbouring == "example" and self.relation == "replace":
            known.append(self.device)
        return min((each for each in known if each is not None), default=UNKNOWN)

    def to_entry(self) -> dict[str, object]:
        """The price as plain values, for the line of the journal that says which run the device
        joined."""
        epsilons = {"device": self.device, "example": self.example}
        # Left out for `replace`, which is what older journals mean.
        how = relation_argument(self.relation)
        price = {"neighbouring": self.neighbouring, "epsilons": epsilons, "delta": self.delta}
        return {**price, **how}

    @classmethod
    def from_entry(cls, entry: Mapping[str, Any]) -> Price:
        """The price in the journal's line of a joined run. A line of an earlier version, which
        names no neighbouring relation, has one epsilon, for a device or for an example: in either
        case it bounds the price for an example."""
        delta = float(entry["delta"])
        if "neighbouring" not in entry:
            return cls(None, None, float(entry["epsilon"]), delta)
        relation = str(entry.get("relation", "replace"))
        known = {
            name: None if entry["epsilons"][name] is None else float(entry["epsilons"][name])
            for name in ("device", "example")
        }
        return cls(str(entry["neighbouring"]), known["device"], known["example"], delta, relation)


@dataclass
class JoinedRun:
    """A run that a device joined, and its answers (symbols sent) in it.

    Attributes
    ----------
    digest
        Digest of the federation that the device agreed to, in hexadecimal.
    price
        Price of the whole run, which counts against the lifetime budget from the first answer.
    air
        Name of the air's journal when the device joined.
    answers
        Number of answered rounds.
    round, binding, sealed
        Last answer: its round, its binding to federation, round and theta, and its bytes; 0 and
        empty before the first.
    own
        Local parameters after the last answered round, as free (unconstrained) numbers; empty where
        there are none.
    """

    digest: str
    price: Price
    air: bytes = b""
    answers: int = 0
    round: int = 0
    binding: bytes = b""
    sealed: bytes = b""
    own: tuple[float, ...] = ()


class DeviceJournal:
    """The journal of a device over all its runs, open and locked: the joined runs with their
    privacy prices, and the last answer in each. A missing journal is created; raises ``RunFailed``
    if it is damaged."""

    def __init__(self, directory: Path) -> None:
        self._file = JournalFile(directory, FILE)
        self.runs: dict[str, JoinedRun] = {}
        """Runs that the device has joined, by name."""
        self.epoch = 0
        """Number of entries of the journal."""
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
        """Name of the journal: eight random bytes drawn when it was made."""

    def _read(self, entry: dict[str, Any]) -> None:
        """Update the joined runs, and the last answer in each, from one entry of the journal's
        file."""
        if "joined" in entry:
            self.runs[str(entry["joined"])] = JoinedRun(
                str(entry["digest"]),
                Price.from_entry(entry),
                bytes.fromhex(str(entry["air"])),
            )
        elif "round" in entry:
            run = self.runs[str(entry["run"])]
            run.answers += 1
            run.round = int(str(entry["round"]))
            run.binding = bytes.fromhex(str(entry["binding"]))
            run.sealed = base64.b64decode(str(entry["sealed"]))
            run.own = tuple(map(float, entry.get("own", ())))

    def _append(self, entry: dict[str, object]) -> None:
        """Write an entry of the journal to the disk, and count it in ``epoch``."""
        self._file.append(entry)
        self.epoch += 1

    def join(self, run: str, digest: str, price: Price, air: bytes) -> JoinedRun:
        """Record on the disk that the device joins a run at a price, and return the joined run;
        ``digest`` is that of the federation, in hexadecimal, and ``air`` the name of the air's
        journal, eight bytes."""
        entry = {"joined": run, "digest": digest, **price.to_entry()}
        self._append({**entry, "air": air.hex()})
        self.runs[run] = JoinedRun(digest, price, air)
        return self.runs[run]

    def answer(
        self,
        run: str,
        round_number: int,
        binding: bytes,
        gain: list[float],
        sealed: bytes,
        own: tuple[float, ...] = (),
    ) -> None:
        """Record a sealed answer on the disk; it may be sent once this method has returned.
        ``gain``, one number for each entry or one for all, is the gain with which privacy
        accounting counts the answer; ``own`` are the device's local parameters after the round."""
        joined = self.runs[run]
        text = base64.b64encode(sealed).decode()
        entry = {"run": run, "round": round_number, "binding": binding.hex()}
        kept = {"own": list(own)} if own else {}
        self._append({**entry, "gain": gain, **kept, "sealed": text})
        joined.answers += 1
        joined.round, joined.binding, joined.sealed = round_number, binding, sealed
        joined.own = own

    def rehearse(self, sealed: bytes) -> None:
        """Write the bytes of an answer to the disk, into a temporary file, so that the caller can
        measure the time."""
        with tempfile.NamedTemporaryFile(dir=self._file.path.parent, prefix=".rehearsal") as file:
            file.write(base64.b64encode(sealed))
            file.flush()
            os.fsync(file.fileno())

    def spent(self, neighbouring: str) -> tuple[float, float]:
        """Sums of epsilon and of delta over the runs with at least one answer, each of which counts
        in whole. ``neighbouring`` is the unit that epsilon protects, all data of the ``device`` or
        one ``example``, also for runs that were joined when the budget protected the other."""
        return _sums([run.price for run in self.answered], neighbouring)

    @property
    def answered(self) -> list[JoinedRun]:
        """Runs with at least one answer; in the other joined runs nothing was ever sent."""
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
    price
        Price of the whole run, spent since its first answer.
    answers, last_round
        Number of answered rounds, and the last of them.
    """

    run: str
    digest: str
    price: Price
    answers: int
    last_round: int


@dataclass(frozen=True)
class DeviceLedger:
    """Ledger of a device for its owner: all runs in its journal with their privacy prices, in the
    order of joining."""

    rows: tuple[LedgerRow, ...]

    def spent(self, neighbouring: str) -> tuple[float, float]:
        """Sums of epsilon and of delta over the runs with at least one answer (the other runs have
        cost nothing). ``neighbouring`` is the unit that epsilon protects, all data of the
        ``device`` or one ``example``."""
        return _sums([row.price for row in self.rows if row.answers], neighbouring)

    def to_document(self) -> dict[str, Any]:
        """The ledger in plain values, for JSON; an epsilon that is not known is None."""
        return {
            "schema_version": ANSWER_VERSION,
            "runs": [_row_document(row) for row in self.rows],
            "epsilon_device": _known(self.spent("device")[0]),
            "epsilon_example": _known(self.spent("example")[0]),
            "delta": self.spent("device")[1],
        }

    def grid(self) -> Grid:
        """Table of the runs with their prices for all data of the device and for one example, and
        the sums as a note."""
        rows = tuple(
            (
                row.run,
                _shown(row.price.epsilon("device")),
                _shown(row.price.epsilon("example")),
                f"{row.price.delta:g}",
                _joined_for(row.price),
                str(row.answers),
            )
            for row in self.rows
        )
        (device, delta), (example, _) = self.spent("device"), self.spent("example")
        total = (
            f"all answered runs together: epsilon {_shown(device)} for all data of the device,"
            f" {_shown(example)} for one example, at delta {delta:g}"
        )
        note = Row("", total if self.rows else "no run was joined yet")
        title = "what this device's data may cost, by run, counted in whole since its first answer"
        heads = ("run", "epsilon, device", "epsilon, example", "delta", "joined for", "answers")
        return Grid(heads, rows, title, (note,))


def _sums(prices: Sequence[Price], neighbouring: str) -> tuple[float, float]:
    """Sums of epsilon, for one ``neighbouring`` unit, and of delta. Where the prices are of several
    relations no sum holds for any of them: epsilon is ``UNKNOWN``."""
    mixed = len({price.relation for price in prices}) > 1
    epsilon = UNKNOWN if mixed else sum(price.epsilon(neighbouring) for price in prices)
    return epsilon, sum(price.delta for price in prices)


def _known(epsilon: float) -> float | None:
    """An epsilon for JSON: itself, or None where it is ``UNKNOWN``."""
    return None if epsilon >= UNKNOWN else epsilon


def _shown(epsilon: float) -> str:
    """The epsilon as text, rounded up in its last digit; ``not known`` for ``UNKNOWN`` and
    above."""
    return "not known" if epsilon >= UNKNOWN else format_up(epsilon) if epsilon else "0"


def _joined_for(price: Price) -> str:
    """The unit that the budget protected when a run was joined, with a relation other than
    ``replace``."""
    unit = price.neighbouring or "not known"
    return unit if price.relation == "replace" else f"{unit}, {price.relation}"


def _row_document(row: LedgerRow) -> dict[str, Any]:
    """A run of the ledger in plain values, for JSON."""
    return {
        "run": row.run,
        "digest": row.digest,
        "neighbouring": row.price.neighbouring,
        "relation": row.price.relation,
        "epsilon_device": _known(row.price.epsilon("device")),
        "epsilon_example": _known(row.price.epsilon("example")),
        "delta": row.price.delta,
        "answers": row.answers,
        "last_round": row.last_round,
    }


def read_ledger(directory: Path) -> DeviceLedger:
    """The ledger of a device from its journal's directory, even while the device is running; raises
    ``InvalidSetting`` if there is no journal, and ``RunFailed`` if it is damaged."""
    path = directory / FILE
    if not path.is_file():
        raise InvalidSetting(f"there is no journal of a device in {str(directory)!r}")
    joined: dict[str, dict[str, Any]] = {}
    try:
        # The file is read without the lock, which a running device holds; a last line that is being
        # written is ignored.
        for text in read_entries(path)[0]:
            entry = json.loads(text)
            if "joined" in entry:
                known = {"digest": entry["digest"], "price": Price.from_entry(entry)}
                joined[entry["joined"]] = {**known, "answers": 0, "last_round": 0}
            elif "round" in entry:
                joined[entry["run"]]["answers"] += 1
                joined[entry["run"]]["last_round"] = entry["round"]
        rows = tuple(LedgerRow(run, **values) for run, values in joined.items())
    except (ValueError, KeyError, TypeError) as error:
        raise RunFailed(f"{str(path)!r} is no journal of a device: {error}") from error
    return DeviceLedger(rows)
