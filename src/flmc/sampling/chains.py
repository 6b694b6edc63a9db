"""State of the chains of a run: all that an engine carries from round to round. A checkpoint must
hold all of it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from flmc.base.arrays import Array, broadcast
from flmc.base.errors import RunFailed
from flmc.models.model import Model
from flmc.planning.plans import Plan
from flmc.sampling.moments import Moments
from flmc.sampling.path import ChainPath, Place


@dataclass
class Chains:
    """State of all chains of all data sets after ``round`` rounds: their present positions, sums
    over kept rounds (``moments``), stored positions (``path``), counts of gradient entries that
    were clipped or not finite, and what the server's update carries on (``memory``).

    Counts are whole numbers, and sums are taken in the order of the rounds, so a run that was
    interrupted and resumed has the same state to the bit."""

    round: int
    """Number of finished rounds."""
    position: Array
    """Present positions of the chains, (experiment, chain, dim). The numpy engine stores theta in
    double precision, the compiled engines the deviation of theta from a fixed theta of each data
    set (:func:`centre_of`), in single precision."""
    moments: Moments
    """Sums, over the kept rounds so far, of the deviations of draws from a fixed theta of each data
    set (:func:`centre_of`), and of products of the deviations' entries."""
    path: ChainPath | None
    """Stored positions, from which draws are computed: of all draws if ``keeps_draws`` is True,
    else of the last draw alone; None if no position is stored."""
    num_clipped: int = 0
    """Number of gradient entries of active devices that clipping changed, summed over all chains
    and kept rounds."""
    num_undefined: int = 0
    """Number of gradient entries of active devices that were not finite, summed over all chains and
    all rounds; 0 for an engine that refuses gradients which are not finite."""
    num_burn_in: int = 0
    """Number of burn-in rounds, which come before the first kept round."""
    midpoints: bool = False
    """Whether draws, and the sums in ``moments``, are of points half way between the positions
    before and after a round; False: of the positions after rounds."""
    keeps_draws: bool = False
    """Whether ``path`` has the positions of all draws; False: at most those of the last one."""
    memory: Array | None = None
    """Numbers that the server's update carries from round to round beside theta, such as a
    momentum, (experiment, chain, slot, dim); None for an update that carries none."""
    local: Array | None = None
    """Local parameters z_k of the devices in unconstrained coordinates, (experiment, chain, device,
    entry); None for a model without any. Theta, draws and the server's data do not include them."""

    @classmethod
    def at_start(
        cls,
        plan: Plan,
        model: Model,
        position: Array,
        keep_draws: bool,
        thin: int = 1,
        directory: Path | None = None,
        *,
        origin: Array | None = None,
    ) -> Chains:
        """State of the chains before round 1. ``position`` (experiment, chain, dim) is stored as
        it is: theta, or the deviation of theta from ``origin`` (experiment, dim) unless this is
        None. ``thin`` is the number of kept rounds for each draw. Draws that take much memory are
        stored in a file in ``directory``; None: in memory."""
        num_chains = position.shape[1]
        num_kept = plan.num_rounds - plan.num_burn_in
        moments = Moments.empty(centre_of(model), num_chains, num_kept)
        path = None
        # If the posterior is not known, a run is judged by the gradients at the last draw of each
        # chain. A last draw that is a midpoint needs the last two positions, and ``position`` holds
        # the last one only, so a path is kept even if no draws are.
        if keep_draws or (plan.midpoints and model.posterior is None):
            every = thin if keep_draws else num_kept
            path = ChainPath.empty(plan, position, origin, every, directory)
        slots = plan.update.num_slots
        memory = np.zeros((*position.shape[:2], slots, model.dim)) if slots else None
        burn_in, midpoints = plan.num_burn_in, plan.midpoints
        return cls(0, position, moments, path, 0, 0, burn_in, midpoints, keep_draws, memory)

    @property
    def draws(self) -> Array | None:
        """Theta of all draws, (experiment, chain, draw, dim), computed at each call; None if they
        are not kept."""
        return self.path.draws if self.path is not None and self.keeps_draws else None

    def keep(self, place: Place, first: int, positions: Array) -> None:
        """Copy ``positions`` (..., chain, round, dim), those after consecutive rounds, into the
        attribute ``path``, except for rounds that the path does not store. ``first`` is the number
        of the first round in ``positions``, counted from 0; ``place`` selects the data sets and
        chains to which ``positions`` belongs, along the first two axes of all chains."""
        if self.path is not None:
            self.path.keep(place, first, positions)

    def keep_round(
        self, place: tuple[slice, slice], before: Array, after: Array, done: int
    ) -> bool:
        """Store the positions after one round, and add the round's draw to ``moments`` if the round
        is a kept one. Returns whether it is kept.

        ``before`` and ``after`` (experiment, chain, dim) are theta before and after the round, for
        an engine that stores theta as the position. ``done`` is the number of the round, counted
        from 1; ``place`` selects their data sets and chains along the first two axes."""
        self.keep(place, done - 1, after[:, :, None])
        kept = done > self.num_burn_in
        if kept:
            draw = (before + after) * 0.5 if self.midpoints else after
            self.moments.add(draw, place[0], place[1].start)
        return kept

    def clipped_fraction(self, num_active: Array) -> float:
        """Share, between 0 and 1, of the gradient entries of active devices in kept rounds that
        clipping changed. ``num_active`` is the number of active devices in every kept round,
        (experiment or 1, round)."""
        experiments, chains, dim = self.position.shape
        # A single row of ``num_active`` stands for all data sets, so it counts once for each.
        active = num_active.sum() * (experiments // len(num_active))
        return float(self.num_clipped / (active * chains * dim))


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
