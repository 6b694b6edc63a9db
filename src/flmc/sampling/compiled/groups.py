"""Groups of data sets whose local costs are in memory together, and the calls of machine code, on
several threads, that advance their chains."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting, RunFailed
from flmc.base.progress import Progress, report_part
from flmc.base.randomness import ROUNDS_PER_BLOCK
from flmc.models.local_costs import Quadratic
from flmc.models.model import Model
from flmc.planning.plans import Plan
from flmc.sampling.chains import Chains, centre_of, fail
from flmc.sampling.compiled.arrangement import (
    LANES,
    MOST_MEMBERS,
    OWN,
    SHARED,
    TEAMS,
    Arrangement,
    Blocks,
)
from flmc.sampling.compiled.frame import Frame, GivenRounds, KeptRounds
from flmc.sampling.compiled.link_curve import FittedLink, fit
from flmc.sampling.compiled.starts import entropy_of
from flmc.sampling.compiled.units import load_units
from flmc.sampling.schedule import (
    DrawSchedule,
    Schedule,
    draw_schedule,
    is_shared,
    shared_schedule,
)

MOST_CHAINS, _MOST_ALIKE, _CALLS_PER_THREAD = 256, 2048, 4
"""Largest number of chains of one call of machine code, where each has its own channel
(``MOST_CHAINS``) and where all share one (``_MOST_ALIKE``); and the number of calls into which a
thread's share of the chains is cut as a rule, so that threads end at about the same time."""
_FEWEST_SYMBOLS = 15_000_000
"""Smallest number of symbols that the devices send in one call of machine code, some milliseconds'
work: to prepare a call takes a few tenths of a millisecond."""
_UNITS_AT_ONCE, _ROUNDS_AT_ONCE = 8_000_000, 64_000_000
"""Largest number of bytes that the devices' data take in a call of machine code with several data
sets; and the largest number of bytes of the positions of all its rounds, for a call that keeps only
some rounds as draws."""


