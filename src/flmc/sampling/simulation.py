"""The loop over rounds of a simulated run.

An engine runs a stretch of rounds at a time; between two stretches a run can stop and be saved."""

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
from flmc.sampling.chains import Chains, path_from
from flmc.sampling.engine import DEFAULT_RESOURCES, Engine, Resources
from flmc.sampling.engine_choice import choose_engine
from flmc.sampling.moments import keeps_covariance
from flmc.sampling.schedule import DrawSchedule, draw_schedule

_STRETCH, _PATIENCE = 0.5, 5.0
"""Seconds that a stretch of rounds should take: ``_STRETCH`` in a run that is recorded, so that it
stops soon when asked; ``_PATIENCE`` in a run that is not, because every stretch prepares the data
sets again. A run that nobody may stop is one stretch, unless a round of its model is costly."""


def never() -> bool:
    """Always False: the ``stop`` of a run that nobody may stop."""
    return False


class RoundObserver(Protocol):
    """A listener to a run: told of every stretch of rounds before it begins and after it ended."""

    def begins(self, until: int) -> None:
        """Called before the rounds of a stretch, whose last is ``until``, counted from 1."""

    def ended(self, chains: Chains, *, now: bool = False) -> None:
        """Called after the rounds of a stretch; ``now`` if the run stops here, so that this is the
        last chance to save it."""

    def restore(self, chains: Chains) -> None:
        """Put chains that have just started back to their last checkpoint, in place, if there is
        one."""


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
    """Run the chains of a plan, ``num_chains`` of every data set, stretch after stretch.

    ``thin`` kept rounds make a draw; draws that take much memory are in a file of ``directory``; a
    stretch has at most ``most_rounds`` rounds; the run ends at ``last_round``, or when ``stop``,
    asked between stretches, says so; ``schedule`` is the plan's own unless a study decides gains in
    another way. ``InvalidSetting`` if the engine cannot run the plan or memory does not suffice,
    ``RunFailed`` if a chain leaves the range of numbers."""
    # Bytes of a chain in double precision: position and sums, draws, products.
    first = path_from(plan, model.num_experiments * num_chains, thin)
    kept = (plan.num_rounds - first) // thin if keep_draws and not directory else 0
    each = 8.0 * plan.dim * (2 + kept)
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
        # Before the rounds: their privacy cost must be in the ledger before it is spent, so that a
        # crash may overstate it but never understates it.
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
        # The run may have been asked to stop just after its last stretch was reported as one of
        # many.
        observer.ended(chains, now=True)
    return chains


class _Pace:
    """Decides how many rounds a run makes before it can stop and be saved (a stretch), from the
    measured time of a round; no result depends on it.

    A stretch ends where a block of the random streams ends, unless that is too far away: to go on
    inside a block, its numbers must be drawn again from the beginning."""

    def __init__(
        self, engine: Engine, plan: Plan, model: Model, num_chains: int, stretch: float
    ) -> None:
        self._cheap = model.quadratic(slice(0, 1)) is not None and not plan.uplink.clips_examples
        """Whether a round costs no more than drawing its numbers and data again: then only whole
        blocks are run."""
        # A costly model reports its progress between stretches only: these are short even in a run
        # that nobody may stop.
        self._stretch = stretch if self._cheap else min(stretch, _PATIENCE)
        self._seconds = (
            engine.seconds_per_round(plan, model, num_chains) if self._cheap else _PATIENCE
        )
        """Seconds that a round takes, as far as is known. The first stretch of a model whose cost
        nobody knows is a single round."""

    def next_stop(self, done: int, num_rounds: int, most_rounds: int | None) -> int:
        """Last round, counted from 1, of the stretch that follows ``done`` of ``num_rounds``
        rounds; it does not pass the next multiple of ``most_rounds``, where checkpoints are
        made."""
        if most_rounds is not None:
            # Never longer than some seconds, so that a wish to stop is heard between checkpoints.
            checkpoint = (done // most_rounds + 1) * most_rounds
            return min(num_rounds, checkpoint, self.next_stop(done, num_rounds, None))
        # At most all rounds and one block, cut to whole blocks below: a stretch may be infinitely
        # long, which no integer is.
        affordable = min(self._stretch / self._seconds, num_rounds + ROUNDS_PER_BLOCK)
        wanted = done + max(1, int(affordable))
        boundary = (done // ROUNDS_PER_BLOCK + 1) * ROUNDS_PER_BLOCK
        if not self._cheap and wanted < boundary and (boundary - done) * self._seconds > _PATIENCE:
            return min(num_rounds, wanted)
        return min(num_rounds, max(boundary, wanted // ROUNDS_PER_BLOCK * ROUNDS_PER_BLOCK))

    def took(self, rounds: int, seconds: float) -> None:
        """Set the estimate of a round's seconds from a stretch of so many rounds that took
        ``seconds``; the estimate falls at most to a quarter of what it was, because one measurement
        may be too short by chance."""
        self._seconds = max(seconds / rounds, self._seconds / 4, 1e-9)
