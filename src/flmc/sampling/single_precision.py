"""The theta at which chains start, and the base class of the engines that store the positions of
chains in single precision."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from flmc.base.arrays import Array
from flmc.base.errors import RunFailed
from flmc.base.randomness import Purpose, generator
from flmc.models.model import Model
from flmc.planning.plans import Plan
from flmc.sampling.chains import Chains, centre_of
from flmc.sampling.engine import Engine


def starts(plan: Plan, model: Model, seed: int, num_chains: int) -> Array:
    """Theta of every chain before round 1, (experiment, chain, dim): a draw from the prior, from a
    random stream of the chain's own, or zero, as the plan says."""
    theta = np.zeros((model.num_experiments, num_chains, model.dim))
    if plan.start == "prior":
        for e, c in np.ndindex(theta.shape[:2]):
            theta[e, c] = model.prior.draw(generator(seed, Purpose.INIT, e, c), model.dim)
    return theta


class SinglePrecisionEngine(Engine):
    """Base class of engines that store, as the position of a chain, the deviation of theta from a
    fixed theta of its data set (:func:`flmc.sampling.chains.centre_of`), in single precision."""

    def starts(self, plan: Plan, model: Model, seed: int, num_chains: int) -> Array:
        """Theta of every chain before round 1, (experiment, chain, dim), in double precision: a
        draw from the prior, or zero, as the plan says."""
        return starts(plan, model, seed, num_chains)

    def start(
        self,
        plan: Plan,
        model: Model,
        seed: int,
        num_chains: int,
        *,
        keep_draws: bool,
        thin: int = 1,
        directory: Path | None = None,
    ) -> Chains:
        """State before round 1, as :meth:`flmc.sampling.engine.Engine.start` describes it.
        ``RunFailed`` if a position overflows single precision."""
        origin = centre_of(model)
        theta = self.starts(plan, model, seed, num_chains)
        # Machine code reads the position from its address and expects C's order of the numbers,
        # which theta need not have.
        with np.errstate(over="ignore"):  # an overflow is noticed below
            position = (theta - origin[:, None]).astype(np.float32, order="C")
        if not np.isfinite(position).all():
            raise RunFailed("a start is beyond the range of single precision; use engine = 'numpy'")
        # The type check is off for the position, because the type Array declares double precision
        # and the position is in single precision.
        return Chains.at_start(
            plan,
            model,
            position,  # type: ignore[arg-type]
            keep_draws,
            thin,
            directory,
            origin=origin,
        )

    def theta(self, chains: Chains, model: Model) -> Array:
        """Theta of every chain, (experiment, chain, dim), in double precision: the fixed theta of
        its data set (:func:`flmc.sampling.chains.centre_of`) plus the deviation that is stored as
        the position."""
        return np.asarray(centre_of(model)[:, None] + chains.position.astype(np.float64))
