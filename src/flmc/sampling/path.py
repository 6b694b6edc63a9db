"""The path of a run's chains: the positions that are kept, and the draws that are taken there.

A chain is at a *position* after every round. A plan says where its draws are taken: at these, or
half way between the positions before and after a round, at *midpoints*, whose variance is free of
the error of Langevin's discrete step (``docs/sampling.md``). A path holds positions in either case,
because what a server saw follows from them: draws are computed when they are asked for."""

from __future__ import annotations

import math
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from flmc.base.arrays import Array
from flmc.models.affine import Coordinates
from flmc.planning.answer_law import MOST_ANSWERED
from flmc.planning.plans import Plan

MOST_DRAWN_BYTES = 256_000_000
"""Largest number of bytes of positions, or of draws, in memory; more go to a file, if the run is
recorded."""

Numbers = npt.NDArray[np.intp]
"""Array of whole numbers."""
Place = tuple[int | slice, slice]
"""Data sets and chains that an array belongs to, as indices of the first two axes."""


@dataclass(frozen=True)
class ChainPath:
    """Positions of all chains after rounds of a run, and the draws that they are.

    Without thinning, places are the positions after consecutive rounds from round ``first`` on,
    where round 0 stands for the start. With ``thin`` kept rounds for each draw, only positions that
    draws are computed from have a place: the last one of each ``thin``, and for midpoints the one
    before it."""

    positions: Array
    """Positions, (experiment, chain, place, dim), in the coordinates and precision in which the
    engine works; no meaningful numbers for rounds to come."""
    origin: Array | None
    """Theta from which positions are deviations, (experiment, dim); None: positions are theta."""
    first: int
    """Number of rounds before the first place."""
    num_burn_in: int
    """Number of rounds before the first that is kept."""
    midpoints: bool
    """Whether draws are taken half way between the positions before and after a round; False: at
    the positions after rounds."""
    thin: int = 1
    """Number of kept rounds for each draw: with 10, the 10th, the 20th and so on are draws."""
    directory: Path | None = None
    """Where draws are stored that take more than ``MOST_DRAWN_BYTES``; None: in memory."""

    @classmethod
    def empty(
        cls,
        plan: Plan,
        position: Array,
        origin: Array | None,
        thin: int = 1,
        directory: Path | None = None,
    ) -> ChainPath:
        """The path of chains that stand at ``position`` (experiment, chain, dim) before round 1.
        Positions that take much memory are in a file of ``directory``."""
        midpoints, (experiments, chains, dim) = plan.midpoints, position.shape
        first = first_place(plan, experiments * chains, thin)
        places = (plan.num_rounds - plan.num_burn_in) // thin * (1 + midpoints)
        if thin == 1:
            places = plan.num_rounds + 1 - first
        shape = (experiments, chains, places, dim)
        positions = _empty(shape, position.dtype, directory)
        path = cls(positions, origin, first, plan.num_burn_in, midpoints, thin, directory)
        path.keep((slice(None), slice(None)), -1, position[:, :, None])
        return path

    @classmethod
    def of_draws(cls, draws: Array) -> ChainPath:
        """A path whose positions are these draws, (experiment, chain, draw, dim)."""
        return cls(draws, None, 1, 0, False)

    def keep(self, place: Place, first: int, positions: Array) -> None:
        """Write the ``positions`` after consecutive rounds, (..., chain, round, dim), as far as
        they have places. ``first`` is the number of the first of these rounds, counted from 0, and
        ``place`` says which data sets and chains they are of."""
        found = self._places(np.arange(first + 1, first + 1 + positions.shape[-2]))
        chosen = found >= 0
        if chosen.any():
            # Places grow with the rounds that have one, without gaps: a slice.
            part = slice(int(found[chosen][0]), int(found[chosen][-1]) + 1)
            self.positions[place][..., part, :] = positions[..., chosen, :]

    def _places(self, rounds: Numbers) -> Numbers:
        """The place of the position after each of ``rounds``, counted from 1 (0 is the start); -1
        where it has none."""
        if self.thin == 1:
            found = rounds - self.first
        else:
            draw, rest = np.divmod(rounds - self.num_burn_in, self.thin)
            each = 1 + self.midpoints
            found = np.where(rest == 0, each * draw - 1, -1)
            if self.midpoints:
                found = np.where(rest == self.thin - 1, each * draw, found)
        return np.where((found >= 0) & (found < self.positions.shape[2]), found, -1)

    def stored(self, rounds: range) -> range:
        """The part of ``rounds``, counted from 0, from the first to the last after which positions
        have places; empty if none has."""
        found = np.flatnonzero(self._places(np.arange(rounds.start + 1, rounds.stop + 1)) >= 0)
        return rounds[found[0] : found[-1] + 1] if len(found) else range(0)

    def places_until(self, rounds: int) -> int:
        """Number of places that belong to the first ``rounds`` rounds of the run, and to its
        start."""
        if self.thin == 1:
            return int(min(max(0, rounds + 1 - self.first), self.positions.shape[2]))
        found = self._places(np.arange(max(0, rounds - 2 * self.thin), rounds + 1))
        return int(found.max()) + 1

    def draws_until(self, rounds: int) -> int:
        """Number of draws of the first ``rounds`` rounds."""
        return max(0, rounds - self.num_burn_in) // self.thin

    @property
    def is_whole(self) -> bool:
        """Whether the positions after all rounds are kept, burn-in included."""
        return self.thin == 1 and self.first <= 1

    @property
    def draws(self) -> Array:
        """Theta of all draws, (experiment, chain, draw, dim); of more than ``MOST_DRAWN_BYTES`` in
        a file of ``directory``."""
        return self.some_draws(slice(None))

    def some_draws(self, experiments: slice, until: int | None = None) -> Array:
        """Theta of the draws of some data sets, (experiment, chain, draw, dim), in the first
        ``until`` rounds; None: in all."""
        before, after = self._ends(experiments, until)
        origin = None if self.origin is None else self.origin[experiments, None, None]
        if before is None and origin is None:
            return after
        theta = _empty(after.shape, np.dtype(np.float64), self.directory)
        if before is None:
            theta[...] = after
        else:
            # Half the sum in the engine's precision, as an engine adds it to its moments.
            np.add(before, after, out=theta, dtype=after.dtype)
            theta *= 0.5
        if origin is not None:
            theta += origin
        return theta

    def _ends(self, experiments: slice, until: int | None) -> tuple[Array | None, Array]:
        """The positions before (None for draws at positions) and after the rounds of the draws in
        the first ``until`` rounds, (experiment, chain, draw, dim)."""
        num_rounds = self.num_burn_in + self.positions.shape[2] * self.thin
        count = self.draws_until(num_rounds if until is None else until)
        kept = self.positions[experiments]
        if self.thin > 1:
            each = 1 + self.midpoints
            after = kept[:, :, each - 1 :: each][:, :, :count]
            return (kept[:, :, ::2][:, :, :count] if self.midpoints else None), after
        # Without the position before it, the first kept round has no midpoint.
        begin = max(self.num_burn_in + 1 - self.first, int(self.midpoints))
        after = kept[:, :, begin:][:, :, :count]
        if not self.midpoints:
            return None, after
        return kept[:, :, begin - 1 :][:, :, : after.shape[2]], after

    @property
    def kept(self) -> Array:
        """Theta after every kept round, (experiment, chain, round, dim), of a path without
        thinning."""
        return self._theta(slice(self.num_burn_in + 1 - self.first, None))

    @property
    def burn_in(self) -> Array | None:
        """Theta after every round of the burn-in, (experiment, chain, round, dim); None if these
        are not kept."""
        if not self.is_whole or not self.num_burn_in:
            return None
        return self._theta(slice(1 - self.first, self.num_burn_in + 1 - self.first))

    def _theta(self, places: slice) -> Array:
        """Theta at some places, (experiment, chain, place, dim), in double precision."""
        some = self.positions[:, :, places]
        if self.origin is None:
            return some
        theta = _empty(some.shape, np.dtype(np.float64), self.directory)
        np.add(some, self.origin[:, None, None], out=theta)
        return theta

    @property
    def arrays(self) -> dict[str, Array]:
        """Arrays of a record beside the draws, by name, which say what a server saw: theta during
        the burn-in (``burn_in``), if it is kept; or, where draws are midpoints, theta at all places
        (``positions``). Empty where draws are thinned out."""
        if self.thin > 1:
            return {}
        if self.midpoints:
            return {"positions": self._theta(slice(None))}
        before = self.burn_in
        return {} if before is None else {"burn_in": before}

    def mapped(self, coordinates: Coordinates | None) -> ChainPath:
        """This path in the coordinates of the model; itself if ``coordinates`` is None."""
        if coordinates is None:
            return self
        theta = coordinates.to_model(self._theta(slice(None)))
        return ChainPath(
            theta, None, self.first, self.num_burn_in, self.midpoints, self.thin, self.directory
        )


def first_place(plan: Plan, num_chains: int, thin: int) -> int:
    """Number of rounds before the first position in the path of ``num_chains`` chains, all data
    sets together, without thinning.

    All rounds have places, so that an answer can use the burn-in too, unless entries are too many
    for an answer or it would take too much memory. A midpoint needs the position before its round,
    too."""
    size = 8 * plan.num_rounds * plan.dim * num_chains
    whole = thin == 1 and plan.dim <= MOST_ANSWERED and size <= MOST_DRAWN_BYTES
    return (0 if whole else plan.num_burn_in) + (not plan.midpoints)


def _empty(shape: tuple[int, ...], kind: np.dtype[np.float64], directory: Path | None) -> Array:
    """An uninitialised array: in memory, or mapped to a nameless file of ``directory`` beyond
    ``MOST_DRAWN_BYTES``."""
    if directory is None or kind.itemsize * math.prod(shape) <= MOST_DRAWN_BYTES:
        return np.empty(shape, kind)
    # The mapping has a descriptor of its own and outlives the file object. The system pages it out
    # as it needs memory, and frees the disk with the array, also after a crash.
    with tempfile.TemporaryFile(dir=directory) as file:
        return np.memmap(file, kind, "w+", shape=shape)
