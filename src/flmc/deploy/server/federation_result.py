"""Results of runs on separate machines: without data, as the server has them, or with the data of
all devices, as in a demonstration."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from flmc.base.arrays import Array
from flmc.base.clipping import count_clipped
from flmc.base.errors import InvalidSetting
from flmc.base.findings import Finding
from flmc.deploy.server.server_prior import PRIOR_UNKNOWN, prior_in
from flmc.deploy.server.server_record import ENGINE, REPORT
from flmc.evaluation.answer import Answer, find_federated_answer
from flmc.evaluation.server_evidence import judge_without_data
from flmc.evaluation.shown_answer import FindAnswer
from flmc.models.distributions import Prior
from flmc.models.model import Model
from flmc.models.parameters import Layout
from flmc.planning.plans import Plan
from flmc.runs.job import Job
from flmc.runs.ledger import rounds_seen
from flmc.runs.records import federated_names, load
from flmc.runs.results import Result
from flmc.sampling.chains import Chains, centre_of
from flmc.sampling.moments import Moments
from flmc.sampling.numpy_engine import NumpyEngine
from flmc.sampling.path import ChainPath

_HOTTER = 0.05
"""Relative excess of the mean temperature of the kept rounds over the plan's, above which the
finding about absent devices is a warning and not a note."""


def result_without_data(
    plan: Plan,
    kept: Array,
    seconds: float,
    ledger: Sequence[str] = (),
    *,
    reports: bool = False,
    before: Array | None = None,
    prior: Prior | None = None,
    layout: Layout | None = None,
) -> Result:
    """The result of a run as the server knows it: without data, so without a posterior to compare
    with, and judged by :func:`flmc.evaluation.server_evidence.judge_without_data`.

    ``kept`` holds theta after every kept round (round, dim), ``seconds`` is CPU time, and
    ``ledger`` has one line of JSON for each round, with gains and absent devices. With ``reports``
    the last entry of ``kept`` is not a parameter but the sum of the devices' reports, and the
    result leaves it out. ``before`` has the positions before the first kept round, (position, dim),
    without reports: theta at the start and after every round of the burn-in, or only the last of
    these. None: not known, and then the first kept round has no midpoint. Without the model's
    ``prior`` the result has no answer. ``layout`` has the names of the parameters' entries; None:
    they have none."""
    active, gains = (None, None)
    if ledger[plan.num_burn_in : plan.num_rounds]:
        active, gains = rounds_seen(ledger[plan.num_burn_in : plan.num_rounds], plan.num_devices)
    judgement = judge_without_data(plan, kept, active, gains, reports=reports)
    kept = kept[:, :-1] if reports else kept
    several = None if before is None else before[None]
    chains = chains_of(plan, kept[None], several, kept.mean(axis=0)[None])
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
        path=chains.path,
        model_findings=(*absences(plan, ledger), *judgement),
        layout=layout,
        find_answer=answer_finder(plan, prior, chains.path, ledger, layout),
    )


def answer_finder(
    plan: Plan,
    model: Model | Prior | None,
    path: ChainPath | None,
    ledger: Sequence[str],
    layout: Layout | None = None,
) -> FindAnswer:
    """A function that computes the answer, what the server knows of theta, from the positions of
    its chains in ``path`` (None: not known) and from the ``ledger``, one line of JSON for each
    round, which must hold for every chain. ``model`` is the model or only its prior, and then the
    entries of theta have the names in ``layout``, None: no names. If ``model`` or ``path`` is None,
    the function raises ``InvalidSetting``."""
    seen = rounds_seen(ledger[: plan.num_rounds], plan.num_devices)
    if model is None or path is None:
        return partial(refuse_answer, PRIOR_UNKNOWN)
    # A federation stores theta itself as positions: the path has no origin.
    return partial(find_federated_answer, plan, model, path.after_rounds[0], *seen, layout=layout)


def refuse_answer(why: str, **words: object) -> Answer:
    """Raise ``InvalidSetting`` with the reason ``why``, in place of computing an answer (what the
    server knows of theta after the run)."""
    raise InvalidSetting(why)


def result_with_model(
    plan: Plan,
    model: Model,
    kept: Array,
    seconds: float,
    ledger: Sequence[str] = (),
    before: Array | None = None,
) -> Result:
    """The result of a federation's run like that of a simulation, with metrics against the exact
    posterior where it is known; ``model`` has the data of all devices. ``kept`` holds theta after
    every kept round (round, dim), ``seconds`` is CPU time, ``ledger`` has one line of JSON for each
    round, and ``before`` theta at the start and in the burn-in (position, dim; None: not known)."""
    several = None if before is None else before[None]
    chains = chains_of(plan, kept[None], several, centre_of(model))
    # Devices do not tell the server which gradients they clipped. So the gradients are computed
    # again, from the data of all devices at the kept positions, and their clipped entries counted.
    local = plan.uplink.drawn_gradients(model, kept)[None]
    clip, by_norm = plan.uplink.clip, plan.uplink.clips_norm
    chains.num_clipped = count_clipped(local, clip, None, by_norm=by_norm)
    job = Job(plan, model, 0, 1, NumpyEngine(), keep_draws=True)
    every = np.full((1, plan.num_rounds), float(plan.num_devices))
    result = job.result_of(chains, every, seconds, absences(plan, ledger))
    # The answer is computed from the devices and gains that the run's ledger names. A simulation's
    # result, as the job has made it, would take devices and gains drawn from a seed.
    find = answer_finder(plan, model, chains.path, ledger)
    return replace(result, engine=ENGINE, blocking="", find_answer=find)


def chains_of(plan: Plan, kept: Array, before: Array | None, centre: Array) -> Chains:
    """The ``Chains`` of a federation's runs, one chain for each run. ``kept`` is theta after every
    kept round, (chain, round, dim); ``before`` is theta at the start and in the burn-in, (chain,
    position, dim), or None. The moments of the draws are those of deviations from ``centre``,
    (1, dim)."""
    thetas = kept if before is None else np.concatenate([before, kept], axis=1)
    first, burn_in = plan.num_rounds + 1 - thetas.shape[1], plan.num_burn_in
    path = ChainPath(thetas[None], None, first, burn_in, plan.midpoints)
    draws = path.draws
    moments = Moments.empty(centre, len(kept), draws.shape[2])
    for number in range(draws.shape[2]):
        moments.add(draws[:, :, number], slice(0, 1), 0)
    return Chains(
        plan.num_rounds,
        kept[None, :, -1],
        moments,
        path,
        num_burn_in=burn_in,
        midpoints=plan.midpoints,
        keeps_draws=True,
    )


def absences(plan: Plan, ledger: Sequence[str]) -> tuple[Finding, ...]:
    """One finding if fewer devices than planned were active in the rounds after burn-in, which
    states the mean temperature of these rounds; empty if no device was missing, or if the
    temperature is unknown. ``ledger`` has one line of JSON for each round."""
    rounds = [json.loads(line) for line in ledger[plan.num_burn_in :]]
    active = np.array([plan.num_devices - len(each["silent"]) for each in rounds])
    planned = plan.num_active[plan.num_burn_in :][: len(active)]
    missing = float(np.mean(planned - active)) if len(active) else 0.0
    heats = [each["temperature"] for each in rounds if each.get("temperature") is not None]
    if missing <= 0 or not heats or plan.temperature is None:
        return ()
    # With K_a of K devices active the noise in a step grows by about (K/K_a)^2, and so does the
    # variance of the draws.
    heat = float(np.mean(heats))
    words = (
        f"{active.mean():.3g} devices were active in a kept round on average, {missing:.3g} fewer"
        f" than planned: the mean temperature was {heat:.4g}, and the plan's {plan.temperature:.4g}"
    )
    hot = heat > plan.temperature * (1 + _HOTTER)
    if hot:
        words += "; draws spread wider by about as much; run it again with all devices"
    numbers = {"num_active": float(active.mean()), "temperature": heat}
    return (Finding("absent-devices", "warning" if hot else "note", words, numbers=numbers),)


class Recorded(NamedTuple):
    """Contents of the record of a finished federation on disk, beside its result.

    Attributes
    ----------
    plan
        The plan of the run.
    kept
        Theta after every kept round, (round, dim), with the entry that adds up the devices'
        reports, if there were any.
    seconds
        CPU seconds of the server.
    ledger
        One line of JSON for each round.
    before
        Theta at the start and after the rounds of the burn-in, (position, dim), without reports;
        None in a record of an earlier version.
    """

    plan: Plan
    kept: Array
    seconds: float
    ledger: list[str]
    before: Array | None


def read_recorded(directory: Path) -> Recorded:
    """The contents of the record of a finished federation in a directory: plan, chain and
    ledger."""
    record = load(directory)
    arrays = record.arrays
    plan = Plan.from_document(record.asked["plan"])
    # Theta after the kept rounds is wanted, not midpoints. In a plan with midpoints these are the
    # draws, and the record has all positions in another array.
    name, count = "positions" if plan.midpoints else "draws", plan.num_rounds - plan.num_burn_in
    kept = arrays[name][0, 0, -count:]
    if REPORT in arrays:
        kept = np.column_stack([kept, arrays[REPORT]])
    seconds = float((record.result or {}).get("seconds", 0.0))
    before = arrays["burn_in"][0, 0] if "burn_in" in arrays else None
    if plan.midpoints:
        before = arrays[name][0, 0, :-count]
    return Recorded(plan, kept, seconds, record.ledger, before)


def result_of_record(directory: Path) -> Result:
    """The result of a finished run from its record on disk, as the server knows it: without data,
    so without a posterior to compare with."""
    held, record = read_recorded(directory), load(directory)
    return result_without_data(
        held.plan,
        held.kept,
        held.seconds,
        held.ledger,
        reports=REPORT in record.arrays,
        before=held.before,
        prior=prior_in(record.asked),
        layout=federated_names(record.asked),
    )
