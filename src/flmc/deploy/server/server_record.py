"""The server's record of a run on disk. It has the files of a simulation's record and, until the
run is finished, a file with theta after every round.

A round is committed when its line in the ledger and the theta after it are on the disk; only
then that theta is published. After a crash the server continues with the same theta.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting, RunFailed
from flmc.deploy.accounting import accounted
from flmc.deploy.journal_file import JournalFile
from flmc.deploy.server import server_prior
from flmc.models.distributions import Prior
from flmc.runs import records
from flmc.runs.files.append_log import Log
from flmc.runs.recorder import finish_record
from flmc.runs.results import Result, describe
from flmc.wire.federation import Federation

ENGINE = "federation"
"""Name of the engine in records and results of a run on separate machines."""
REPORT = "report"
"""Name of the array in ``draws.npz`` with the entry of theta that adds up the devices' reports,
(draw); runs without reports have none."""
_ROUNDS = "rounds.txt"
"""Name of the file with theta after every committed round (one that is on the disk); it is removed
when the result is written."""

_SAME_GAIN = 1e-3
"""Largest relative difference between the gain with which symbols arrived and the gain that privacy
accounting uses, at which a line of the ledger names the accounted gain only."""


class ServerRecord:
    """The record of a run on disk, open and locked: a new one in an empty directory, which starts
    with the theta of ``draw_start()`` (dim) and keeps the ``prior`` of the model's parameters
    (None: not known), or an unfinished one of the same federation. Raises ``InvalidSetting`` for
    any other directory, and ``RunFailed`` if the record is damaged."""

    def __init__(
        self,
        directory: Path,
        federation: Federation,
        draw_start: Callable[[], Array],
        prior: Prior | None = None,
    ) -> None:
        self._new_prior = prior
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
        ``InvalidSetting`` if the record is finished or of another federation."""
        if not (self.directory / "run.json").exists():
            asked = describe(federation.plan, 0, 1, ENGINE, True)
            about = federation.to_document()
            del about["plan"]
            kept = {
                "settings": None,
                "checkpoint_rounds": None,
                "prior": server_prior.to_document(self._new_prior),
                "identity": about["digest"],
                # The largest gains that the plan allows in every round, as the accountant counts
                # them: if the run stops early, they bound the cost of rounds that have not begun.
                "accounted_caps": accounted(federation, federation.caps).tolist(),
            }
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
        """Append theta (dim) after a round, and the number of devices that were active in it, to
        the file of committed rounds on the disk."""
        text = base64.b64encode(np.ascontiguousarray(theta, dtype="<f8").tobytes()).decode()
        self._file.append({"round": len(self.thetas), "active": num_active, "theta": text})
        self.thetas.append(theta)

    @property
    def prior(self) -> Prior | None:
        """The prior of the model's parameters that is stored in the record; None: not known."""
        return server_prior.prior_in(records.describe(self.directory))

    @property
    def round(self) -> int:
        """Number of committed rounds: those whose line in the ledger and whose theta are on the
        disk."""
        return max(0, len(self.thetas) - 1)

    @property
    def theta(self) -> Array:
        """Theta after the last committed round, (dim)."""
        return self.thetas[-1]

    @property
    def ledger(self) -> list[str]:
        """Lines of the ledger, one of JSON for each committed round (round, gain, silent devices,
        temperature), and after a crash perhaps one for the round to be committed next."""
        return self._log.entries

    def commit(
        self,
        theta: Array,
        gain: Array,
        active: npt.NDArray[np.bool_],
        temperature: float | None,
        arrived: Array | None = None,
    ) -> None:
        """Record theta (dim) after a round, the gain for the privacy accounting (1 or dim), the
        mask of active devices (device), the temperature (None: unknown) and the gain with which
        symbols arrived (1 or dim; None: the accounted one), and return when all is on the disk."""
        number = self.round + 1
        entry: dict[str, Any] = {
            "round": number,
            "gain": [float(value) for value in gain],
            "silent": [int(k) for k in np.flatnonzero(~active)],
            "temperature": None if temperature is None else round(temperature, 6),
        }
        # ``gain`` in the ledger is the accounted gain, which rounding to the noise grid may make
        # larger than the gain with which symbols arrived. The noise of an estimate follows from the
        # gain of arrival, so the ledger names that gain, too, where the two differ.
        if arrived is not None and not np.allclose(arrived, gain, rtol=_SAME_GAIN, atol=0):
            entry["arrived"] = [float(value) for value in arrived]
        # The ledger is written first: after a crash between the two writes it names a round that
        # the air will publish again with the same bytes, so that no cost is without a line.
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
        arrays = result.arrays
        if self.federation.reports:
            kept = self.thetas[self.federation.plan.num_burn_in + 1 :]
            arrays = {**arrays, REPORT: np.array([theta[-1] for theta in kept])}
        finish_record(self.directory, result.to_document(), arrays)
        (self.directory / _ROUNDS).unlink(missing_ok=True)

    def close(self) -> None:
        """Release the record's files and its lock."""
        self._held.close()


def check_same_run(directory: Path, federation: Federation) -> None:
    """Raise ``InvalidSetting`` if the record in ``directory`` has another digest than
    ``federation``, and so is of another run."""
    identity, digest = str(records.describe(directory).get("identity")), federation.digest.hex()
    if identity != digest:
        raise InvalidSetting(
            f"{str(directory)!r} holds another run, {identity[:12]}, and this one is"
            f" {digest[:12]}: use a directory of its own"
        )
