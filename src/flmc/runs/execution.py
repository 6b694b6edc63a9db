"""Execution of a plan, and continuation of a recorded run that was interrupted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from flmc.base import checks
from flmc.base.errors import InvalidSetting
from flmc.base.progress import Progress
from flmc.base.randomness import check_seed
from flmc.base.version import VERSION
from flmc.models.model import Model
from flmc.planning.plans import Plan
from flmc.runs import records
from flmc.runs.fingerprints import Fingerprints, what_changed
from flmc.runs.job import Job
from flmc.runs.results import Result, describe
from flmc.runs.snapshots import Watch
from flmc.sampling.engine import Engine, Resources
from flmc.sampling.engine_choice import ENGINES, choose_engine
from flmc.sampling.simulation import never


def run(
    plan: Plan,
    model: Model,
    seed: int = 0,
    chains: int = 1,
    *,
    keep_draws: bool = True,
    thin: int = 1,
    engine: str | Engine = "auto",
    threads: int | None = None,
    experiments_at_once: int | None = None,
    progress: Progress | None = None,
    out: str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
    resolved: Mapping[str, Any] | None = None,
    checkpoint_rounds: int | None = None,
    stop: Callable[[], bool] = never,
    watch: Watch | None = None,
) -> Result:
    """Simulate a plan: ``chains`` independent chains of the sampler for every data set of the
    model.

    Parameters
    ----------
    plan, model
        A plan that :func:`flmc.plan` made for this model.
    seed, chains
        Seed of all randomness, and number of chains for every data set.
    keep_draws, thin
        Whether to keep draws, and of how many kept rounds one is stored: with ``thin=10`` every
        tenth. Without draws memory does not grow with the rounds; mean and
        covariance use every kept round, whatever ``thin`` is.
    engine
        `numba` (quadratic models), `jax` (models from log densities, of any size), `numpy` (any
        model) or `auto`: the first of them that is installed and applies; or an
        :class:`~flmc.sampling.engine.Engine` of your own.
    threads, experiments_at_once
        Threads, and data sets handled together; they change speed and memory only. None: chosen
        automatically.
    progress
        Called with the finished fraction now and then.
    out, settings
        A new or empty directory in which the run is recorded while it goes, so that
        :func:`flmc.resume` can continue it; and settings stored there, from which the command
        `flmc resume` makes plan and model again.
    resolved
        The same settings with every default and every automatic choice written out, for readers of
        the record.
    checkpoint_rounds
        Rounds between checkpoints; None: as many as pass in about five seconds.
    stop
        Called now and then; when it returns True, the run is saved (with ``out``) and ends.
    watch
        Called with a :class:`flmc.runs.snapshots.Snapshot` about twice a second: draws and metrics
        so far.

    Raises
    ------
    InvalidSetting
        If plan and model do not fit, the engine cannot run them, or ``out`` is not empty.
    RunFailed
        If theta of a chain is no longer finite, no gradient is finite, the run's privacy budget is
        spent, a scheduler lets a device transmit more often than it declares, or the record cannot
        be written.
    Interrupted
        If ``stop`` returned True.

    Examples
    --------
    >>> model = flmc.LinearGaussian(flmc.data.draw_linear(seed=1, num_samples=40, num_devices=4))
    >>> plan = flmc.plan(model, flmc.Digital(), num_rounds=6, num_burn_in=2)
    >>> flmc.run(plan, model, seed=1, chains=3, engine="numpy").draws.shape
    (3, 4, 5)
    """
    _check(
        plan,
        model,
        threads=threads,
        experiments_at_once=experiments_at_once,
        checkpoint_rounds=checkpoint_rounds,
        thin=thin,
    )
    if keep_draws and thin > plan.num_rounds - plan.num_burn_in:
        raise InvalidSetting(
            f"thin must be at most the {plan.num_rounds - plan.num_burn_in} rounds that are kept,"
            f" got {thin}"
        )
    seed, chains = check_seed(seed), checks.at_least("chains", chains, 1)
    job = Job(plan, model, seed, chains, choose_engine(engine, plan, model), keep_draws, thin)
    resources = Resources(threads, experiments_at_once, progress)
    if out is None:
        return job.run(None, stop, resources, watch)
    description = {
        **describe(plan, seed, chains, job.engine.name, keep_draws, thin),
        "identity": job.identity,
        "contents": {**job.code, **Fingerprints().of_settings(settings or {})},
    }
    # ``activity`` raises an error if the scheduler breaks its promise. It is computed before the
    # record is created, because a run that is refused must not leave a record in the way of the
    # corrected run.
    _ = job.activity
    kept = {
        "settings": None if settings is None else dict(settings),
        "resolved": None if resolved is None else dict(resolved),
        "checkpoint_rounds": checkpoint_rounds,
    }
    with records.create(Path(out), {**description, **kept}):
        return job.run(job.recorder(Path(out), checkpoint_rounds), stop, resources, watch)


def resume(
    directory: str | Path,
    plan: Plan,
    model: Model,
    *,
    engine: Engine | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
    stop: Callable[[], bool] = never,
) -> Result:
    """Continue a recorded run that was interrupted; the result equals, bit by bit, that of a run
    without the interruption.

    Parameters
    ----------
    directory
        Directory that :func:`flmc.run` made with ``out``.
    plan, model
        Plan and model with which the run began.
    engine
        The engine of your own with which it began; None: it began with one of flmc's.
    threads, progress, stop
        The same as for :func:`flmc.run`.

    Raises
    ------
    InvalidSetting
        If the run is finished, or began with another plan, other data or another version of flmc.
    RunFailed, Interrupted
        As for :func:`flmc.run`.
    """
    _check(plan, model, threads=threads)
    path = Path(directory)
    with records.reopen(path) as asked:
        chosen = choose_engine(_engine_of(path, asked["engine"], engine), plan, model)
        job = Job(
            plan,
            model,
            asked["seed"],
            asked["num_chains"],
            chosen,
            asked["keep_draws"],
            asked.get("thin", 1),
        )
        now = {**job.code, **Fingerprints().of_settings(asked.get("settings") or {})}
        then = asked.get("contents", now)  # older records have no ``contents``: skip the comparison
        # Files and modules are compared before the plans, because an edited file often changes the
        # plan too, and its name tells the user more than two digests of plans would.
        changed = what_changed(then, now, repr(str(path)))
        if changed is not None:
            raise InvalidSetting(f"{changed}, or begin a new run")
        if asked["plan_digest"] != plan.digest:
            raise InvalidSetting(
                f"the record in {str(path)!r} has another plan ({asked['plan_digest'][:12]}, now"
                f" {plan.digest[:12]}): {_why_another(asked)}"
            )
        if job.code and "contents" not in asked:
            raise InvalidSetting(
                f"the record in {str(path)!r} has no digests of code, and {min(job.code)!r} is not"
                " flmc's: whether it was changed since the run began is not known; begin a new run"
            )
        if asked["identity"] != job.identity:
            raise InvalidSetting(
                f"the record in {str(path)!r} was made with other data, or another prior, link or"
                " channel"
            )
        recorder = job.recorder(path, asked["checkpoint_rounds"])
        return job.run(recorder, stop, Resources(threads, progress=progress))


def _why_another(asked: dict[str, Any]) -> str:
    """Clause of an error message that names the likely reason why the plan is not the one in the
    record ``asked``: another version of flmc, or else other settings or data. It is for the case
    that no recorded file or module was changed."""
    made_by = asked["versions"]["flmc"]
    if made_by != VERSION:
        return f"it was made by flmc {made_by}, and this is {VERSION}"
    return "it was made from other settings or data, or from a file that your own code reads"


def _engine_of(path: Path, name: str, given: Engine | None) -> str | Engine:
    """The engine with which the recorded run in ``path`` continues: ``name``, if that is one of
    flmc's engines, or the user's own engine ``given``. ``InvalidSetting`` if the record began with
    another engine than ``given``, or with an engine of a user's own that is not given."""
    if given is None and name not in ENGINES:
        raise InvalidSetting(
            f"the record in {str(path)!r} began with the engine {name!r}, which is not one of"
            " flmc's own: pass the object as engine="
        )
    if given is not None and given.name != name:
        raise InvalidSetting(
            f"the record in {str(path)!r} began with the engine {name!r}, got {given.name!r}"
        )
    return name if given is None else given


def _check(plan: Plan, model: Model, **counts: int | None) -> None:
    """Raise ``InvalidSetting`` for arguments of the wrong type, counts below 1, or a plan made for
    another number of devices or entries than the model has."""
    for name, value, kind in (("plan", plan, Plan), ("model", model, Model)):
        if not isinstance(value, kind):
            raise InvalidSetting(
                f"{name} must be a flmc.{kind.__name__}, got {type(value).__name__}"
            )
    for name, count in counts.items():
        if count is not None:
            checks.at_least(name, count, 1)
    if (plan.num_devices, plan.dim) != (model.num_devices, model.dim):
        raise InvalidSetting(
            f"the plan is for {plan.num_devices} devices and dim {plan.dim},"
            f" the model has {model.num_devices} and {model.dim}"
        )
