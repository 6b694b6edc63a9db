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
"""Largest number of path gains that are computed with at a time: 32 MB."""


@dataclass(frozen=True)
class PlannedChannels:
    """Path gains of many rounds, of which only a few are kept in memory and used again and again.

    Attributes
    ----------
    drawn
        Path gains of the rounds that are kept, (1 or drawn, device, dim).
    num_rounds
        Rounds that they stand for.
    """

    drawn: Array
    num_rounds: int

    def parts(self) -> Iterator[tuple[IntArray, Array]]:
        """Pairs of numbers of consecutive rounds and their path gains, (round, device, dim). A pair
        covers a part of all rounds, so that what is computed for a long run fits into memory."""
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
    """Path gains that a plan counts on for some rounds of a run.

    For a constant channel they are exact; else they are drawn from the channel's law with a fixed
    seed, and go through ``rounds`` (from 0) in order: again and again, if the run of ``num_rounds``
    is short or its rounds are independent.
    """
    sizes = (num_devices, dim)
    if fading.constant:
        draw_constant = _draw_constant if _is_value(fading) else _draw_constant.__wrapped__
        return PlannedChannels(draw_constant(fading, *sizes), len(rounds))
    if not fading.independent:
        # As in a run: all its rounds are drawn at once, and the wanted ones are taken from them.
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
    # A longer plan uses the drawn rounds again: more of them would cost time and memory.
    return PlannedChannels(drawn, max(len(rounds), len(drawn)))


@dataclass(frozen=True)
class PlannedRounds:
    """Drawn rounds in which at least one device transmits, under a scheduler that decides from the
    path gains who does; rounds in which nobody transmits are skipped.

    Attributes
    ----------
    fading
        Path gains, (drawn, device, dim).
    active
        Who transmits, (drawn, device) with 1 or 0.
    num_drawn
        Rounds that were drawn, those that are skipped included.
    numbers
        Numbers of the rounds that are not skipped among all that were drawn, (drawn).
    """

    fading: Array
    active: Array
    num_drawn: int
    numbers: IntArray

    @property
    def num_active(self) -> Array:
        """Number of devices that transmit in each round that is not skipped, (drawn, 1)."""
        return np.asarray(self.active.sum(axis=1, keepdims=True))

    @property
    def skipped(self) -> float:
        """Share of drawn rounds that are skipped because no device transmits in them."""
        return 1.0 - len(self.active) / self.num_drawn

    @property
    def busiest(self) -> float:
        """Share of all drawn rounds in which the busiest device transmits."""
        return float(self.active.sum(axis=0).max() / self.num_drawn)


def draw_planned_rounds(
    scheduler: Scheduler, fading: Fading, num_rounds: int, num_devices: int, dim: int
) -> PlannedRounds:
    """Rounds that a plan counts on where a scheduler decides from the path gains who transmits:
    channels are drawn, and the scheduler is asked. ``InvalidSetting`` if nobody ever transmits."""
    every = range(num_rounds)
    # A policy that remembers earlier rounds is asked as in a run: for all rounds, from the first.
    rounds = standing_for(fading, every) if scheduler.forgets else every
    channels = draw_planned_channels(fading, rounds, num_rounds, num_devices, dim)
    drawn = np.concatenate([part for _, part in channels.parts()])
    # Random numbers for a policy of the user's own, from another stream than that of the drawn path
    # gains; the policies by channel of flmc need none.
    rng = generator(0, Purpose.PLANNING, 1)
    if scheduler.forgets:
        active = scheduler.draw_checked(rng, range(len(drawn)), drawn)
    else:
        # Whole runs only: a short run is drawn several times, the last time perhaps not to its end.
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
    """The first of ``rounds``, as many as can stand for all rounds where only the channel changes
    from round to round: one of a constant channel, some of independent draws, else all."""
    if fading.constant:
        return rounds[:1]
    return rounds[:_PLANNED_ROUNDS] if fading.independent else rounds


def _is_value(fading: Fading) -> bool:
    """Whether a fading is a hashable one of flmc's own classes: it never changes, so it can be the
    key of a cache."""
    try:
        hash(fading)
    except TypeError:  # a law that holds an array has no hash
        return False
    return type(fading).__module__.startswith("flmc.")


# The functions below draw path gains with a fixed seed: two plans with the same settings are equal,
# whatever the seed of the run.


@lru_cache(maxsize=4)
def _draw_constant(fading: Fading, num_devices: int, dim: int) -> Array:
    """Path gains of a constant channel, (1, device, dim); kept, because searches for a plan ask for
    the same ones many times."""
    rng = generator(0, Purpose.PLANNING)
    drawn = fading.draw_checked(rng, range(1), num_devices, dim)
    drawn.flags.writeable = False
    return drawn


@lru_cache(maxsize=2)
def _draw_runs(fading: Fading, num_rounds: int, num_devices: int, dim: int) -> list[Array]:
    """Path gains of whole runs, (round, device, dim) each, as many runs as have ``_PLANNED_ROUNDS``
    rounds together; kept, because searches for a plan ask for the same ones many times."""
    rng = generator(0, Purpose.PLANNING)
    return [
        fading.draw_checked(rng, range(num_rounds), num_devices, dim)
        for _ in range(-(-_PLANNED_ROUNDS // num_rounds))
    ]


@lru_cache(maxsize=4)
def _draw_independent(fading: Fading, rounds: range, num_devices: int, dim: int) -> Array:
    """Path gains of independent rounds, (drawn, device, dim); a run that is too short is drawn
    several times. They are kept, because searches for a plan ask for the same ones many times."""
    rng = generator(0, Purpose.PLANNING)
    # One round shows along which axes the law is constant: these cost no memory.
    one = without_copies(fading.draw_checked(rng, rounds[:1], num_devices, dim))
    most = _MOST_NUMBERS // one.size
    enough = max(_FEWEST_ROUNDS, min(_PLANNED_ROUNDS, most))
    rounds = rounds[:enough]
    # A new generator: the draws must not depend on the round that was tried above.
    rng = generator(0, Purpose.PLANNING)
    drawn = np.concatenate(
        [
            without_copies(fading.draw_checked(rng, rounds, num_devices, dim))
            for _ in range(-(-enough // len(rounds)))
        ]
    )[:enough]
    drawn.flags.writeable = False
    return np.broadcast_to(drawn, (len(drawn), num_devices, dim))
