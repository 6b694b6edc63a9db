r"""Groups of draws that are nearly independent, from which the errors of means are told.

Whole chains are independent. Where there are few of them, each is cut into batches that are long
compared with its memory. The mean of a batch of B draws has the variance :math:`\sigma^2\tau/B`
with the autocorrelation time :math:`\tau`, less a share of about :math:`\tau/(2B)` for memory that
fades exponentially: what a batch owes to its neighbours. A batch that holds n effective draws has
:math:`\tau/B = 1/n`, so errors from batches are widened by :math:`(1 - 1/(2n))^{-1/2}`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from flmc.base.arrays import Array
from flmc.evaluation.chain_statistics import FEWEST_DRAWS, chain_statistics

DRAWS_PER_GROUP = 5
"""Effective draws of a group, at least: its mean is then nearly normal, and hardly depends on its
neighbours'."""
FEWEST_GROUPS = 8
"""Groups below which no error is stated: a third of them chooses directions, and Student's t of
fewer than five others is beyond any use."""
_MOST_GROUPS = 40
"""Groups at most: more would hardly sharpen an error, and shorter groups are less normal."""
_MOST_QUANTITIES = 20
"""Entries, and as many principal directions, of which the effective draws are computed."""


@dataclass(frozen=True)
class Groups:
    """Nearly independent groups of the draws of some chains.

    Attributes
    ----------
    parts
        Chains and draws of each group, as a pair of slices.
    widening
        Factor by which errors are widened for the memory between batches of one chain; 1 for
        groups of whole chains.
    """

    parts: tuple[tuple[slice, slice], ...]
    widening: float

    def __len__(self) -> int:
        return len(self.parts)

    def means(self, values: Array) -> Array:
        """Mean of each group, (group, ...), of values (chain, draw, ...).

        Parameters
        ----------
        values
            Something known of every draw, (chain, draw, ...).
        """
        return np.stack([values[part].mean(axis=(0, 1)) for part in self.parts])


def effective_draws(theta: Array) -> float:
    """Number of independent draws that would tell as much, in the worst entry or direction.

    Chains are independent of each other, so there are at least as many as chains.

    Parameters
    ----------
    theta
        Draws of some chains, (chain, draw, dim).

    Returns
    -------
    float
        The smallest effective size for the middle, over evenly chosen entries and the widest
        principal directions of the draws.
    """
    num_chains, num_draws, dim = theta.shape
    if num_draws < FEWEST_DRAWS:
        return float(num_chains)
    chosen = np.unique(np.linspace(0, dim - 1, min(dim, _MOST_QUANTITIES)).round().astype(int))
    widest = principal_directions(theta.reshape(-1, dim))[:_MOST_QUANTITIES]
    values = np.concatenate([theta[..., chosen], theta @ widest.T], axis=2)
    sizes = chain_statistics(np.moveaxis(values, 2, 0)).ess_bulk
    sizes = sizes[np.isfinite(sizes)]
    return max(float(num_chains), float(sizes.min())) if sizes.size else float(num_chains)


def principal_directions(draws: Array) -> Array:
    """Unit vectors along which some draws vary independently, widest first, (direction, dim).

    Parameters
    ----------
    draws
        Draws (draw, dim).

    Returns
    -------
    Array
        As many directions as the draws span.
    """
    deviation = draws - draws.mean(axis=0)
    if draws.shape[1] <= draws.shape[0]:
        squares, columns = np.linalg.eigh(deviation.T @ deviation)
        squares, directions = squares[::-1], columns.T[::-1]
    else:  # no matrix of dim x dim entries, which may be large
        _, widths, directions = np.linalg.svd(deviation, full_matrices=False)
        squares = np.square(widths)
    return np.asarray(directions[squares > 1e-12 * squares[0]])


def make_groups(num_chains: int, num_draws: int, effective: float) -> Groups | None:
    """Groups that hold enough effective draws each; None if they would be too few.

    Parameters
    ----------
    num_chains, num_draws
        Chains, and draws of each.
    effective
        Effective draws of all chains together.
    """
    wanted = min(_MOST_GROUPS, int(effective / DRAWS_PER_GROUP))
    batches = max(1, min(wanted // num_chains, num_draws))
    if batches == 1:
        edges = [round(each) for each in np.linspace(0, num_chains, min(wanted, num_chains) + 1)]
        parts = [(slice(a, b), slice(None)) for a, b in pairwise(edges)]
        widening = 1.0
    else:
        length = num_draws // batches
        first = num_draws - length * batches  # what does not fill a batch is left out
        parts = [
            (slice(chain, chain + 1), slice(first + k * length, first + (k + 1) * length))
            for chain in range(num_chains)
            for k in range(batches)
        ]
        widening = 1.0 / math.sqrt(1.0 - len(parts) / (2.0 * effective))
    return Groups(tuple(parts), widening) if len(parts) >= FEWEST_GROUPS else None
