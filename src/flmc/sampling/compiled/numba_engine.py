"""The numba engine: quadratic models from their sufficient statistics, many chains in each vector
instruction.

Chains are dealt to blocks of lanes in order; the lanes that are left over in the last block repeat
its last chain. A chain owns its streams and its rows of every result, so neither threads nor the
order of blocks matters. A chain's position is its deviation from the centre
(:func:`~flmc.sampling.chains.centre_of`, the posterior mean where that is known), in single
precision."""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numba.core.event
import numpy as np
import numpy.typing as npt

from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting, RunFailed
from flmc.base.progress import Progress, report_part
from flmc.base.randomness import ROUNDS_PER_BLOCK
from flmc.models.distributions import Normal
from flmc.models.local_costs import Quadratic
from flmc.models.model import Model
from flmc.planning.plans import Plan
from flmc.sampling.chains import Chains, centre_of, fail
from flmc.sampling.compiled import kernel
from flmc.sampling.compiled.kernel import LANES
from flmc.sampling.compiled.link_curve import Curve, fit
from flmc.sampling.engine import (
    DEFAULT_RESOURCES,
    Engine,
    Resources,
    defined_together,
    num_symbols,
)
from flmc.sampling.schedule import (
    DrawSchedule,
    Schedule,
    draw_schedule,
    is_shared,
    shared_schedule,
)
from flmc.uplink.schemes import Analog, Digital, Ideal
from flmc.uplink.uplink import Uplink

_log = logging.getLogger(__name__)

_MOST_BLOCK = 8_000_000
"""Bytes of a block of lanes up to which `auto` takes this engine."""
_DATA_AT_ONCE = 32_000_000
"""Bytes of local costs that are held in double precision at a time."""
_WORST_CONDITION = 1e10
"""Largest curvature over smallest. At 1e10 the posterior is 1e5 times as wide in one direction as
in another, and the rounding of single precision in the widest direction, 6e-8 of its deviations, is
about 1 % of the narrowest standard deviation."""
_MOST_CHAINS, _CALLS_PER_THREAD = 256, 4
"""Chains of one call of the kernel at most, and calls into which a thread's share is cut as a rule,
so that threads end at about the same time."""
_FEWEST_SYMBOLS = 1_000_000
"""Symbols of one call at least, about a millisecond's work: a call costs a tenth of that."""
_NOISE_AT_ONCE = 16_000_000
"""Bytes of the factors of the noise that one call gets at most, where every chain has its own."""

UInts = npt.NDArray[np.uint32]
Floats = npt.NDArray[np.float32]


