"""Where the chains of a run stand: what an engine carries from round to round, and all that a
checkpoint must hold."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from flmc.base.arrays import Array
from flmc.base.errors import RunFailed
from flmc.models.model import Model
from flmc.planning.plans import Plan
from flmc.sampling.moments import Moments


@dataclass
class Chains:
    """All chains of all data sets after ``round`` rounds.

    Counts are whole numbers, and sums are taken in the order of the rounds, so nothing here depends
    on where a run was interrupted."""

    round: int
    """Rounds that are done."""
    position: Array
    """(experiment, chain, dim), in the engine's own coordinates and precision."""
    moments: Moments
    """Sums over the kept rounds so far."""
    draws: Array | None
    """(experiment, chain, kept round, dim) if asked for; rounds to come are not yet written."""
    num_clipped: int = 0
    """Gradient entries of active devices that clipping changed, in kept rounds."""
    num_undefined: int = 0
    """Gradient entries that were not finite, in all rounds."""

    @classmethod
    def at_start(cls, plan: Plan, model: Model, position: Array, keep_draws: bool) -> Chains:
        """The chains before round 1, with nothing summed yet.

        Parameters
        ----------
        plan
            Says how many rounds are kept.
        model
            The model that is sampled; its centre is where deviations are measured from.
        position
            Where the chains start, (experiment, chain, dim), in the engine's own coordinates.
        keep_draws
            Whether to reserve memory for theta of every kept round.

        Returns
        -------
        Chains
            With ``round`` = 0.
        """
        num_chains = position.shape[1]
        num_kept = plan.num_rounds - plan.num_burn_in
        shape = (model.num_experiments, num_chains, num_kept, model.dim)
        moments = Moments.empty(centre_of(model), num_chains, num_kept)
        return cls(0, position, moments, np.empty(shape) if keep_draws else None)

    def clipped_fraction(self, num_active: Array) -> float:
        """Share of the gradient entries that clipping changed.

        Parameters
        ----------
        num_active
            Devices that transmitted in every kept round, (experiment or 1, round).

        Returns
        -------
        float
            Clipped entries of active devices over all their entries, in kept rounds.
        """
        experiments, chains, dim = self.position.shape
        rounds = np.broadcast_to(num_active, (experiments, num_active.shape[1]))
        return float(self.num_clipped / (rounds.sum() * chains * dim))


def centre_of(model: Model) -> Array:
    """The point that deviations are measured from, for every data set.

    It is the posterior mean where that is known, else the minimum of the sum of all local costs
    where these are quadratic, else the mean of the prior.

    Parameters
    ----------
    model
        The model that is sampled.

    Returns
    -------
    Array
        The centre, (experiment, dim).
    """
    shape = (model.num_experiments, model.dim)
    if model.posterior is not None:
        return np.broadcast_to(model.posterior.mean, shape)
    costs = model.quadratic()
    if costs is not None:
        # The minimum lies near the draws: an engine in single precision then spends its digits on
        # the deviations.
        # pinv may fail on a Hessian that is not finite; then the prior's mean is used.
        with suppress(np.linalg.LinAlgError):
            # A direction without curvature has no minimum: its deviations are measured from 0.
            inverse = np.linalg.pinv(costs.hessian.sum(axis=1), rcond=1e-10, hermitian=True)
            centre = np.einsum("eij,ej->ei", inverse, costs.offset.sum(axis=1))
            if np.isfinite(centre).all():
                return np.asarray(centre)
    return np.broadcast_to(model.prior.mean, shape)


def fail(experiment: int, chain: int, rounds: str) -> None:
    """Refuse to go on with a chain whose theta is not finite any more.

    Parameters
    ----------
    experiment, chain
        Which data set and which of its chains, counted from 0.
    rounds
        When it was noticed, as part of the sentence: "after round 7".

    Raises
    ------
    RunFailed
        Always.
    """
    raise RunFailed(
        f"theta is not finite {rounds} in data set {experiment}, chain {chain}: the step is too"
        " large for this model there; use a smaller step_size or clip, or start = 'zero'"
    )
