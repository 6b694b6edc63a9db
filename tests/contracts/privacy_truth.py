"""Every privacy statement of an uplink against quadrature: a list of what it understates.

The oracle (:mod:`privacy.oracle.received`) sees only the symbols that the uplink transmits. What it
compares are pairs of neighbouring gradients, from many places of the clipped range: each one is a
lower bound of the true delta, so a stated delta below any of them is wrong."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

import flmc
from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.privacy.event import Event
from privacy.oracle.received import (
    NotConvergedError,
    Pair,
    composed_delta,
    composed_tail,
    pairs_of,
)
from support import QUICK

TOLERANCE = 1e-6
"""Share of delta by which a statement may be below the truth: the oracle knows it to 1e-7."""
FLOOR = 1e-14
"""Delta that the oracle's double precision does not tell from 0."""
CLIP, NOISE, DIM, ROUNDS = 20.0, 0.25, 3, 4
"""Not the defaults: a statement that forgets the clip or the noise power is wrong by factors."""
AMPLITUDES = (0.1, 1.0) if QUICK else (0.1, 0.4, 1.0, 3.0)
"""Largest symbols that are sent, in standard deviations of the noise."""
PLACES = 9 if QUICK else 21
"""Places from which one example moves a gradient entry."""

Entries = tuple[Pair, ...]
"""Independent entries under two gradients."""


@dataclass(frozen=True)
class Level:
    """One neighbouring relation of an uplink.

    ``moves`` holds pairs of gradients (entry) between which neighbouring data can move an entry, or
    all entries of one round, ``rounds`` times; None for a device that sends nothing."""

    name: str
    uplink: flmc.Uplink
    neighbouring: str
    dim: int
    rounds: int
    moves: tuple[tuple[Array, Array | None], ...]
    relation: str = "replace"

    def event(self, gain: float) -> Event:
        """The statement of the uplink."""
        if self.uplink.shares_move(self.neighbouring) or self.relation != "replace":
            gains = np.full((self.rounds, 1), gain)
            how = (self.neighbouring, 1, self.relation)
            return self.uplink.event_of_rounds(gains, self.dim, *how)
        sent = [(gain, self.dim * self.rounds)]
        return self.uplink.privacy_event(sent, self.neighbouring)

    def candidates(self, gain: float) -> list[Entries]:
        """What neighbouring data may lead to, in both orders; the most revealing first."""
        found = []
        for first, second in self.moves:
            entries = tuple(pairs_of(self.uplink, first, second, gain, self.rounds))
            if entries:
                found += [entries, tuple(pair.exchanged for pair in entries)]
        return sorted(found, key=lambda entries: -_moments(entries)[0])


def _moments(entries: Entries) -> tuple[float, float]:
    """Mean and standard deviation of the sum of the losses."""
    each = [(pair.moments(), pair.count) for pair in entries]
    mean = sum(count * m for (m, _), count in each)
    return mean, math.sqrt(sum(count * v for (_, v), count in each))


def bounded(uplink: flmc.Uplink, **settings: object) -> flmc.Uplink | None:
    """The uplink with other settings; None if it does not offer them."""
    try:
        return flmc.replace(uplink, clip=CLIP, noise_power=NOISE, **settings)
    except InvalidSetting:
        return None


def _along(
    places: Iterable[float], shift: float, many: int, dim: int
) -> Iterator[tuple[Array, Array]]:
    """Moves of ``many`` of ``dim`` entries by ``shift``, from each of the places."""
    moved = np.arange(dim) < many
    for x in places:
        yield np.where(moved, x, 0.0), np.where(moved, x + shift, 0.0)


def _from(shift: float) -> Array:
    """Places in [-CLIP, CLIP - shift], the middle among them, where a jump is crossed."""
    return np.unique([*np.linspace(-CLIP, CLIP - shift, PLACES), -shift / 2])


def levels(uplink: flmc.Uplink) -> Iterator[Level]:
    """All neighbouring relations that the uplink offers, for one entry and for a run."""
    ends = np.array([-3 * CLIP, -CLIP, -0.4 * CLIP, 0.0, 0.4 * CLIP, CLIP])
    whole = bounded(uplink)
    if whole is not None:
        for dim, rounds in ((1, 1), (DIM, ROUNDS)):
            pairs = itertools.combinations(ends, 2)
            moves = tuple((np.full(dim, a), np.full(dim, b)) for a, b in pairs)
            yield Level("device", whole, "device", dim, rounds, moves)
    whole = bounded(uplink, clipping="norm")
    if whole is not None:
        moves = tuple(
            next(_along([-CLIP / math.sqrt(k)], 2 * CLIP / math.sqrt(k), k, DIM)) for k in (1, DIM)
        )
        yield Level("device, norm", whole, "device", DIM, ROUNDS, moves)
    for share in (0.1, 0.6):
        one = bounded(uplink, example_clip=share * CLIP)
        if one is not None:
            shift = 2 * share * CLIP
            for dim, rounds in ((1, 1), (DIM, ROUNDS)):
                moves = tuple(_along(_from(shift), shift, dim, dim))
                yield Level(f"example {share:g}", one, "example", dim, rounds, moves)
        one = bounded(uplink, example_norm=share * CLIP)
        if one is not None:
            norms = [(many, 2 * share * CLIP / math.sqrt(many)) for many in (1, DIM)]
            moves = tuple(m for k, d in norms for m in _along(_from(d), d, k, DIM))
            yield Level(f"example norm {share:g}", one, "example", DIM, ROUNDS, moves)


