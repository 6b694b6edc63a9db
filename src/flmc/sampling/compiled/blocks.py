"""Blocks of lanes: which chains a call puts together."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from flmc.sampling.compiled.emitted.arrangement import OWN, SHARED, TEAMS, Arrangement
from flmc.sampling.compiled.machine.value import WIDTH

LANES = WIDTH
"""Chains of a block, one for each lane of a vector."""

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Blocks:
    """The blocks of some chains, counted through all data sets."""

    firsts: Numbers
    """The first chain of every block."""
    lanes: Numbers
    """Its chains: less than ``LANES`` where the others repeat the last."""
    chains: Numbers
    """The chain of every lane, (block, 8)."""
    num_chains: int
    """Chains of a data set."""
    unit: Numbers
    """The unit of data of every block."""
    first_of_unit: Numbers
    """The first block of every unit."""

    @classmethod
    def of(cls, arrangement: Arrangement, first: int, end: int, num_chains: int) -> Blocks:
        """The blocks of the chains from ``first`` on, below ``end``.

        Parameters
        ----------
        arrangement
            Whether a block is one chain, and whether its lanes belong to one data set.
        first, end
            Chains, counted through all data sets.
        num_chains
            Chains of every data set.
        """
        if arrangement.kind in (SHARED, TEAMS):
            edges = np.arange(-(-first // num_chains), -(-end // num_chains) + 1) * num_chains
            edges = np.unique(np.clip(np.concatenate([[first], edges, [end]]), first, end))
            firsts = np.concatenate([np.arange(a, b, LANES) for a, b in itertools.pairwise(edges)])
        else:
            firsts = np.arange(first, end, arrangement.lanes)
        ends = np.append(firsts[1:], end)
        lanes = np.minimum(ends - firsts, arrangement.lanes)
        chains = np.minimum(firsts[:, None] + np.arange(LANES), (firsts + lanes - 1)[:, None])
        # Blocks whose lanes share a data set share its unit, too.
        of_block = firsts if arrangement.kind == OWN else firsts // num_chains
        _, first_of_unit, unit = np.unique(of_block, return_index=True, return_inverse=True)
        return cls(firsts, lanes, chains, num_chains, unit.astype(np.int64), first_of_unit)

    def teams(self, most: int) -> tuple[Numbers, Numbers]:
        """The first blocks of teams, whose blocks share a unit, and their sizes.

        Parameters
        ----------
        most
            Blocks of a team at most.
        """
        number = np.arange(len(self.firsts)) - self.first_of_unit[self.unit]
        firsts = np.flatnonzero(number % most == 0)
        return firsts, np.diff(np.append(firsts, len(self.firsts)))

    @property
    def data_sets(self) -> Numbers:
        """The data set of every lane, (block, 8)."""
        return self.chains // self.num_chains

    @property
    def keys(self) -> npt.NDArray[np.uint32]:
        """Data set and chain of every lane, which name its random streams, (block, 2, 8)."""
        return np.stack([self.data_sets, self.chains % self.num_chains], axis=1).astype(np.uint32)
