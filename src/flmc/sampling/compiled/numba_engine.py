"""The numba engine: runs models with quadratic costs from their Hessians and offsets, with many
chains in each vector instruction.

Chains are assigned in order to vectors of eight; unused places of the last vector repeat the last
chain. Every chain has its own random streams and writes to its own part of every array of results,
so results depend neither on threads nor on the order of work. A chain's position is the deviation
of theta from a fixed theta of its data set (:func:`~flmc.sampling.chains.centre_of`, the posterior
mean where that is known), in single precision."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import cache
from itertools import product
from typing import ClassVar

import numpy as np

from flmc.base import checks
from flmc.base.arrays import Array
from flmc.base.progress import report_part
from flmc.base.randomness import ROUNDS_PER_BLOCK
from flmc.models.distributions import Normal
from flmc.models.model import Model
from flmc.planning.plans import Plan
from flmc.sampling.chains import Chains
from flmc.sampling.compiled.arrangement import (
    DATA_AT_ONCE,
    IN_WORDS,
    Arrangement,
    choose_arrangement,
    round_cost,
)
from flmc.sampling.compiled.frame import entries_share_gain
from flmc.sampling.compiled.groups import MOST_CHAINS, Group, advance_all
from flmc.sampling.compiled.link_curve import fit
from flmc.sampling.compiled.starts import draw_starts
from flmc.sampling.engine import DEFAULT_RESOURCES, Resources, defined_together
from flmc.sampling.schedule import DrawSchedule, draw_schedule
from flmc.sampling.single_precision import SinglePrecisionEngine

_WORST_CONDITION = 1e10
"""Largest ratio of the largest to the smallest curvature of the negative log posterior with which
this engine runs a plan; above it, the plan needs another engine. At 1e10 the posterior is 1e5 times
as wide in one direction as in another, so the rounding error of single precision in the widest
direction, 6e-8 of its deviations, is about 1 % of the narrowest standard deviation."""
_NOISE_AT_ONCE = 16_000_000
"""Largest number of bytes, approximately, of the factors that multiply noise and symbols in the
update of theta, in one call of machine code where every chain has its own factors."""


class NumbaEngine(SinglePrecisionEngine):
    """Engine that compiles rounds with Numba, for quadratic models.

    ``arrangement`` is the layout of the devices' data in memory, ``own``, ``shared``, ``teams`` or
    ``rows`` (:mod:`flmc.sampling.compiled.arrangement`), which changes speed only; None: the layout
    with the least predicted time."""

    name: ClassVar[str] = "numba"
    libraries: ClassVar[tuple[str, ...]] = ("numba", "llvmlite")
    threaded: ClassVar[bool] = True

    def __init__(self, arrangement: str | None = None) -> None:
        if arrangement is not None:
            checks.one_of("arrangement", arrangement, tuple(IN_WORDS))
        self._arrangement = arrangement

    def obstacle(self, plan: Plan, model: Model) -> str | None:
        """Reason why machine code cannot run a plan with a model, as the end of a sentence; None if
        it can. Machine code runs the package's own kinds of symbols, quadratic costs, a normal
        prior, and links whose mean bit a polynomial or a table approximates well."""
        if not plan.uplink.standard_symbols:
            return f"{type(plan.uplink).__name__} has symbols of its own"
        # A subclass that defines a new gradient may have inherited quadratic costs that belong to
        # the old one.
        if not defined_together(model, "gradient", "quadratic"):
            return (
                f"{type(model).__name__} has a gradient of its own, or local costs that are not"
                " quadratic"
            )
        if plan.uplink.clips_examples:
            return "it has no single examples to clip"
        if plan.uplink.estimated is not None and not entries_share_gain(plan):
            return "with csi_error the entries of a round must share a path gain"
        if type(model.prior) is not Normal:
            return (
                f"chains start from a flmc.Normal, and the prior is a {type(model.prior).__name__}"
            )
        if model.quadratic(slice(0, 1)) is None:
            return f"local costs must be quadratic, and {type(model).__name__} gives no Hessians"
        if (
            model.convexity is not None
            and (model.smoothness or 0.0) > _WORST_CONDITION * model.convexity
        ):
            return (
                "the posterior is too much wider in one direction than in another for single"
                " precision"
            )
        link = plan.uplink.link
        if link is not None and fit(link, plan.uplink.clip) is None:
            return f"the link {type(link).__name__} cannot be tabulated to 1e-6"
        return None

    def blocking(self, plan: Plan, model: Model, num_chains: int) -> str:
        """Phrase for reports that says how many chains share vector instructions and data in this
        run, such as "8 chains of a data set at a time"."""
        return IN_WORDS[self._kind(plan, model, num_chains)]

    def _kind(self, plan: Plan, model: Model, num_chains: int) -> str:
        """Name of the layout of the devices' data in memory: the one given to the engine, else the
        one with the least predicted time."""
        return self._arrangement or choose_arrangement(
            plan.num_devices, plan.dim, model.num_experiments, num_chains
        )

    def starts(self, plan: Plan, model: Model, seed: int, num_chains: int) -> Array:
        """Theta of every chain before round 1, (experiment, chain, dim): a draw from the prior by
        machine code, or zero, as the plan says."""
        shape = (model.num_experiments, num_chains, model.dim)
        if plan.start != "prior":
            return np.zeros(shape)
        drawn = draw_starts(seed, *shape).astype(np.float64)
        return np.asarray(model.prior.mean + model.prior.sd * drawn)

    def advance(
        self,
        chains: Chains,
        plan: Plan,
        model: Model,
        seed: int,
        until: int,
        resources: Resources = DEFAULT_RESOURCES,
        schedule: DrawSchedule = draw_schedule,
    ) -> None:
        """Advance all chains in place to the end of round ``until``, counted from 1: one group of
        data sets after the other, with the chains of a group divided among threads.

        ``RunFailed`` if the position of a chain becomes infinite or NaN, or the data are not finite
        or too large; ``InvalidSetting`` if a Hessian is not symmetric or has a wrong shape;
        ``ValueError`` if the plan has fewer rounds than ``until``, because machine code checks no
        bounds."""
        if until > plan.num_rounds:
            raise ValueError(f"the plan has {plan.num_rounds} rounds, got until = {until}")
        bytes_each = 8 * model.num_devices * model.dim * (model.dim + 1)
        at_once = resources.experiments_at_once or max(1, DATA_AT_ONCE // bytes_each)
        every = range(model.num_experiments)
        groups = [every[first : first + at_once] for first in every[::at_once]]
        spans = list(_spans(plan, chains.round, until))
        threads = resources.threads or _num_processors()
        kind = self._kind(plan, model, chains.position.shape[1])
        arrangement = Arrangement.of(kind, plan.dim)
        with ExitStack() as stack:
            # The pool of threads is made when a group of data sets first takes several calls of
            # machine code; a single call needs no other threads.
            pool = cache(lambda: stack.enter_context(ThreadPoolExecutor(threads)))
            for index, (rounds, experiments) in enumerate(product(spans, groups)):
                group = Group.load(
                    chains, plan, model, seed, experiments, rounds, threads, schedule, arrangement
                )
                report = report_part(resources.progress, index, len(spans) * len(groups))
                chains.num_clipped += advance_all(group, pool, threads, report)
                del group  # frees its data, which may be large, before the next group is loaded
        chains.round = until

    def seconds_per_round(self, plan: Plan, model: Model, num_chains: int) -> float:
        """Predicted seconds of one round of all chains on one thread: the numbers of symbols and of
        products in their gradients, times the seconds that each took in measurements."""
        kind = self._kind(plan, model, num_chains)
        sizes = (plan.num_devices, plan.dim, model.num_experiments, num_chains)
        return 1e-9 * round_cost(kind, *sizes)


@cache
def _num_processors() -> int:
    """Number of processors of this machine, counted once, because the count reads a file."""
    return os.cpu_count() or 1


def _spans(plan: Plan, done: int, until: int) -> Iterator[range]:
    """The rounds from ``done`` to below ``until``, counted from 0, cut into ranges, each of which
    ends at a multiple of ``ROUNDS_PER_BLOCK`` or at ``until``. In a range, the factors that
    multiply the noise (round, dim, chain) and, where these differ between chains, the symbols
    (round, device, chain) take at most about ``_NOISE_AT_ONCE`` bytes."""
    own = plan.scheduler.random or plan.uplink.estimated is not None
    numbers = plan.dim + (plan.num_devices if own else 0)
    most = (
        max(1, _NOISE_AT_ONCE // (4 * MOST_CHAINS * numbers * ROUNDS_PER_BLOCK)) * ROUNDS_PER_BLOCK
    )
    while done < until:
        last = min(until, done // ROUNDS_PER_BLOCK * ROUNDS_PER_BLOCK + most)
        yield range(done, last)
        done = last
