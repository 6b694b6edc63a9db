r"""Distribution of one entry's privacy loss on a grid, as an upper bound.

*Connect the dots*: the hockey-stick divergence as a function of :math:`x = e^\epsilon` is convex,
so the polygon through its values on a grid lies above it; the polygon belongs to a discrete pair,
which therefore dominates the true one, with an error of second order in the grid's step. Dominance
survives composition, so every delta computed from the grid bounds the true one from above
(Doroshenko et al., "Connect the Dots", 2022)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from flmc.base.arrays import Array


@dataclass(frozen=True)
class LossGrid:
    """Distribution of the loss under P on a grid, with some mass at infinity."""

    step: float
    """Distance of two losses."""
    first: int
    """Number of the first loss: the losses are ``step`` times ``first``, ``first`` + 1, ..."""
    mass: Array
    """Mass at each loss, (point)."""
    infinite: float
    """Mass that is counted at infinity."""

    @classmethod
    def of_excess(
        cls, excess: Callable[[Array], Array], low: float, high: float, step: float
    ) -> LossGrid:
        r"""Grid that dominates a profile: connect the dots.

        With :math:`\delta = D + (1 - x)_+` and D on the grid, the mass of P at a loss
        :math:`l_j = j h` is :math:`x_j` times the change of the polygon's slope there, which is
        :math:`[(D_{j+1} - D_j) - e^h (D_j - D_{j-1})]/(e^h - 1)`, plus 1 at the loss 0.

        Parameters
        ----------
        excess
            D as a function of an array of epsilons; :math:`D + (1 - x)_+` is convex in
            :math:`x = e^\epsilon`.
        low, high
            Range of the losses, which holds 0.
        step
            Distance h of two losses.

        Returns
        -------
        LossGrid
            An upper bound of the loss.
        """
        first, last = min(math.floor(low / step), -1), max(math.ceil(high / step), 1)
        values = excess(np.asarray(step * np.arange(first, last + 1), dtype=np.float64))
        rise = np.diff(values)
        mass = np.empty_like(values)
        growth = math.expm1(step)
        mass[1:-1] = (rise[1:] - rise[:-1]) / growth - rise[:-1]
        # From the first point a straight line leads to D = 0 at x = 0; beyond the last point all
        # mass that is left counts as infinite.
        mass[0] = rise[0] / growth - values[0]
        mass[-1] = -rise[-1] * (1.0 + 1.0 / growth)
        mass[-first] += 1.0
        return cls(step, first, np.maximum(mass, 0.0), float(values[-1]))

    @property
    def losses(self) -> Array:
        """Losses that the masses belong to, (point)."""
        return np.asarray(self.step * np.arange(self.first, self.first + len(self.mass)))

    @cached_property
    def _carried(self) -> tuple[Array, Array]:
        """Losses that have mass, and the logarithm of their mass."""
        carried = self.mass > 0
        return self.losses[carried], np.log(self.mass[carried])

    def cumulant(self, s: float) -> tuple[float, float, float]:
        """Value of ln E[exp(s loss)] of the finite part, its slope and its curvature.

        Parameters
        ----------
        s
            Exponent of either sign.

        Returns
        -------
        tuple of float
            The logarithm; mean and variance of the loss when its law is tilted by exp(s loss).
        """
        losses, log_mass = self._carried
        exponent = s * losses + log_mass
        # The largest term is taken out, so that no exponential overflows.
        largest = float(exponent.max())
        weight = np.exp(exponent - largest)
        total = float(weight.sum())
        mean = dot(weight, losses) / total
        return (
            largest + math.log(total),
            mean,
            dot(weight, np.square(losses - mean)) / total,
        )


def dot(first: Array, second: Array) -> float:
    """Sum of products, without BLAS: waking its threads costs more than so short a sum.

    Parameters
    ----------
    first, second
        Two arrays of the same length, (point).
    """
    return float(np.einsum("i,i->", first, second))


# Grids for the losses of all kinds of entries of an event, within a bounded number of cells.


RESOLUTION = 400.0
"""Steps of the sum's grid per standard deviation of the sum."""
_MOST_CELLS = 2**14
"""Largest number of cells of one entry's grid."""
_COARSE = 8.0
"""Grid steps per standard deviation of an entry's loss below which bounds are noticeably looser."""


@dataclass(frozen=True)
class EntryLoss:
    """Loss of one entry, and how often it is added."""

    grid: Callable[[float], LossGrid]
    """Law of the loss on a grid, as a function of its step."""
    low: float
    """Smallest loss that matters."""
    high: float
    """Largest loss that matters."""
    spread: float
    """Standard deviation of the loss, about."""
    count: int
    """Number of entries."""
    lattice: float | None = None
    """Loss of which all losses are nearly multiples where noise hardly matters; None where there is
    none."""


Grids = tuple[tuple[tuple[LossGrid, int], ...], tuple[int, ...], bool]
"""Laws with their counts, how often the step of each must be doubled, and whether any is coarse."""


def make_grids(entries: Sequence[EntryLoss], fine: float, resolution: float) -> Grids:
    """Law of each entry's loss on a grid of its own, whose step is that of the sum, halved some
    times.

    Parameters
    ----------
    entries
        At least one kind of entry.
    fine
        Grid steps per standard deviation of an entry's loss, where so many are affordable.
    resolution
        Steps of the sum's grid per standard deviation of the sum, likewise.

    Returns
    -------
    Grids
        For each kind its law and the number of entries; how often its step must be doubled to reach
        the step of the sum; and whether grids are so coarse that bounds are looser than usual.
    """
    whole = math.sqrt(sum(entry.count * entry.spread**2 for entry in entries))
    widest = max(entry.high - entry.low for entry in entries)
    step = max(whole / resolution, widest / _MOST_CELLS, 1e-300)
    doublings, coarsened = [], False
    for entry in entries:
        ratio = fine * step / max(entry.spread, 1e-300)
        wanted = max(0, math.ceil(math.log2(ratio) - 0.3))  # a fifth coarser will do
        most = math.floor(math.log2(_MOST_CELLS * step / (entry.high - entry.low)))
        times = min(wanted, most)
        matters = entry.count * entry.spread**2 > 1e-3 * whole**2
        coarsened |= matters and entry.spread * 2.0**times < _COARSE * step
        doublings.append(times)
    step = _aligned(step / 2.0 ** max(doublings), entries[0].lattice) * 2.0 ** max(doublings)
    grids = tuple(
        (entry.grid(step / 2.0**times), entry.count)
        for entry, times in zip(entries, doublings, strict=True)
    )
    return grids, tuple(doublings), coarsened


def _aligned(step: float, lattice: float | None) -> float:
    """A slightly smaller step that divides the loss on whose multiples nearly all mass sits."""
    if lattice is None or not lattice / step < 1e6:
        return step
    return lattice / math.ceil(lattice / step)
