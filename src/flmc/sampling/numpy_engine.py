"""The NumPy engine: the readable definition of a run, for any model that gives the gradient of each
device.

The work is cut into tiles, groups of some data sets and some chains of each, whose arrays fit into
the cache; within a tile every operation is over all data sets, chains, devices and entries at once.
Every chain of every data set has random streams of its own, so the tiles do not change results."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from flmc.base.arrays import Array
from flmc.base.clipping import count_clipped, count_marked
from flmc.base.progress import Progress, report_part
from flmc.base.randomness import ROUNDS_PER_BLOCK, Purpose, generator
from flmc.models.batches import Batch, draw_batch, sizes_of
from flmc.models.model import Model
from flmc.planning.plans import Plan
from flmc.sampling import langevin
from flmc.sampling.chains import Chains, fail
from flmc.sampling.engine import DEFAULT_RESOURCES, Engine, Resources, num_symbols
from flmc.sampling.schedule import DrawSchedule, draw_schedule
from flmc.sampling.single_precision import starts

_log = logging.getLogger(__name__)

NO_LOCAL = "its devices have local parameters, which only the jax engine moves"
"""Why the numpy engine refuses a model whose devices have local parameters, in the words of the
error message."""

_TILE_NUMBERS = 40_000
"""Largest number of gradient entries, over all devices, of a group of chains that is advanced
together (a tile): 320 kB in double precision, about the size of a second-level cache."""
_BUFFER_NUMBERS = 4_000_000
"""Largest number of random numbers of one kind (noise of the channel, bits of the devices, noise of
the server) that are drawn ahead for a group of chains that is advanced together: 32 MB."""


@dataclass(frozen=True)
class _Tile:
    """A group of chains that the engine advances at once: the chains with the numbers ``chains`` of
    each of the data sets ``experiments``."""

    experiments: range
    chains: range

    @property
    def rows(self) -> slice:
        """Slice that selects the tile's data sets along the first axis of an array."""
        return slice(self.experiments.start, self.experiments.stop)

    @property
    def place(self) -> tuple[slice, slice]:
        """Slices that select the tile's data sets and its chains along the first two axes of an
        array."""
        return self.rows, slice(self.chains.start, self.chains.stop)


class NumpyEngine(Engine):
    """Engine for any uplink, noise law and server's update, and any model without local parameters,
    on one thread. It stores theta itself as the position of a chain."""

    name: ClassVar[str] = "numpy"
    any_noise: ClassVar[bool] = True
    any_batch: ClassVar[bool] = True
    any_update: ClassVar[bool] = True

    def obstacle(self, plan: Plan, model: Model) -> str | None:
        """Reason why this engine cannot run a model whose devices have local parameters, as the end
        of a sentence; None for any other model. It can run every plan."""
        return NO_LOCAL if model.num_local else None

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
        """State before round 1: every chain at a draw from the prior, from a random stream of its
        own, or at zero, as the plan says."""
        position = starts(plan, model, seed, num_chains)
        return Chains.at_start(plan, model, position, keep_draws, thin, directory)

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
        """Advance all chains in place to round ``until``, one tile (some chains of some data sets)
        after the other."""
        undefined = chains.num_undefined
        tiles = _tiles(model, chains.position.shape[1], resources.experiments_at_once)
        for index, tile in enumerate(tiles):
            report = report_part(resources.progress, index, len(tiles))
            _advance_tile(chains, plan, model, seed, tile, until, report, schedule)
        chains.round = until
        # Warn once in a run: only if no earlier call of this method met an entry that is not
        # finite.
        if chains.num_undefined > undefined == 0:
            _log.warning(
                "%d gradient entries were not finite; NaN counts as 0", chains.num_undefined
            )

    def theta(self, chains: Chains, model: Model) -> Array:
        """Theta of all chains, (experiment, chain, dim), which this engine stores as their
        position."""
        return chains.position

    def seconds_per_round(self, plan: Plan, model: Model, num_chains: int) -> float:
        """Seconds of one round of all chains, estimated at 30 million symbols a second."""
        return num_symbols(plan, model, num_chains) / 3e7


