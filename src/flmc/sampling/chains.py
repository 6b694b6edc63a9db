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
from flmc.sampling.moments import MOST_BATCHES, Moments


@dataclass
class Chains:
    """All chains of all data sets after ``round`` rounds. Counts are whole numbers and sums are
    taken in the order of the rounds, so that nothing depends on where a run was interrupted."""

    round: int
    position: Array
    """(experiment, chain, dim), in the engine's own coordinates and precision."""
    moments: Moments
    draws: Array | None
    """(experiment, chain, kept round, dim) if asked for; rounds to come are not yet written."""
    num_clipped: int = 0
    """Gradient entries of active devices that clipping changed, in kept rounds."""
    num_undefined: int = 0
    """Gradient entries that were not finite, in all rounds."""

    @classmethod
    def at_start(
        cls,
        plan: Plan,
        model: Model,
        position: Array,
        keep_draws: bool,
        most_batches: int = MOST_BATCHES,
    ) -> Chains:
        """Before round 1."""
        num_chains = position.shape[1]
        num_kept = plan.num_rounds - plan.num_burn_in
        shape = (model.num_experiments, num_chains, num_kept, model.dim)
        moments = Moments.empty(centre_of(model), num_chains, num_kept, most_batches)
        return cls(0, position, moments, np.empty(shape) if keep_draws else None)

    def clipped_fraction(self, plan: Plan) -> float:
        """Fraction of the gradient entries of kept rounds that clipping changed."""
        entries = plan.num_active[plan.num_burn_in :].sum() * self.position.size
        return float(self.num_clipped / entries)


def centre_of(model: Model) -> Array:
    """Deviations are measured from here, (experiment, dim): the posterior mean where it is known,
    else the prior's."""
    shape = (model.num_experiments, model.dim)
    if model.posterior is not None:
        return np.broadcast_to(model.posterior.mean, shape)
    costs = model.quadratic()
    if costs is not None:  # the minimum, so that single precision is spent on the deviations
        with suppress(np.linalg.LinAlgError):
            # A direction without curvature has no minimum: its deviations are measured from 0.
            inverse = np.linalg.pinv(costs.hessian.sum(axis=1), rcond=1e-10, hermitian=True)
            centre = np.einsum("eij,ej->ei", inverse, costs.offset.sum(axis=1))
            if np.isfinite(centre).all():
                return np.asarray(centre)
    return np.broadcast_to(model.prior.mean, shape)


def fail(experiment: int, chain: int, rounds: str) -> None:
    """A chain left the range of numbers."""
    raise RunFailed(
        f"theta is not finite {rounds} in data set {experiment}, chain {chain}: the step is too"
        " large for this model there; use a smaller step_size or clip, or start = 'zero'"
    )
