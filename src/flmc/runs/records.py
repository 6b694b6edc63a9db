"""A run on disk, readable without flmc: JSON, npz, and a ledger of text lines.

``run.json``
    The request: settings, plan, seed, chains, engine, versions; written once.
``ledger.txt``
    The privacy spending, round by round (:mod:`flmc.runs.ledger`); always ahead of the
    checkpoint.
``checkpoint.npz``
    The state of the chains after some round; ``previous.npz`` is the checkpoint before.
``path-A-B.npz``
    Positions number A to B - 1 of the chains (of all rounds, or of kept ones where the burn-in is
    not stored), until the run is finished.
``progress.json``
    The round and the metrics so far, until the run is finished.
``draws.npz``
    Mean, covariance (or variance, where entries are many) and, if they were kept, all draws of a
    finished run, and its positions: those of the burn-in, or all where draws are midpoints.
``result.json``
    Plan, metrics and everything else of a finished run.

Version 1 had ``draws.npz`` and ``result.json`` only."""

from __future__ import annotations

import json
import math
import os
import platform
import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from flmc.base import checks
from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting, RunFailed
from flmc.base.findings import Finding
from flmc.base.version import VERSION
from flmc.evaluation.answer import Answer, doubting, find_answer, find_federated_answer
from flmc.evaluation.shown_answer import FindAnswer, ShownAnswer
from flmc.models.distributions import Prior
from flmc.models.model import Model
from flmc.models.parameters import Layout
from flmc.planning.plans import Plan
from flmc.runs.files.append_log import Log
from flmc.runs.files.durable_files import locked, read_arrays, read_json, write_json
from flmc.runs.files.regular_files import check_regular, digest_of_file, read_regular
from flmc.runs.fingerprints import option_for
from flmc.runs.ledger import rounds_seen
from flmc.runs.provenance import provenance

SCHEMA_VERSION = 3
"""Version of the record format that this flmc writes; from version 3 on every file of a record has
a digest."""
_READ = (1, 2, 3)
"""Versions of the record format that this version of flmc reads."""


def check_new(directory: Path) -> None:
    """Raise ``InvalidSetting`` unless a new record can begin in ``directory``: it must be missing
    or empty, or hold only the lock and the temporary file of a record that was never begun."""
    if directory.exists() and (
        not directory.is_dir()
        or any(not p.name.startswith((".lock", ".run.json.")) for p in directory.iterdir())
    ):
        asked = directory / "run.json"
        unfinished = asked.exists() and not asked.is_symlink() and not is_finished(directory)
        go_on = f"; to go on with the run in it: {how_to_resume(directory)}" if unfinished else ""
        raise InvalidSetting(f"out must be a new or empty directory, got {str(directory)!r}{go_on}")
    if directory.exists():
        check_regular(directory)


def how_to_resume(directory: Path) -> str:
    """The command that resumes a run, with the option by which it finds the user's own code, or the
    Python call if the run was started in Python."""
    settings = read_json(directory / "run.json").get("settings")
    if settings is None:
        return f"flmc.resume({str(directory)!r}, plan, model)"
    # Imported here, because it loads pydantic, which a run from Python does not need.
    from flmc.settings.construction import named_code

    named = named_code(settings)
    option = f" {option_for(named.values())}" if named else ""
    return f"flmc resume {shlex.quote(str(directory))}{option}"


@contextmanager
def create(directory: Path, description: Mapping[str, Any]) -> Iterator[None]:
    """Context with a new record, whose lock is held: its ``run.json`` has the entries of
    ``description``, the versions of flmc and libraries, and the provenance. A run that is refused
    (``InvalidSetting``) before its first round leaves no record behind."""
    check_new(directory)
    with ExitStack() as held:
        try:
            directory.mkdir(parents=True, exist_ok=True)
            held.enter_context(locked(directory))
            # Checked again under the lock: another process may have begun a record after the first
            # check.
            check_new(directory)
            write_json(directory / "run.json", {**_head(description), **description})
        except OSError as error:
            raise InvalidSetting(f"cannot write to {str(directory)!r}: {error.strerror}") from error
        try:
            yield
        except InvalidSetting:
            # Nothing was spent and nothing can be resumed: the same directory serves the corrected
            # run.
            if not (directory / "ledger.txt").exists():
                (directory / "run.json").unlink(missing_ok=True)
            raise


def _head(description: Mapping[str, Any]) -> dict[str, Any]:
    """The first entries of a new ``run.json``: versions of the record format, of flmc, NumPy and
    Python, and the whole provenance. ``description`` has the run's other entries, of which only the
    engine is used."""
    versions = {"flmc": VERSION, "numpy": np.__version__, "python": platform.python_version()}
    made_by = {"versions": versions, "provenance": provenance(description.get("engine"))}
    return {"schema_version": SCHEMA_VERSION, **made_by}


