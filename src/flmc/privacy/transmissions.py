"""Transmissions of one device: how many entries it sent with which gain, the only part of its
behaviour on which its privacy cost depends."""

from __future__ import annotations

import heapq

import numpy as np

from flmc.base import checks
from flmc.base.arrays import Array, IntArray
from flmc.base.errors import InvalidSetting

Transmissions = tuple[tuple[float, int], ...]
"""Pairs of a gain and the number of entries that were sent with it."""

_MOST_DISTINCT = 10_000
"""Largest number of distinct gains that are kept; more are rounded up to this many."""
_UNLIKELY = 1e-25
"""Probability, far below every delta, up to which numbers of rounds are not treated one by one."""


def count_gains(gains: Array) -> Transmissions:
    """Distinct gains, increasing, with their counts; a gain of 0 sends nothing and is left out.

    Beyond ten thousand distinct gains they are rounded up, which can only overstate the cost.
    Raises ``InvalidSetting`` for a gain that is negative or not finite."""
    flat = checks.finite_array("gain", np.ravel(gains))
    if (flat < 0).any():
        raise InvalidSetting(f"a gain must not be negative, got {flat.min():g}")
    flat = flat[flat > 0]
    if flat.size == 0:
        return ()
    values, counts = np.unique(flat, return_counts=True)
    sent = tuple((float(value), int(count)) for value, count in zip(values, counts, strict=True))
    return round_up(sent, _MOST_DISTINCT)


def round_up(transmissions: Transmissions, most: int) -> Transmissions:
    """Transmissions with at most ``most`` distinct gains, increasing and positive; gains between
    these levels are rounded up to the next.

    The cost grows with the square of a gain, so levels are chosen to add little to the sum of
    squares: the interval of gains whose division saves most is divided, again and again."""
    merged: dict[float, int] = {}
    for gain, count in transmissions:
        if count and gain > 0:
            merged[gain] = merged.get(gain, 0) + count
    values = np.array(sorted(merged))
    counts = np.array([merged[value] for value in values])
    if len(values) <= most:
        return tuple(zip(values.tolist(), counts.tolist(), strict=True))
    levels = _levels(values, counts, most)
    numbers = np.add.reduceat(counts, np.concatenate([[0], levels[:-1] + 1]))
    return tuple(zip(values[levels].tolist(), numbers.tolist(), strict=True))


def _levels(values: Array, counts: Array, most: int) -> IntArray:
    """Indices, among the increasing gains ``values``, of at most ``most`` gains to which all gains
    are rounded up; the last index is always among them."""
    if most > 1000:  # with so many levels, evenly spaced ones are good enough
        steps = np.linspace(0, len(values) - 1, most + 1)[1:]
        return np.unique(np.round(steps).astype(np.intp))
    squares = np.square(values / values[-1])
    number = np.concatenate([[0], np.cumsum(counts)])

    def best(first: int, last: int) -> tuple[float, int]:
        """Largest reduction of the sum of squared gains, each rounded up to the largest of its
        part, by cutting the gains number ``first`` to ``last`` into two parts; and the index of the
        last gain of the lower part."""
        if first == last:
            return 0.0, first
        saved = (squares[last] - squares[first:last]) * (
            number[first + 1 : last + 1] - number[first]
        )
        where = int(np.argmax(saved))
        return float(saved[where]), first + where

    saved, where = best(0, len(values) - 1)
    # a heap of intervals of gains: the one whose division saves most comes first
    parts = [(-saved, where, 0, len(values) - 1)]
    while len(parts) < most:
        _, where, first, last = heapq.heappop(parts)
        for start, end in ((first, where), (where + 1, last)):
            saved, at = best(start, end)
            heapq.heappush(parts, (-saved, at, start, end))
    return np.array(sorted(last for *_, last in parts), dtype=np.intp)


def binomial_counts(rounds: int, chance: float) -> tuple[list[tuple[int, float]], float]:
    """Law of the number of ``rounds`` in which an event of probability ``chance`` happens, as an
    upper bound for whatever grows with the number: pairs of a number and its probability, and the
    probability of larger numbers than these.

    Numbers that are too small to matter are counted as the smallest one of the list."""
    if chance >= 1.0:
        return [(rounds, 1.0)], 0.0
    number = np.arange(rounds + 1, dtype=np.float64)
    # Ratios of neighbouring binomial coefficients: their logarithms add up to that of each of them.
    ratio = np.log((rounds - number[:-1]) / number[1:])
    ways = np.concatenate([[0.0], np.cumsum(ratio)])
    log_mass = ways + number * np.log(chance) + (rounds - number) * np.log1p(-chance)
    # raised by a relative 1e-9, because logarithms of large numbers are rounded
    mass = np.exp(log_mass) * (1.0 + 1e-9)
    # probability that the event happens in more rounds than each number says
    above = np.concatenate([np.cumsum(mass[::-1])[::-1][1:], [0.0]])
    last = int(np.argmax(above <= _UNLIKELY))
    first = min(last, int(np.argmax(np.cumsum(mass) > _UNLIKELY)))
    mass[first] = mass[: first + 1].sum()
    counts = zip(range(first, last + 1), mass[first : last + 1].tolist(), strict=True)
    return list(counts), float(above[last])


def total_mu(sensitivity: float, noise_power: float, transmissions: Transmissions) -> float:
    r"""Distance :math:`\mu = \sqrt{\sum (\Delta A)^2/N_0}` of the means of a Gaussian mechanism, in
    standard deviations, over all ``transmissions``; the sensitivity :math:`\Delta` is the largest
    move of a value before the gain A, the noise power :math:`N_0` the variance of the noise in an
    entry."""
    squares = 0.0
    for gain, count in transmissions:
        squares += count * np.square(sensitivity * gain)
    return float(np.sqrt(squares / noise_power))
