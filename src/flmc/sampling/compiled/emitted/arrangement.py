"""How the numbers of a block of lanes lie in memory, and how large they are.

*Lane*: one chain of one data set, see :mod:`flmc.sampling.compiled.emitted.advance`. There are four
arrangements of the devices' gradients and Hessians:

- *own*: every lane has its own. Eight data sets share each instruction; all their matrices must
  be near the processor.
- *shared*: all lanes are chains of one data set, and read each number once for all of them.
- *teams*: the same, and several blocks run together, so that what is read from far away serves
  all of them.
- *rows*: a block is one chain, and the eight numbers of a vector are entries of one gradient, so
  that no more than the matrices of one data set must be near the processor.

Where a gradient has few entries (:data:`MOST_WRITTEN_OUT`), the loops over them are written out,
and of a Hessian the upper triangle is stored. Where it has many, entries come in *tiles*: a tile
holds the gradients at the centre, then column after column of the Hessian."""

from __future__ import annotations

from typing import NamedTuple

from llvmlite import ir

from flmc.sampling.compiled.machine.value import FLOAT, FLOATS, WIDTH, WORD, WORDS

OWN, SHARED, TEAMS, ROWS = "own", "shared", "teams", "rows"
MOST_WRITTEN_OUT = 8
"""Entries of a gradient up to which loops over them are written out."""
_HEIGHTS = range(13, 3, -1)
"""Vectors of a tile: its sums are held in so many of the 16 registers that every processor has."""
_WAIT = 8
"""Products that a processor has under way at once: a smaller tile waits for its own sums."""


class Arrangement(NamedTuple):
    """What the compiler knows of an arrangement.

    Attributes
    ----------
    kind
        Own, shared, teams or rows.
    entries
        Entries of a gradient where these are few, else 0.
    tile
        Vectors of a tile where they are many, else 0.
    whole
        Whether the tiles have exactly as many vectors as there are.
    """

    kind: str
    entries: int
    tile: int
    whole: bool

    @classmethod
    def of(cls, kind: str, dim: int) -> Arrangement:
        """The arrangement of a kind for gradients with so many entries.

        Parameters
        ----------
        kind
            Own, shared, teams or rows.
        dim
            Entries of a gradient; more than :data:`MOST_WRITTEN_OUT` for teams and rows.
        """
        if dim <= MOST_WRITTEN_OUT:
            return cls(kind, dim, 0, True)
        vectors = -(-dim // WIDTH) if kind == ROWS else dim

        def cost(height: int) -> int:
            # A column of a tile takes a load for each of its vectors and one for the position.
            return -(-vectors // height) * max(_WAIT, height + 1)

        tile = min(_HEIGHTS, key=cost)
        return cls(kind, 0, tile, vectors % tile == 0)

    @property
    def unit(self) -> int:
        """Floats of a number that belongs to a device: one for each lane, or one for all."""
        return 1 if self.kind in (SHARED, TEAMS) else WIDTH

    @property
    def lanes(self) -> int:
        """Chains of a block."""
        return 1 if self.kind == ROWS else WIDTH

    @property
    def word(self) -> ir.Type:
        """Random words of all lanes, or of the one chain of a block."""
        return WORD if self.kind == ROWS else WORDS

    @property
    def float(self) -> ir.Type:
        """Floats of all lanes, or of the one chain of a block."""
        return FLOAT if self.kind == ROWS else FLOATS

    def tiles(self, dim: int) -> int:
        """Tiles of a gradient with so many entries; none where loops are written out.

        Parameters
        ----------
        dim
            Entries of a gradient.
        """
        if self.entries:
            return 0
        return -(-dim // (self.tile * (WIDTH if self.kind == ROWS else 1)))

    def device_size(self, dim: int) -> int:
        """Floats of a device: gradients at the centre and Hessians.

        Parameters
        ----------
        dim
            Entries of a gradient.
        """
        if self.entries:
            return self.entries * (self.entries + 3) // 2 * self.unit
        return self.tiles(dim) * self.tile * (dim + 1) * self.unit