def _tiles(model: Model, num_chains: int, experiments_at_once: int | None) -> list[_Tile]:
    """The tiles of a run: groups of data sets and chains, each of which is advanced as a whole.
    ``experiments_at_once`` is the largest number of data sets in a tile; None: as many as fit into
    the cache.

    The number of data sets in a tile does not change how the chains of a data set are divided, so
    matrix products have the same shapes, and results the same rounding, for any number."""
    # A tile has at least one chain, even if the gradients of a single chain exceed the cache.
    at_once = max(1, _TILE_NUMBERS // (model.num_devices * model.dim))
    chains = min(at_once, num_chains)
    experiments = experiments_at_once or max(1, at_once // chains)
    every, each = range(model.num_experiments), range(num_chains)
    return [
        _Tile(every[i : i + experiments], each[j : j + chains])
        for i in every[::experiments]
        for j in each[::chains]
    ]


def _advance_tile(
    chains: Chains,
    plan: Plan,
    model: Model,
    seed: int,
    tile: _Tile,
    until: int,
    report: Progress,
    draw: DrawSchedule,
) -> None:
    """Advance the chains of one ``tile`` (some chains of some data sets) to round ``until``, and
    write positions, moments, draws and counts into ``chains``. ``draw`` draws the schedule of a
    block of rounds; ``report`` is called with the finished fraction."""
    # ``chains.round`` changes only after all tiles are done, so every tile begins at the same
    # round.
    memory = None if chains.memory is None else chains.memory[tile.place]
    state = langevin.State(chains.position[tile.place], chains.round, memory)

    for block in range(chains.round // ROUNDS_PER_BLOCK, -(-until // ROUNDS_PER_BLOCK)):
        origin = block * ROUNDS_PER_BLOCK
        schedule = draw(plan, seed, tile.experiments, block)
        source = _NoiseSource(plan, seed, tile, block)
        batches = _BatchSource(plan, model, seed, tile, block) if plan.uplink.batched else None
        for index in range(min(len(schedule), until - origin)):
            noise = source.next(len(schedule))
            gradient = _gradient(plan, model, tile, None if batches is None else batches.next())
            # A resumed run may begin inside a block of rounds. The random numbers of the block's
            # earlier rounds are drawn again and dropped, because a random stream reaches its later
            # numbers only in order.
            if origin + index < state.round:
                continue
            # NumPy's warnings of overflow are off, because a chain that diverges is reported by the
            # check below that theta is finite, with the numbers of data set and chain.
            before = state.theta
            with np.errstate(over="ignore", invalid="ignore"):
                state, info = langevin.step(
                    state, noise, schedule.round(index), gradient, plan.uplink, plan.update
                )
            if not np.isfinite(state.theta).all():
                row, column = np.argwhere(~np.isfinite(state.theta).all(axis=-1))[0]
                fail(tile.experiments[row], tile.chains[column], f"after round {state.round}")
            finite = np.isfinite(info.gradient)
            if not finite.all():
                chains.num_undefined += count_marked(~finite, schedule.active_devices(index))
            if chains.keep_round(tile.place, before, state.theta, state.round):
                chains.num_clipped += count_clipped(
                    info.gradient,
                    plan.uplink.clip,
                    schedule.active_devices(index),
                    by_norm=plan.uplink.clips_norm,
                )
        report((state.round - chains.round) / (until - chains.round))
    chains.position[tile.place] = state.theta
    if chains.memory is not None and state.memory is not None:
        chains.memory[tile.place] = state.memory


def _gradient(
    plan: Plan, model: Model, tile: _Tile, batch: Batch | None
) -> Callable[[Array], Array]:
    """Function that maps theta of a tile's chains, (experiment, chain, dim), to their local
    gradients, (experiment, chain, device, dim): from all examples, or from those of ``batch``."""
    if batch is None:
        return lambda theta: plan.uplink.local_gradients(model, theta, tile.rows)
    return lambda theta: plan.uplink.batch_gradients(model, theta, batch, tile.rows)


class _BatchSource:
    """Source of the devices' batches of examples in one block of rounds, for the chains of a tile,
    each from its own random stream."""

    def __init__(self, plan: Plan, model: Model, seed: int, tile: _Tile, block: int) -> None:
        self._sizes, self._share = sizes_of(model), plan.uplink.batch_share
        self._lead = (len(tile.experiments), len(tile.chains))
        self._streams = [
            generator(seed, Purpose.BATCH, e, c, block)
            for e in tile.experiments
            for c in tile.chains
        ]

    def next(self) -> Batch:
        """The examples that each device of each of the tile's chains uses in the next round."""
        return draw_batch(self._sizes, self._share, self._streams, self._lead)


class _NoiseSource:
    """Source of the random numbers of one block of rounds for a tile (some chains of some data
    sets): they are drawn for some rounds at a time, from each chain's own random streams."""

    def __init__(self, plan: Plan, seed: int, tile: _Tile, block: int) -> None:
        pairs = [(e, c) for e in tile.experiments for c in tile.chains]
        self._lead = (len(tile.experiments), len(tile.chains))
        self._law = plan.uplink.noise_law
        self._per_round: dict[str, tuple[int, ...]] = {"normal": (plan.dim,)}
        self._streams = {
            "normal": [generator(seed, Purpose.CHANNEL, e, c, block) for e, c in pairs]
        }
        if plan.uplink.randomised:
            self._per_round["uniform"] = (plan.num_devices, plan.dim)
            self._streams["uniform"] = [
                generator(seed, Purpose.QUANTISER, e, c, block) for e, c in pairs
            ]
        if plan.update.random:
            self._per_round["own"] = (plan.dim,)
            self._streams["own"] = [generator(seed, Purpose.SERVER, e, c, block) for e, c in pairs]
        # ``_ahead`` is the number of rounds that are drawn at a time. It changes memory only: each
        # chain's numbers come from its own stream in the order of the rounds.
        numbers = len(pairs) * max(int(np.prod(shape)) for shape in self._per_round.values())
        self._ahead = max(1, _BUFFER_NUMBERS // numbers)
        self._buffer: dict[str, Array] = {}
        self._used = 0

    def next(self, rounds_in_block: int) -> langevin.Noise:
        """Random numbers of the next round. ``rounds_in_block`` is the number of rounds in the
        block; no numbers are drawn for rounds after it."""
        index = self._used % self._ahead
        if index == 0:
            self._fill(min(self._ahead, rounds_in_block - self._used))
        self._used += 1
        drawn = {kind: numbers[:, :, index] for kind, numbers in self._buffer.items()}
        return langevin.Noise(drawn["normal"], drawn.get("uniform"), drawn.get("own"))

    def _fill(self, num_rounds: int) -> None:
        """Draw the random numbers of the next ``num_rounds`` rounds into the buffer, chain by
        chain, each from its own streams."""
        for kind, streams in self._streams.items():
            numbers = np.empty((len(streams), num_rounds, *self._per_round[kind]))
            for rng, row in zip(streams, numbers, strict=True):
                if kind == "normal":
                    row[...] = self._law.draw(rng, row.shape)
                elif kind == "own":
                    rng.standard_normal(out=row)
                else:
                    rng.random(out=row)
            self._buffer[kind] = numbers.reshape(*self._lead, *numbers.shape[1:])
