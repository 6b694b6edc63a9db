"""A verdict against the truth: what a plan, its run and a server without data say of a chain, and
how far its draws really are from the posterior."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from scipy import linalg

import flmc
from flmc.base.arrays import Array
from flmc.base.findings import Finding, gravest
from flmc.deploy.server.federation_result import result_without_data
from flmc.evaluation.chain_statistics import chain_statistics, effective_size_of_mean
from flmc.planning.forecast import forecast
from flmc.planning.judgement import FEW_DRAWS, PREDICTED
from flmc.planning.model_check import survey
from flmc.planning.plans import Plan

SNR_DB = 40.0
"""Power of a symbol over the noise, at the transmitter: high enough that power is no obstacle."""
MOST_ROUNDS = 20_000
"""Rounds that a run may have; where the automatic number is larger, this one is planned for."""
KEPT_DRAWS = 500
"""Draws of a chain that are looked at, about, where all of them would not fit into memory or would
be too slow to look at."""
MEAN_LIMIT, VARIANCE_LIMIT, ERRORS = 0.25, 0.25, 3.0
"""A chain is wrong if the mean of a parameter is off by more than 0.25 posterior standard
deviations, or its variance by more than 25 %, in both cases plus three standard errors."""
MEAN_BAR, SD_BAR = 0.15, 0.05
"""The bars of draws that are called GOOD: the worst mean within 0.15 posterior standard deviations,
and the worst standard deviation within 5 % of the posterior's, each plus three standard errors. No
plan is told of them, and its verdict allows more."""
_MOST_NUMBERS = 30_000_000
"""Numbers of all chains up to which every kept round is looked at."""
GOOD = "good"
"""The verdict where no finding speaks against a plan or a run."""


@dataclass(frozen=True)
class Distance:
    """How far draws are from a posterior, in the parameter where it is farthest: the mean in
    posterior standard deviations and the ratio of variances, each with its standard error. And what
    a warning may be about: the ratio of variances in the worst direction, and the effective draws
    of one chain, in the parameter that has fewest."""

    mean: float
    mean_error: float
    variance: float
    variance_error: float
    wrong: bool
    direction: float
    draws: float
    mean_holds: bool
    """Whether the mean of every parameter is within its bar."""
    sd_holds: bool
    """Whether the standard deviation of every parameter is within its bar."""
    r_hat: float
    """Largest R-hat of a parameter."""

    @property
    def sd(self) -> float:
        """Standard deviation over the posterior's, in the parameter where it is farthest from 1."""
        return math.sqrt(self.variance)

    @property
    def sd_error(self) -> float:
        """Standard error of :attr:`sd`."""
        return self.variance_error / (2 * self.sd)

    @classmethod
    def measured(
        cls,
        draws: Array,
        mean: Array,
        sd: Array,
        mean_error: Array | float = 0.0,
        variance_error: Array | float = 0.0,
        reference: Array | None = None,
    ) -> Distance:
        """From draws (chain, draw, entry) and a posterior with mean and sd (entry), whose own
        errors are in sd, and relative to the variance; ``reference`` are draws of the posterior,
        (draw, entry), without which the worst direction is one of the entries.

        Chains are independent, so that the spread of their averages is the error of the whole."""
        away = (draws - mean) / sd
        count = len(away)
        means = away.mean(axis=1)
        shift = means.mean(axis=0)
        squares = np.square(away - shift).mean(axis=1)
        ratio = squares.mean(axis=0)
        shift_error = np.hypot(means.std(axis=0, ddof=1) / count**0.5, mean_error)
        ratio_error = np.hypot(squares.std(axis=0, ddof=1) / count**0.5, ratio * variance_error)
        off = np.abs(shift) - MEAN_LIMIT - ERRORS * shift_error
        far = np.abs(ratio - 1) - VARIANCE_LIMIT - ERRORS * ratio_error
        # On the scale of the logarithm too: where some chains are lost, a ratio of 700 has an error
        # of 400, and is no accident all the same.
        logarithm, slack = np.log(ratio), ERRORS * ratio_error / ratio
        wide = np.maximum(
            logarithm - np.log(1 + VARIANCE_LIMIT), np.log(1 - VARIANCE_LIMIT) - logarithm
        )
        # A chain that left the range of numbers is wrong too: comparisons with NaN are False.
        wrong = not max(off.max(), far.max(), (wide - slack).max()) <= 0
        # Comparisons with NaN are False here as well.
        mean_holds = bool((np.abs(shift) <= MEAN_BAR + ERRORS * shift_error).all())
        spread = np.sqrt(ratio)
        sd_holds = bool((np.abs(spread - 1) <= SD_BAR + ERRORS * ratio_error / (2 * spread)).all())
        i = int(np.argmax(np.abs(shift)))
        j = int(np.argmax(np.abs(logarithm)))
        numbers = map(float, (shift[i], shift_error[i], ratio[j], ratio_error[j]))
        mean_off, mean_slack, wide_by, wide_slack = numbers
        effective = fewest_draws(away) / count
        thin = max(1, away.shape[1] // KEPT_DRAWS)
        r_hat = float(chain_statistics(np.moveaxis(away[:, ::thin], 2, 0)).r_hat.max())
        worst = wide_by
        if reference is not None and np.isfinite(away).all():
            worst = _worst_direction(away, (reference - mean) / sd)
        return cls(
            mean_off, mean_slack, wide_by, wide_slack, wrong, worst, effective,
            mean_holds, sd_holds, r_hat,
        )  # fmt: skip

    @classmethod
    def failed(cls) -> Distance:
        """That of chains that left the range of numbers."""
        nan = math.nan
        return cls(nan, nan, nan, nan, True, nan, nan, False, False, nan)

    def bears_out(self, codes: Sequence[str]) -> bool:
        """Whether the measurement shows what a plan warned of: too few effective draws, or a
        variance beyond the tolerances that a plan may predict without a word. Other warnings are
        borne out by wrong draws only."""
        shown = {
            "few-draws": self.draws < FEW_DRAWS,
            "variance-ratio": not PREDICTED.narrow <= self.direction <= PREDICTED.wide,
        }
        return self.wrong or any(shown.get(code, False) for code in codes)


def fewest_draws(draws: Array) -> float:
    """Effective draws of all chains together in the entry that has fewest, from draws (chain, draw,
    entry)."""
    # One entry after the other, because the spectrum of all would not fit into memory.
    entries = np.moveaxis(draws, 2, 0)
    return min(float(effective_size_of_mean(each[None])[0]) for each in entries)


def _worst_direction(draws: Array, reference: Array) -> float:
    """Ratio of the variance of draws (chain, draw, entry) to that of a reference (draw, entry) in
    the direction where it is farthest from 1.

    The direction is found with one half of the chains and of the reference and measured with the
    other half, in turn: on one and the same half chance alone would find a bad one."""
    chains, drawn = (draws[::2], draws[1::2]), (reference[::2], reference[1::2])
    logs = []
    for here, there in ((0, 1), (1, 0)):
        sampled = [np.cov(part.reshape(-1, part.shape[2]), rowvar=False) for part in chains]
        exact = [np.cov(part, rowvar=False) for part in drawn]
        ratios, directions = linalg.eigh(np.atleast_2d(sampled[here]), np.atleast_2d(exact[here]))
        w = directions[:, np.argmax(np.abs(np.log(ratios)))]
        wide, narrow = (w @ np.atleast_2d(each[there]) @ w for each in (sampled, exact))
        logs.append(np.log(wide / narrow))
    return float(np.exp(np.mean(logs)))


def _in_predicted_directions(plan: Plan, model: flmc.Model, draws: Array) -> float | None:
    """Ratio of the variance of draws (chain, draw, dim) to the posterior's, the farther from 1 of
    the two directions of theta in which the plan predicts the extremes; None where the model's
    posterior is known, or nothing is forecast.

    The worst of many directions that draws alone show is found in noise, and a transformed entry
    of theta is no direction of the parameters by their names. The posterior's variance is that of a
    sampler with exact gradients and noise, and a tenth of the step."""
    law = None if model.posterior is not None else survey(model).posterior
    expected = None if law is None else forecast(plan, model, law)
    if expected is None or plan.effective_step_size is None:
        return None
    step, rounds = plan.effective_step_size / 10, 2 * MOST_ROUNDS
    limits = flmc.Limits(privacy="off")
    exact = flmc.plan(model, flmc.Ideal(), limits, num_rounds=rounds, step_size=step)
    thin = max(1, rounds // (2 * KEPT_DRAWS))
    reference = flmc.run(exact, model, seed=2, chains=len(draws), thin=thin).draws
    _, directions = linalg.eigh(expected.chain.covariance, expected.posterior.covariance)
    here, there = (
        each if model.coordinates is None else model.coordinates.from_model(each)
        for each in (draws, reference)
    )
    ratios = [(here @ w).var() / (there @ w).var() for w in directions[:, [0, -1]].T]
    return float(max(ratios, key=lambda ratio: abs(math.log(ratio))))


@dataclass(frozen=True)
class Row:
    """One plan: what was said of it, and what came of it."""

    case: str
    deal: str
    scheme: str
    plan: str
    plan_codes: tuple[str, ...]
    run: str
    run_codes: tuple[str, ...]
    server: str
    server_codes: tuple[str, ...]
    predicted: Mapping[str, float | None]
    """Numbers that the plan states: temperature, shift, variance ratios, share clipped, draws."""
    distance: Distance
    num_rounds: int
    num_burn_in: int
    dim: int
    """Entries of theta, which travel."""
    chains: int
    seconds: float
    """Seconds of planning, running and judging."""
    planning_seconds: float
    run_cpu: float
    """Processor seconds of the run of all chains, without compilation of its rounds."""

    @property
    def wrong(self) -> bool:
        """Whether the draws are wrong, by more than chance explains."""
        return self.distance.wrong


def verdict(findings: Sequence[Finding]) -> tuple[str, tuple[str, ...]]:
    """The severity of the gravest findings, ``good`` where there is none; and their codes."""
    worst = gravest(findings)
    if not worst:
        return GOOD, ()
    return worst[0].severity, tuple(dict.fromkeys(each.code for each in worst))


def planned(model: flmc.Model, uplink: flmc.Uplink, **settings: Any) -> Plan:
    """The plan of a user who leaves everything to the planner and asks for no privacy; with a
    number of rounds, and a quarter of them as burn-in, where the planner has none."""
    limits = flmc.Limits(privacy="off")
    plan = partial(flmc.plan, model, uplink, limits, **settings)
    with suppress(flmc.errors.InvalidSetting):
        made = plan(num_rounds="auto")
        if made.num_rounds <= MOST_ROUNDS:
            return made
        return plan(num_rounds=MOST_ROUNDS, num_burn_in="auto")
    return plan(num_rounds=MOST_ROUNDS, num_burn_in=MOST_ROUNDS // 4)


def judge(
    case: str,
    deal: str,
    scheme: str,
    model: flmc.Model,
    plan: Callable[[], Plan],
    compare: Callable[[Array], Distance],
    chains: int,
) -> Row:
    """Plan, run and compare; ``compare`` takes draws (chain, draw, dim) of the model."""
    began = time.perf_counter()
    made = plan()
    planning = time.perf_counter() - began
    kept = made.num_rounds - made.num_burn_in
    thin = max(1, kept // KEPT_DRAWS)
    # A server sees every round; draws of all chains must fit into memory.
    every = kept * made.dim * chains <= _MOST_NUMBERS
    run_cpu = math.nan
    law = made.prediction
    predicted: dict[str, float | None] = {
        "temperature": made.temperature,
        "shift": None if law is None else law.mean_shift,
        "smallest": None if law is None else law.variance_ratio_smallest,
        "largest": None if law is None else law.variance_ratio_largest,
        "clipped": None if law is None else law.clipped_fraction,
        "draws": made.effective_draws,
        "clip": made.uplink.clip,
    }
    said = verdict(made.findings)
    told: tuple[str, tuple[str, ...]]
    server: tuple[str, tuple[str, ...]]
    try:
        # A few rounds first: JAX keeps the compiled rounds with the model.
        flmc.run(replace(made, num_rounds=8, num_burn_in=0), model, seed=1, chains=chains)
        cpu = time.process_time()
        result = flmc.run(made, model, seed=1, chains=chains, thin=1 if every else thin)
        run_cpu = time.process_time() - cpu
    except flmc.errors.RunFailed:
        told = server = ("infeasible", ("run-failed",))
        distance = Distance.failed()
    else:
        told, draws = verdict(result.findings), result.draws
        distance = compare(draws)
        if "variance-ratio" in said[1] and not distance.bears_out(said[1]):
            direction = _in_predicted_directions(made, model, draws[:, ::thin] if every else draws)
            distance = replace(distance, direction=direction or distance.direction)
        server = ("unknown", ())
        if every and result.path is not None and not model.num_local:
            server = _server_verdict(made, model, result.path.kept[0, 0])
    return Row(
        case, deal, scheme, *said, *told, *server, predicted, distance, made.num_rounds,
        made.num_burn_in, made.dim, chains, time.perf_counter() - began, planning, run_cpu,
    )  # fmt: skip


def _server_verdict(plan: Plan, model: flmc.Model, kept: Array) -> tuple[str, tuple[str, ...]]:
    """What a server says that has one chain, theta after kept rounds (round, dim), and no data: nor
    what a plan that was made with data says."""
    theta = kept if model.coordinates is None else model.coordinates.from_model(kept)
    return verdict(result_without_data(replace(plan, findings=()), theta, 0.0).findings)
