"""Sum of the losses of very many entries, brought to one grid in stages.

A few losses are added on a fine grid, the result is brought to a coarser one (connect the dots
again, which stays an upper bound), and so on: the work grows with the logarithm of their
number."""

from __future__ import annotations

from collections.abc import Sequence

from flmc.privacy.losses.addition import total
from flmc.privacy.losses.loss_grid import LossGrid
from flmc.privacy.losses.tilted import TiltedLoss

FINE = 220.0
"""Grid steps per standard deviation of a loss that is added, about: adds 4e-6 to the relative
variance."""
MOST_DOUBLINGS = 2
"""Largest number of doublings of the grid's step in one stage, in which 4 to this power losses are
added."""


def compose(
    parts: Sequence[tuple[LossGrid, int]],
    theta: float,
    doublings: Sequence[int],
    truncated: float,
) -> TiltedLoss:
    """Tilted law of a sum of losses whose grids have different steps.

    Parameters
    ----------
    parts
        Laws of one loss, each with the number of times that it is added.
    theta
        The tilt.
    doublings
        For each law how often its step must be doubled to reach the step of the sum.
    truncated
        Minus the logarithm of the tilted mass that may leave the window of an FFT.

    Returns
    -------
    TiltedLoss
        Upper bound of the sum.

    Raises
    ------
    TooWideError
        If an FFT would be too long.
    """
    terms: list[tuple[TiltedLoss, int]] = []
    for (grid, count), times in zip(parts, doublings, strict=True):
        terms += _brought_to_step(TiltedLoss.of(grid, theta), count, times, truncated)
    return total(terms, truncated)


def _brought_to_step(
    law: TiltedLoss, count: int, doublings: int, truncated: float
) -> list[tuple[TiltedLoss, int]]:
    """Laws whose sum is that of ``count`` losses, on a grid whose step is doubled so often.

    In each stage losses are added in groups of 4 or 16, which doubles their spread once or twice,
    and so may the step be; those left over are added apart."""
    rest: TiltedLoss | None = None
    while doublings:
        times = min(doublings, MOST_DOUBLINGS)
        groups, left = divmod(count, 4**times)
        if left:
            terms = [(law, left)] if rest is None else [(law, left), (rest, 1)]
            rest = total(terms, truncated)
        if rest is not None:
            rest = rest.coarser(2**times)
        doublings -= times
        if not groups:
            # Nothing but the rest is left: too few losses to fill the coarse grid.
            return [(rest.coarser(2**doublings), 1)] if rest is not None else []
        law = total([(law, 4**times)], truncated).coarser(2**times)
        count = groups
    return [(law, count)] if rest is None else [(law, count), (rest, 1)]
