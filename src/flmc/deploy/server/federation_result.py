"""The result of a run on separate machines, from what the server has seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from flmc.base.arrays import Array
from flmc.base.numerics.clipping import count_clipped
from flmc.deploy.server.absences import absences
from flmc.deploy.server.server_record import ENGINE
from flmc.models.model import Model
from flmc.planning.plans import Plan
from flmc.runs.job import Job
from flmc.runs.loading import load
from flmc.runs.results import Result
from flmc.sampling.chains import Chains, centre_of
from flmc.sampling.engines import choose_engine
from flmc.sampling.moments import Moments


def chains_of(plan: Plan, kept: Array, centre: Array) -> Chains:
    """The one chain of a federation, with its moments and draws.

    Parameters
    ----------
    plan
        Says how many rounds there are.
    kept
        Theta after every kept round, (draw, dim).
    centre
        Where deviations are measured from, (1, dim).
    """
    moments = Moments.empty(centre, 1, len(kept))
    for theta in kept:
        moments.add(theta[None, None], slice(0, 1), 0)
    position = kept[-1][None, None]
    return Chains(plan.num_rounds, position, moments, kept[None, None], 0, 0, plan.num_burn_in)


def result_without_data(
    plan: Plan, kept: Array, seconds: float, ledger: Sequence[str] = ()
) -> Result:
    """The result as the server knows it: it has no data, so no posterior to compare with.

    Parameters
    ----------
    plan, kept
        The plan, and theta after every kept round, (draw, dim).
    seconds, ledger
        CPU seconds of the server, and the lines of its ledger.
    """
    chains = chains_of(plan, kept, kept.mean(axis=0)[None])
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
        model_findings=absences(plan, ledger),
    )


def result_with_model(
    plan: Plan, model: Model, kept: Array, seconds: float, ledger: Sequence[str] = ()
) -> Result:
    """The result as whoever has all data knows it, as of a simulation: with metrics against the
    exact posterior, where that is known.

    Parameters
    ----------
    plan, model
        The plan, and the model with all data.
    kept
        Theta after every kept round, (draw, dim).
    seconds, ledger
        CPU seconds of the server, and the lines of its ledger.
    """
    chains = chains_of(plan, kept, centre_of(model))
    # Devices do not tell what they clip; whoever has all data finds it at the draws.
    local = plan.uplink.local_gradients(model, kept[None])
    clip, by_norm = plan.uplink.clip, plan.uplink.clips_norm
    chains.num_clipped = count_clipped(local, clip, None, by_norm=by_norm)
    job = Job(plan, model, 0, 1, choose_engine("numpy", plan, model), keep_draws=True)
    every = np.full((1, plan.num_rounds), float(plan.num_devices))
    result = job.result_of(chains, every, seconds, absences(plan, ledger))
    return replace(result, engine=ENGINE, blocking="")


def draws_of_record(directory: Path) -> tuple[Plan, Array, float, list[str]]:
    """Plan, kept draws (draw, dim), the server's CPU seconds and the ledger of a finished record.

    Parameters
    ----------
    directory
        The record.
    """
    record = load(directory)
    kept = record.arrays["draws"][0, 0]
    seconds = float((record.result or {}).get("seconds", 0.0))
    return Plan.from_document(record.asked["plan"]), kept, seconds, record.ledger


def result_of_record(directory: Path) -> Result:
    """The result of a finished run, as the server knows it, from its record.

    Parameters
    ----------
    directory
        The record.
    """
    return result_without_data(*draws_of_record(directory))
