"""Grids for the losses of all kinds of entries of an event, within a bounded number of cells."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from flmc.privacy.losses.loss_grid import LossGrid

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
