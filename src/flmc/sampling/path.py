"""The path of a run's chains: stored positions, and the draws that are computed from them.

A chain is at a *position* after every round. A plan says where its draws are taken: at positions,
or at *midpoints*, half way between the positions before and after a round, whose variance is free
of the error of Langevin's discrete step (``docs/sampling.md``). A path holds positions in either
case, because what a server saw follows from them; draws are computed when they are asked for.

A *place* is an index along the axis of stored positions."""

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
"""Largest number of bytes that an array of positions or of draws may take in memory; a larger one
is mapped to a file if the run has a directory, as a recorded run has."""

Numbers = npt.NDArray[np.intp]
"""Array of whole numbers."""
Place = tuple[int | slice, slice]
"""Data sets and chains that an array belongs to, as indices of the first two axes."""


@dataclass(frozen=True)
class ChainPath:
    """Stored positions of all chains of a run, from which its draws are computed. A *place* is an
    index along the third axis of ``positions``.

    Without thinning (``thin`` 1), places hold the positions after consecutive rounds from round
    ``first`` on, where round 0 stands for the start. With thinning, only positions from which a
    draw is computed have a place: that after the last of every ``thin`` kept rounds and, where
    draws are midpoints, also that before this round."""

    positions: Array
    """Stored positions, (experiment, chain, place, dim), in the engine's coordinates (theta, or its
    deviation from ``origin``) and precision; uninitialised for rounds that are not run yet."""
    origin: Array | None
    """Theta from which positions are deviations, (experiment, dim); None: positions are theta."""
    first: int
    """Number of the round, from 1, after which the first stored position was reached; 0: it is the
    start. Used only without thinning (``thin`` 1)."""
    num_burn_in: int
    """Number of burn-in rounds, those before the first kept round."""
    midpoints: bool
    """Whether draws are taken half way between the positions before and after a round; False: at
    the positions after rounds."""
    thin: int = 1
    """Number of kept rounds for each draw: with 10, the 10th, the 20th and so on are draws."""
    directory: Path | None = None
    """Folder for the files of positions or draws that take more than ``MOST_DRAWN_BYTES``; None:
    they stay in memory."""

    @classmethod
    def empty(
        cls,
        plan: Plan,
        position: Array,
        origin: Array | None,
        thin: int = 1,
        directory: Path | None = None,
    ) -> ChainPath:
        """Path of chains that stand at ``position`` (experiment, chain, dim) before round 1, with
        room for all positions that the run will store, one draw for each ``thin`` kept rounds.
        ``origin`` (experiment, dim) is the theta from which positions are deviations (None: they
        are theta). Positions that take much memory are in a file in ``directory``."""
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
        """Path of a run whose stored positions are ``draws``, (experiment, chain, draw, dim), one
        after every round, without burn-in."""
        return cls(draws, None, 1, 0, False)

    def keep(self, place: Place, first: int, positions: Array) -> None:
        """Store those of ``positions`` (..., chain, round, dim), the positions after consecutive
        rounds, that the path has room for. ``first`` is the number of the first of these rounds,
        counted from 0; ``place`` selects their data sets and chains along the first two axes of
        the path."""
        found = self._places(np.arange(first + 1, first + 1 + positions.shape[-2]))
        chosen = found >= 0
        if chosen.any():
            # The stored positions of consecutive rounds have consecutive places, so a slice selects
            # them.
            part = slice(int(found[chosen][0]), int(found[chosen][-1]) + 1)
            self.positions[place][..., part, :] = positions[..., chosen, :]

    def _places(self, rounds: Numbers) -> Numbers:
        """Index along the axis of stored positions (the place) of the position after each of
        ``rounds``, counted from 1 (0 is the start); -1 for a position that is not stored."""
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
        """The part of ``rounds``, counted from 0, that begins with the first and ends with the last
        round after which the position is stored; empty if there is no such round."""
        found = np.flatnonzero(self._places(np.arange(rounds.start + 1, rounds.stop + 1)) >= 0)
        return rounds[found[0] : found[-1] + 1] if len(found) else range(0)

    def places_until(self, rounds: int) -> int:
        """Number of positions of each chain that are stored when ``rounds`` rounds of the run are
        finished, the start included if it is stored."""
        if self.thin == 1:
            return int(min(max(0, rounds + 1 - self.first), self.positions.shape[2]))
        found = self._places(np.arange(max(0, rounds - 2 * self.thin), rounds + 1))
        return int(found.max()) + 1

    def draws_until(self, rounds: int) -> int:
        """Number of draws of each chain in the first ``rounds`` rounds of the run."""
        return max(0, rounds - self.num_burn_in) // self.thin

    @property
    def is_whole(self) -> bool:
        """Whether the positions after all rounds are stored, those of the burn-in included."""
        return self.thin == 1 and self.first <= 1

    @property
    def draws(self) -> Array:
        """Theta of all draws, (experiment, chain, draw, dim). If they take more than
        ``MOST_DRAWN_BYTES``, the array is mapped to a file in ``directory``."""
        return self.some_draws(slice(None))

    def some_draws(self, experiments: slice, until: int | None = None) -> Array:
        """Theta of the draws that the data sets ``experiments`` have in the first ``until`` rounds
        (None: in all rounds), (experiment, chain, draw, dim)."""
        before, after = self._ends(experiments, until)
        origin = None if self.origin is None else self.origin[experiments, None, None]
        if before is None and origin is None:
            return after
        theta = _empty(after.shape, np.dtype(np.float64), self.directory)
        if before is None:
            theta[...] = after
        else:
            # Midpoints are computed in the engine's precision, as the engine computes them for its
            # moments, so that both have the same bits.
            np.add(before, after, out=theta, dtype=after.dtype)
            theta *= 0.5
        if origin is not None:
            theta += origin
        return theta

    def _ends(self, experiments: slice, until: int | None) -> tuple[Array | None, Array]:
        """Positions before and after the round of every draw in the first ``until`` rounds (None:
        in all), two arrays (experiment, chain, draw, dim). The first is None where draws are
        positions after rounds, not midpoints."""
        num_rounds = self.num_burn_in + self.positions.shape[2] * self.thin
        count = self.draws_until(num_rounds if until is None else until)
        kept = self.positions[experiments]
        if self.thin > 1:
            each = 1 + self.midpoints
            after = kept[:, :, each - 1 :: each][:, :, :count]
            return (kept[:, :, ::2][:, :, :count] if self.midpoints else None), after
        # A midpoint needs the position before its round, so the first stored position, which has
        # none before it, ends no midpoint.
        begin = max(self.num_burn_in + 1 - self.first, int(self.midpoints))
        after = kept[:, :, begin:][:, :, :count]
        if not self.midpoints:
            return None, after
        return kept[:, :, begin - 1 :][:, :, : after.shape[2]], after

    @property
    def after_rounds(self) -> Array:
        """Stored positions after consecutive rounds, up to the last, (experiment, chain, round,
        dim), as they are stored (deviations from ``origin``, unless this is None): after all rounds
        if they are stored, else after the kept ones. Only for a path without thinning (``thin``
        1)."""
        first = 1 if self.is_whole else self.num_burn_in + 1
        return self.positions[:, :, first - self.first :]

    @property
    def kept(self) -> Array:
        """Theta after every kept round, (experiment, chain, round, dim), also where draws are
        midpoints; only for a path without thinning (``thin`` 1)."""
        return self._theta(slice(self.num_burn_in + 1 - self.first, None))

    @property
    def burn_in(self) -> Array | None:
        """Theta after every round of the burn-in, (experiment, chain, round, dim); None if the path
        does not store them, or the run has no burn-in."""
        if not self.is_whole or not self.num_burn_in:
            return None
        return self._theta(slice(1 - self.first, self.num_burn_in + 1 - self.first))

    def _theta(self, places: slice) -> Array:
        """Theta of the stored positions that ``places`` selects along their third axis,
        (experiment, chain, place, dim), in double precision."""
        some = self.positions[:, :, places]
        if self.origin is None:
            return some
        theta = _empty(some.shape, np.dtype(np.float64), self.directory)
        np.add(some, self.origin[:, None, None], out=theta)
        return theta

    @property
    def arrays(self) -> dict[str, Array]:
        """Arrays, by name, that a record holds beside the draws, because they say what the server
        saw: ``burn_in``, theta after the rounds of the burn-in, if these are stored; or, where
        draws are midpoints, ``positions``, theta of all stored positions. Empty for a path with
        thinning."""
        if self.thin > 1:
            return {}
        if self.midpoints:
            return {"positions": self._theta(slice(None))}
        before = self.burn_in
        return {} if before is None else {"burn_in": before}

    def mapped(self, coordinates: Coordinates | None) -> ChainPath:
        """This path with theta mapped by ``coordinates`` from the sampler's coordinates to the
        model's; the path itself if ``coordinates`` is None."""
        if coordinates is None:
            return self
        theta = coordinates.to_model(self._theta(slice(None)))
        return ChainPath(
            theta, None, self.first, self.num_burn_in, self.midpoints, self.thin, self.directory
        )


