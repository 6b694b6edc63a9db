"""The NumPy engine: the readable definition of a run, for any model that gives per-device gradients.

Work is cut into tiles of (data sets x chains), whose arrays stay in cache; within a tile every operation is over all
data sets, chains, devices and entries at once. Every chain of every data set owns its random streams, so tiles do not
change results."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from flmc import langevin
from flmc.checks import Array
from flmc.clip import clipped_fraction
from flmc.errors import RunFailed
from flmc.model import Model
from flmc.moments import Moments
from flmc.plan import Plan
from flmc.randomness import ROUNDS_PER_BLOCK, Purpose, generator
from flmc.schedule import draw_schedule

_log = logging.getLogger(__name__)

_TILE_NUMBERS = 40_000
"""Gradient entries of a tile: about the size of a second-level cache."""
_BUFFER_NUMBERS = 4_000_000
"""Random numbers drawn ahead."""

Progress = Callable[[float], None]


@dataclass
class Trajectory:
    """What an engine returns: sums over kept rounds, draws if asked for, and the fraction of clipped entries."""

    moments: Moments
    draws: Array | None
    """(experiment, chain, kept round, dim)"""
    clipped_fraction: float
    num_undefined: int = 0
    """Gradient entries that were not finite, in all rounds."""


@dataclass(frozen=True)
class _Tile:
    """A rectangle of data sets and chains."""

    experiments: range
    chains: range

    @property
    def rows(self) -> slice:
        return slice(self.experiments.start, self.experiments.stop)


def simulate(
    plan: Plan,
    model: Model,
    seed: int,
    num_chains: int,
    *,
    keep_draws: bool = False,
    experiments_at_once: int | None = None,
    progress: Progress | None = None,
) -> Trajectory:
    """Run every chain of every data set. ``experiments_at_once`` sets the size of a tile; it changes speed and memory
    only."""
    centre = np.broadcast_to(model.prior.mean, (model.num_experiments, model.dim))
    if model.posterior is not None:
        centre = np.broadcast_to(model.posterior.mean, centre.shape)
    num_kept = plan.num_rounds - plan.num_burn_in
    moments = Moments.empty(centre, num_chains, num_kept)
    shape = (model.num_experiments, num_chains, num_kept, model.dim)
    trajectory = Trajectory(moments, np.empty(shape) if keep_draws else None, 0.0)
    tiles = _tiles(model, num_chains, moments.batch_size, experiments_at_once)
    total = model.num_experiments * num_chains
    done = 0.0
    for tile in tiles:
        share = len(tile.experiments) * len(tile.chains) / total
        report = _part(progress, done, share)
        trajectory.clipped_fraction += share * _simulate_tile(plan, model, seed, tile, trajectory, report)
        done += share
    if trajectory.num_undefined:
        _log.warning("%d gradient entries were not finite; NaN counts as 0", trajectory.num_undefined)
    return trajectory


def _part(progress: Progress | None, done: float, share: float) -> Progress:
    """Progress of one tile within the whole."""

    def report(fraction: float) -> None:
        if progress is not None:
            progress(done + share * fraction)

    return report


def _tiles(model: Model, num_chains: int, batch_size: int, experiments_at_once: int | None) -> list[_Tile]:
    """Chains are cut the same way whatever the number of data sets at once: matrix products then have the same shapes,
    and so the same rounding."""
    at_once = max(1, _TILE_NUMBERS // (model.num_devices * model.dim))
    chains = batch_size * max(1, min(at_once, num_chains) // batch_size)
    experiments = experiments_at_once or max(1, at_once // chains)
    every, each = range(model.num_experiments), range(num_chains)
    return [
        _Tile(every[i : i + experiments], each[j : j + chains]) for i in every[::experiments] for j in each[::chains]
    ]


def _simulate_tile(plan: Plan, model: Model, seed: int, tile: _Tile, trajectory: Trajectory, report: Progress) -> float:
    """All rounds of a tile; returns the mean fraction of clipped entries over kept rounds."""
    state = langevin.init(_draw_start(plan, model, seed, tile))
    clipped = 0.0

    def gradient(theta: Array) -> Array:
        return model.gradient(theta, tile.rows)

    for block in range(-(-plan.num_rounds // ROUNDS_PER_BLOCK)):
        schedule = draw_schedule(plan, seed, tile.experiments, block)
        source = _NoiseSource(plan, seed, tile, block)
        for index in range(len(schedule)):
            noise = source.next(len(schedule))
            with np.errstate(over="ignore", invalid="ignore"):  # a diverging chain is caught and named below
                state, info = langevin.step(state, noise, schedule.round(index), gradient, plan.uplink)
            if not np.isfinite(state.theta).all():
                _fail(state, tile)
            if not np.isfinite(info.gradient).all():
                trajectory.num_undefined += int((~np.isfinite(info.gradient)).sum())
            kept = state.round - plan.num_burn_in
            if kept > 0:
                trajectory.moments.add(state.theta, tile.rows, tile.chains.start)
                clipped += clipped_fraction(info.gradient, plan.uplink.clip)
                if trajectory.draws is not None:
                    trajectory.draws[tile.rows, tile.chains.start : tile.chains.stop, kept - 1] = state.theta
        report(state.round / plan.num_rounds)
    return clipped / (plan.num_rounds - plan.num_burn_in)


class _NoiseSource:
    """Random numbers of a tile for one block of rounds, drawn a few rounds ahead from each chain's own streams."""

    def __init__(self, plan: Plan, seed: int, tile: _Tile, block: int) -> None:
        pairs = [(e, c) for e in tile.experiments for c in tile.chains]
        self._lead = (len(tile.experiments), len(tile.chains))
        self._per_round: dict[str, tuple[int, ...]] = {"normal": (plan.dim,)}
        self._streams = {"normal": [generator(seed, Purpose.CHANNEL, e, c, block) for e, c in pairs]}
        if plan.uplink.random_bits:
            self._per_round["uniform"] = (plan.num_devices, plan.dim)
            self._streams["uniform"] = [generator(seed, Purpose.QUANTISER, e, c, block) for e, c in pairs]
        numbers = len(pairs) * max(int(np.prod(shape)) for shape in self._per_round.values())
        self._ahead = max(1, _BUFFER_NUMBERS // numbers)
        self._buffer: dict[str, Array] = {}
        self._used = 0

    def next(self, rounds_in_block: int) -> langevin.Noise:
        """Numbers of the next round."""
        index = self._used % self._ahead
        if index == 0:
            self._fill(min(self._ahead, rounds_in_block - self._used))
        self._used += 1
        uniform = self._buffer.get("uniform")
        return langevin.Noise(self._buffer["normal"][:, :, index], None if uniform is None else uniform[:, :, index])

    def _fill(self, num_rounds: int) -> None:
        for kind, streams in self._streams.items():
            numbers = np.empty((len(streams), num_rounds, *self._per_round[kind]))
            for rng, row in zip(streams, numbers, strict=True):
                if kind == "normal":
                    rng.standard_normal(out=row)
                else:
                    rng.random(out=row)
            self._buffer[kind] = numbers.reshape(*self._lead, *numbers.shape[1:])


def _draw_start(plan: Plan, model: Model, seed: int, tile: _Tile) -> Array:
    """Start of every chain, (experiment, chain, dim): a draw from the prior, or zero."""
    shape = (len(tile.experiments), len(tile.chains), plan.dim)
    if plan.start == "zero":
        return np.zeros(shape)
    starts = [
        model.prior.draw(generator(seed, Purpose.INIT, e, c), plan.dim) for e in tile.experiments for c in tile.chains
    ]
    return np.reshape(starts, shape)


def _fail(state: langevin.State, tile: _Tile) -> None:
    row, column = np.argwhere(~np.isfinite(state.theta).all(axis=-1))[0]
    raise RunFailed(
        f"theta is not finite after round {state.round} in data set {tile.experiments[row]},"
        f" chain {tile.chains[column]}: the step is too large for this model; use a smaller step_size or clip"
    )