def one_sided_levels(uplink: flmc.Uplink, relation: str) -> Iterator[Level]:
    """All relations that the uplink offers in which the unit is absent or put to zero."""

    def against(gradient: Array) -> tuple[Array, Array | None]:
        """A device with a gradient, and the device without."""
        return gradient, None if relation == "add_remove" else np.zeros(len(gradient))

    whole = bounded(uplink)
    if whole is not None:
        for dim, rounds in ((1, 1), (DIM, ROUNDS)):
            one = np.ones(dim)
            mixed = [np.resize([a, -a], dim) * CLIP for a in (1.0, -1.0)]
            ends = [*mixed, *(x * CLIP * one for x in (-3.0, -1.0, -0.4, 0.4, 1.0))]
            moves = tuple(against(each) for each in ends)
            yield Level(f"device, {relation}", whole, "device", dim, rounds, moves, relation)
    whole = bounded(uplink, clipping="norm")
    if whole is not None:
        moves = tuple(
            against(np.where(np.arange(DIM) < k, CLIP / math.sqrt(k), 0.0)) for k in (1, DIM)
        )
        yield Level(f"device, norm, {relation}", whole, "device", DIM, ROUNDS, moves, relation)
    # The bound of an example is beyond the clip in the last of these: it moves an entry by more
    # than half of its range.
    for share in (0.2, 1.2):
        clipped = bounded(uplink, example_clip=share * CLIP)
        if clipped is not None:
            shift = share * CLIP
            for dim, rounds in ((1, 1), (DIM, ROUNDS)):
                moves = tuple(_along(_from(shift), shift, dim, dim))
                name = f"example {share:g}, {relation}"
                yield Level(name, clipped, "example", dim, rounds, moves, relation)
        normed = bounded(uplink, example_norm=share * CLIP)
        if normed is not None:
            norms = [(many, share * CLIP / math.sqrt(many)) for many in (1, DIM)]
            moves = tuple(m for k, d in norms for m in _along(_from(d), d, k, DIM))
            name = f"example norm {share:g}, {relation}"
            yield Level(name, normed, "example", DIM, ROUNDS, moves, relation)


def understated(uplink: flmc.Uplink, relation: str = "replace") -> Iterator[str]:
    """Statements of the uplink that are below the truth, in words; none where all hold.

    Raises
    ------
    AssertionError
        If there is nothing to compare: the uplink states a privacy, so it must offer a relation.
    """
    compared = 0
    every = levels(uplink) if relation == "replace" else one_sided_levels(uplink, relation)
    for level in every:
        for amplitude in AMPLITUDES:
            gain = amplitude * math.sqrt(NOISE) / level.uplink.peak
            where = f"{level.name}, {level.dim} x {level.rounds} entries, amplitude {amplitude:g}"
            for words, stated, true in _compared(level, gain):
                compared += 1
                if stated < true * (1 - TOLERANCE) - FLOOR:
                    yield f"{where}: {words}: stated {stated:.9g}, true {true:.9g}"
    assert compared > 20, "nothing to compare"


def _compared(level: Level, gain: float) -> Iterator[tuple[str, float, float]]:
    """Deltas that the event states, each with the true one."""
    event, candidates = level.event(gain), level.candidates(gain)
    single = level.dim * level.rounds == 1
    # One entry is quick; of a run the most revealing neighbours are compared.
    candidates = candidates if single else candidates[:2]
    worst = candidates[0]
    mean, spread = _moments(worst)
    top = _largest_loss(worst)
    for epsilon in sorted({min(max(mean + k * spread, 0.0), 0.9 * top) for k in (-2, 0, 2)}):
        true = _truth(candidates, epsilon)
        if true is None:  # loud bits: nearly discrete losses, which one entry tells of as well
            return
        for criterion in event.criteria:
            yield f"{criterion} delta at {epsilon:g}", event.delta(epsilon, criterion, 20), true
        tail = _tail(worst, epsilon) if "tail" in event.criteria else None
        if tail is not None:
            yield f"tail at {epsilon:g}", event.delta(epsilon, "tail"), tail
    # The other two questions: which epsilon goes with a delta, which gain keeps within a budget.
    target = 0.1 * (_truth(candidates, 0.5 * mean) or 0.1)
    epsilon = event.epsilon(target)
    if math.isfinite(epsilon):
        yield f"epsilon {epsilon:g}", target, _truth(candidates, epsilon) or 0.0
    allowed = level.event(1.0).allowed_gain(0.5 * mean, target)
    if math.isfinite(allowed):
        louder = [tuple(_at_gain(pair, allowed / gain) for pair in each) for each in candidates]
        yield f"allowed gain {allowed:g}", target, _truth(louder, 0.5 * mean) or 0.0


def _at_gain(pair: Pair, factor: float) -> Pair:
    return replace(pair, amplitude=factor * pair.amplitude)


def _largest_loss(entries: Entries) -> float:
    """Largest loss within 12 standard deviations of the noise."""
    total = 0.0
    for pair in entries:
        p, q = pair.log_densities(np.array(pair.reach))
        total += pair.count * float(np.max(p - q))
    return total


def _truth(candidates: list[Entries], epsilon: float) -> float | None:
    """Largest delta of the candidates; None where the oracle does not converge."""
    try:
        return max(
            entries[0].delta(epsilon)
            if len(entries) == 1 and entries[0].count == 1
            else composed_delta(entries, epsilon)
            for entries in candidates
        )
    except NotConvergedError:
        return None


def _tail(entries: Entries, epsilon: float) -> float | None:
    """Pr(abs(loss) > epsilon); None where the oracle does not converge."""
    try:
        if len(entries) == 1 and entries[0].count == 1:
            return entries[0].tail(epsilon)
        return composed_tail(entries, epsilon)
    except NotConvergedError:
        return None
