"""Transmissions of one device: how many entries it sent with which gain, the only part of its
behaviour on which its privacy cost depends."""

from __future__ import annotations

import heapq
from collections.abc import Iterable

import numpy as np

from flmc.base import checks
from flmc.base.arrays import Array, IntArray
from flmc.base.errors import InvalidSetting

Transmissions = tuple[tuple[float, int], ...]
"""Pairs of a gain and the number of entries that were sent with it."""

_MOST_DISTINCT = 10_000
"""Largest number of distinct gains that are kept; if there are more, gains are rounded up until
this many distinct ones are left."""
_UNLIKELY = 1e-25
"""Probability, far below every delta, up to which the smallest and the largest possible numbers of
rounds are lumped together in place of being treated one by one."""


def as_transmissions(given: Iterable[tuple[float, int]]) -> Transmissions:
    """Pairs of a gain and a count, in any iterable, as a tuple of tuples. Raises ``InvalidSetting``
    for anything else."""
    try:
        return tuple((float(gain), int(count)) for gain, count in given)
    except (TypeError, ValueError) as error:
        raise InvalidSetting(
            "transmissions of a privacy event must be pairs of a gain and a number of entries, such"
            f" as ((0.1, 500),); got {given!r}"
        ) from error


def count_gains(gains: Array) -> Transmissions:
    """Distinct gains, increasing, each with the number of times that it occurs; a gain of 0 sends
    nothing and is left out.

    If there are more than ten thousand distinct gains, they are rounded up to so many, which can
    only overstate the privacy cost. Raises ``InvalidSetting`` for a gain that is negative or not
    finite."""
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
    """Transmissions with at most ``most`` distinct gains, increasing and positive, which are some
    of the given ones; all others are rounded up to the next of these.

    The cost grows with the square of a gain, so the gains that stay are chosen to add little to the
    sum of squares: the interval of gains whose division saves most is divided, again and again."""
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
    """Indices of at most ``most`` of the increasing gains ``values``, to the next of which all
    gains are rounded up; ``counts`` says how often each gain occurs. The last index is always
    included."""
    if most > 1000:  # with so many levels, evenly spaced ones are good enough
        steps = np.linspace(0, len(values) - 1, most + 1)[1:]
        return np.unique(np.round(steps).astype(np.intp))
    squares = np.square(values / values[-1])
    number = np.concatenate([[0], np.cumsum(counts)])

    def best(first: int, last: int) -> tuple[float, int]:
        """Best division of the gains number ``first`` to ``last`` into two parts, if all gains of a
        part are rounded up to its largest: the reduction of the sum of squared gains, and the index
        of the last gain of the lower part."""
        if first == last:
            return 0.0, first
        saved = (squares[last] - squares[first:last]) * (
            number[first + 1 : last + 1] - number[first]
        )
        where = int(np.argmax(saved))
        return float(saved[where]), first + where

    saved, where = best(0, len(values) - 1)
    # Heap of intervals of gains, from which the one whose division saves most is taken first.
    parts = [(-saved, where, 0, len(values) - 1)]
    while len(parts) < most:
        _, where, first, last = heapq.heappop(parts)
        for start, end in ((first, where), (where + 1, last)):
            saved, at = best(start, end)
            heapq.heappush(parts, (-saved, at, start, end))
    return np.array(sorted(last for *_, last in parts), dtype=np.intp)


def binomial_counts(rounds: int, chance: float) -> tuple[list[tuple[int, float]], float]:
    """Law of the number of ``rounds`` in which an event of probability ``chance`` happens, as an
    upper bound for expectations of whatever grows with the number: pairs of a number and its
    probability, and the probability that the number is larger than all of these.

    Numbers so small that all of them together are practically impossible count as the smallest one
    in the pairs."""
    if chance >= 1.0:
        return [(rounds, 1.0)], 0.0
    number = np.arange(rounds + 1, dtype=np.float64)
    # Binomial coefficients are products of these ratios of neighbouring ones, so their logarithms
    # are sums.
    ratio = np.log((rounds - number[:-1]) / number[1:])
    ways = np.concatenate([[0.0], np.cumsum(ratio)])
    log_mass = ways + number * np.log(chance) + (rounds - number) * np.log1p(-chance)
    # Probabilities are raised by a relative 1e-9, because logarithms of large numbers are rounded.
    mass = np.exp(log_mass) * (1.0 + 1e-9)
    # Probability that the event happens in more rounds than each entry of ``number``.
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
