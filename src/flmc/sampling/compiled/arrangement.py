"""Layouts of the devices' data in memory, the choice of the fastest, and the assignment of chains
to vector instructions.

*Lane*: one of the eight places of a vector, as a rule with a chain of its own. *Block*: the chains
that one instruction serves, eight or one. There are four arrangements of the devices' gradients and
Hessians:

- *own*: every lane has a copy of the data of its own, so its chains may belong to eight data sets;
  the matrices of all eight should fit into the cache.
- *shared*: all lanes are chains of one data set, and each number is read once for all of them.
- *teams*: as *shared*, and several blocks run together as a team, so that a number that is read
  from slow memory serves all of them.
- *rows*: a block is one chain, and the eight numbers of a vector are entries of one gradient, so
  that only the matrices of one data set need fit into the cache.

Up to :data:`MOST_WRITTEN_OUT` entries of a gradient, machine code has no loops over entries, and
only the upper triangle of a Hessian is stored. With more, entries are computed in groups, called
*tiles*: for each tile the gradient at a fixed theta is stored, then the Hessian column by column.

The choice is made by measured costs, and changes no bit of a result; ``make bench`` compares these
predictions with measurements (docs/scale.md)."""

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
"""Largest number of entries of a gradient for which the machine code has no loop over entries: the
instructions for each entry follow one another."""
MOST_MEMBERS = 4
"""Largest number of blocks (of eight chains each) in a team: blocks of one data set that run
together, so that each number of the data is read once for all of them."""
_HEIGHTS = range(13, 3, -1)
"""Numbers of vectors that a tile (a group of gradient entries that is computed together) may have.
The sum of each vector takes a register, and every processor has at least 16 vector registers."""
_WAIT = 8
"""Number of products that a processor can work on at once. In a group of gradient entries with
fewer vectors, a product must wait until an earlier one has been added to the same sum."""