class NumbaEngine(Engine):
    """The engine for quadratic models; a chain's position is its deviation from the centre, in
    single precision."""

    name: ClassVar[str] = "numba"
    threaded: ClassVar[bool] = True

    def obstacle(self, plan: Plan, model: Model) -> str | None:
        """Why the kernel cannot run a plan of a model: it knows the package's symbols, quadratic
        costs and smooth links.

        Parameters
        ----------
        plan, model
            What is to be run.

        Returns
        -------
        str or None
            The reason, as the end of a sentence; None if the engine can run the plan.
        """
        # Compared as functions: a subclass that overrides them transmits what the kernel does not
        # compute.
        kind = type(plan.uplink)
        if (
            kind.symbols not in (Digital.symbols, Analog.symbols, Ideal.symbols)
            or kind.clipped is not Uplink.clipped
        ):
            return f"{kind.__name__} has symbols of its own"
        # A subclass with a gradient of its own may have inherited quadratic costs that are not its
        # own.
        if not defined_together(model, "gradient", "quadratic"):
            return (
                f"{type(model).__name__} has a gradient of its own, or local costs that are not"
                " quadratic"
            )
        if plan.uplink.clips_examples:
            return "it has no single examples to clip"
        if plan.uplink.estimated is not None and not _shared_by_entries(plan):
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
        if isinstance(plan.uplink, Digital) and fit(plan.uplink.link, plan.uplink.clip) is None:
            return f"the link {type(plan.uplink.link).__name__} cannot be tabulated to 1e-6"
        return None

    def worthwhile(self, plan: Plan, model: Model) -> bool:
        """Whether the data of a block of lanes fit into ``_MOST_BLOCK`` bytes; else the numpy
        engine is as fast, and needs less memory.

        Parameters
        ----------
        plan, model
            What is to be run; a lane has K m^2 numbers of four bytes.
        """
        return 4 * LANES * plan.num_devices * plan.dim**2 <= _MOST_BLOCK

    def start(
        self,
        plan: Plan,
        model: Model,
        seed: int,
        num_chains: int,
        *,
        keep_draws: bool,
        thin: int = 1,
        directory: Path | None = None,
    ) -> Chains:
        """Every chain at a draw from the prior, or at zero, as its deviation from the centre.

        Parameters
        ----------
        plan, model
            What is to be run.
        seed
            Of all randomness.
        num_chains
            Chains of every data set.
        keep_draws, thin, directory
            Whether draws will be kept, kept rounds for each of them, and where they are on disk
            if they are many.

        Raises
        ------
        RunFailed
            If a start is beyond the range of single precision.
        """
        shape = (model.num_experiments, num_chains, model.dim)
        position, centre = np.zeros(shape, np.float32), centre_of(model)[:, None]
        with np.errstate(over="ignore"):  # noticed below
            if plan.start == "prior":
                with _announced():
                    kernel.draw_starts(_entropy(seed), num_chains, position.reshape(-1, model.dim))
                position[:] = (
                    model.prior.mean + model.prior.sd * position.astype(np.float64) - centre
                )
            else:
                position[:] = -centre
        if not np.isfinite(position).all():
            raise RunFailed("a start is beyond the range of single precision; use engine = 'numpy'")
        # Sums are kept for every chain by itself, so that no two threads add to the same number,
        # and the order of the sum does not depend on them. The position is in single precision,
        # which its declared type does not say.
        chains = Chains.at_start(plan, model, position, keep_draws, thin, directory)  # type: ignore[arg-type]
        if not chains.moments.has_covariance:
            raise InvalidSetting(
                f"the numba engine sums products of all entries, which {num_chains} chains of"
                f" {model.dim} entries are too many for; use fewer chains, or engine = 'numpy'"
            )
        return chains

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
        """Advance all chains in place to round ``until``: group after group of data sets, the
        chains of each dealt to threads.

        Parameters
        ----------
        chains
            Where the chains stand; changed in place.
        plan, model, seed
            What is run.
        until
            The last round to run, counted from 1.
        resources
            Threads, data sets whose costs are in memory at once, and who is told of the progress.
        schedule
            Draws the rounds of a block.

        Raises
        ------
        RunFailed
            If a chain leaves the range of numbers, or a Hessian or offset is not finite or too
            large.
        """
        bytes_each = 8 * model.num_devices * model.dim * (model.dim + 1)
        at_once = resources.experiments_at_once or max(1, _DATA_AT_ONCE // bytes_each)
        every = range(model.num_experiments)
        groups = [every[first : first + at_once] for first in every[::at_once]]
        spans = list(_spans(plan, chains.round, until))
        threads = resources.threads or os.cpu_count() or 1
        with _announced(), ThreadPoolExecutor(threads) as pool:
            for index, (rounds, experiments) in enumerate(product(spans, groups)):
                group = _Group.load(
                    chains, plan, model, seed, experiments, rounds, threads, schedule
                )
                report = report_part(resources.progress, index, len(spans) * len(groups))
                chains.num_clipped += _deal(group, pool, threads, report)
        chains.round = until

    def theta(self, chains: Chains, model: Model) -> Array:
        """Where the chains stand in the model's coordinates: centre plus deviation, (experiment,
        chain, dim).

        Parameters
        ----------
        chains
            Chains that this engine started.
        model
            The model that is sampled.
        """
        return np.asarray(chains.position.astype(np.float64) + centre_of(model)[:, None])

    def seconds_per_round(self, plan: Plan, model: Model, num_chains: int) -> float:
        """A guess from about a thousand million symbols a second."""
        return num_symbols(plan, model, num_chains) / 1e9


def _shared_by_entries(plan: Plan) -> bool:
    """Whether all entries of a round have the same path gain."""
    rng = np.random.default_rng(0)
    # As many rounds as the run has: a law of a user's own may need them.
    rounds = range(1 if plan.uplink.fading.independent else plan.num_rounds)
    drawn = plan.uplink.fading.draw_checked(rng, rounds, plan.num_devices, plan.dim)
    return plan.dim == 1 or drawn.strides[-1] == 0


def _deal(group: _Group, pool: ThreadPoolExecutor, threads: int, report: Progress) -> int:
    """Advance a group's chains, and return the number of clipped entries.

    This thread and its helpers take the next call whenever they are free. Where several chains
    fail, the failure of the first is raised: calls are dealt in order, and a call that was dealt is
    finished."""
    firsts = group.firsts
    # A step of this iterator is one operation of the interpreter: no two threads get the same call.
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
        pool.submit(work, report_part(None, 0, 1)) for _ in range(min(threads, len(firsts)) - 1)
    ]
    num_clipped = work(report) + sum(helper.result() for helper in helpers)
    if failures:
        raise failures[min(failures)]
    report(1.0)
    return num_clipped


