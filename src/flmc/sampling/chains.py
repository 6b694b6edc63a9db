"""State of the chains of a run: all that an engine carries from round to round, and so all that a
checkpoint must hold."""

from __future__ import annotations

import math
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from flmc.base.arrays import Array, broadcast
from flmc.base.errors import RunFailed
from flmc.models.model import Model
from flmc.planning.answer_law import MOST_ANSWERED
from flmc.planning.plans import Plan
from flmc.sampling.moments import Moments

MOST_DRAWN_BYTES = 256_000_000
"""Largest number of bytes of draws in memory; more go to a file, if the run is recorded."""


@dataclass
class Chains:
    """All chains of all data sets after ``round`` rounds.

    Counts are whole numbers, and sums are taken in the order of the rounds, so nothing here depends
    on where a run was interrupted."""

    round: int
    """Number of finished rounds."""
    position: Array
    """Where the chains stand, (experiment, chain, dim): theta, or its deviation from a centre, in
    the engine's own coordinates and precision."""
    moments: Moments
    """Sums of theta's deviations, and of their products, over the kept rounds so far."""
    path: Array | None
    """Theta after every ``thin``-th round, (experiment, chain, place, dim), from the first round
    after ``path_from`` rounds on, with no meaningful numbers for rounds to come; None if draws are
    not kept. The axis ``place`` counts these rounds."""
    num_clipped: int = 0
    """Number of gradient entries of active devices that clipping changed, in kept rounds."""
    num_undefined: int = 0
    """Number of gradient entries of active devices that were not finite, in all rounds."""
    num_burn_in: int = 0
    """Number of rounds before the first that is kept."""
    thin: int = 1
    """Number of kept rounds for each draw: with 10, the 10th, the 20th and so on are draws."""
    path_from: int = 0
    """Number of rounds before the first in ``path``: 0, or ``num_burn_in`` where the burn-in is not
    kept."""
    memory: Array | None = None
    """What the server's update remembers beside theta, (experiment, chain, slot, dim), in the
    coordinates of ``position``; None: nothing."""

    @classmethod
    def at_start(
        cls,
        plan: Plan,
        model: Model,
        position: Array,
        keep_draws: bool,
        thin: int = 1,
        directory: Path | None = None,
    ) -> Chains:
        """The chains before round 1, at a position (experiment, chain, dim) in the engine's own
        coordinates. If a ``directory`` is given, draws of more than ``MOST_DRAWN_BYTES`` are in a
        file there."""
        num_chains = position.shape[1]
        num_kept = plan.num_rounds - plan.num_burn_in
        moments = Moments.empty(centre_of(model), num_chains, num_kept)
        first = path_from(plan, model.num_experiments * num_chains, thin)
        shape = (model.num_experiments, num_chains, (plan.num_rounds - first) // thin, model.dim)
        path = _empty_path(shape, directory) if keep_draws else None
        slots = plan.update.num_slots
        memory = np.zeros((*position.shape[:2], slots, model.dim)) if slots else None
        return cls(0, position, moments, path, 0, 0, plan.num_burn_in, thin, first, memory)

    @property
    def draws(self) -> Array | None:
        """Theta of the draws, (experiment, chain, draw, dim); None if they are not kept."""
        return None if self.path is None else self.path[:, :, self.num_burn_in - self.path_from :]

    @property
    def burn_in(self) -> Array | None:
        """Theta after every round of the burn-in, (experiment, chain, round, dim); None if it is
        not kept."""
        if self.path is None or self.path_from == self.num_burn_in:
            return None
        return self.path[:, :, : self.num_burn_in]

    def draws_until(self, rounds: int) -> int:
        """Number of draws of the first ``rounds`` rounds."""
        return max(0, rounds - self.num_burn_in) // self.thin

    def places_until(self, rounds: int) -> int:
        """Number of positions in ``path`` that belong to the first ``rounds`` rounds of the run."""
        return max(0, rounds - self.path_from) // self.thin

    def keep(self, place: tuple[int | slice, slice], first: int, theta: Array) -> None:
        """Write the ``theta`` of consecutive rounds, (..., chain, round, dim) in the model's
        coordinates, into ``path``, as far as the rounds are kept there. ``first`` is the number of
        the first of these rounds, counted from 0, and ``place`` says which data sets and chains
        they are of."""
        if self.path is None:
            return
        kept = np.arange(first + 1, first + 1 + theta.shape[-2]) - self.path_from
        chosen = (kept > 0) & (kept % self.thin == 0)
        if chosen.any():
            # Every ``thin``-th round has a place, so their numbers are consecutive: a slice.
            numbers = kept[chosen] // self.thin - 1
            part = slice(int(numbers[0]), int(numbers[-1]) + 1)
            self.path[place][..., part, :] = theta[..., chosen, :]

    def clipped_fraction(self, num_active: Array) -> float:
        """Share of the gradient entries of active devices that clipping changed, in kept rounds;
        ``num_active`` is the number of active devices in every kept round, (experiment or 1,
        round)."""
        experiments, chains, dim = self.position.shape
        # Counted in whole numbers: a single row stands for all data sets, so it counts for each of
        # them.
        active = num_active.sum() * (experiments // len(num_active))
        return float(self.num_clipped / (active * chains * dim))


def path_from(plan: Plan, num_chains: int, thin: int) -> int:
    """Number of rounds before the first whose positions are kept with the draws of ``num_chains``
    chains, all data sets together: 0, so that an answer can use the burn-in too, unless rounds are
    thinned out, entries are too many for an answer, or it would take too much memory."""
    size = 8 * plan.num_rounds * plan.dim * num_chains
    whole = thin == 1 and plan.dim <= MOST_ANSWERED and size <= MOST_DRAWN_BYTES
    return 0 if whole else plan.num_burn_in


def _empty_path(shape: tuple[int, ...], directory: Path | None) -> Array:
    """An uninitialised array for positions: in memory, or mapped to a nameless file of
    ``directory`` beyond ``MOST_DRAWN_BYTES``."""
    if directory is None or 8 * math.prod(shape) <= MOST_DRAWN_BYTES:
        return np.empty(shape)
    # The mapping has a descriptor of its own and outlives the file object. The system pages it out
    # as it needs memory, and frees the disk with the array, also after a crash.
    with tempfile.TemporaryFile(dir=directory) as file:
        return np.memmap(file, np.float64, "w+", shape=shape)


def centre_of(model: Model) -> Array:
    """The point that deviations are measured from, for every data set, (experiment, dim).

    It is the posterior mean where that is known, else the minimum of the sum of all local costs
    where these are quadratic, else the mean of the prior.
    """
    shape = (model.num_experiments, model.dim)
    if model.posterior is not None:
        return broadcast(model.posterior.mean, shape)
    costs = model.quadratic()
    if costs is not None:
        # The minimum lies near the draws, so that an engine in single precision spends its digits
        # on the deviations. pinv may fail on a Hessian that is not finite; then the prior's mean is
        # used.
        with suppress(np.linalg.LinAlgError):
            # A direction without curvature has no minimum: its deviations are measured from 0.
            inverse = np.linalg.pinv(costs.hessian.sum(axis=1), rcond=1e-10, hermitian=True)
            centre = np.einsum("eij,ej->ei", inverse, costs.offset.sum(axis=1))
            if np.isfinite(centre).all():
                return np.asarray(centre)
    return np.broadcast_to(model.prior.mean, shape)


def fail(experiment: int, chain: int, rounds: str) -> None:
    """Raise ``RunFailed`` for a chain whose theta is not finite any more; ``rounds`` is part of
    the sentence, as "after round 7"."""
    raise RunFailed(
        f"theta is not finite {rounds} in data set {experiment}, chain {chain}: the step is too"
        " large for this model there; use a smaller step_size or clip, or start = 'zero'"
    )
