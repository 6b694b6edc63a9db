"""How the data of the devices lie in memory, which arrangement costs least, and which chains share
a vector.

*Lane*: one chain of one data set. *Block*: the chains that one instruction serves, eight or one.
There are four arrangements of the devices' gradients and Hessians:

- *own*: every lane has its own. Eight data sets share each instruction; all their matrices must
  be near the processor.
- *shared*: all lanes are chains of one data set, and read each number once for all of them.
- *teams*: the same, and several blocks run together, so that what is read from far away serves
  all of them.
- *rows*: a block is one chain, and the eight numbers of a vector are entries of one gradient, so
  that no more than the matrices of one data set must be near the processor.

Where a gradient has few entries (:data:`MOST_WRITTEN_OUT`), the loops over them are written out,
and of a Hessian the upper triangle is stored. Where it has many, entries come in *tiles*: a tile
holds the gradients at the centre, then column after column of the Hessian.

The choice rests on measured costs, and changes no bit of a result; ``make bench`` measures what is
predicted here (docs/scale.md)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from llvmlite import ir

from flmc.sampling.compiled.instructions import FLOAT, FLOATS, WIDTH, WORD, WORDS

OWN, SHARED, TEAMS, ROWS = "own", "shared", "teams", "rows"
MOST_WRITTEN_OUT = 8
"""Largest number of entries of a gradient for which emitted code has no loop over entries but their
instructions one after the other."""
MOST_MEMBERS = 4
"""Largest number of blocks (of eight chains each) in a team, which reads a data set's numbers once
for all its blocks."""
_HEIGHTS = range(13, 3, -1)
"""Numbers of vectors in a tile (entries that are computed together) that are tried: its sums must
fit into the 16 registers that every processor has."""
_WAIT = 8
"""Number of products that a processor works on at once: in a tile with fewer vectors, products wait
for the sums of earlier ones."""


class Arrangement(NamedTuple):
    """Everything about an arrangement of the data in memory that is a constant of the machine code.

    Attributes
    ----------
    kind
        Which lanes share the data, own, shared, teams or rows, as the module's docstring describes.
    entries
        Entries of a gradient where they are few, so that loops over them are written out; else 0.
    tile
        Vectors of a tile (entries that are computed together) where entries are many, else 0.
    whole
        Whether the last tile is full: then no vector is checked for being behind the last entry.
    """

    kind: str
    entries: int
    tile: int
    whole: bool

    @classmethod
    def of(cls, kind: str, dim: int) -> Arrangement:
        """The arrangement of the given kind (own, shared, teams or rows) for gradients with ``dim``
        entries; teams and rows need more entries than :data:`MOST_WRITTEN_OUT`."""
        if dim <= MOST_WRITTEN_OUT:
            return cls(kind, dim, 0, True)
        vectors = -(-dim // WIDTH) if kind == ROWS else dim

        def cost(height: int) -> int:
            # A column of the Hessian in a tile takes a load for each of the tile's vectors, and one
            # for the entry of the position that it is multiplied by.
            return -(-vectors // height) * max(_WAIT, height + 1)

        tile = min(_HEIGHTS, key=cost)
        return cls(kind, 0, tile, vectors % tile == 0)

    @property
    def unit(self) -> int:
        """Number of floats that store one number of a device's data: 8, one for each lane of a
        vector (each has its own chain), or 1 for all lanes."""
        return 1 if self.kind in (SHARED, TEAMS) else WIDTH

    @property
    def lanes(self) -> int:
        """Number of chains of a block, that is in one vector instruction: 8 or 1."""
        return 1 if self.kind == ROWS else WIDTH

    @property
    def word(self) -> ir.Type:
        """Type of the random words of a block: a vector with one for each of its eight chains, or a
        single word where a block is one chain."""
        return WORD if self.kind == ROWS else WORDS

    @property
    def float(self) -> ir.Type:
        """Type of a number that every chain of a block has: a vector of eight floats, or a single
        float where a block is one chain."""
        return FLOAT if self.kind == ROWS else FLOATS

    def tiles(self, dim: int) -> int:
        """Number of tiles (groups of entries that are computed together) of a gradient with ``dim``
        entries; 0 where entries are few and need no tiles."""
        if self.entries:
            return 0
        return -(-dim // (self.tile * (WIDTH if self.kind == ROWS else 1)))

    def device_size(self, dim: int) -> int:
        """Number of floats that one device takes in a unit of data
        (:mod:`flmc.sampling.compiled.units`): its gradient at the fixed point of the data set
        (:func:`flmc.sampling.chains.centre_of`) and its Hessian."""
        if self.entries:
            return self.entries * (self.entries + 3) // 2 * self.unit
        return self.tiles(dim) * self.tile * (dim + 1) * self.unit


_NEXT_TO_THE_PROCESSOR, _IN_CACHE, _SHARED_CACHE = 0.7e6, 8e6, 16e6
"""Largest numbers of bytes, read again in every round, that stay in a processor's own cache, in its
share of the common cache, and in the common cache at all; more come from memory."""
_READING = (0.045, 0.12, 0.3, 0.6)
"""Nanoseconds for each float that a lane (one chain) reads: from the processor's own cache, from
its share of the common cache, from the whole common cache, and from memory; measured."""
_BROADCAST = 0.02
"""Nanoseconds of a product for which eight lanes (chains) share a float, so that not reading but
multiplying takes the time; measured."""
_SYMBOL = {OWN: 0.7, SHARED: 0.6, TEAMS: 0.9, ROWS: 1.6}
"""Nanoseconds that one symbol takes, by arrangement of the data in memory, without the products of
its gradient: random word, clip, link and comparison; measured."""

DATA_AT_ONCE = 32_000_000
"""Largest number of bytes of local costs that are held in double precision at a time."""

IN_WORDS = {
    OWN: "8 chains at a time, each with its own numbers",
    SHARED: "8 chains of a data set at a time",
    TEAMS: f"{WIDTH * MOST_MEMBERS} chains of a data set at a time",
    ROWS: "one chain at a time",
}
"""Words for how many chains an arrangement of the data in memory serves at a time, as a phrase for
reports."""


def _reading(floats: float) -> float:
    """Nanoseconds for each float that a lane (one chain) reads, where ``floats`` numbers are read
    again in every round: the more there are, the farther from the processor they lie."""
    places = (_NEXT_TO_THE_PROCESSOR, _IN_CACHE, _SHARED_CACHE)
    return _READING[sum(4 * floats > size for size in places)]


def round_cost(kind: str, devices: int, dim: int, experiments: int, chains: int) -> float:
    """Predicted nanoseconds of one round of all chains (``chains`` of each data set) on one
    processor, with the arrangement ``kind`` of the devices' data in memory."""
    symbols = devices * dim
    data = symbols * (dim + 1)
    if kind == OWN:
        # The chains of a block are only of data sets that are in memory at the same time.
        together = min(experiments, max(1, DATA_AT_ONCE // (8 * data)))
        lanes = -(-together * chains // WIDTH) * WIDTH * experiments / together
        # Where entries are few, only the upper triangle of a Hessian is stored and read.
        share = 0.5 if dim <= MOST_WRITTEN_OUT else 1.0
        product = share * _reading(share * WIDTH * data)
    elif kind in (SHARED, TEAMS):
        blocks = -(-chains // WIDTH)
        lanes = experiments * blocks * WIDTH
        together = min(blocks, MOST_MEMBERS) if kind == TEAMS else 1
        # Numbers in the processor's own cache are read while it multiplies. For numbers from
        # farther away, the time of reading is added; all lanes (chains) that read them together
        # share it.
        product = _BROADCAST
        if 4 * data > _NEXT_TO_THE_PROCESSOR:
            product += _reading(data) / (WIDTH * together)
    else:
        lanes, product = experiments * chains, _reading(data)
    return lanes * symbols * (_SYMBOL[kind] + dim * product)


@lru_cache(maxsize=64)
def choose_arrangement(devices: int, dim: int, experiments: int, chains: int) -> str:
    """Kind of arrangement of the devices' data in memory that is predicted to take the least time
    for so many devices, entries, data sets and chains of each; rows and teams are for many entries
    only."""
    kinds = (OWN, SHARED) if dim <= MOST_WRITTEN_OUT else (OWN, SHARED, TEAMS, ROWS)
    return min(kinds, key=lambda kind: round_cost(kind, devices, dim, experiments, chains))


LANES = WIDTH
"""Number of chains of a block, one for each lane of a vector."""

_LANES = np.arange(LANES)
"""Numbers of a vector's lanes, from 0 to 7."""

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Blocks:
    """Assignment of some chains, counted through all data sets, to blocks: of eight chains that
    share vector instructions, or of one."""

    firsts: Numbers
    """Number of the first chain of every block, counted through all data sets."""
    lanes: Numbers
    """Number of chains in every block: less than 8 where further lanes repeat the last chain."""
    chains: Numbers
    """Number of the chain in each lane of each block, counted through all data sets, (block, 8)."""
    num_chains: int
    """Number of chains of a data set."""
    unit: Numbers
    """Number of the unit of data (the devices' numbers in memory) that every block reads."""
    first_of_unit: Numbers
    """The first block, by number, that reads each unit of data."""

    @classmethod
    def of(cls, arrangement: Arrangement, first: int, end: int, num_chains: int) -> Blocks:
        """The blocks into which the chains from ``first`` on, below ``end``, are dealt, both
        counted through all data sets; ``num_chains`` belong to each data set."""
        if arrangement.kind in (SHARED, TEAMS):
            data_sets = range(first // num_chains * num_chains, end, num_chains)
            parts = (
                range(max(begin, first), min(begin + num_chains, end), LANES) for begin in data_sets
            )
            blocks = [each for part in parts for each in part]
        else:
            blocks = list(range(first, end, arrangement.lanes))
        firsts, ends = np.array(blocks), np.array([*blocks[1:], end])
        lanes = np.minimum(ends - firsts, arrangement.lanes)
        chains = np.minimum(firsts[:, None] + _LANES, (firsts + (lanes - 1))[:, None])
        if arrangement.kind == OWN:
            first_of_unit = list(range(len(blocks)))
            unit = first_of_unit
        else:  # the lanes of a block share a data set, and so its unit of data
            first_of_unit, unit, last = [], [], -1
            for number, block in enumerate(blocks):
                if block // num_chains != last:
                    last = block // num_chains
                    first_of_unit.append(number)
                unit.append(len(first_of_unit) - 1)
        return cls(firsts, lanes, chains, num_chains, np.array(unit), np.array(first_of_unit))

    def teams(self, most: int) -> tuple[Numbers, Numbers]:
        """Number of the first block, and number of blocks, of every team: up to ``most`` blocks
        that share a unit of data (a data set's numbers in memory)."""
        number = np.arange(len(self.firsts)) - self.first_of_unit[self.unit]
        firsts = np.flatnonzero(number % most == 0)
        return firsts, np.diff(np.append(firsts, len(self.firsts)))

    @cached_property
    def are_chains(self) -> npt.NDArray[np.bool_]:
        """Whether each of the eight lanes of a block has a chain of its own, (block, 8); False
        where it repeats the last chain."""
        return np.asarray(self.lanes[:, None] > _LANES)

    @cached_property
    def data_sets(self) -> Numbers:
        """Number of the data set to which the chain in each of the eight lanes of a block belongs,
        (block, 8)."""
        return self.chains // self.num_chains

    @property
    def keys(self) -> npt.NDArray[np.uint32]:
        """Numbers of data set and chain for each lane, which name the lane's random streams,
        (block, 2, 8)."""
        keys = np.empty((len(self.firsts), 2, LANES), np.uint32)
        keys[:, 0], keys[:, 1] = self.data_sets, self.chains % self.num_chains
        return keys
