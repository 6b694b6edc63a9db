"""The chains of one data set: what the compiled loop takes of a plan, block after block, and what
it gives back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from flmc.base.arrays import Array, without_copies
from flmc.base.progress import Progress
from flmc.base.randomness import ROUNDS_PER_BLOCK, Purpose
from flmc.models.model import Model
from flmc.planning.plans import Plan
from flmc.sampling.chains import Chains, centre_of, fail
from flmc.sampling.schedule import DrawSchedule, Schedule
from flmc.sampling.traced.counters import chain_key
from flmc.sampling.traced.rounds import Fixed, Span, Stretch
from flmc.sampling.traced.symbols import link_factor

_TILE_NUMBERS = 2_000_000
"""Gradient entries of all devices that a tile of chains has at most, if it has several."""
_DRAWN_NUMBERS = 16_000_000
"""Numbers of the positions that one call gives back at most."""


class DataSetRun(NamedTuple):
    """The chains of one data set, and all that advancing them takes.

    Attributes
    ----------
    chains, plan, model, seed, schedule
        As for :meth:`flmc.sampling.engine.Engine.advance`.
    experiment
        Number of the data set.
    data, loop
        What the local gradients take of the data set, and the compiled loop over rounds.
    """

    chains: Chains
    plan: Plan
    model: Model
    seed: int
    experiment: int
    schedule: DrawSchedule
    data: Any
    loop: Callable[[Stretch, Fixed, Span], Stretch]

    def advance(self, until: int, report: Progress) -> None:
        """Advance the chains of the data set, block after block and tile after tile.

        Parameters
        ----------
        until
            The last round to run, counted from 1.
        report
            Told of the finished fraction.
        """
        done = self.chains.round
        for block in range(done // ROUNDS_PER_BLOCK, -(-until // ROUNDS_PER_BLOCK)):
            one = range(self.experiment, self.experiment + 1)
            schedule = self.schedule(self.plan, self.seed, one, block)
            first = block * ROUNDS_PER_BLOCK
            begin, end = max(done - first, 0), min(until - first, len(schedule))
            for tile in self._tiles():
                fixed = self._fixed(schedule, block, tile)
                at_once = max(1, _DRAWN_NUMBERS // (len(tile) * self.plan.dim))
                for origin in range(begin, end, at_once):
                    self._stretch(
                        fixed, tile, first, range(origin, min(origin + at_once, end)), at_once
                    )
            report((first + end - done) / (until - done))

    def _tiles(self) -> list[range]:
        """Chains that are advanced together."""
        num_chains = self.chains.position.shape[1]
        most = max(1, _TILE_NUMBERS // (self.plan.num_devices * self.plan.dim))
        size = -(-num_chains // -(-num_chains // most))
        return [range(num_chains)[first : first + size] for first in range(0, num_chains, size)]

    def _fixed(self, schedule: Schedule, block: int, tile: range) -> Fixed:
        """What is fixed for the rounds of a block, as the loop takes it."""
        plan, uplink = self.plan, self.plan.uplink
        count = schedule.num_active[0]
        with np.errstate(divide="ignore"):
            share = schedule.step_sizes * plan.num_devices / count
        # A round in which nobody transmits is skipped.
        pull = np.where(count > 0, share, 0.0)
        noise = pull[:, None] * np.sqrt(uplink.noise_power) / without_copies(schedule.gain)[0]
        keys = [
            np.stack([chain_key(self.seed, purpose, self.experiment, c, block) for c in tile])
            for purpose in (Purpose.QUANTISER, Purpose.CHANNEL)
        ]
        centre = centre_of(self.model)[self.experiment]
        arrays = (centre, _whole_block(pull), _shared(noise), _weights(schedule, plan))
        middle, pull, noise, weights = (array.astype(np.float32) for array in arrays)
        clip, factor = np.float32(uplink.clip), np.float32(link_factor(uplink))
        return Fixed(self.data, middle, keys[0], keys[1], pull, noise, weights, clip, factor)

    def _stretch(self, fixed: Fixed, tile: range, first: int, rounds: range, at_once: int) -> None:
        """Run some rounds of a block for a tile of chains, and write what they did into the
        chains."""
        chains, moments = self.chains, self.chains.moments
        place = (self.experiment, slice(tile.start, tile.stop))
        sums, products = moments.sums[place], moments.products[place]
        space = min(at_once, ROUNDS_PER_BLOCK)
        drawn = space if chains.draws is not None else 0
        counts = np.zeros(space, np.int32)
        before = Stretch(
            chains.position[place],
            *_pair(sums),
            *_pair(products),
            np.zeros((len(tile), drawn, self.plan.dim), np.float32),
            counts,
            counts,
        )
        span = Span(rounds.start, rounds.stop, self.plan.num_burn_in - first, rounds.start)
        after = Stretch._make(map(np.array, self.loop(before, fixed, span)))
        chains.position[place] = after.position
        finite = np.isfinite(after.position).all(axis=-1)
        if not finite.all():
            seen = f"within rounds {first + rounds.start + 1} to {first + rounds.stop}"
            fail(self.experiment, tile[int(np.argmin(finite))], seen)
        sums[...] = after.sums.astype(np.float64) + after.sums_rest
        products[...] = after.products.astype(np.float64) + after.products_rest
        chains.num_clipped += int(after.clipped.sum(dtype=np.int64))
        chains.num_undefined += int(after.undefined.sum(dtype=np.int64))
        if chains.draws is not None:
            centre = centre_of(self.model)[self.experiment]
            chains.keep(place, first + rounds.start, centre + after.draws[:, : len(rounds)])


def _pair(numbers: Array) -> tuple[Any, Any]:
    """Numbers of double precision as two of single precision each."""
    single = numbers.astype(np.float32)
    return single, (numbers - single).astype(np.float32)


def _whole_block(rows: Array) -> Array:
    """Rows of a block, the last repeated until there are ``ROUNDS_PER_BLOCK``: a short block then
    needs no code of its own."""
    missing = ROUNDS_PER_BLOCK - len(rows)
    return np.concatenate([rows, np.repeat(rows[-1:], missing, axis=0)]) if missing > 0 else rows


def _shared(noise: Array) -> Array:
    """Factors of a block without the axes along which all are alike, (round or 1, dim or 1)."""
    if (noise == noise[:1]).all():
        noise = noise[:1]
    if (noise == noise[:, :1]).all():
        noise = noise[:, :1]
    return noise if len(noise) == 1 else _whole_block(noise)


def _weights(schedule: Schedule, plan: Plan) -> Array:
    """Factor of every device's symbols at the receiver, (round or 1, device, dim or 1)."""
    weights = np.ones((1, plan.num_devices, 1))
    if schedule.active is not None:
        weights = _whole_block(schedule.active[0])[:, :, None]
    if schedule.arriving is not None:
        met, known = without_copies(schedule.arriving)[0], without_copies(schedule.fading)[0]
        factor = met / known
        rows = np.broadcast_to(factor, (len(schedule), *factor.shape[1:]))
        weights = weights * _whole_block(rows)
    return weights
