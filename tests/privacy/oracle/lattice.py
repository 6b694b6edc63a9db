r"""Delta of a sum of losses on a grid, where losses are nearly discrete.

At high signal-to-noise ratio a loss is near one of few values, the integrand of the contour
integral does not decay, and the sum is composed by a Fourier transform instead. The grid's law is
the one whose divergence is the polygon through the profile's values at the grid points (in x =
e^epsilon): an upper bound that is wrong to second order in the step. Before the transform every
mass is tilted by e^{c loss}, so that rounding is relative to the delta that is asked for. Two steps
are compared and extrapolated."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from privacy.oracle.bits import Array, Profile
from privacy.oracle.inversion import Sum, Tilt, solve
from privacy.oracle.moments import reach_of, scan

_LONGEST = 1 << 21
"""Length of a transform at most."""


@dataclass(frozen=True)
class Grid:
    """Law of one entry's loss on multiples of a step: tilted masses, and the logarithm of what they
    were divided by."""

    first: int
    tilted: Array
    log_total: float


def grid_of(profile: Profile, step: float, c: float) -> Grid:
    """The grid law of a profile, tilted by ``c``."""
    up, down = (
        _excess(side, top, step, tilt)
        for side, top, tilt in (
            (profile.forward, profile.top, c),
            (profile.backward, profile.bottom, 0.0),
        )
    )
    # The excess over (1 - x)+ at x = e^{k step}; below 0 it is x times that of the exchanged pair.
    k = np.arange(-len(down), len(up) + 1)
    at_zero = math.exp(float(profile.forward(np.array([1e-12 * step]))[0]))
    # Slopes of the polygon in x, divided by what keeps them in range: cell by cell, with the
    # differences of the excess alone, and -1 more for x < 1.
    lower = np.concatenate([(np.exp(-step * np.arange(1, len(down) + 1)) * down)[::-1], [at_zero]])
    excess = np.concatenate([lower, up])
    width = math.expm1(step)
    # P-mass at x_k is x_k times the change of slope: in units of the excess, no x is left.
    rise = np.diff(excess)
    mass = np.zeros(len(k))
    right = rise / width  # x_k * (slope of the cell behind k)
    left = rise * math.exp(step) / width  # x_k * (slope of the cell before k)
    mass[:-1] += right
    mass[1:] -= left
    mass[len(down)] += 1.0  # the slope of (1 - x)+ jumps from -1 to 0 at x = 1
    # Outside the grid the excess is zero, or negligible: it is taken to end at the outermost point.
    mass[0] += excess[0] if len(down) else 0.0
    losses = step * k
    exponent = np.log(np.maximum(np.abs(mass), 1e-300)) + c * losses
    peak = float(np.max(exponent))
    tilted = np.sign(mass) * np.exp(exponent - peak)
    total = float(tilted.sum())
    return Grid(int(k[0]), tilted / total, math.log(total) + peak)


def _excess(side: Callable[[Array], Array], top: float, step: float, tilt: float) -> Array:
    """Excess at step, 2 step, ... up to where it is negligible or the largest loss is reached."""
    places = scan(top)
    reach = reach_of(side(places), places, tilt, top)
    count = math.ceil(reach / step * (1 - 1e-12))
    return np.asarray(np.exp(side(np.asarray(step * np.arange(1, count + 1), np.float64))))


class Composed:
    """Sum of losses on a grid.

    Parameters
    ----------
    total
        The sum, given by its profiles.
    tilt
        By how much masses are tilted.
    delta
        The delta that is asked for.
    points
        Length of the transform.
    """

    def __init__(self, total: Sum, tilt: Tilt, delta: float, points: int) -> None:
        period = max((25.0 - math.log(delta)) / tilt.c, 14.0 * tilt.spread)
        step = period / points
        # A step that divides the largest loss puts its atom on the grid.
        top = min(profile.top for profile, _ in total.parts)
        if math.isfinite(top):
            step = top / max(1, math.floor(top / step))
        self.step, self.c = step, tilt.c
        transform = np.ones(points // 2 + 1, dtype=np.complex128)
        self.first, self.level = 0, 0.0
        for profile, count in total.parts:
            grid = grid_of(profile, step, tilt.c)
            folded = np.zeros(-(-len(grid.tilted) // points) * points)
            folded[: len(grid.tilted)] = grid.tilted
            transform *= np.fft.rfft(folded.reshape(-1, points).sum(axis=0)) ** count
            self.first += grid.first * int(count)
            self.level += count * grid.log_total
        self.mass = np.fft.irfft(transform, points)

    def _window(self, epsilon: float) -> tuple[Array, Array]:
        """Losses from epsilon upwards for nine tenths of the period, and ln of what turns tilted
        masses into masses."""
        points = len(self.mass)
        begin = math.floor(epsilon / self.step) + 1
        index = np.arange(begin, begin + int(0.9 * points))
        losses = np.asarray(self.step * index, np.float64)
        scale = np.exp(np.minimum(self.level - self.c * losses, 600.0))
        return losses, np.asarray(self.mass[(index - self.first) % points] * scale)

    def delta(self, epsilon: float) -> float:
        """Delta at an epsilon."""
        losses, mass = self._window(epsilon)
        return float(mass @ -np.expm1(epsilon - losses))

    def above(self, epsilon: float, both: bool) -> float:
        """Pr(L > epsilon), or Pr(abs(L) > epsilon) where the exchanged law is the mirror image."""
        losses, mass = self._window(epsilon)
        return float(mass.sum() + (mass @ np.exp(-losses) if both else 0.0))


def lattice_epsilon(total: Sum, tilt: Tilt, delta: float, highest: float) -> tuple[float, float]:
    """Epsilon at a delta and its error, from the two finest grids that are tried."""
    found: list[float] = []
    points = 1 << 13
    while points <= _LONGEST:
        composed = Composed(total, tilt, delta, points)
        found.append(solve(composed.delta, delta, highest, 10.0 / tilt.c))
        if len(found) > 1 and abs(found[-1] - found[-2]) < 2e-5 * max(found[-1], 1e-2):
            break
        points *= 4
    better = found[-1] + (found[-1] - found[-2]) / 15
    return better, abs(found[-1] - found[-2])
