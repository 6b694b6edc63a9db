"""Blocks of lanes: which chains a call puts together."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from flmc.sampling.compiled.emitted.arrangement import OWN, SHARED, TEAMS, Arrangement
from flmc.sampling.compiled.machine.value import WIDTH

LANES = WIDTH
"""Chains of a block, one for each lane of a vector."""

_LANES = np.arange(LANES)
"""Their numbers."""

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
            data_sets = range(first // num_chains * num_chains, end, num_chains)
            parts = (
                range(max(begin, first), min(begin + num_chains, end), LANES) for begin in data_sets
            )
            found = [block for part in parts for block in part]
        else:
            found = list(range(first, end, arrangement.lanes))
        firsts, ends = np.array(found), np.array([*found[1:], end])
        lanes = np.minimum(ends - firsts, arrangement.lanes)
        chains = np.minimum(firsts[:, None] + _LANES, (firsts + (lanes - 1))[:, None])
        if arrangement.kind == OWN:
            first_of_unit = list(range(len(found)))
            unit = first_of_unit
        else:  # blocks whose lanes share a data set share its unit, too
            first_of_unit, unit, last = [], [], -1
            for number, block in enumerate(found):
                if block // num_chains != last:
                    last = block // num_chains
                    first_of_unit.append(number)
                unit.append(len(first_of_unit) - 1)
        return cls(firsts, lanes, chains, num_chains, np.array(unit), np.array(first_of_unit))

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

    @cached_property
    def are_chains(self) -> npt.NDArray[np.bool_]:
        """Whether a lane is a chain, not the repeat of one, (block, 8)."""
        return np.asarray(self.lanes[:, None] > _LANES)

    @cached_property
    def data_sets(self) -> Numbers:
        """The data set of every lane, (block, 8)."""
        return self.chains // self.num_chains

    @property
    def keys(self) -> npt.NDArray[np.uint32]:
        """Data set and chain of every lane, which name its random streams, (block, 2, 8)."""
        keys = np.empty((len(self.firsts), 2, LANES), np.uint32)
        keys[:, 0], keys[:, 1] = self.data_sets, self.chains % self.num_chains
        return keys
