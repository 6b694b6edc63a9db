"""The record of a federation's run: as in a simulation, with every theta until the run is
finished.

A round is committed when its line in the ledger and the theta after it are on the disk; only
then theta is published. After a crash the server continues with the same theta.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import numpy.typing as npt

from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting, RunFailed
from flmc.deploy.journal_file import JournalFile
from flmc.runs import records
from flmc.runs.files.append_log import Log
from flmc.runs.recorder import finish_record
from flmc.runs.results import Result, describe
from flmc.wire.federation import Federation

ENGINE = "federation"
"""Name of the engine in records and results of a run on separate machines."""
_ROUNDS = "rounds.txt"
"""File of the committed thetas, removed when the result is written."""


class ServerRecord:
    """The record of a run, open and locked: a new one in an empty directory, starting at
    ``draw_start()``, or an unfinished one of the same federation. Raises ``InvalidSetting`` for
    any other directory, and ``RunFailed`` if the record is damaged."""

    def __init__(
        self, directory: Path, federation: Federation, draw_start: Callable[[], Array]
    ) -> None:
        self.directory, self.federation = directory, federation
        self._held = ExitStack()
        try:
            self._open(federation)
            self._log = Log(directory / "ledger.txt")
            self._file = JournalFile(directory, _ROUNDS, lock=False)
            self._held.callback(self._file.close)
            self.thetas: list[Array] = []
            """Theta before round 1 and after every committed round, (dim) each."""
            self.num_active: list[int] = []
            """Number of active devices in every committed round."""
            self._read()
            if not self.thetas:
                self._keep(draw_start())
        except BaseException:
            self._held.close()
            raise

    def _open(self, federation: Federation) -> None:
        """Create the record in its directory, or reopen an unfinished one; raises
        ``InvalidSetting`` if it is of another federation."""
        if not (self.directory / "run.json").exists():
            asked = describe(federation.plan, 0, 1, ENGINE, True)
            about = federation.to_document()
            del about["plan"]
            kept = {"settings": None, "checkpoint_rounds": None, "identity": about["digest"]}
            self._held.enter_context(
                records.create(self.directory, {**asked, **kept, "federation": about})
            )
            return
        self._held.enter_context(records.reopen(self.directory))
        check_same_run(self.directory, federation)

    def _read(self) -> None:
        """Read theta and the number of active devices of every committed round from the disk;
        raises ``RunFailed`` if the record is damaged."""
        dim = self.federation.plan.dim
        try:
            for number, entry in enumerate(self._file.entries()):
                theta = np.frombuffer(base64.b64decode(entry["theta"]), dtype="<f8")
                if entry["round"] != number or theta.shape != (dim,):
                    raise ValueError("rounds do not follow each other")
                self.thetas.append(theta.astype(np.float64))
                if number:
                    self.num_active.append(int(entry["active"]))
        except (KeyError, ValueError, TypeError) as error:
            raise RunFailed(f"{str(self._file.path)!r} is damaged: {error}") from error
        if len(self._log.entries) < self.round:
            raise RunFailed(
                f"the ledger in {str(self.directory)!r} ends with round {len(self._log.entries)},"
                f" and {self.round} are committed: something has been cut off"
            )

    def _keep(self, theta: Array, num_active: int = 0) -> None:
        """Append theta (dim) after a round, and the round's number of active devices, to the file
        of committed rounds."""
        text = base64.b64encode(np.ascontiguousarray(theta, dtype="<f8").tobytes()).decode()
        self._file.append({"round": len(self.thetas), "active": num_active, "theta": text})
        self.thetas.append(theta)

    @property
    def round(self) -> int:
        """Number of committed rounds, whose theta is on the disk."""
        return max(0, len(self.thetas) - 1)

    @property
    def theta(self) -> Array:
        """Theta after the last committed round, (dim)."""
        return self.thetas[-1]

    @property
    def ledger(self) -> list[str]:
        """Lines of the ledger, one of JSON for each committed round (gain, silent devices,
        temperature), and perhaps one more after a crash."""
        return self._log.entries

    def commit(
        self, theta: Array, gain: Array, active: npt.NDArray[np.bool_], temperature: float | None
    ) -> None:
        """Record theta (dim) after a round, the accounted gain (1 or dim), the active devices
        (device) and the temperature (None: unknown), and return when all is on the disk."""
        number = self.round + 1
        entry = {
            "round": number,
            "gain": [float(value) for value in gain],
            "silent": [int(k) for k in np.flatnonzero(~active)],
            "temperature": None if temperature is None else round(temperature, 6),
        }
        # The ledger first: after a crash between the two writes it names a round that the air
        # publishes again with the same bytes, so that nothing was spent without a line.
        if len(self._log.entries) < number:
            try:
                self._log.append([json.dumps(entry, separators=(",", ":"))])
            except OSError as error:
                raise RunFailed(f"cannot write the ledger: {error.strerror}") from error
        count = int(active.sum())
        self._keep(theta, count)
        self.num_active.append(count)

    def finish(self, result: Result) -> None:
        """Write the result of the run, and remove the file of committed rounds; the record is then
        like that of a simulation."""
        finish_record(self.directory, result.to_document(), result.arrays)
        (self.directory / _ROUNDS).unlink(missing_ok=True)

    def close(self) -> None:
        """Release the record's files and its lock."""
        self._held.close()


def check_same_run(directory: Path, federation: Federation) -> None:
    """Raise ``InvalidSetting`` if the record in a directory is of another federation, by its
    digest."""
    identity, digest = str(records.describe(directory).get("identity")), federation.digest.hex()
    if identity != digest:
        raise InvalidSetting(
            f"{str(directory)!r} holds another run, {identity[:12]}, and this one is"
            f" {digest[:12]}: use a directory of its own"
        )
