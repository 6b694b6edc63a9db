"""The result of a run on separate machines, from the thetas that the server has seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from flmc.base.arrays import Array
from flmc.base.numerics.clipping import count_clipped
from flmc.deploy.server.server_record import ENGINE
from flmc.models.model import Model
from flmc.planning.plans import Plan
from flmc.runs.job import Job
from flmc.runs.results import Result
from flmc.sampling.chains import Chains, centre_of
from flmc.sampling.engines import choose_engine
from flmc.sampling.moments import Moments


def chains_of(plan: Plan, thetas: Sequence[Array], centre: Array) -> Chains:
    """The one chain of a federation, with its moments and draws.

    Parameters
    ----------
    plan
        Says which rounds are kept.
    thetas
        Theta before round 1 and after every round, (dim) each.
    centre
        Where deviations are measured from, (1, dim).
    """
    kept = np.stack(thetas[plan.num_burn_in + 1 :])
    moments = Moments.empty(centre, 1, len(kept))
    for theta in kept:
        moments.add(theta[None, None], slice(0, 1), 0)
    position = np.asarray(thetas[-1])[None, None]
    return Chains(plan.num_rounds, position, moments, kept[None, None], 0, 0, plan.num_burn_in)


def result_without_data(plan: Plan, thetas: Sequence[Array], seconds: float) -> Result:
    """The result as the server knows it: it has no data, so no posterior to compare with.

    Parameters
    ----------
    plan, thetas
        The plan, and theta before round 1 and after every round.
    seconds
        CPU seconds of the server.
    """
    chains = chains_of(plan, thetas, np.mean(np.stack(thetas), axis=0)[None])
    return Result(
        plan=plan,
        seed=0,
        num_chains=1,
        engine=ENGINE,
        seconds=seconds,
        metrics=None,
        clipped_fraction=float("nan"),
        num_undefined=0,
        moments=chains.moments,
        chains=chains.draws,
    )


def result_with_model(plan: Plan, model: Model, thetas: Sequence[Array], seconds: float) -> Result:
    """The result as whoever has all data knows it, as of a simulation: with metrics against the
    exact posterior, where that is known.

    Parameters
    ----------
    plan, model
        The plan, and the model with all data.
    thetas
        Theta before round 1 and after every round, (dim) each.
    seconds
        CPU seconds of the server.
    """
    chains = chains_of(plan, thetas, centre_of(model))
    job = Job(plan, model, 0, 1, choose_engine("numpy", plan, model), keep_draws=True)
    for theta in thetas[plan.num_burn_in : -1]:
        local = plan.uplink.local_gradients(model, np.asarray(theta)[None, None])
        chains.num_clipped += count_clipped(
            local, plan.uplink.clip, None, by_norm=plan.uplink.clips_norm
        )
    # The clipped share is over all devices, because the model tells of all of them.
    every = np.full((1, plan.num_rounds), float(plan.num_devices))
    return replace(job.result_of(chains, every, seconds), engine=ENGINE, blocking="")
