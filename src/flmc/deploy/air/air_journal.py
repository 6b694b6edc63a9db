"""The journal of the air: the received signal of every round, written before it is published.

It never holds a symbol: only the received sum with its noise, the active devices, the names and
epochs of the devices' journals, and the seed of path gains and scheduling.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from flmc.base.arrays import IntArray
from flmc.base.errors import InvalidSetting, RunFailed
from flmc.deploy.journal_file import JournalFile
from flmc.wire.federation import Federation
from flmc.wire.messages import JOURNAL_BYTES, Received

FILE = "air.txt"
"""Name of the file of the air's journal in its directory."""


class JournalState(NamedTuple):
    """State of a device's journal, as the device states it with its symbols.

    Attributes
    ----------
    name
        Eight bytes drawn when the journal was made.
    epoch
        Number of the journal's entries.
    """

    name: bytes
    epoch: int


class AirJournal:
    """The air's journal of one run in a directory, open and locked; a missing journal is created.
    Raises ``InvalidSetting`` for the journal of another run, and ``RunFailed`` if it is damaged."""

    def __init__(self, directory: Path, federation: Federation) -> None:
        self._file = JournalFile(directory, FILE)
        plan = federation.plan
        self.name = b""
        """Eight random bytes drawn when the journal was made. Announcements carry them, so that
        devices notice when the air has lost its journal."""
        self.seed = -1
        """Seed of path gains and scheduling, drawn by the operating system. Both are public, and
        must be the same after a restart."""
        self.round = 0
        """Number of the last closed round, from 1; 0: none."""
        self.last: Received | None = None
        """Message with the received signal of the last closed round; None before round 1 is
        closed."""
        self.answered: IntArray = np.zeros(plan.num_devices, dtype=np.int64)
        """Number of the last closed round to which each device's answer came, (device); 0: none."""
        self._journals: dict[int, JournalState] = {}
        digest = federation.digest.hex()
        try:
            for entry in self._file.entries():
                if "digest" in entry:
                    if entry["digest"] != digest:
                        raise InvalidSetting(
                            f"{str(self._file.path)!r} is the journal of the run"
                            f" {entry['run']!r} with the digest {str(entry['digest'])[:12]}, not of"
                            f" {federation.run!r} with {digest[:12]}: use a directory of its own"
                        )
                    self.name, self.seed = bytes.fromhex(entry["journal"]), int(entry["seed"])
                else:
                    payload = base64.b64decode(entry["payload"])
                    received = Received.from_bytes(payload, plan.num_devices, plan.dim)
                    states = entry["journals"].items()
                    known = {int(k): JournalState(bytes.fromhex(n), int(e)) for k, (n, e) in states}
                    self._follow(received, known)
        except InvalidSetting:
            self._file.close()
            raise
        except Exception as error:  # reading a damaged file may raise any exception
            self._file.close()
            raise RunFailed(f"{str(self._file.path)!r} is no journal of the air: {error}") from (
                error
            )
        if self.seed < 0:
            self.seed = int.from_bytes(os.urandom(6), "little")
            self.name = os.urandom(JOURNAL_BYTES)
            about = {"run": federation.run, "digest": digest, "seed": self.seed}
            self._file.append({**about, "journal": self.name.hex()})

    def _follow(self, received: Received, journals: Mapping[int, JournalState]) -> None:
        """Update the air's memory from one entry of its journal: the last closed round and its
        signal, and, by number of the device, the states of the ``journals`` of the devices
        whose answers to the round arrived, which have answered it."""
        self.round, self.last = received.round, received
        # Not those that count as active: a radio receiver counts every scheduled device, and one
        # that was absent would be taken for an older copy of itself when it is back.
        self.answered[list(journals)] = received.round
        self._journals |= journals

    def follows(self, device: int, name: bytes, epoch: int) -> bool:
        """Whether an answer with this journal name and epoch continues the device's journal as
        the air last saw it, and does not come from another journal or an older copy."""
        before = self._journals.get(device)
        return before is None or (name == before.name and epoch > before.epoch)

    def keep(self, received: Received, journals: Mapping[int, JournalState]) -> None:
        """Record the received signal of a round and, by number of the device, the journal states of
        its active devices; the signal may be published when this has returned, because it is on the
        disk."""
        self._file.append(
            {
                "round": received.round,
                "payload": base64.b64encode(received.to_bytes()).decode(),
                "journals": {str(k): [j.name.hex(), j.epoch] for k, j in journals.items()},
            }
        )
        self._follow(received, journals)

    def close(self) -> None:
        """Release the journal's file and its lock."""
        self._file.close()
