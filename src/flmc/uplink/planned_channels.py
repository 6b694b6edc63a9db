"""Path gains that a plan counts on: exact for a constant channel, else drawn from its law.

The law is public, so that drawing from it reveals nothing of the data."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from flmc.base.arrays import Array, IntArray, without_copies
from flmc.base.errors import InvalidSetting
from flmc.base.memory import fits
from flmc.base.randomness import Purpose, generator
from flmc.uplink.fading import Fading
from flmc.uplink.scheduler import Scheduler

_PLANNED_ROUNDS = 1024
"""Smallest number of rounds of a random channel that a plan averages over, where memory allows
it."""
_FEWEST_ROUNDS, _MOST_NUMBERS = 32, 2**25
"""Smallest number of rounds that are drawn however many devices there are; and the largest number
of path gains of all drawn rounds (256 MB), beyond which fewer rounds are drawn."""
_AT_ONCE = 2**22
"""Largest number of path gains in one part of the rounds that ``PlannedChannels.parts`` gives (32
MB)."""

_BYTES_OF_GAIN = 27.0
"""Bytes that a path gain takes at most while a plan draws it, as measured: a complex number where
entries are subcarriers, and its magnitude."""


@dataclass(frozen=True)
class PlannedChannels:
    """Path gains of many rounds, of which only a few are kept in memory and used again and again.

    Attributes
    ----------
    drawn
        Path gains of the rounds that are kept, (drawn, device, dim); of one round for a constant
        channel.
    num_rounds
        Number of rounds for which the kept ones are used.
    """

    drawn: Array
    num_rounds: int

    def parts(self) -> Iterator[tuple[IntArray, Array]]:
        """Iterate over all rounds in parts that fit into memory: pairs of the numbers of
        consecutive rounds, (round), counted from 0, and their path gains, (round, device, dim)."""
        most = max(1, min(_PLANNED_ROUNDS, _AT_ONCE // math.prod(self.drawn.shape[1:])))
        for first in range(0, self.num_rounds, most):
            rounds = np.arange(first, min(first + most, self.num_rounds))
            if len(self.drawn) == 1:
                yield rounds, np.broadcast_to(self.drawn, (len(rounds), *self.drawn.shape[1:]))
            else:
                yield rounds, self.drawn[rounds % len(self.drawn)]


def draw_planned_channels(
    fading: Fading, rounds: range, num_rounds: int, num_devices: int, dim: int
) -> PlannedChannels:
    """Path gains that a plan counts on for the given ``rounds``, from 0, of a run of
    ``num_rounds``.

    For a constant channel they are exact; else they are drawn from the channel's law with a fixed
    seed. A short run is drawn several times. In a long run with independent rounds the drawn rounds
    are used again and again, in order.
    """
    sizes = (num_devices, dim)
    if fading.constant:
        draw_constant = _draw_constant if _is_value(fading) else _draw_constant.__wrapped__
        return PlannedChannels(draw_constant(fading, *sizes), len(rounds))
    if not fading.independent:
        # Path gains of a round may depend on other rounds, so that all rounds of a run are drawn at
        # once, as in the run itself, and those asked for are taken from them.
        part = slice(rounds.start, rounds.stop)
        draw_runs = _draw_runs if _is_value(fading) else _draw_runs.__wrapped__
        whole = [run[part] for run in draw_runs(fading, num_rounds, *sizes)]
        drawn = whole[0] if len(whole) == 1 else np.concatenate(whole)
        return PlannedChannels(drawn, len(drawn))
    first = rounds[:_PLANNED_ROUNDS]
    try:
        drawn = _draw_independent(fading, first, *sizes)
    except TypeError:  # a law that holds an array cannot be a key of the cache
        drawn = _draw_independent.__wrapped__(fading, first, *sizes)
    # A plan of more rounds uses the drawn ones again, because drawing more of them would cost time
    # and memory.
    return PlannedChannels(drawn, max(len(rounds), len(drawn)))


@dataclass(frozen=True)
class PlannedRounds:
    """Drawn rounds in which at least one device transmits, under a scheduler that decides from the
    path gains who does; rounds in which nobody transmits are skipped.

    Attributes
    ----------
    fading
        Path gains of the rounds that are not skipped, (round, device, dim).
    active
        1 for a device that transmits, else 0: (round, device).
    num_drawn
        Number of rounds that were drawn, skipped ones included.
    numbers
        Number of each round that is not skipped, (round), counted from 0 over all drawn rounds.
    """

    fading: Array
    active: Array
    num_drawn: int
    numbers: IntArray

    @property
    def num_active(self) -> Array:
        """Number of devices that transmit in each round that is not skipped, (round, 1)."""
        return np.asarray(self.active.sum(axis=1, keepdims=True))

    @property
    def skipped(self) -> float:
        """Share of drawn rounds that are skipped because no device transmits in them."""
        return 1.0 - len(self.active) / self.num_drawn

    @property
    def busiest(self) -> float:
        """Number of rounds in which the most active device transmits, over the number of all drawn
        rounds."""
        return float(self.active.sum(axis=0).max() / self.num_drawn)


def draw_planned_rounds(
    scheduler: Scheduler, fading: Fading, num_rounds: int, num_devices: int, dim: int
) -> PlannedRounds:
    """Rounds that a plan counts on where a scheduler decides from the path gains who transmits:
    path gains are drawn, and the scheduler chooses the devices for each drawn round.
    ``InvalidSetting`` if nobody ever transmits."""
    every = range(num_rounds)
    # A policy that remembers earlier rounds is asked for all rounds of a run, from the first on, as
    # in the run itself.
    rounds = standing_for(fading, every) if scheduler.forgets else every
    channels = draw_planned_channels(fading, rounds, num_rounds, num_devices, dim)
    drawn = np.concatenate([part for _, part in channels.parts()])
    # Random numbers for a policy of the user's own, from another stream than that of the drawn path
    # gains; the policies by channel of flmc need none.
    rng = generator(0, Purpose.PLANNING, 1)
    if scheduler.forgets:
        active = scheduler.draw_checked(rng, range(len(drawn)), drawn)
    else:
        # A short run is drawn several times, the last time perhaps not to its end: the policy is
        # asked for whole runs only.
        drawn = drawn[: len(drawn) // num_rounds * num_rounds]
        runs = drawn.reshape(-1, num_rounds, *drawn.shape[1:])
        active = np.concatenate([scheduler.draw_checked(rng, every, each) for each in runs])
    heard = active.any(axis=1)
    if not heard.any():
        raise InvalidSetting(
            f"with {scheduler!r} nobody transmits in any of {len(drawn)} rounds of drawn channels:"
            " use a lower threshold"
        )
    return PlannedRounds(drawn[heard], active[heard], len(drawn), np.flatnonzero(heard))


def standing_for(fading: Fading, rounds: range) -> range:
    """The first of ``rounds``, as many as are enough to represent all of them if nothing but the
    channel differs between rounds: one round of a constant channel, at most 1024 rounds of
    independent draws, else all."""
    if fading.constant:
        return rounds[:1]
    return rounds[:_PLANNED_ROUNDS] if fading.independent else rounds


def _is_value(fading: Fading) -> bool:
    """Whether a fading can be the key of a cache: it is hashable and of one of flmc's own classes,
    whose objects never change."""
    try:
        hash(fading)
    except TypeError:  # a law that holds an array has no hash
        return False
    return type(fading).__module__.startswith("flmc.")


# The functions below draw path gains with a fixed seed: two plans with the same settings are equal,
# whatever the seed of the run.


@lru_cache(maxsize=4)
def _draw_constant(fading: Fading, num_devices: int, dim: int) -> Array:
    """Path gains of a constant channel, (1, device, dim); cached, because searches for a plan ask
    for the same path gains many times."""
    rng = generator(0, Purpose.PLANNING)
    drawn = fading.draw_checked(rng, range(1), num_devices, dim)
    drawn.flags.writeable = False
    return drawn


@lru_cache(maxsize=2)
def _draw_runs(fading: Fading, num_rounds: int, num_devices: int, dim: int) -> list[Array]:
    """Path gains of whole runs, (round, device, dim) each, as many runs as it takes to have at
    least ``_PLANNED_ROUNDS`` rounds in all; cached, because searches for a plan ask for the same
    path gains many times."""
    rng = generator(0, Purpose.PLANNING)
    return [
        fading.draw_checked(rng, range(num_rounds), num_devices, dim)
        for _ in range(-(-_PLANNED_ROUNDS // num_rounds))
    ]


@lru_cache(maxsize=4)
def _draw_independent(fading: Fading, rounds: range, num_devices: int, dim: int) -> Array:
    """Path gains of independent rounds, (drawn, device, dim): 1024 rounds, or fewer where path
    gains take much memory. If ``rounds`` are fewer, they are drawn several times. Cached, because
    searches for a plan ask for the same path gains many times."""
    rng = generator(0, Purpose.PLANNING)
    # A first round shows along which axes all path gains are equal: such an axis is stored with
    # length 1.
    one = without_copies(fading.draw_checked(rng, rounds[:1], num_devices, dim))
    most = _MOST_NUMBERS // one.size
    enough = max(_FEWEST_ROUNDS, min(_PLANNED_ROUNDS, most))
    fits("the path gains that a plan draws", _BYTES_OF_GAIN * enough * one.size)
    rounds = rounds[:enough]
    # A new generator with the same seed, because the draws must not depend on whether a first round
    # was drawn to see its shape.
    rng = generator(0, Purpose.PLANNING)
    drawn = np.concatenate(
        [
            without_copies(fading.draw_checked(rng, rounds, num_devices, dim))
            for _ in range(-(-enough // len(rounds)))
        ]
    )[:enough]
    drawn.flags.writeable = False
    return np.broadcast_to(drawn, (len(drawn), num_devices, dim))
