"""State of the chains of a run: all that an engine carries from round to round. A checkpoint must
hold all of it."""

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
"""Largest number of bytes of a run's draws that are held in memory; where they take more, a run
that is recorded on disk holds them in a file."""


@dataclass
class Chains:
    """State of all chains of all data sets after ``round`` rounds: their present positions, sums
    over kept rounds (``moments``), stored positions (``path``), counts of clipped and of undefined
    gradient entries, and what the server's update carries from round to round (``memory``).

    Counts are whole numbers, and sums are taken in the order of the rounds, so the state does not
    depend on where a run was interrupted."""

    round: int
    """Number of finished rounds."""
    position: Array
    """Present positions of the chains, (experiment, chain, dim). The numpy engine stores theta in
    double precision, the compiled engines the deviation of theta from a fixed point of each data
    set, in single precision."""
    moments: Moments
    """Sums, over the kept rounds so far, of the deviations of theta from a fixed point of each data
    set, and of products of their entries."""
    path: Array | None
    """Theta after every ``thin``-th round that follows the first ``path_from`` rounds,
    (experiment, chain, stored round, dim). Entries of rounds that have not been run yet are
    uninitialised. None if draws are not kept."""
    num_clipped: int = 0
    """Number of gradient entries of active devices that clipping changed, summed over all chains
    and kept rounds."""
    num_undefined: int = 0
    """Number of gradient entries of active devices that were not finite, summed over all chains and
    all rounds; engines that refuse such gradients leave it 0."""
    num_burn_in: int = 0
    """Number of burn-in rounds, which come before the first kept round."""
    thin: int = 1
    """Number of kept rounds for each draw: with 10, the 10th, the 20th and so on are draws."""
    path_from: int = 0
    """Number of rounds at the beginning of the run that ``path`` leaves out: 0, or ``num_burn_in``
    where the positions of the burn-in are not stored."""
    memory: Array | None = None
    """Numbers that the server's update carries from round to round beside theta, such as a
    momentum, (experiment, chain, slot, dim); None for an update that carries none."""

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
        """State of the chains before round 1, at ``position`` (experiment, chain, dim), which is
        stored as it is. Draws that take more than ``MOST_DRAWN_BYTES`` bytes are stored in a file
        of ``directory``, if one is given."""
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
        """Theta after every ``thin``-th kept round, (experiment, chain, draw, dim); None if draws
        are not kept."""
        return None if self.path is None else self.path[:, :, self.num_burn_in - self.path_from :]

    @property
    def burn_in(self) -> Array | None:
        """Theta after every round of the burn-in, (experiment, chain, round, dim); None if it is
        not kept."""
        if self.path is None or self.path_from == self.num_burn_in:
            return None
        return self.path[:, :, : self.num_burn_in]

    def draws_until(self, rounds: int) -> int:
        """Number of draws of each chain in the first ``rounds`` rounds of the run."""
        return max(0, rounds - self.num_burn_in) // self.thin

    def places_until(self, rounds: int) -> int:
        """Number of each chain's positions in ``path`` that come from the first ``rounds`` rounds
        of the run."""
        return max(0, rounds - self.path_from) // self.thin

    def keep(self, place: tuple[int | slice, slice], first: int, theta: Array) -> None:
        """Copy the positions ``theta`` (..., chain, round, dim) of consecutive rounds into
        ``path``, leaving out rounds that ``path`` does not store. ``first`` is the number of the
        first of these rounds, counted from 0, and ``place`` is the index of the data sets and
        chains along the first two axes of ``path``."""
        if self.path is None:
            return
        kept = np.arange(first + 1, first + 1 + theta.shape[-2]) - self.path_from
        chosen = (kept > 0) & (kept % self.thin == 0)
        if chosen.any():
            # ``numbers`` are the indices of the stored rounds in ``path``. They are consecutive, so
            # a slice selects them.
            numbers = kept[chosen] // self.thin - 1
            part = slice(int(numbers[0]), int(numbers[-1]) + 1)
            self.path[place][..., part, :] = theta[..., chosen, :]

    def clipped_fraction(self, num_active: Array) -> float:
        """Share, between 0 and 1, of the gradient entries of active devices in kept rounds that
        clipping changed. ``num_active`` is the number of active devices in every kept round,
        (experiment or 1, round)."""
        experiments, chains, dim = self.position.shape
        # A single row of ``num_active`` stands for all data sets, so it counts once for each.
        active = num_active.sum() * (experiments // len(num_active))
        return float(self.num_clipped / (active * chains * dim))


def path_from(plan: Plan, num_chains: int, thin: int) -> int:
    """Number of rounds at the beginning of a run whose positions are not stored: 0, because an
    answer also uses the burn-in, or the whole burn-in if no answer can be computed.

    The burn-in is left out if ``thin`` is more than 1, if theta has too many entries for an answer,
    or if the positions of ``num_chains`` chains (all data sets together) would take more than
    ``MOST_DRAWN_BYTES`` bytes."""
    size = 8 * plan.num_rounds * plan.dim * num_chains
    whole = thin == 1 and plan.dim <= MOST_ANSWERED and size <= MOST_DRAWN_BYTES
    return 0 if whole else plan.num_burn_in


def _empty_path(shape: tuple[int, ...], directory: Path | None) -> Array:
    """An uninitialised array of doubles for positions: in memory, or, if it takes more than
    ``MOST_DRAWN_BYTES`` bytes and a ``directory`` is given, mapped to a nameless file there."""
    if directory is None or 8 * math.prod(shape) <= MOST_DRAWN_BYTES:
        return np.empty(shape)
    # A memory map stays valid after its file object is closed. The operating system writes its
    # pages to the disk when it needs memory, and frees the disk space once the array is gone, even
    # after a crash.
    with tempfile.TemporaryFile(dir=directory) as file:
        return np.memmap(file, np.float64, "w+", shape=shape)


def centre_of(model: Model) -> Array:
    """The fixed theta of every data set, (experiment, dim), from which sums of draws and compiled
    engines measure the deviations of chains.

    It is the posterior mean where that is known, else the minimum of the sum of all local costs
    where these are quadratic, else the mean of the prior.
    """
    shape = (model.num_experiments, model.dim)
    if model.posterior is not None:
        return broadcast(model.posterior.mean, shape)
    costs = model.quadratic()
    if costs is not None:
        # The draws lie near the minimum, so deviations from it are small and lose few digits in
        # single precision. np.linalg.pinv raises LinAlgError for a Hessian that is not finite; the
        # mean of the prior is used then.
        with suppress(np.linalg.LinAlgError):
            # In a direction without curvature the costs have no minimum; the pseudo-inverse makes
            # the centre 0 there.
            inverse = np.linalg.pinv(costs.hessian.sum(axis=1), rcond=1e-10, hermitian=True)
            centre = np.einsum("eij,ej->ei", inverse, costs.offset.sum(axis=1))
            if np.isfinite(centre).all():
                return np.asarray(centre)
    return np.broadcast_to(model.prior.mean, shape)


def fail(experiment: int, chain: int, rounds: str) -> None:
    """Raise ``RunFailed`` for chain number ``chain`` of data set ``experiment``, whose theta is not
    finite any more. ``rounds`` says when, in the words of the message, such as "after round 7"."""
    raise RunFailed(
        f"theta is not finite {rounds} in data set {experiment}, chain {chain}: the step is too"
        " large for this model there; use a smaller step_size or clip, or start = 'zero'"
    )