class Arrangement(NamedTuple):
    """Layout of the devices' data in memory: everything about it that is a constant of the machine
    code.

    Attributes
    ----------
    kind
        ``own``: each of the eight chains of a vector instruction reads data of its own; ``shared``:
        the eight chains share a data set; ``teams``: several groups of eight chains share a data
        set; ``rows``: the eight numbers of a vector are entries of one chain's gradient.
    entries
        Number of entries of a gradient if it is at most ``MOST_WRITTEN_OUT``, so that the code
        needs no loop over entries; else 0.
    tile
        Number of vectors in a tile, a group of entries that is computed together; 0 where
        ``entries`` is not 0.
    whole
        Whether the tiles hold exactly the entries of a gradient. If not, the last tile reaches
        beyond the last entry, and the code checks each of its vectors.
    """

    kind: str
    entries: int
    tile: int
    whole: bool

    @classmethod
    def of(cls, kind: str, dim: int) -> Arrangement:
        """The layout of the given kind (own, shared, teams or rows) for gradients with ``dim``
        entries; teams and rows need more than ``MOST_WRITTEN_OUT`` entries."""
        if dim <= MOST_WRITTEN_OUT:
            return cls(kind, dim, 0, True)
        vectors = -(-dim // WIDTH) if kind == ROWS else dim

        def cost(height: int) -> int:
            # Relative cost of one column of the Hessian, in all tiles of ``height`` vectors: a tile
            # takes one load for each vector, and one for the entry of the position that multiplies
            # the column, but at least the time ``_WAIT`` of a product that waits for another.
            return -(-vectors // height) * max(_WAIT, height + 1)

        tile = min(_HEIGHTS, key=cost)
        return cls(kind, 0, tile, vectors % tile == 0)

    @property
    def unit(self) -> int:
        """Number of floats that are stored next to each other for one vector of a device's data: 8,
        one for each place of the vector, or 1 where all eight chains read the same number."""
        return 1 if self.kind in (SHARED, TEAMS) else WIDTH

    @property
    def lanes(self) -> int:
        """Number of chains that one vector instruction serves: 8, or 1 where the numbers of a
        vector are entries of one chain's gradient."""
        return 1 if self.kind == ROWS else WIDTH

    @property
    def word(self) -> ir.Type:
        """LLVM type of the random words that are drawn at once: a vector with a word for each of
        eight chains, or a single word where a vector instruction serves one chain."""
        return WORD if self.kind == ROWS else WORDS

    @property
    def float(self) -> ir.Type:
        """LLVM type that holds one number of each chain that a vector instruction serves: a vector
        of eight floats, or a single float where it serves one chain."""
        return FLOAT if self.kind == ROWS else FLOATS

    def tiles(self, dim: int) -> int:
        """Number of tiles (groups of entries that are computed together) of a gradient with ``dim``
        entries; 0 where it has at most ``MOST_WRITTEN_OUT`` entries, which need no tiles."""
        if self.entries:
            return 0
        return -(-dim // (self.tile * (WIDTH if self.kind == ROWS else 1)))

    def device_size(self, dim: int) -> int:
        """Number of floats in memory for one device's data, which are its gradient (dim) at a fixed
        theta of the data set and its Hessian; each number is stored for all eight lanes of a vector
        where these do not share it."""
        if self.entries:
            return self.entries * (self.entries + 3) // 2 * self.unit
        return self.tiles(dim) * self.tile * (dim + 1) * self.unit


_NEXT_TO_THE_PROCESSOR, _IN_CACHE, _SHARED_CACHE = 0.7e6, 8e6, 16e6
"""Largest numbers of bytes, read again in every round, that fit into a processor core's own cache,
into its share of the cache that all cores use, and into that whole cache. More than that is read
from memory."""
_READING = (0.045, 0.12, 0.3, 0.6)
"""Measured nanoseconds for each float that a chain reads. The floats come from the processor core's
own cache; from the core's share of the cache that all cores use; from more of that cache than the
share; from memory."""
_BROADCAST = 0.02
"""Measured nanoseconds, for each chain, of a product with a float that eight chains share: the time
is that of the multiplication, not of reading."""
_SYMBOL = {OWN: 0.7, SHARED: 0.6, TEAMS: 0.9, ROWS: 1.6}
"""Measured nanoseconds for one symbol, by layout of the data in memory: random word, clipping, link
and comparison, without the products of its gradient."""

DATA_AT_ONCE = 32_000_000
"""Largest number of bytes of the local costs of some data sets (Hessians and offsets in double
precision) that the numba engine holds at a time; further data sets are loaded after these."""

IN_WORDS = {
    OWN: "8 chains at a time, each with its own numbers",
    SHARED: "8 chains of a data set at a time",
    TEAMS: f"{WIDTH * MOST_MEMBERS} chains of a data set at a time",
    ROWS: "one chain at a time",
}
"""Phrase for reports, by layout of the data in memory, that says how many chains machine code
advances at a time."""


def _reading(floats: float) -> float:
    """Nanoseconds for each float that a chain reads, if ``floats`` floats are read again in every
    round: the more there are, the slower the cache or memory that holds them."""
    places = (_NEXT_TO_THE_PROCESSOR, _IN_CACHE, _SHARED_CACHE)
    return _READING[sum(4 * floats > size for size in places)]


def round_cost(kind: str, devices: int, dim: int, experiments: int, chains: int) -> float:
    """Predicted nanoseconds of one round of all chains (``chains`` of each of ``experiments`` data
    sets) on one thread, with the layout ``kind`` of the devices' data in memory (own, shared, teams
    or rows)."""
    symbols = devices * dim
    data = symbols * (dim + 1)
    if kind == OWN:
        # Eight chains share a vector only if their data sets are in memory at the same time.
        # ``together`` is the number of data sets for which that holds; ``lanes`` counts the places
        # of all vectors, unused ones included.
        together = min(experiments, max(1, DATA_AT_ONCE // (8 * data)))
        lanes = -(-together * chains // WIDTH) * WIDTH * experiments / together
        # Up to ``MOST_WRITTEN_OUT`` entries, only the upper triangle of a Hessian is stored and
        # read.
        share = 0.5 if dim <= MOST_WRITTEN_OUT else 1.0
        product = share * _reading(share * WIDTH * data)
    elif kind in (SHARED, TEAMS):
        blocks = -(-chains // WIDTH)
        lanes = experiments * blocks * WIDTH
        together = min(blocks, MOST_MEMBERS) if kind == TEAMS else 1
        # Reading from the processor's own cache takes no time of its own, because the processor
        # multiplies meanwhile. Reading from slower memory does, divided among all chains that use
        # the number.
        product = _BROADCAST
        if 4 * data > _NEXT_TO_THE_PROCESSOR:
            product += _reading(data) / (WIDTH * together)
    else:
        lanes, product = experiments * chains, _reading(data)
    return lanes * symbols * (_SYMBOL[kind] + dim * product)


@lru_cache(maxsize=64)
def choose_arrangement(devices: int, dim: int, experiments: int, chains: int) -> str:
    """The layout of the devices' data in memory (own, shared, teams or rows) with the least
    predicted time for these numbers of devices, entries of theta, data sets, and chains of each
    data set. Teams and rows are possible only above ``MOST_WRITTEN_OUT`` entries."""
    kinds = (OWN, SHARED) if dim <= MOST_WRITTEN_OUT else (OWN, SHARED, TEAMS, ROWS)
    return min(kinds, key=lambda kind: round_cost(kind, devices, dim, experiments, chains))


LANES = WIDTH
"""Number of lanes (places) of a vector, and so of the chains that share vector instructions."""

_LANES = np.arange(LANES)
"""Numbers of the lanes (places) of a vector, from 0 to 7."""

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Blocks:
    """Assignment of some chains to blocks: the eight chains, or the one chain, that a vector
    instruction serves. Chains are numbered through all data sets: those of data set 0, then those
    of data set 1, and so on. ``firsts`` and ``chains`` hold these numbers of chains, ``lanes`` the
    count of chains in each block; ``unit`` says which array of devices' data a block reads."""

    firsts: Numbers
    """Number of the first chain of every block, counted through all data sets, (block)."""
    lanes: Numbers
    """Number of chains in every block, (block). Where it is less than 8, the unused places of the
    vector repeat the block's last chain."""
    chains: Numbers
    """Number of the chain in each of the eight places of the vectors of every block, counted
    through all data sets, (block, 8)."""
    num_chains: int
    """Number of chains of each data set."""
    unit: Numbers
    """Number of the array that holds the devices' data for every block, (block): blocks with the
    same data set may share one."""
    first_of_unit: Numbers
    """Number of the first block that uses each array of devices' data, (array)."""

    @classmethod
    def of(cls, arrangement: Arrangement, first: int, end: int, num_chains: int) -> Blocks:
        """Assignment of the chains from number ``first`` to below ``end``, in order, to blocks of
        chains that share vector instructions. Chains are counted through all data sets, of which
        each has ``num_chains``."""
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
        else:  # all chains of a block belong to one data set and share the array of its data
            first_of_unit, unit, last = [], [], -1
            for number, block in enumerate(blocks):
                if block // num_chains != last:
                    last = block // num_chains
                    first_of_unit.append(number)
                unit.append(len(first_of_unit) - 1)
        return cls(firsts, lanes, chains, num_chains, np.array(unit), np.array(first_of_unit))

    def teams(self, most: int) -> tuple[Numbers, Numbers]:
        """Two arrays (team): the number of the first block, and the number of blocks, of every
        team. A team is up to ``most`` consecutive blocks that use the same data set and run
        together."""
        number = np.arange(len(self.firsts)) - self.first_of_unit[self.unit]
        firsts = np.flatnonzero(number % most == 0)
        return firsts, np.diff(np.append(firsts, len(self.firsts)))

    @cached_property
    def are_chains(self) -> npt.NDArray[np.bool_]:
        """Whether each of the eight places of a block's vectors has a chain of its own, (block, 8);
        False where it only repeats the block's last chain."""
        return np.asarray(self.lanes[:, None] > _LANES)

    @cached_property
    def data_sets(self) -> Numbers:
        """Number of the data set of the chain in each of the eight places of a block's vectors,
        (block, 8)."""
        return self.chains // self.num_chains

    @property
    def keys(self) -> npt.NDArray[np.uint32]:
        """Number of the data set, and number of the chain within it, for each of the eight places
        of a block's vectors, (block, 2, 8). They identify the random streams of the chain."""
        keys = np.empty((len(self.firsts), 2, LANES), np.uint32)
        keys[:, 0], keys[:, 1] = self.data_sets, self.chains % self.num_chains
        return keys