def first_place(plan: Plan, num_chains: int, thin: int) -> int:
    """Number of the round after which the first stored position is reached, 0 for the start, for a
    run with ``num_chains`` chains in all data sets together. Used without thinning (``thin`` 1).

    The burn-in is stored too, because an answer can use it, unless theta has too many entries for
    an answer or all positions take more than ``MOST_DRAWN_BYTES``. Where draws are midpoints, the
    position before the first stored round is stored too."""
    size = 8 * plan.num_rounds * plan.dim * num_chains
    whole = thin == 1 and plan.dim <= MOST_ANSWERED and size <= MOST_DRAWN_BYTES
    return (0 if whole else plan.num_burn_in) + (not plan.midpoints)


def _empty(shape: tuple[int, ...], kind: np.dtype[np.float64], directory: Path | None) -> Array:
    """An uninitialised array of the type ``kind``: in memory, or, if it takes more than
    ``MOST_DRAWN_BYTES`` and ``directory`` is not None, mapped to a nameless file there."""
    if directory is None or kind.itemsize * math.prod(shape) <= MOST_DRAWN_BYTES:
        return np.empty(shape, kind)
    # The mapping has a descriptor of its own and outlives the file object. The system pages it out
    # as it needs memory, and frees the disk with the array, also after a crash.
    with tempfile.TemporaryFile(dir=directory) as file:
        return np.memmap(file, kind, "w+", shape=shape)
