"""The loop over rounds of a simulated run.

An engine runs some rounds in one call, here called a stretch; between two stretches a run can stop
and be saved."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from flmc.base.memory import fits
from flmc.base.progress import report_within
from flmc.base.randomness import ROUNDS_PER_BLOCK
from flmc.models.model import Model
from flmc.planning.plans import Plan
from flmc.sampling.chains import Chains
from flmc.sampling.engine import DEFAULT_RESOURCES, Engine, Resources
from flmc.sampling.engine_choice import choose_engine
from flmc.sampling.moments import keeps_covariance
from flmc.sampling.path import first_place
from flmc.sampling.schedule import DrawSchedule, draw_schedule

_STRETCH, _PATIENCE = 0.5, 5.0
"""Seconds that a stretch, the rounds of one call of the engine, should take: ``_STRETCH`` in a run
that is recorded on disk, so that it stops soon when asked; ``_PATIENCE`` in any other run that can
be stopped, because every call prepares the data sets again."""


def never() -> bool:
    """Return False: the default ``stop`` function, for a run that cannot be stopped early."""
    return False


class RoundObserver(Protocol):
    """Interface of an object that is called before and after every stretch of a run: the rounds
    that the engine runs in one call."""

    def begins(self, until: int) -> None:
        """Called before the engine runs its next rounds; ``until`` is the last of them, counted
        from 1."""

    def ended(self, chains: Chains, *, now: bool = False) -> None:
        """Called after the engine has run some rounds, with the state ``chains``. ``now`` is True
        if the run stops here, so that this is the last chance to save it."""

    def restore(self, chains: Chains) -> None:
        """Called once before the first round: replaces the state ``chains``, in place, by that of
        the last checkpoint of the run, if there is one."""


def simulate(
    plan: Plan,
    model: Model,
    seed: int,
    num_chains: int = 1,
    *,
    engine: Engine | str = "auto",
    keep_draws: bool = False,
    thin: int = 1,
    directory: Path | None = None,
    resources: Resources = DEFAULT_RESOURCES,
    most_rounds: int | None = None,
    last_round: int | None = None,
    observer: RoundObserver | None = None,
    stop: Callable[[], bool] = never,
    schedule: DrawSchedule = draw_schedule,
) -> Chains:
    """Run the chains of a plan, ``num_chains`` of every data set, and return their final state.

    Rounds are run in stretches: the rounds of one call of the engine. One draw is kept for each
    ``thin`` kept rounds; draws that take much memory are stored in a file of ``directory``. A
    stretch ends at the latest at the next multiple of ``most_rounds``, where checkpoints are made.
    The run ends after round ``last_round`` (None: after all), or when ``stop``, called between
    stretches, returns True. ``observer`` is called before and after every stretch. ``schedule``
    draws gains and active devices; a study that sets them in another way than the plan passes its
    own. ``InvalidSetting`` if the engine cannot run the plan or memory does not suffice,
    ``RunFailed`` if theta of a chain becomes infinite or NaN."""
    # ``each`` is the number of bytes of one chain in double precision: its position, sums, stored
    # positions, draws and products.
    first = first_place(plan, model.num_experiments * num_chains, thin)
    stored = 0
    if keep_draws and not directory:
        draws = (plan.num_rounds - plan.num_burn_in) // thin
        stored = (plan.num_rounds + 1 - first) // thin + plan.midpoints * draws
    each = 8.0 * plan.dim * (2 + stored)
    each += 8.0 * plan.dim ** (2 if keeps_covariance(plan.dim, num_chains) else 1)
    fits("the chains" + " and their draws" * keep_draws, each * model.num_experiments * num_chains)
    chosen = choose_engine(engine, plan, model)
    chains = chosen.start(
        plan, model, seed, num_chains, keep_draws=keep_draws, thin=thin, directory=directory
    )
    if observer is not None:
        observer.restore(chains)
    patience = math.inf if stop is never else _PATIENCE
    pace = _Pace(chosen, plan, model, num_chains, patience if observer is None else _STRETCH)
    end = plan.num_rounds if last_round is None else last_round
    while chains.round < end and not stop():
        done, until = chains.round, pace.next_stop(chains.round, end, most_rounds)
        # The observer records the privacy cost of these rounds in the ledger before they are run,
        # so that after a crash the recorded cost may be too high but never too low.
        if observer is not None:
            observer.begins(until)
        began = time.monotonic()
        part = report_within(resources.progress, done / plan.num_rounds, until / plan.num_rounds)
        of_stretch = Resources(resources.threads, resources.experiments_at_once, part)
        chosen.advance(chains, plan, model, seed, until, of_stretch, schedule)
        pace.took(until - done, time.monotonic() - began)
        if observer is not None:
            observer.ended(chains, now=stop())
    if observer is not None and chains.round < plan.num_rounds:
        # ``stop`` may have turned True after the last call of ``ended``, which then had no
        # ``now=True``: call it again, so that the state is saved.
        observer.ended(chains, now=True)
    return chains


class _Pace:
    """Decides how many rounds a run makes before it can stop and be saved (a stretch), so that they
    take about ``stretch`` seconds by the measured time of a round; no result depends on it.

    A stretch ends where a block of ``ROUNDS_PER_BLOCK`` rounds ends, unless that would take too
    long: to go on inside a block, its random numbers must be drawn again from the beginning."""

    def __init__(
        self, engine: Engine, plan: Plan, model: Model, num_chains: int, stretch: float
    ) -> None:
        self._cheap = model.quadratic(slice(0, 1)) is not None and not plan.uplink.clips_examples
        """Whether a round of the model is cheap, which holds for quadratic costs without clipping
        of single examples: then only whole blocks of ``ROUNDS_PER_BLOCK`` rounds are run."""
        # Progress of a costly model is reported only between stretches, so these are short even in
        # a run that cannot be stopped.
        self._stretch = stretch if self._cheap else min(stretch, _PATIENCE)
        self._seconds = (
            engine.seconds_per_round(plan, model, num_chains) if self._cheap else _PATIENCE
        )
        """Estimated seconds of a round. For a costly model the first estimate is ``_PATIENCE``, so
        that its first stretch is a single round."""

    def next_stop(self, done: int, num_rounds: int, most_rounds: int | None) -> int:
        """Number of the round, counted from 1, after which the run can next stop and be saved, when
        ``done`` of ``num_rounds`` rounds are finished. It is at most the next multiple of
        ``most_rounds``, where checkpoints are made (None: no checkpoints)."""
        if most_rounds is not None:
            # A stretch may end before the next checkpoint, after the usual number of seconds, so
            # that the run can be stopped between checkpoints.
            checkpoint = (done // most_rounds + 1) * most_rounds
            return min(num_rounds, checkpoint, self.next_stop(done, num_rounds, None))
        # The number of rounds is bounded here, because ``_stretch`` may be infinite, which no
        # integer can hold.
        affordable = min(self._stretch / self._seconds, num_rounds + ROUNDS_PER_BLOCK)
        wanted = done + max(1, int(affordable))
        boundary = (done // ROUNDS_PER_BLOCK + 1) * ROUNDS_PER_BLOCK
        if not self._cheap and wanted < boundary and (boundary - done) * self._seconds > _PATIENCE:
            return min(num_rounds, wanted)
        return min(num_rounds, max(boundary, wanted // ROUNDS_PER_BLOCK * ROUNDS_PER_BLOCK))

    def took(self, rounds: int, seconds: float) -> None:
        """Update the estimated seconds of a round after ``rounds`` rounds that took ``seconds``
        seconds in all. One call lowers the estimate at most to a quarter, because one measurement
        may be too short by chance."""
        self._seconds = max(seconds / rounds, self._seconds / 4, 1e-9)