@dataclass(frozen=True)
class Group:
    """Data sets whose local costs are in memory together, with the state of their chains and the
    rounds that are still to be run."""

    chains: Chains
    plan: Plan
    seed: int
    experiments: range
    rounds: range
    costs: Quadratic
    centre: Array
    unit: float
    """Unit in which gradients are computed: the clip, or 1 where nothing is clipped."""
    link: FittedLink | None
    """The link in the form that machine code takes; None for an uplink without bits."""
    at_once: int
    """Number of chains that one call of machine code advances; they fill whole blocks of lanes."""
    shared: GivenRounds | None
    """Factors of symbols and noise in the rounds, where the channel is the same for all data sets;
    else None."""
    schedule: DrawSchedule
    """Function that draws a block of rounds, where data sets have channels of their own."""
    arrangement: Arrangement
    """Arrangement of the devices' data in memory."""

    @classmethod
    def load(
        cls,
        chains: Chains,
        plan: Plan,
        model: Model,
        seed: int,
        experiments: range,
        rounds: range,
        threads: int,
        schedule: DrawSchedule,
        arrangement: Arrangement,
    ) -> Group:
        """The group of the data sets ``experiments`` for some rounds, counted from 0: it loads
        their local costs and centres and, where all share one channel, the factors of symbols and
        noise in these rounds. ``InvalidSetting`` if the model gives no quadratic costs of the right
        shape."""
        rows = slice(experiments.start, experiments.stop)
        costs = model.quadratic(rows)
        shape = (len(experiments), plan.num_devices, plan.dim)
        if (
            costs is None
            or costs.offset.shape != shape
            or costs.hessian.shape != (*shape, plan.dim)
        ):
            raise InvalidSetting(
                "the numba engine needs a quadratic model, with a Hessian (experiment, device, dim,"
                f" dim) and an offset (experiment, device, dim) = {shape}"
            )
        costs = Quadratic(*(np.ascontiguousarray(array, np.float64) for array in costs))
        centre = np.array(centre_of(model)[rows], np.float64)
        unit = float(plan.uplink.clip) if math.isfinite(plan.uplink.clip) else 1.0
        link = None if plan.uplink.link is None else fit(plan.uplink.link, unit)
        alike = schedule is draw_schedule and is_shared(plan)
        fewest = _FEWEST_SYMBOLS // (len(rounds) * plan.num_devices * plan.dim)
        most = _MOST_ALIKE if alike else MOST_CHAINS
        # with thinned draws, a call of machine code holds the positions of all its rounds and keeps
        # some
        if chains.thin > 1:
            most = min(most, max(1, _ROUNDS_AT_ONCE // (8 * len(rounds) * plan.dim)))
        at_once = _chains_of_a_call(
            arrangement, plan, len(experiments), chains.position.shape[1], threads, fewest, most
        )
        shared = None
        if alike:
            of_all, same = shared_schedule(plan, seed, rounds), np.zeros(1, np.intp)
            shared = GivenRounds.of(
                plan, of_all, same, unit if link is None else 1.0, model.num_experiments > 1
            )
        return cls(
            chains, plan, seed, experiments, rounds, costs, centre, unit, link, at_once, shared,
            schedule, arrangement,
        )  # fmt: skip

    @property
    def num_chains(self) -> int:
        """Number of chains of each data set."""
        return int(self.chains.position.shape[1])

    @property
    def firsts(self) -> range:
        """The first chain of every call of machine code, counted through all data sets."""
        first, end = (
            self.experiments.start * self.num_chains,
            self.experiments.stop * self.num_chains,
        )
        return range(first, end, self.at_once)

    def advance(self, first: int) -> int:
        """Run all rounds for the chains of one call of machine code, from chain ``first`` on, in
        place; returns the number of gradient entries that clipping changed in kept rounds.
        ``RunFailed`` if a chain leaves the range of numbers, or the data are not finite or too
        large."""
        end = min(first + self.at_once, self.experiments.stop * self.num_chains)
        rounds = self.shared or self._draw_rounds(self._data_sets(first, end))
        frame = Frame(self.plan, self.arrangement, rounds, self.link, entropy_of(self.seed))
        blocks = Blocks.of(self.arrangement, first, end, self.num_chains)
        data_sets = blocks.data_sets - self.experiments.start
        width = LANES if self.arrangement.kind == OWN else 1
        # chains are in order, so the first and the last belong to the first and the last data set
        known = slice(int(data_sets[0, 0]), int(data_sets[-1, -1]) + 1)
        units = load_units(
            Quadratic(*(array[known] for array in self.costs)),
            self.centre[known],
            self.unit,
            self.arrangement,
            np.ascontiguousarray(data_sets[blocks.first_of_unit][:, :width] - known.start),
            frame.may_be_near,
        )
        if units is None:
            raise RunFailed(
                "a Hessian or offset of the model is not finite, or too large against the clip for"
                " single precision; engine = 'numpy' takes NaN for 0"
            )
        frame.put(
            units=units, unit_size=units.shape[1], which=blocks.unit, firsts=blocks.firsts - first,
            lanes=blocks.lanes, keys=blocks.keys, begin=self.rounds.start, until=self.rounds.stop,
        )  # fmt: skip
        if self.arrangement.kind == TEAMS:
            firsts, sizes = blocks.teams(MOST_MEMBERS)
            frame.put(teams=len(firsts), team_firsts=firsts, team_sizes=sizes)
        kept = KeptRounds.of(self.chains, self.plan.num_burn_in, self.rounds, first, end)
        lanes = blocks.chains[:, : self.arrangement.lanes]
        kept.put(frame, lanes, self.arrangement, self.centre[data_sets[:, : lanes.shape[1]]])
        lost, block = frame.run(len(blocks.firsts))
        kept.collect(blocks)
        if lost is not None and block is not None:
            self._fail(int(blocks.firsts[lost]), int(blocks.lanes[lost]), block)
        if self.rounds.stop <= self.plan.num_burn_in:
            return 0
        # Where the lanes of a vector are chains, some may repeat another chain, whose clipped
        # entries must not count twice; where they are entries of one chain, all count.
        if self.arrangement.lanes > 1:
            kept.count *= blocks.are_chains
        return int(kept.count.sum())

    def _fail(self, first: int, lanes: int, block: int) -> None:
        """Raise ``RunFailed`` that names the first chain, among ``lanes`` chains from number
        ``first`` on, whose position is not finite, and the rounds within number ``block`` of the
        blocks of rounds, in which that happened."""
        position = self.chains.position.reshape(-1, self.plan.dim)[first : first + lanes]
        lost = first + int(np.argmin(np.isfinite(position).all(axis=1)))
        within = range(block * ROUNDS_PER_BLOCK, (block + 1) * ROUNDS_PER_BLOCK)
        # Machine code looks for positions that are not finite once in each block of rounds, so the
        # message names the rounds of the block that were run.
        seen = range(max(within.start, self.rounds.start), min(within.stop, self.rounds.stop))
        fail(
            lost // self.num_chains,
            lost % self.num_chains,
            f"within rounds {seen.start + 1} to {seen.stop}",
        )

    def _data_sets(self, first: int, end: int) -> npt.NDArray[np.intp]:
        """Number of the data set of each chain from ``first`` to below ``end``, with the last one
        eight more times, because a vector of eight may begin with the last chain."""
        return np.minimum(np.arange(first, end + LANES), end - 1) // self.num_chains

    def _given(self, schedule: Schedule, rows: npt.NDArray[np.intp]) -> GivenRounds:
        """Factors of symbols and noise in the rounds of a schedule, as machine code takes them;
        ``rows`` is the schedule's data set of every chain."""
        unit = self.unit if self.link is None else 1.0
        return GivenRounds.of(self.plan, schedule, rows, unit, len(self.chains.position) > 1)

    def _draw_rounds(self, rows: npt.NDArray[np.intp]) -> GivenRounds:
        """Factors of symbols and noise in the group's rounds, as machine code takes them, where
        data sets have channels of their own; ``rows`` is the data set of every chain."""
        experiments = range(int(rows[0]), int(rows[-1]) + 1)
        blocks = range(
            self.rounds.start // ROUNDS_PER_BLOCK, -(-self.rounds.stop // ROUNDS_PER_BLOCK)
        )
        drawn = [
            self._given(self.schedule(self.plan, self.seed, experiments, block), rows - rows[0])
            for block in blocks
        ]
        begin = self.rounds.start % ROUNDS_PER_BLOCK
        wanted = slice(begin, begin + len(self.rounds))
        if len(drawn) == 1:  # not copied, because arrays may be large
            return GivenRounds._make(part[wanted] for part in drawn[0])
        together = zip(*drawn, strict=True)
        return GivenRounds._make(np.concatenate(parts)[wanted] for parts in together)


def _chains_of_a_call(
    arrangement: Arrangement,
    plan: Plan,
    experiments: int,
    num_chains: int,
    threads: int,
    fewest: int,
    most: int,
) -> int:
    """Number of chains that one call of machine code advances, at least about ``fewest`` and at
    most about ``most``.

    Few calls are best, because each has its cost; but there must be enough that every thread has
    work to the end. The number fills whole vectors of chains, because a call repeats its last chain
    in the lanes that are left over."""
    share = experiments * num_chains // (_CALLS_PER_THREAD * threads)
    wanted = min(max(share, fewest), most)
    units = max(1, _UNITS_AT_ONCE // (4 * plan.num_devices * arrangement.device_size(plan.dim)))
    wanted = min(wanted, units * (LANES if arrangement.kind == OWN else num_chains))
    whole = arrangement.lanes
    if arrangement.kind in (SHARED, TEAMS):
        # A call that ends inside a data set would leave lanes unused, and teams (blocks of chains
        # that share what they read) too small.
        team = LANES * (MOST_MEMBERS if arrangement.kind == TEAMS else 1)
        whole = num_chains if num_chains < team else team
    return max(1, -(-wanted // whole)) * whole


def advance_all(
    group: Group, pool: Callable[[], ThreadPoolExecutor], threads: int, report: Progress
) -> int:
    """Advance a group's chains on up to ``threads`` threads, and return the number of gradient
    entries that clipping changed; ``pool`` makes the helper threads when they are first needed.

    This thread and its helpers take the next call whenever they are free. Where several chains
    fail, the failure of the first is raised: calls are dealt in order, and a call that was dealt is
    finished."""
    firsts = group.firsts
    # Taking the next call from this iterator is one operation of Python's interpreter: no two
    # threads get the same call.
    next_call = iter(firsts)
    failures: dict[int, RunFailed] = {}

    def work(report: Progress) -> int:
        num_clipped = 0
        try:
            for first in next_call:
                report(firsts.index(first) / len(firsts))
                try:
                    num_clipped += group.advance(first)
                except RunFailed as failure:
                    failures[first] = failure
                    break
        finally:
            # After a failure (or an interrupt) the iterator is used up, so that no thread begins
            # another call.
            deque(next_call, maxlen=0)
        return num_clipped

    helpers = [
        pool().submit(work, report_part(None, 0, 1)) for _ in range(min(threads, len(firsts)) - 1)
    ]
    num_clipped = work(report) + sum(helper.result() for helper in helpers)
    if failures:
        raise failures[min(failures)]
    report(1.0)
    return num_clipped
