"""The numba engine: quadratic models from their sufficient statistics, many chains in each vector instruction.

Chains are dealt to blocks of lanes in order; the lanes that are left over in the last block repeat its last chain and
are ignored. A block owns its streams and its rows of every result, so neither threads nor the order of blocks matters.
A chain's position is its deviation from the posterior mean, in single precision."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numba.core.event
import numpy as np
import numpy.typing as npt

from flmc import kernel
from flmc.chains import AS_USUAL, Chains, How, centre_of, fail, part_of
from flmc.checks import Array
from flmc.curve import Curve, fit
from flmc.errors import InvalidSetting, RunFailed
from flmc.kernel import LANES
from flmc.model import Model, Normal, Quadratic
from flmc.plan import Plan
from flmc.randomness import ROUNDS_PER_BLOCK
from flmc.schedule import draw_schedule
from flmc.uplink import Analog, Digital, Ideal, Uplink

_log = logging.getLogger(__name__)

_MOST_BLOCK = 64_000_000
"""Bytes of a block of lanes up to which this engine is chosen by itself."""
_DATA_AT_ONCE = 64_000_000
"""Bytes of local costs that are held in double precision at a time."""

UInts = npt.NDArray[np.uint32]
Floats = npt.NDArray[np.float32]


def obstacle(plan: Plan, model: Model) -> str | None:
    """Why this engine cannot run a plan; None if it can."""
    kind = type(plan.uplink)
    if kind.symbols not in (Digital.symbols, Analog.symbols, Ideal.symbols) or kind.clipped is not Uplink.clipped:
        return f"{kind.__name__} has symbols of its own"
    if plan.uplink.clips_norm and plan.dim > len(kernel.square_for(plan.dim)):
        return "it clips norms of few entries only"
    if _home(model, "gradient") is not _home(model, "quadratic"):
        return f"{type(model).__name__} has a gradient of its own, or local costs that are not quadratic"
    if plan.uplink.example_clip is not None:
        return "it has no single examples to clip"
    if type(model.prior) is not Normal:
        return f"chains start from a flmc.Normal, and the prior is a {type(model.prior).__name__}"
    if model.quadratic(slice(0, 1)) is None:
        return f"local costs must be quadratic, and {type(model).__name__} gives no Hessians"
    if isinstance(plan.uplink, Digital) and fit(plan.uplink.link, plan.uplink.clip) is None:
        return f"the link {type(plan.uplink.link).__name__} cannot be tabulated to 1e-6"
    return None


def _home(model: Model, name: str) -> type:
    """The class that a method comes from."""
    return next(kind for kind in type(model).__mro__ if name in vars(kind))


def worthwhile(plan: Plan) -> bool:
    """Whether 64 lanes of the data fit into a reasonable place; else the numpy engine is as fast, and smaller."""
    return 4 * LANES * plan.num_devices * plan.dim**2 <= _MOST_BLOCK


def start(plan: Plan, model: Model, seed: int, num_chains: int, *, keep_draws: bool) -> Chains:
    """Every chain at a draw from the prior, or at zero; a position is the deviation from the centre."""
    shape = (model.num_experiments, num_chains, model.dim)
    centre = centre_of(model)
    position = np.empty(shape, np.float32)
    position[:] = -centre[:, None]
    if plan.start == "prior":
        flat = position.reshape(-1, model.dim)
        mean, sd = (np.broadcast_to(value, model.dim) for value in (model.prior.mean, model.prior.sd))
        entropy = _entropy(seed)
        with _announced():
            for first in range(0, len(flat), LANES):
                lanes = _lanes(first, len(flat), num_chains)
                normals = kernel.draw_starts(entropy, lanes, np.uint64(model.dim)).reshape(-1, LANES)
                drawn = (mean + sd * normals[: model.dim].T)[: len(flat) - first]
                with np.errstate(over="ignore"):  # noticed below
                    flat[first : first + LANES] = drawn - centre[lanes[: len(drawn), 0]]
    if not np.isfinite(position).all():
        raise RunFailed("a start is beyond the range of single precision; use engine = 'numpy'")
    # The engine's own coordinates are in single precision.
    return Chains.at_start(plan, model, position, keep_draws, most_batches=num_chains)  # type: ignore[arg-type]


def advance(chains: Chains, plan: Plan, model: Model, seed: int, until: int, how: How = AS_USUAL) -> None:
    """Go on to round ``until``."""
    bytes_each = 8 * model.num_devices * model.dim * (model.dim + 1)
    at_once = how.experiments_at_once or max(1, _DATA_AT_ONCE // bytes_each)
    every = range(model.num_experiments)
    groups = [every[first : first + at_once] for first in every[::at_once]]
    with _announced(), ThreadPoolExecutor(how.threads or os.cpu_count() or 1) as pool:
        for index, experiments in enumerate(groups):
            group = _Group.load(chains, plan, model, seed, experiments, until)
            tasks = [pool.submit(group.advance, first, until) for first in group.firsts]
            report = part_of(how.progress, index, len(groups))
            for done, task in enumerate(tasks):
                chains.num_clipped += task.result()
                report((done + 1) / len(tasks))
    chains.round = until


class _Rounds(NamedTuple):
    """Some rounds: the factor of the sum of symbols (round), the factor of the standard normals (round, dim, 1 or
    lane), and who transmits (round, device)."""

    pull: Floats
    noise: Floats
    active: npt.NDArray[np.bool_]


@dataclass(frozen=True)
class _Group:
    """Data sets whose local costs are in memory, and where their chains stand."""

    chains: Chains
    plan: Plan
    seed: int
    entropy: UInts
    experiments: range
    costs: Quadratic
    centre: Array
    unit: float
    """The clip."""
    link: Curve | None
    norm: tuple[int] | None
    shared: dict[int, _Rounds]
    """The rounds from here to the end of their block of streams, where the channel is the same for all."""

    @classmethod
    def load(cls, chains: Chains, plan: Plan, model: Model, seed: int, experiments: range, until: int) -> _Group:
        rows = slice(experiments.start, experiments.stop)
        costs = model.quadratic(rows)
        shape = (len(experiments), model.num_devices, model.dim)
        if costs is None or costs.offset.shape != shape or costs.hessian.shape != (*shape, model.dim):
            raise InvalidSetting(
                "the numba engine needs a quadratic model, with a Hessian (experiment, device, dim, dim) and an offset"
                f" (experiment, device, dim) = {shape}"
            )
        if not (np.isfinite(costs.hessian).all() and np.isfinite(costs.offset).all()):
            raise RunFailed("a Hessian or offset of the model is not finite; engine = 'numpy' takes NaN for 0")
        centre = np.ascontiguousarray(centre_of(model)[rows])
        unit = float(plan.uplink.clip) if np.isfinite(plan.uplink.clip) else 1.0
        link = fit(plan.uplink.link, unit) if isinstance(plan.uplink, Digital) else None
        norm = (0,) if plan.uplink.clips_norm else None
        group = cls(chains, plan, seed, _entropy(seed), experiments, costs, centre, unit, link, norm, {})
        if plan.uplink.fading.constant:
            lanes = np.zeros((LANES, 2), np.uint32)
            group.shared.update({done: group._rounds(lanes, done, last) for done, last in _pieces(chains.round, until)})
        return group

    @property
    def num_chains(self) -> int:
        return int(self.chains.position.shape[1])

    @property
    def firsts(self) -> range:
        """The first chain of every block of lanes, counted through all data sets."""
        return range(self.experiments.start * self.num_chains, self.experiments.stop * self.num_chains, LANES)

    def advance(self, first: int, until: int) -> int:
        """Advance one block of lanes; returns the number of clipped entries."""
        plan, dim = self.plan, self.plan.dim
        end = min(first + LANES, self.experiments.stop * self.num_chains)
        rows, used = slice(first, end), end - first
        lanes = _lanes(first, end, self.num_chains)
        square = kernel.square_for(dim)
        width = len(square)
        which = lanes[:, 0] - np.uint32(self.experiments.start)
        data = kernel.load_block(*self.costs, self.centre, which, self.unit, np.uint64(width))
        position = self.chains.position.reshape(-1, dim)
        moments = self.chains.moments
        all_sums, all_products = moments.sums.reshape(-1, dim), moments.products.reshape(-1, dim * dim)
        x = np.zeros((-(-dim // width) * width, LANES), np.float32)
        sums, products = np.zeros((dim, LANES)), np.zeros((dim * dim, LANES))
        for array, source in ((x[:dim], position), (sums, all_sums), (products, all_products)):
            array[:, :used] = source[rows].T
        x[:, used:] = x[:, used - 1 : used]
        num_clipped = 0
        for done, last in _pieces(self.chains.round, until):
            kept = range(max(done - plan.num_burn_in, 0), max(last - plan.num_burn_in, 0))
            drawn = np.empty((0 if self.chains.draws is None else len(kept), dim * LANES), np.float32)
            block = done // ROUNDS_PER_BLOCK
            pull, noise, active = self.shared.get(done) or self._rounds(lanes, done, last)
            clipped = kernel.advance(
                x.ravel(), data, self.entropy, lanes, self.link, self.norm, square, not np.isfinite(plan.uplink.clip),
                np.uint32(block), np.uint64(block * ROUNDS_PER_BLOCK), np.uint64(done), np.uint64(last),
                np.uint64(plan.num_burn_in), pull, noise, active, sums.ravel(), products.ravel(), drawn,
            )  # fmt: skip
            num_clipped += int(clipped[:used].sum())
            if not np.isfinite(x).all():
                lane = int(np.argwhere(~np.isfinite(x).all(axis=0))[0, 0])
                fail(int(lanes[lane, 0]), int(lanes[lane, 1]), f"within rounds {done + 1} to {last}")
            if self.chains.draws is not None and len(kept):
                flat = self.chains.draws.reshape(-1, *self.chains.draws.shape[2:])
                deviation = drawn.reshape(len(kept), dim, LANES)[:, :, :used].transpose(2, 0, 1)
                flat[rows, kept.start : kept.stop] = self.centre[which[:used], None] + deviation
        products = np.reshape(products, (dim, dim, LANES))
        lower = np.tril_indices(dim, -1)
        products[lower] = products[lower[::-1]]
        for array, target in ((x[:dim], position), (sums, all_sums), (products.reshape(-1, LANES), all_products)):
            target[rows] = array[:, :used].T
        return num_clipped

    def _rounds(self, lanes: UInts, done: int, last: int) -> _Rounds:
        plan, constant = self.plan, self.plan.uplink.fading.constant
        experiments = range(int(lanes[0, 0]), int(lanes[-1, 0]) + 1)
        schedule = draw_schedule(plan, self.seed, experiments, done // ROUNDS_PER_BLOCK)
        rounds = slice(done % ROUNDS_PER_BLOCK, done % ROUNDS_PER_BLOCK + last - done)
        factor = (schedule.step_sizes * plan.num_devices / schedule.num_active)[rounds]
        noise = factor[:, None] * np.sqrt(plan.uplink.noise_power) / schedule.gain[:, rounds]
        of_lanes = noise[:1] if constant else noise[lanes[:, 0] - experiments.start]
        active = np.ones((len(factor), plan.num_devices)) if schedule.active is None else schedule.active[rounds]
        scale = self.unit if self.link is None else 1.0
        return _Rounds(
            (scale * factor).astype(np.float32),
            np.ascontiguousarray(of_lanes.transpose(1, 2, 0), np.float32),
            active > 0,
        )


def _pieces(done: int, until: int) -> Iterator[tuple[int, int]]:
    """The rounds to go, cut where a block of the random streams ends."""
    while done < until:
        last = min(until, (done // ROUNDS_PER_BLOCK + 1) * ROUNDS_PER_BLOCK)
        yield done, last
        done = last


def _lanes(first: int, end: int, num_chains: int) -> UInts:
    """Data set and chain of every lane of the block that begins with chain number ``first``."""
    rows = np.minimum(np.arange(first, first + LANES), end - 1)
    return np.stack([rows // num_chains, rows % num_chains], axis=1).astype(np.uint32)


def _entropy(seed: int) -> UInts:
    """A seed as ``SeedSequence`` takes it beside a spawn key: words of 32 bits, lowest first, at least four."""
    words = [seed >> shift & 0xFFFFFFFF for shift in range(0, max(seed.bit_length(), 128), 32)]
    return np.array(words, np.uint32)


@contextmanager
def _announced() -> Iterator[None]:
    """Say once that something is being compiled; code from the cache is silent."""
    listener = _Announcer()
    numba.core.event.register("numba:compile", listener)  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        numba.core.event.unregister("numba:compile", listener)  # type: ignore[no-untyped-call]


class _Announcer(numba.core.event.Listener):
    said = False

    def on_start(self, event: Any) -> None:
        """Compilation begins."""
        if not _Announcer.said:
            _Announcer.said = True
            _log.warning("compiling the fast engine for this machine: once, some ten seconds")

    def on_end(self, event: Any) -> None:
        """Nothing to say."""
