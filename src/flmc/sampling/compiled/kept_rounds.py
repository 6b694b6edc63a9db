"""What a call reads and writes of the chains: positions, sums, products and draws."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flmc.base.arrays import Array
from flmc.sampling.chains import Chains
from flmc.sampling.compiled.blocks import LANES, Blocks, Numbers
from flmc.sampling.compiled.emitted.arrangement import Arrangement
from flmc.sampling.compiled.frame import Frame


@dataclass
class KeptRounds:
    """The chains of a call, as arrays whose first axis is the chain, and their copies in lanes."""

    chains: Chains
    rounds: range
    rows: slice
    """The chains of the call, counted through all data sets."""
    num_burn_in: int
    """The first round of which this call keeps draws."""
    position: Array
    sums: Array
    products: Array
    draws: Array
    """(chain of the call, kept round, dim), or empty."""

    @classmethod
    def of(
        cls, chains: Chains, num_burn_in: int, rounds: range, first: int, end: int
    ) -> KeptRounds:
        """What some rounds of some chains read and write.

        Parameters
        ----------
        chains
            All chains of the run.
        num_burn_in, rounds
            Rounds that are not kept, and those of the call.
        first, end
            The chains, counted through all data sets.
        """
        dim, moments, rows = chains.position.shape[2], chains.moments, slice(first, end)
        draws = np.empty((0, 0, dim))
        if chains.draws is not None and chains.thin == 1:
            draws = chains.draws.reshape(-1, *chains.draws.shape[2:])[rows]
        elif chains.draws is not None:
            # Every kept round of this stretch; those that are not draws are dropped in the end.
            num_burn_in = max(num_burn_in, rounds.start)
            draws = np.empty((end - first, max(0, rounds.stop - num_burn_in), dim))
        return cls(
            chains,
            rounds,
            rows,
            num_burn_in,
            chains.position.reshape(-1, dim)[rows],
            moments.sums.reshape(-1, dim)[rows],
            moments.products.reshape(len(moments.sums) * moments.sums.shape[1], -1)[rows],
            draws,
        )

    def put(self, frame: Frame, lanes: Numbers, arrangement: Arrangement, centre: Array) -> None:
        """Put everything into a frame.

        Parameters
        ----------
        frame
            The frame of the call.
        lanes
            The chain of every lane, (block, lane).
        arrangement
            How data lie in memory.
        centre
            The centre of every lane, (block, lane, dim).
        """
        own = lanes - self.rows.start
        self.x = np.swapaxes(self.position[own], 1, 2).copy()
        self.count = np.zeros((len(lanes), LANES), np.uint32)
        dim = self.position.shape[1]
        self._in_lanes: dict[str, Array] = {}
        if arrangement.entries:
            for name in ("sums", "products"):
                copied = getattr(self, name)[own]
                if name == "products" and copied.shape[2] < dim * dim:
                    # Squares alone are the diagonals of products that are dropped in the end.
                    squares, copied = copied, np.zeros((*own.shape, dim * dim))
                    copied[:, :, :: dim + 1] = squares
                self._in_lanes[name] = np.ascontiguousarray(np.swapaxes(copied, 1, 2))
        summed = self._in_lanes or {"sums": self.sums, "products": self.products}
        frame.put(
            x=self.x, count=self.count, **summed,
            squares=not arrangement.entries and self.products.shape[1] == dim,
            centre=np.swapaxes(centre, 1, 2), draws=self.draws,
            draws_apart=self.draws.shape[1] * dim, burn_in=self.num_burn_in,
        )  # fmt: skip

    def collect(self, blocks: Blocks) -> None:
        """Copy what is in lanes back to the chains.

        Parameters
        ----------
        blocks
            The blocks of the call.
        """
        real = blocks.are_chains[:, : self.x.shape[2]]
        self.position[:] = np.swapaxes(self.x, 1, 2)[real]
        dim = self.position.shape[1]
        for name, array in self._in_lanes.items():
            found, target = np.swapaxes(array, 1, 2)[real], getattr(self, name)
            target[:] = found if found.shape == target.shape else found[:, :: dim + 1]
        if self.products.shape[1] == dim * dim:
            # Only the upper triangle was summed.
            square = self.products.reshape(-1, dim, dim)
            for i in range(dim - 1):
                square[:, i + 1 :, i] = square[:, i, i + 1 :]
        if self.chains.draws is not None and self.chains.thin > 1:
            num_chains = self.chains.position.shape[1]
            for row, draws in enumerate(self.draws, self.rows.start):
                experiment, chain = divmod(row, num_chains)
                place = (experiment, slice(chain, chain + 1))
                self.chains.keep(place, self.num_burn_in, draws[None])
