"""What becomes of the positions of kept rounds: sums, products and draws."""

from __future__ import annotations

import numpy as np

from flmc.sampling.compiled.code_cache import compiled
from flmc.sampling.compiled.emitted.value import WIDTH

_L = np.uint64(WIDTH)
f64 = np.float64


@compiled
def add_sums(recent, count, dim, lane, positions, sums, squares):  # type: ignore[no-untyped-def]
    """Add the positions of some rounds of one lane to its chain's sums, round after round.

    Parameters
    ----------
    recent
        Positions, (round, dim, lane; flat).
    count
        Rounds.
    dim, lane
        Entries of theta, and which lane.
    positions
        Where the positions of the lane go, (``ROUNDS_AT_ONCE``, dim); zero for rounds that there
        are not.
    sums, squares
        Sums of the chain, and of its squares where products are not kept, (dim) or empty; changed
        in place.
    """
    positions[count:] = 0.0
    for r in range(count):
        for i in range(dim):
            positions[r, i] = f64(recent[(r * dim + i) * _L + lane])
            sums[i] += positions[r, i]
        for i in range(len(squares)):
            squares[i] += positions[r, i] * positions[r, i]


@compiled
def keep(recent, count, dim, first, last, data_sets, centre, draws, number):  # type: ignore[no-untyped-def]
    """Write theta of some rounds of the chains of a block to the draws.

    Parameters
    ----------
    recent
        Positions, (round, dim, lane; flat).
    count
        Rounds.
    dim
        Entries of theta.
    first, last
        The chains, from ``first`` on, below ``last``.
    data_sets, centre
        The data set of every lane, and the centres of data sets.
    draws
        Where theta goes, (chain, kept round, dim).
    number
        The first kept round of these.
    """
    for lane in range(last - first):
        for r in range(count):
            for i in range(dim):
                deviation = f64(recent[(r * dim + i) * _L + np.uint64(lane)])
                draws[first + lane, number + r, i] = centre[data_sets[lane], i] + deviation