@contextmanager
def reopen(directory: Path) -> Iterator[dict[str, Any]]:
    """Context in which the record of an unfinished run is locked; its value is the content of
    ``run.json``. ``InvalidSetting`` if the run is finished."""
    document = describe(directory)
    with ExitStack() as held:
        try:
            held.enter_context(locked(directory))
        except OSError as error:
            raise InvalidSetting(f"cannot write to {str(directory)!r}: {error.strerror}") from error
        # Checked under the lock: the process that held it before may have finished the run.
        if is_finished(directory):
            raise InvalidSetting(
                f"the run in {str(directory)!r} is finished: there is nothing to go on with"
            )
        clean_up(directory, finished=False)
        yield document


def clean_up(directory: Path, *, finished: bool = True) -> None:
    """Remove from a record the temporary files of killed processes and, if the run is ``finished``,
    its checkpoints, positions and progress file, which ``result.json`` and ``draws.npz``
    replace."""
    names = ["run.json", "result.json", "progress.json", "draws.npz", "checkpoint.npz"]
    names += ["path-*.npz", "ledger.txt.cut"]
    leftover = [path for name in names for path in directory.glob(f".{name}.*")]
    if finished:
        leftover += [
            directory / name for name in ("checkpoint.npz", "previous.npz", "progress.json")
        ]
        leftover += [
            directory / f"path-{first}-{last}.npz" for first, last in parts_of_path(directory)
        ]
    for path in leftover:
        path.unlink(missing_ok=True)


def is_finished(directory: Path) -> bool:
    """Whether the run of a record is finished: whether ``result.json`` exists, which a run writes
    last."""
    return (directory / "result.json").exists()


def describe(directory: Path) -> dict[str, Any]:
    """The content of a record's ``run.json``, that is the request of the run; for a record of
    version 1 ``schema_version`` only. ``InvalidSetting`` if there is no record, or one of a version
    that this flmc does not read; ``RunFailed`` if the file is damaged."""
    if not directory.is_dir():
        begun = (
            ""
            if os.path.lexists(directory)
            else (
                ": nothing is there, as after a run that ended while it planned, before its first"
                " round; start it again"
            )
        )
        raise InvalidSetting(f"{str(directory)!r} is not a directory with a record{begun}")
    if not any(os.path.lexists(directory / name) for name in ("run.json", "result.json")):
        if all(os.path.lexists(directory / name) for name in ("pilot", "main")):
            raise InvalidSetting(
                f"{str(directory)!r} holds the records of two stages: name one of them,"
                f" {str(directory / 'main')!r} for what was sampled in the end"
            )
        raise InvalidSetting(f"{str(directory)!r} holds no record: there is no run.json in it")
    check_regular(directory)
    if not (directory / "run.json").exists():
        return {"schema_version": 1}
    version = _version_of(directory / "run.json")
    if version not in _READ:
        raise InvalidSetting(
            f"{str(directory)!r} has schema_version {version!r}, and this flmc ({VERSION}) reads 1"
            f" to {SCHEMA_VERSION}: use the flmc that made it, or a newer one"
        )
    return read_json(directory / "run.json", signed=version == SCHEMA_VERSION)


def _version_of(path: Path) -> Any:
    """Value of ``schema_version`` in the ``run.json`` at ``path``, read before the digest of the
    file is checked; None if it has none."""
    try:
        document = json.loads(read_regular(path))
    except (OSError, ValueError, RecursionError) as error:
        raise RunFailed(f"{str(path)!r} cannot be read: {error}") from error
    return document.get("schema_version") if isinstance(document, dict) else None


def parts_of_path(directory: Path) -> list[tuple[int, int]]:
    """Pairs (A, B), one for each file ``path-A-B.npz``, which holds the positions number A to B - 1
    of the chains; in no particular order."""
    ranges = []
    for path in directory.glob("path-*-*.npz"):
        match = re.fullmatch(r"path-(\d+)-(\d+)\.npz", path.name)
        if match:
            ranges.append((int(match[1]), int(match[2])))
    return ranges


def federated_names(asked: Mapping[str, Any]) -> Layout | None:
    """Names of the entries of theta in ``asked``, the contents of ``run.json`` in a federation's
    record; None if they have none. Raises ``InvalidSetting`` for names that may not be shown."""
    names = asked["federation"].get("names")
    return Layout.of_names(checks.plain_names("names", names), len(names)) if names else None