class _Rounds(NamedTuple):
    """What the kernel needs of some rounds.

    Attributes
    ----------
    pull
        Factor of the sum of symbols, (round).
    noise
        Factor of the standard normals, (round, dim, 1 or chain).
    active
        Who transmits, (round, device).
    talks
        Factor of every symbol, (round, device, chain), with pull and who transmits in it, where
        data sets have devices of their own active; else empty.
    """

    pull: Floats
    noise: Floats
    active: npt.NDArray[np.bool_]
    talks: Floats


@dataclass(frozen=True)
class _Group:
    """Data sets whose local costs are in memory, where their chains stand, and the rounds to go."""

    chains: Chains
    plan: Plan
    seed: int
    experiments: range
    rounds: range
    costs: Quadratic
    centre: Array
    unit: float
    """The clip, or 1 where nothing is clipped: gradients are computed in units of it."""
    link: Curve | None
    """The link as the kernel takes it; None for an uplink without bits."""
    at_once: int
    """Chains of one call, whole blocks of lanes."""
    shared: _Rounds | None
    """What the kernel needs of the rounds, where the channel is the same for all data sets."""
    schedule: DrawSchedule
    """Draws the rounds of a block, where it is not."""

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
    ) -> _Group:
        """A group with its costs, its centre and, where they are shared, its rounds."""
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
        centre = np.array(centre_of(model)[rows])
        unit = float(plan.uplink.clip) if np.isfinite(plan.uplink.clip) else 1.0
        link = fit(plan.uplink.link, unit) if isinstance(plan.uplink, Digital) else None
        # Few calls, because each has its cost; but enough of them that every thread has something
        # to do to the end. Whole blocks of lanes, because a call repeats its last chain in the
        # lanes that are left over.
        share = len(experiments) * chains.position.shape[1] // (_CALLS_PER_THREAD * threads)
        fewest = _FEWEST_SYMBOLS // (len(rounds) * plan.num_devices * plan.dim)
        at_once = max(1, min(max(share, fewest), _MOST_CHAINS) // LANES) * LANES
        group = cls(
            chains,
            plan,
            seed,
            experiments,
            rounds,
            costs,
            centre,
            unit,
            link,
            at_once,
            None,
            schedule,
        )
        if schedule is not draw_schedule or not is_shared(plan):
            return group
        return replace(
            group,
            shared=group._rounds_of(shared_schedule(plan, seed, rounds), np.zeros(1, np.intp)),
        )

    @property
    def num_chains(self) -> int:
        """Chains of each data set."""
        return int(self.chains.position.shape[1])

    @property
    def firsts(self) -> range:
        """The first chain of every call, counted through all data sets."""
        first, end = (
            self.experiments.start * self.num_chains,
            self.experiments.stop * self.num_chains,
        )
        return range(first, end, self.at_once)

    def advance(self, first: int) -> int:
        """Advance the chains of one call, from number ``first`` on; returns the number of clipped
        entries."""
        uplink, dim = self.plan.uplink, self.plan.dim
        end = min(first + self.at_once, self.experiments.stop * self.num_chains)
        chains, moments = self.chains, self.chains.moments
        draws, num_burn_in = np.empty((0, 1, dim)), self.plan.num_burn_in
        if chains.draws is not None and chains.thin == 1:
            draws = chains.draws.reshape(-1, *chains.draws.shape[2:])
        elif chains.draws is not None:
            # Every kept round of this stretch; those that are not draws are dropped below.
            num_burn_in = max(num_burn_in, self.rounds.start)
            count = max(0, self.rounds.stop - num_burn_in)
            draws = np.empty((chains.draws.shape[0] * self.num_chains, count, dim))
        rounds = self.shared or self._draw_rounds(self._data_sets(first, end))
        columns = kernel.columns_for(dim)
        at = kernel.Layout.of(self.plan.num_devices, dim, -(-dim // len(columns)) * len(columns))
        # Where a tuple or None is given, only its type matters: it is a constant for the compiler,
        # which makes code for each combination.
        num_clipped, lost, block = kernel.advance(
            chains.position.reshape(-1, dim),
            moments.sums.reshape(-1, dim),
            moments.products.reshape(-1, dim * dim),
            draws,
            (first, end, self.num_chains, self.experiments.start),
            *self.costs,
            self.centre,
            self.unit,
            _entropy(self.seed),
            self.link,
            (0,) if uplink.clips_norm and np.isfinite(uplink.clip) else None,
            columns,
            (0,) if dim > len(columns) else None,
            np.float32(1 if np.isfinite(uplink.clip) else np.inf),
            (self.rounds.start, self.rounds.stop, num_burn_in),
            rounds.pull,
            rounds.noise.ravel(),
            rounds.active,
            rounds.talks.ravel() if rounds.talks.size else None,
            np.zeros(at.end, np.float32),
            kernel.Layout._make(map(np.uint64, at)),
        )
        if lost < -1:
            raise RunFailed(
                "a Hessian or offset of the model is not finite, or too large against the clip for"
                " single precision; engine = 'numpy' takes NaN for 0"
            )
        if lost >= 0:
            within = range(block * ROUNDS_PER_BLOCK, (block + 1) * ROUNDS_PER_BLOCK)
            # The kernel looks once in a block of rounds, so the message names those of the block
            # that were run.
            seen = range(max(within.start, self.rounds.start), min(within.stop, self.rounds.stop))
            fail(
                lost // self.num_chains,
                lost % self.num_chains,
                f"within rounds {seen.start + 1} to {seen.stop}",
            )
        if chains.draws is not None and chains.thin > 1:
            for row in range(first, end):
                experiment, chain = divmod(row, self.num_chains)
                place = (experiment, slice(chain, chain + 1))
                chains.keep(place, num_burn_in, draws[row : row + 1])
        return int(num_clipped)

    def _data_sets(self, first: int, end: int) -> npt.NDArray[np.intp]:
        """The data set of each chain of a call; the last is repeated until there are whole blocks
        of lanes."""
        return (
            np.minimum(np.arange(first, first - (first - end) // LANES * LANES), end - 1)
            // self.num_chains
        )

    def _rounds_of(self, schedule: Schedule, rows: npt.NDArray[np.intp]) -> _Rounds:
        r"""What the kernel needs of a schedule.

        ``rows`` names the experiment of the schedule for every chain. The update of a chain is
        :math:`x \leftarrow x - p \sum_k s_k - n z` with pull :math:`p = \eta K/K_a` (times the clip
        where symbols are gradients in units of it) and noise :math:`n = \eta (K/K_a)
        \sqrt{N_0}/A`."""
        unit = self.unit if self.link is None else 1.0
        count = schedule.num_active
        if schedule.active is None or len(schedule.active) == 1:
            count = count[:1]
        # A round in which nobody transmits is skipped.
        with np.errstate(divide="ignore"):
            share = schedule.step_sizes * self.plan.num_devices / count
        factor = np.where(count > 0, share, 0.0)[np.minimum(rows, len(count) - 1)]
        noise = (
            factor[:, :, None]
            * np.sqrt(self.plan.uplink.noise_power)
            / schedule.gain[np.minimum(rows, len(schedule.gain) - 1)]
        )
        shape = (factor.shape[1], self.plan.num_devices)
        active, talks = np.ones(shape), np.zeros((*shape, 0))
        if schedule.active is not None:
            active = schedule.active[0]
        # By the experiments of the run, not of this call: the kernel rounds in another order.
        several = len(self.chains.position) > 1 and self.plan.scheduler.random
        if several or len(count) > 1 or schedule.arriving is not None:
            factors = unit * factor[:, :, None] * _factors(schedule, rows, self.plan.num_devices)
            talks = np.moveaxis(factors, 0, 2)
            factor, active = np.ones_like(factor) / unit, np.zeros(shape)
        return _Rounds(
            (factor[0] * unit).astype(np.float32),
            np.moveaxis(noise, 0, 2).astype(np.float32),
            active > 0,
            talks.astype(np.float32),
        )

    def _draw_rounds(self, rows: npt.NDArray[np.intp]) -> _Rounds:
        """What the kernel needs of the rounds where the channel changes; ``rows`` names the data
        set of every chain."""
        experiments = range(int(rows[0]), int(rows[-1]) + 1)
        blocks = range(
            self.rounds.start // ROUNDS_PER_BLOCK, -(-self.rounds.stop // ROUNDS_PER_BLOCK)
        )
        drawn = [
            self._rounds_of(self.schedule(self.plan, self.seed, experiments, block), rows - rows[0])
            for block in blocks
        ]
        begin = self.rounds.start % ROUNDS_PER_BLOCK
        return _Rounds(
            *(
                np.concatenate(parts)[begin : begin + len(self.rounds)]
                for parts in zip(*drawn, strict=True)
            )
        )


def _factors(schedule: Schedule, rows: npt.NDArray[np.intp], num_devices: int) -> Array:
    """Factor of every device's symbols at the receiver, (chain, round, device): 0 for a silent one,
    1 for another, or what its estimate of the channel makes of that."""
    factors = np.ones((len(rows), len(schedule), num_devices))
    if schedule.active is not None:
        factors = schedule.active[np.minimum(rows, len(schedule.active) - 1)]
    if schedule.arriving is not None:
        # Entries share a path gain, or the engine would have refused.
        met, known = schedule.arriving[..., 0], schedule.fading[..., 0]
        factors = factors * (met / known)[np.minimum(rows, len(met) - 1)]
    return np.asarray(factors)


def _spans(plan: Plan, done: int, until: int) -> Iterator[range]:
    """The rounds to go, in parts that end where a block of the random streams does, and whose noise
    (round, dim, chain) and active devices take at most about ``_NOISE_AT_ONCE`` bytes."""
    own = plan.scheduler.random or plan.uplink.estimated is not None
    numbers = plan.dim + (plan.num_devices if own else 0)
    most = (
        max(1, _NOISE_AT_ONCE // (4 * _MOST_CHAINS * numbers * ROUNDS_PER_BLOCK)) * ROUNDS_PER_BLOCK
    )
    while done < until:
        last = min(until, done // ROUNDS_PER_BLOCK * ROUNDS_PER_BLOCK + most)
        yield range(done, last)
        done = last


def _entropy(seed: int) -> UInts:
    """The words of a seed as ``SeedSequence`` takes them beside a spawn key: 32 bits each, lowest
    first, at least four."""
    words = [seed >> shift & 0xFFFFFFFF for shift in range(0, max(seed.bit_length(), 128), 32)]
    return np.array(words, np.uint32)


@contextmanager
def _announced() -> Iterator[None]:
    """While this lasts, the first compilation is announced in the log; code from the cache is
    silent."""
    listener = _Announcer()
    numba.core.event.register("numba:compile", listener)  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        numba.core.event.unregister("numba:compile", listener)  # type: ignore[no-untyped-call]


class _Announcer(numba.core.event.Listener):
    said = False

    def on_start(self, event: Any) -> None:
        """Announce that a compilation begins, once in a process."""
        if not _Announcer.said:
            _Announcer.said = True
            _log.warning(
                "compiling the fast engine for this scheme and dimension: once on a machine, some"
                " ten seconds"
            )

    def on_end(self, event: Any) -> None:
        """Do nothing: only the beginning of a compilation is announced."""
