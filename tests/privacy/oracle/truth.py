"""The true epsilon of a product of entries, with the error that the oracle itself may have."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from privacy.oracle.bits import Profile
from privacy.oracle.inversion import Sum, Tilt, as_array, solve
from privacy.oracle.lattice import lattice_epsilon

MANY = 18
"""Distinct gains up to which each has its own profile."""
CONVERGED = 1e-3
"""Share of epsilon that the oracle's own error may have."""


@dataclass(frozen=True)
class Truth:
    """An epsilon that was computed in two ways.

    Attributes
    ----------
    epsilon, error
        The value, and how far the two ways differ.
    method
        ``entry`` (one entry, its profile), ``line`` (contour integral) or ``lattice``.
    """

    epsilon: float
    error: float
    method: str

    @property
    def converged(self) -> bool:
        """Whether the error is at most 0.1 % of epsilon, or 1e-6."""
        return self.error <= max(CONVERGED * self.epsilon, 1e-6)


def true_epsilon(
    profile_of: Callable[[float], Profile], gains: Sequence[tuple[float, int]], delta: float
) -> Truth:
    """Epsilon of the exact composition of the pairs that have given profiles.

    Parameters
    ----------
    profile_of
        Profile of an entry that is sent with a gain, in standard deviations of the noise.
    gains
        Gains, each with the number of entries that are sent with it.
    delta
        Delta that epsilon goes with.
    """
    if sum(count for _, count in gains) == 1:
        return _of_one_entry(profile_of(gains[0][0]), delta)
    found = line_epsilon(profile_of, gains, delta)
    if found is not None:
        return found
    total = Sum([(profile_of(gain), count) for gain, count in gains])
    tilt = total.tilt_for(delta)
    return Truth(
        *lattice_epsilon(total, tilt, delta, _highest(total, gains, tilt, delta)), "lattice"
    )


def line_epsilon(
    profile_of: Callable[[float], Profile], gains: Sequence[tuple[float, int]], delta: float
) -> Truth | None:
    """The same by two contour integrals, with other nodes on another line; None where they do not
    agree, or do not converge."""
    total = Sum(with_gains(profile_of, gains, 14))
    tilt = total.tilt_for(delta)
    highest = _highest(total, gains, tilt, delta)
    line = total.line(tilt, delta)
    if line is None:
        return None
    other = Sum(with_gains(profile_of, gains, 18), 40)
    second = other.line(other.tilt_at(1.2 * tilt.c), delta, wider=1.4)
    if second is None:
        return None
    epsilon = solve(line.delta, delta, highest, 10.0 / tilt.c)
    error = abs(solve(second.delta, delta, highest, 10.0 / tilt.c) - epsilon)
    error += line.left_out * tilt.spread
    return Truth(epsilon, error, "line") if error <= max(1e-5 * epsilon, 1e-9) else None


def _highest(total: Sum, gains: Sequence[tuple[float, int]], tilt: Tilt, delta: float) -> float:
    """Chernoff's bound of epsilon, or the largest loss, which does not depend on gains, where that
    is less."""
    return min(_chernoff(tilt, delta), total.parts[0][0].top * sum(count for _, count in gains))


def with_gains(
    profile_of: Callable[[float], Profile], gains: Sequence[tuple[float, int]], order: int
) -> list[tuple[Profile, float]]:
    r"""Profiles of all gains, each with its count.

    Where there are many gains, :math:`\ln M(s)/A^2` is interpolated between ``order`` Chebyshev
    points in ln A, which is the same as as many profiles with other counts: nothing is rounded to
    them, and another order shows how exact it is."""
    if len(gains) <= MANY:
        return [(profile_of(gain), count) for gain, count in gains]
    values = np.log([gain for gain, _ in gains])
    middle, half = (values.max() + values.min()) / 2, (values.max() - values.min()) / 2 * 1.001
    angle = (np.arange(order) + 0.5) * math.pi / order
    places, alternating = np.cos(angle), np.sin(angle) * (-1.0) ** np.arange(order)
    counts = np.zeros(order)
    for value, (gain, count) in zip(values, gains, strict=True):
        # Barycentric weights of a Chebyshev grid.
        share = alternating / ((value - middle) / half - places)
        counts += count * gain**2 * share / share.sum()
    nodes = np.exp(middle + half * places)
    return [(profile_of(float(a)), float(n / a**2)) for a, n in zip(nodes, counts, strict=True)]


def _of_one_entry(profile: Profile, delta: float) -> Truth:
    """Epsilon of a single entry, at which its divergence is delta."""
    highest = profile.top if math.isfinite(profile.top) else 2e3

    def value(e: float) -> float:
        return math.exp(float(profile.forward(as_array([max(e, 1e-300)]))[0]))

    epsilon = 0.0 if value(1e-12) <= delta else solve(value, delta, highest, highest)
    return Truth(epsilon, 1e-12 * epsilon, "entry")


def _chernoff(tilt: Tilt, delta: float) -> float:
    """Upper bound of epsilon at a delta: delta is at most M(c) e^{-c epsilon} times the largest
    value that c^c/(c + 1)^(c + 1) lets (1 - e^-y) e^{-c y} have, which is below 1."""
    return max((tilt.level - math.log(delta)) / tilt.c, 1e-9)
