"""A recorded run as it is found on disk, opened to be read."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting, RunFailed
from flmc.runs.files.append_log import Log
from flmc.runs.files.durable_files import read_arrays, read_json
from flmc.runs.files.regular_files import digest_of_file
from flmc.runs.records import describe


@dataclass(frozen=True)
class Record:
    """A finished run, or one that is under way, as :func:`flmc.load` found it on disk."""

    directory: Path
    """Where the record is."""
    schema_version: int
    """Version of the record, 1 or 2."""
    asked: dict[str, Any] = field(repr=False)
    """What was asked, from ``run.json``; empty for version 1."""
    result: dict[str, Any] | None = field(repr=False)
    """The document of the result, from ``result.json``; None while the run is not finished."""
    ledger: list[str] = field(repr=False)
    """Entries of the ledger, a line of JSON for each round that counts as spent."""
    ledger_damaged: bool = False
    """Whether the ledger has entries that cannot be read, behind the last one that can."""
    round: int = 0
    """Rounds that are done and saved, which the ledger must tell of; of a finished run all, or 0 if
    its record is of version 1."""
    files: dict[str, str] = field(default_factory=dict, repr=False)
    """Digests of the files of a finished run, by name."""

    @property
    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Mean (experiment, dim), covariance (experiment, dim, dim) and, if they were kept, draws
        (experiment, chain, draw, dim) of a finished run."""
        if self.result is None:
            raise InvalidSetting(
                f"the run in {str(self.directory)!r} is not finished: go on with flmc.resume"
            )
        path = self.directory / "draws.npz"
        stated = self.files.get(path.name)
        try:
            kept = stated is None or digest_of_file(path) == stated
        except OSError as error:
            raise RunFailed(f"{str(path)!r} cannot be read: {error.strerror}") from error
        if not kept:
            raise RunFailed(f"{str(path)!r} is damaged: its contents do not have its digest")
        return read_arrays(path)

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
    """Open the record of a run, of this version or the one before.

    Parameters
    ----------
    directory
        What :func:`flmc.run` made with ``out``, or :meth:`flmc.Result.save`.

    Returns
    -------
    Record
        Of a finished run, or of one that is under way.

    Raises
    ------
    InvalidSetting
        If there is no record, or one of a version that this flmc does not read.

    Examples
    --------
    >>> import tempfile
    >>> model = flmc.LinearGaussian(flmc.data.draw_linear(seed=1, num_samples=40, num_devices=4))
    >>> plan = flmc.plan(model, flmc.Digital(), num_rounds=6, num_burn_in=2)
    >>> with tempfile.TemporaryDirectory() as out:
    ...     result = flmc.run(plan, model, engine="numpy", out=out)
    ...     record = flmc.load(out)
    ...     bool((record.draws == result.draws).all()), len(record.ledger)
    (True, 6)
    """
    directory = Path(directory)
    asked = describe(directory)
    finished = directory / "result.json"
    signed = asked["schema_version"] >= 3
    result = read_json(finished, signed=signed) if finished.exists() else None
    files = (result or {}).pop("files", {})
    going_on = directory / "progress.json"
    progress = read_json(going_on, signed=signed) if going_on.exists() else {}
    planned = asked.get("plan", {}).get("num_rounds", 0)
    try:
        entries, damaged = Log.read(directory / "ledger.txt")
    except OSError as error:
        raise RunFailed(f"the ledger in {str(directory)!r} cannot be read: {error}") from error
    # A document without a seed is the one that stands for a record of version 1.
    return Record(
        directory,
        asked["schema_version"],
        asked if "seed" in asked else {},
        result,
        entries,
        damaged,
        int(progress.get("round", 0) if result is None else planned),
        files,
    )
