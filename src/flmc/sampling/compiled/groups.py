"""Groups of data sets whose local costs are in memory at the same time, and the calls of machine
code, on several threads, that advance their chains."""

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
"""Largest number of chains of one call of machine code: ``MOST_CHAINS`` where data sets have
channels of their own, ``_MOST_ALIKE`` where all share one. More chains take several calls.
``_CALLS_PER_THREAD`` is the usual number of calls for each thread; with several, all threads end at
about the same time."""
_FEWEST_SYMBOLS = 15_000_000
"""Smallest number of symbols that devices should send in one call of machine code. They take some
milliseconds, while the preparation of a call takes a few tenths of a millisecond."""
_UNITS_AT_ONCE, _ROUNDS_AT_ONCE = 8_000_000, 64_000_000
"""Largest number of bytes of the devices' data in a call of machine code with several data sets
(``_UNITS_AT_ONCE``), and of the positions of all rounds in a call that keeps only some rounds as
draws (``_ROUNDS_AT_ONCE``)."""


@dataclass(frozen=True)
class Group:
    """Data sets whose local costs are in memory at the same time, with the state of their chains
    and the rounds to run. ``experiments`` are the numbers of the data sets, ``rounds`` those of the
    rounds, counted from 0; ``costs`` and ``centre`` (experiment, dim) are the local costs of the
    data sets and the fixed thetas from which deviations are measured."""

    chains: Chains
    plan: Plan
    seed: int
    experiments: range
    rounds: range
    costs: Quadratic
    centre: Array
    unit: float
    """Unit of gradients in machine code: the clip, or 1 where nothing is clipped."""
    link: FittedLink | None
    """The link in the form that machine code takes; None for an uplink without bits."""
    at_once: int
    """Number of chains that one call of machine code advances, a multiple of the number that share
    a vector instruction."""
    shared: GivenRounds | None
    """Factors that multiply symbols and noise in the update of theta in the group's rounds, where
    all data sets have the same channel; else None."""
    schedule: DrawSchedule
    """Function that draws gains, path gains and active devices of a block of rounds; used where
    ``shared`` is None."""
    arrangement: Arrangement
    """Layout of the devices' data in memory."""

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
        their local costs, their fixed thetas (:func:`flmc.sampling.chains.centre_of`) and, where
        all share one channel, the factors that multiply symbols and noise in these rounds.
        ``InvalidSetting`` if the model gives no quadratic costs of the right shape."""
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
        # Where only every ``thin``-th round is a draw, a call of machine code nevertheless stores
        # the positions of all its rounds, so its number of chains is limited by the memory for
        # these.
        if chains.path is not None and chains.path.thin > 1:
            stored = 4 * max(1, len(chains.path.stored(rounds))) * plan.dim
            most = min(most, max(1, _ROUNDS_AT_ONCE // stored))
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
        """Number of the first chain of every call of machine code, counted through all data
        sets."""
        first, end = (
            self.experiments.start * self.num_chains,
            self.experiments.stop * self.num_chains,
        )
        return range(first, end, self.at_once)

    def advance(self, first: int) -> int:
        """Run all rounds, in one call of machine code, for ``at_once`` chains from number ``first``
        on, in place. Returns the number of gradient entries that clipping changed in kept rounds.
        ``RunFailed`` if the position of a chain becomes infinite or NaN, or the data are not finite
        or too large for single precision."""
        end = min(first + self.at_once, self.experiments.stop * self.num_chains)
        rounds = self.shared or self._draw_rounds(self._data_sets(first, end))
        frame = Frame(self.plan, self.arrangement, rounds, self.link, entropy_of(self.seed))
        blocks = Blocks.of(self.arrangement, first, end, self.num_chains)
        data_sets = blocks.data_sets - self.experiments.start
        width = LANES if self.arrangement.kind == OWN else 1
        # Chains are in the order of data sets, so the first chain belongs to the first data set of
        # this call, and the last chain to the last.
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
        kept.put(frame, lanes, self.arrangement)
        lost, block = frame.run(len(blocks.firsts))
        kept.collect(blocks)
        if lost is not None and block is not None:
            self._fail(int(blocks.firsts[lost]), int(blocks.lanes[lost]), block)
        if self.rounds.stop <= self.plan.num_burn_in:
            return 0
        # Where the eight numbers of a vector belong to eight chains, the last ones may repeat a
        # chain, whose clipped entries must not be counted twice. Where they are entries of one
        # chain, all are counted.
        if self.arrangement.lanes > 1:
            kept.count *= blocks.are_chains
        return int(kept.count.sum())

    def _fail(self, first: int, lanes: int, block: int) -> None:
        """Raise ``RunFailed`` for the first chain, among ``lanes`` chains from number ``first`` on,
        whose position is not finite. The message names the rounds of block number ``block`` of
        ``ROUNDS_PER_BLOCK`` rounds, because it happened in one of them."""
        position = self.chains.position.reshape(-1, self.plan.dim)[first : first + lanes]
        lost = first + int(np.argmin(np.isfinite(position).all(axis=1)))
        within = range(block * ROUNDS_PER_BLOCK, (block + 1) * ROUNDS_PER_BLOCK)
        # Machine code checks positions only once in each block of rounds, so the round itself is
        # not known; the message names all rounds of the block that this group ran.
        seen = range(max(within.start, self.rounds.start), min(within.stop, self.rounds.stop))
        fail(
            lost // self.num_chains,
            lost % self.num_chains,
            f"within rounds {seen.start + 1} to {seen.stop}",
        )

    def _data_sets(self, first: int, end: int) -> npt.NDArray[np.intp]:
        """Number of the data set of each chain from ``first`` to below ``end``, (chain), followed
        by eight copies of the last one: a vector of eight that begins with the last chain reads
        beyond it."""
        return np.minimum(np.arange(first, end + LANES), end - 1) // self.num_chains

    def _given(self, schedule: Schedule, rows: npt.NDArray[np.intp]) -> GivenRounds:
        """Factors that multiply symbols and noise in the update of theta in the rounds of
        ``schedule``, in the form that machine code takes; ``rows`` holds the index of each chain's
        data set in the schedule."""
        unit = self.unit if self.link is None else 1.0
        return GivenRounds.of(self.plan, schedule, rows, unit, len(self.chains.position) > 1)

    def _draw_rounds(self, rows: npt.NDArray[np.intp]) -> GivenRounds:
        """Factors that multiply symbols and noise in the update of theta in the group's rounds,
        where data sets have channels of their own; ``rows`` holds the number of each chain's data
        set."""
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
        if len(drawn) == 1:  # slices need no copy of these arrays, which may be large
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

    Few calls are best, because each needs preparation, but enough that all threads have work until
    the end. The number is a multiple of the number of chains that share a vector instruction,
    because unused places of a vector are wasted."""
    share = experiments * num_chains // (_CALLS_PER_THREAD * threads)
    wanted = min(max(share, fewest), most)
    units = max(1, _UNITS_AT_ONCE // (4 * plan.num_devices * arrangement.device_size(plan.dim)))
    wanted = min(wanted, units * (LANES if arrangement.kind == OWN else num_chains))
    whole = arrangement.lanes
    if arrangement.kind in (SHARED, TEAMS):
        # A call that ends inside a data set would leave places of its last vectors unused, and
        # teams (groups of vectors whose chains read the same numbers together) too small.
        team = LANES * (MOST_MEMBERS if arrangement.kind == TEAMS else 1)
        whole = num_chains if num_chains < team else team
    return max(1, -(-wanted // whole)) * whole


def advance_all(
    group: Group, pool: Callable[[], ThreadPoolExecutor], threads: int, report: Progress
) -> int:
    """Advance the chains of ``group`` on up to ``threads`` threads, and return the number of
    gradient entries that clipping changed; ``pool`` makes the helper threads when they are first
    needed.

    This thread and its helpers each take the next call of machine code when they are free. If calls
    fail, the failure of the earliest is raised; it does not depend on the timing of threads,
    because calls are started in order and every started call is finished."""
    firsts = group.firsts
    # All threads take the first chain of their next call from one iterator. ``next`` on a range
    # iterator is atomic in Python, so no two threads get the same call.
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
            # After a failure or an interrupt this empties the iterator of calls, so that no thread
            # begins another one.
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