@dataclass(frozen=True)
class Record:
    """Record of a finished run, or of one that is under way, as :func:`flmc.load` found it on disk.
    ``asked`` has the request of the run, ``round`` the number of rounds that are done and saved."""

    directory: Path
    """The directory that holds the record."""
    schema_version: int
    """Version of the record's format, 1 to 3."""
    asked: dict[str, Any] = field(repr=False)
    """Request of the run (settings, plan, seed, chains, engine), from ``run.json``; empty for
    version 1."""
    result: dict[str, Any] | None = field(repr=False)
    """The document of the result, from ``result.json``; None while the run is not finished."""
    ledger: list[str] = field(repr=False)
    """Entries of the ledger, a line of JSON for each round that counts as spent."""
    ledger_damaged: bool = False
    """Whether unreadable entries follow the last readable one of the ledger."""
    round: int = 0
    """Number of rounds that are done and saved, all of which the ledger must list; all rounds of a
    finished run, 0 for a record of version 1."""
    files: dict[str, str] = field(default_factory=dict, repr=False)
    """SHA-256 digests, by file name, of the files of a finished run that ``result.json`` lists;
    empty for other records."""

    @property
    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Arrays of a finished run by name: ``mean`` (experiment, dim), ``covariance`` (experiment,
        dim, dim) or, where entries are many, ``variance`` (experiment, dim), and, if they were
        kept, ``draws`` (experiment, chain, draw, dim) and what an answer needs beside them: theta
        during the burn-in, ``burn_in`` (experiment, chain, round, dim), or, where draws are
        midpoints, at the start and after all rounds, ``positions``, with the same axes.
        ``InvalidSetting`` if the run is not finished, ``RunFailed`` if the file is damaged."""
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

    def posterior(
        self, model: Model | Prior, plan: Plan | None = None, *, by_chain: bool = False
    ) -> Answer:
        """The answer of a finished run: what the server knows of theta, with the same numbers as
        :meth:`flmc.Result.posterior`.

        Parameters
        ----------
        model
            The model that was run; of its data only sizes are used. The second of two stages may
            be given the model in its own coordinates, if the record of the pilot is beside it: its
            answer is computed from the second stage's rounds. For the record of a federation, whose
            server has no data, the prior (:class:`flmc.Normal` or another) is enough.
        plan
            The plan of the run; None: it is read from the record. A plan with classes of your own,
            such as a fading, must be given.
        by_chain
            Whether every chain has an answer of its own, as if it alone had been run.

        Returns
        -------
        Answer
            One answer for every data set, or for every chain.

        Raises
        ------
        InvalidSetting
            If the run is not finished, kept no draws or thinned them out, or the plan or the model
            is not that of the record.

        Examples
        --------
        >>> import tempfile
        >>> model = flmc.LinearGaussian(flmc.data.draw_linear(seed=1))
        >>> plan = flmc.plan(model, flmc.Analog(clip=30), flmc.Limits(privacy="off"))
        >>> with tempfile.TemporaryDirectory() as out:
        ...     result = flmc.run(plan, model, engine="numpy", out=out)
        ...     answer = flmc.load(out).posterior(model)
        ...     bool((answer.mean == result.posterior().mean).all())
        True
        """
        return self._answer_finder(model, plan)[0](by_chain=by_chain)

    def shown_answer(
        self, model: Model | Prior, plan: Plan | None = None, *, all_chains: bool = False
    ) -> ShownAnswer:
        """The answer for the first data set, which the command ``flmc answer`` prints. Raises the
        errors of :meth:`posterior`.

        Parameters
        ----------
        model, plan
            As for :meth:`posterior`.
        all_chains
            Whether the answer uses all chains together; False: the first chain alone, which is what
            the stated epsilon covers.
        """
        find, shape = self._answer_finder(model, plan)
        return ShownAnswer.of(find, "aware", shape, all_chains=all_chains)

    def _answer_finder(
        self, model: Model | Prior, plan: Plan | None
    ) -> tuple[FindAnswer, tuple[int, ...]]:
        """A pair: a function that computes the answer of the record, with the keyword arguments of
        :func:`flmc.evaluation.answer.find_answer`, and the shape of the record's draws,
        (experiment, chain, draw, dim). Raises the errors of :meth:`posterior`."""
        arrays, asked = self.arrays, self.asked
        if not asked:
            raise InvalidSetting(
                f"the record in {str(self.directory)!r} has version 1, without seed and plan: an"
                " answer needs them; run it again"
            )
        if "draws" not in arrays:
            raise InvalidSetting("an answer needs the draws, and this run kept none: run it again")
        if plan is None:
            plan = Plan.from_document(asked["plan"])
        if plan.digest != asked.get("plan_digest", plan.digest):
            raise InvalidSetting(
                f"the record in {str(self.directory)!r} has another plan"
                f" ({asked['plan_digest'][:12]}, given {plan.digest[:12]})"
            )
        shape = arrays["draws"].shape
        theta = _positions(plan, arrays)
        if "federation" in asked:
            seen = rounds_seen(self.ledger[: plan.num_rounds], plan.num_devices)
            find: FindAnswer = partial(
                find_federated_answer, plan, model, theta[0], *seen, layout=federated_names(asked)
            )
            return self._doubting(find, plan), shape
        if isinstance(model, Prior):
            raise InvalidSetting(
                "only the record of a federation has an answer from the prior alone: give the model"
            )
        sizes = (model.num_experiments, plan.num_devices, plan.dim)
        if sizes != (len(theta), model.num_devices, model.dim):
            raise InvalidSetting(
                f"the record has {len(theta)} data sets of {plan.num_devices} devices and dim"
                f" {plan.dim}, and the model has {model.num_experiments}, {model.num_devices} and"
                f" {model.dim}"
            )
        if model.coordinates is None and any(f.code == "second-stage" for f in plan.findings):
            model = self._in_pilot_coordinates(model)
        if model.coordinates is not None:
            theta = model.coordinates.from_model(theta)
        find = partial(find_answer, plan, int(asked["seed"]), model, theta)
        return self._doubting(find, plan), shape

    def _doubting(self, find: FindAnswer, plan: Plan) -> FindAnswer:
        """The function ``find``, which computes answers, wrapped so that each answer has those
        findings of the finished run that put it in doubt."""
        result = self.result or {}
        findings = [Finding.from_document(each) for each in result.get("findings", ())]
        clipped = result.get("clipped_fraction")
        share = math.nan if clipped is None else float(clipped)
        return doubting(find, findings, share, plan)

    def _in_pilot_coordinates(self, model: Model) -> Model:
        """The ``model`` of the second of two stages, in the coordinates in which that stage was
        sampled. These are computed from the record of the pilot, in the directory beside this one;
        ``InvalidSetting`` if there is none."""
        from flmc.runs.two_stage_run import in_pilot_coordinates  # that module imports this one

        place = self.directory.absolute().parent / "pilot"
        if not (place / "run.json").exists():
            raise InvalidSetting(
                "this is the second of two stages, whose coordinates follow from the pilot: there"
                f" is no record of it in {str(place)!r}; give the model in these coordinates"
            )
        return in_pilot_coordinates(model, load(place))

    @property
    def kept_draws(self) -> Array | None:
        """Kept draws of a finished run, (experiment, chain, draw, dim); None if they were not
        kept."""
        return self.arrays.get("draws")

    @property
    def draws(self) -> Array:
        """Kept draws of a finished run, (experiment * chain, draw, dim), as in
        :attr:`flmc.Result.draws`; ``InvalidSetting`` if none were kept."""
        arrays = self.arrays
        if "draws" not in arrays:
            raise InvalidSetting("this run kept no draws: run it with keep_draws=True")
        return np.asarray(arrays["draws"].reshape(-1, *arrays["draws"].shape[2:]))


def _positions(plan: Plan, arrays: Mapping[str, Array]) -> Array:
    """Theta after consecutive rounds, (experiment, chain, round, dim), from the ``arrays`` of a
    record: after all rounds if those of the burn-in were stored, else after the kept ones. Where
    draws are positions they are part of it, thinned out as they are. ``InvalidSetting`` if the
    record has midpoints only."""
    if not plan.midpoints:
        draws, burn_in = arrays["draws"], arrays.get("burn_in")
        return draws if burn_in is None else np.concatenate([burn_in, draws], axis=2)
    if "positions" not in arrays:
        raise InvalidSetting(
            "an answer needs the positions after all rounds, and this record has only draws between"
            " them: run with thin=1"
        )
    theta, kept = arrays["positions"], plan.num_rounds - plan.num_burn_in
    # The first stored position is the start, if all rounds are stored, or else the position after
    # the last round of the burn-in.
    return theta[:, :, 1 if theta.shape[2] == plan.num_rounds + 1 else -kept :]


def load(directory: str | Path) -> Record:
    """Open the record of a run on disk, of this format version or an earlier one.

    Parameters
    ----------
    directory
        Directory that :func:`flmc.run` made with ``out``, or :meth:`flmc.Result.save`.

    Returns
    -------
    Record
        Of a finished run, or of one that is under way.

    Raises
    ------
    InvalidSetting
        If there is no record, or one of a version that this flmc does not read.
    RunFailed
        If a file of the record is damaged or cannot be read.

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
    # Records of version 1 have no ``run.json``, so that the seed is missing here: their request is
    # empty.
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
