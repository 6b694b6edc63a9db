"""The judge: the law that a plan's chain is predicted to sample, and the findings against the plan,
each with its numbers and a cure.

Every plan is judged here, those that are handed out (:func:`with_forecast`) and the candidates of a
search (:func:`judge_chain`). The variance and the mean of the samples are judged alike strictly. A
temperature that is off by 0.05 makes the mean square error of exact samples larger by 5 %; a mean
that is off by 0.25 posterior standard deviations makes it larger by 6 % in that direction."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from flmc.base.errors import InvalidSetting
from flmc.base.findings import Finding, Grade, gravest
from flmc.base.tables import format_up
from flmc.models.linear import LinearGaussian
from flmc.models.model import Model
from flmc.models.wide_linear import WideLinear
from flmc.planning.answer_forecast import (
    forecast_answer,
    judge_arrival,
    judge_linearity,
    judge_width,
    public_response,
    rounds_to_arrive,
)
from flmc.planning.answer_law import PredictedAnswer, Response
from flmc.planning.burn_in import distance_to_travel, rounds_needed
from flmc.planning.decision import Request
from flmc.planning.forecast import Law, follow_linear, forecast, noise_of
from flmc.planning.model_check import HOPELESSLY_CLIPPED, check_claims, survey
from flmc.planning.pilot import MOST_DIRECTIONS
from flmc.planning.plans import Plan
from flmc.planning.plans.release import draws_with_memory
from flmc.planning.prediction import (
    EXPERIMENTS_PREDICTED,
    Prediction,
    predict_with_response,
)
from flmc.planning.public_model import PublicLaw, PublicModel
from flmc.planning.server_update import is_langevin
from flmc.planning.step_size import BATCH_HEAT, Curvature, batch_heat
from flmc.uplink.example_clipping import typical_shrink
from flmc.uplink.noise import is_normal
from flmc.uplink.uplink import Uplink


class ChainLaw(NamedTuple):
    """Prediction of a plan's chain, and the curvature and noise that its server sees in its
    estimates (not yet divided by the link's slope); each None where it cannot be computed."""

    law: Prediction | PublicLaw | None
    response: Response | None = None
    bend: float | None = None
    """What a linear function of theta leaves of the mean gradient estimate, as a variance over that
    of the estimate's noise, in the worst direction; None where it was not computed."""


def law_of(decided: Plan, model: Model) -> Prediction | PublicLaw | None:
    """Prediction of what a plan's chain will sample; None where it cannot be made.

    The prediction follows from public sizes where only these are known, from an integral over
    gradient entries for linear regression, and else from gradients around the posterior; where the
    posterior is not known, a pilot finds it."""
    return chain_law(decided, model).law


def chain_law(decided: Plan, model: Model) -> ChainLaw:
    """Prediction of what a plan's chain will sample, with the curvature and noise that the server
    sees in its estimates; all None for a server's update other than Langevin's, and where the
    chain's law is not found."""
    if not is_langevin(decided.update):  # the laws below are those of Langevin's chain
        return ChainLaw(None)
    if isinstance(model, PublicModel):
        return ChainLaw(model.law(decided), public_response(decided, model))
    uplink = decided.uplink
    # The integral over single gradient entries does not hold where the norm of a gradient or single
    # examples' gradients are bounded or drawn, or where devices are absent.
    bounded = uplink.clips_examples or uplink.clips_norm
    entries = decided.scheduler.everyone and not bounded and not uplink.batched
    if isinstance(model, LinearGaussian) and entries:
        solved = predict_with_response(
            model, uplink, decided.step_size, noise_of(decided), midpoints=decided.midpoints
        )
        return ChainLaw(None) if solved is None else ChainLaw(*solved)
    if isinstance(model, WideLinear) or model.dim > MOST_DIRECTIONS:
        return ChainLaw(None)
    exact = model.posterior
    posterior = survey(model).posterior if exact is None else Law.of(exact)
    expected = None if posterior is None else forecast(decided, model, posterior)
    if expected is None:
        return ChainLaw(None)
    return ChainLaw(expected.prediction, expected.response, expected.bend)


HEAT_TOLERANCE = 0.05
"""Largest accepted difference of the temperature (sampled over posterior variance) from 1; beyond
it the plan gets a warning."""
HOPELESS_HEAT = 1.5
"""Largest temperature, or one over it, of a plan that is not infeasible; beyond it the samples are
not those of the posterior."""
HOPELESS_SHIFT = 1.0
"""Shift of the samples' mean, in posterior standard deviations, above which a plan is infeasible.
"""
_UNEVEN = 1.25
"""Largest predicted variance ratio in a single direction (or one over it), relative to the
temperature, that brings no warning; plans with the automatic step stay below."""
HOPELESS_BURN_IN = 2.0
"""Ratio of the needed rounds of burn-in to the planned ones above which a plan is infeasible,
because its chains cannot have reached the posterior."""
_BENT = 0.1
"""Largest part of the gradient that is not linear in theta where the chain goes, as a variance over
that of the estimate's noise, that brings no warning. Of right plans on published posteriors the
largest was 0.05; chains of a hierarchical model, whose curvature grows without bound in its tail,
left the posterior at 0.15."""
_START_ERROR, _HOPELESS_START_ERROR = 0.1, 0.5
"""Errors of the kept rounds that the chains' starts cause, in their mean (in standard deviations)
or variance (relative): the largest that brings no finding, and the one above which a plan is
infeasible."""
FEW_DRAWS, HOPELESSLY_FEW_DRAWS = 20.0, 5.0
"""Effective draws of one chain below which a plan gets a warning; and below which it is infeasible,
because a chain is of no use."""
INCURABLE = frozenset({"burn-in-unknown", "path-gain-above-1", "units", "target-without-effect"})
"""Codes of findings that no value of a setting can cure: a search for settings does not count them.
"""


class Tolerances(NamedTuple):
    """Limits of the deviations of a chain from the posterior up to which there is no finding."""

    shift: float
    """Largest distance of the samples' mean from the posterior mean, in posterior standard
    deviations."""
    burn_in: float
    """Largest ratio of the needed rounds of burn-in to the planned ones."""
    narrow: float
    """Smallest ratio of the samples' variance to the variance that they should have: the
    posterior's, or this times the temperature."""
    wide: float
    """Largest ratio of the samples' variance to the variance that they should have: the
    posterior's, or this times the temperature."""
    clipped: float
    """Largest share of gradient entries that the clip may cut without a finding."""


# The needed number of rounds is a rough estimate: a burn-in that is 5 % too short is no finding.
PREDICTED = Tolerances(shift=0.25, burn_in=1.05, narrow=0.85, wide=1.25, clipped=0.02)
"""Tolerances for a law that is predicted from the devices' data; variances are relative to the
posterior's times the temperature."""
# The accepted shift is two thirds of that for predictions from data, because data differ from what
# their sizes tell.
PUBLIC = Tolerances(shift=0.17, burn_in=1.0, narrow=1 / 1.15, wide=1.15, clipped=0.015)
"""Tolerances for a law that follows from public sizes alone; variances are relative to the
posterior's."""
SHIFT_TOLERANCE = PREDICTED.shift
"""Largest distance of the samples' mean from the posterior mean without a warning, in posterior
standard deviations."""


class JudgedChain(NamedTuple):
    """Judgement of a plan's chain: the predicted law of its samples and the predicted answer (None
    where they are not known), and the findings against the chain."""

    law: Prediction | PublicLaw | None
    findings: list[Finding]
    answer: PredictedAnswer | None = None


def judge_chain(
    decided: Plan,
    model: Model,
    curvature: Curvature,
    cure: Callable[[float], str] | None = None,
    *,
    candidate: bool = False,
) -> JudgedChain:
    """Judge a plan's chain: whether it arrives at the posterior within the burn-in, and whether
    mean and spread of its samples are those of the posterior.

    ``cure`` takes a shift of the mean, in posterior standard deviations, and returns words that say
    what helps; it is called only where the mean is off. For a ``candidate`` of a search the chains
    of a linear regression are not followed from their starts, to save time: its burn-in is compared
    with an estimate by a formula, which is longer than most chains need."""
    heat = decided.temperature
    if heat is None:  # without it nothing is known of the law
        against = [no_slope()] if decided.slope is None else []
        return JudgedChain(None, [*against, *_judge_update(decided)])
    public = isinstance(model, PublicModel)
    failure = _pilot_failure(model)
    law, response, bend = ChainLaw(None) if failure else chain_law(decided, model)
    tolerances = PUBLIC if public else PREDICTED
    predicted = law if isinstance(law, Prediction) else None
    # An answer of a model with local parameters is refused.
    answer = None
    if not decided.num_local:
        answer = forecast_answer(decided, model, curvature, predicted, response)
    # The burn-in is judged first: if chains have not arrived, nothing else that is predicted holds.
    if decided.aim == "answer":
        findings = judge_arrival(decided, rounds_to_arrive(decided, model, curvature, predicted))
    else:
        needed = _burn_in_needed(decided, model, law, curvature)
        short = needed is not None and needed > tolerances.burn_in * decided.num_burn_in
        travel = _travel_of(decided, model, law, short=short and not candidate)
        left = _start_error(travel, law, heat)
        findings = judge_burn_in(decided, needed, curvature, tolerances, left=left, travel=travel)
    if law is not None:
        shift = law.mean_shift or 0.0
        # A search for a cure makes many forecasts, and forecasts are quick for linear regression
        # alone.
        quick = isinstance(model, LinearGaussian) and not decided.uplink.clips_examples
        words = (
            partial(cure, shift)
            if cure is not None and quick
            else partial(_cure_in_general, decided)
        )
        of_answer = answer if decided.aim == "answer" else None
        findings += judge_shift(shift, words, tolerances, answer=of_answer)
    if decided.aim == "answer":  # its temperature is known and taken out: not judged
        findings += judge_linearity(answer, law)
    else:
        findings += judge_temperature(heat, cure_of_heat(decided))
    findings += _judge_noise_law(decided.uplink)
    if decided.aim == "chain" and not isinstance(law, Prediction):
        findings += _judge_batches(decided, curvature)
    if is_langevin(decided.update) and decided.aim == "chain":
        findings += judge_law(law, 1.0 if public else heat, tolerances)
        findings += _judge_bend(decided, bend)
    findings += _judge_update(decided)
    if failure:
        findings += failure
    elif _asks_pilot(model):
        findings += check_claims(model, decided, survey(model))
    return JudgedChain(law, findings, answer)


def _asks_pilot(model: Model) -> bool:
    """Whether a pilot is needed to find the posterior of a model: it has data, its posterior is not
    known in closed form, and it is not too large for a pilot."""
    return (
        model.posterior is None
        and not isinstance(model, PublicModel)
        and not _too_large_for_pilot(model)
    )


def _pilot_failure(model: Model) -> list[Finding]:
    """List with a warning where a pilot is needed and a function of the model raises an error while
    it runs; else empty."""
    try:
        if _asks_pilot(model):
            _ = survey(model).posterior
    # A user's function may raise any error; the run itself will report it.
    except Exception as error:
        text = f"the model could not be checked: {type(error).__name__}: {error}"
        return [Finding("model-not-checked", "warning", text)]
    return []


def _pilot_note(model: Model) -> list[Finding]:
    """List with a note that a pilot ran for a plan, and how many batches of gradients it evaluated;
    else empty."""
    if not _asks_pilot(model) or _pilot_failure(model):
        return []
    count = survey(model).num_batches
    text = (
        f"a pilot of {count} batches of gradients looked for the posterior, which is not known: the"
        " lights rest on the law that it found, for the first data set"
    )
    return [Finding("pilot", "note", text, numbers={"batches": float(count)})]


def _too_large_for_pilot(model: Model) -> bool:
    """Whether the model is a regression of many entries whose synthetic examples were not generated
    yet, which takes long: planning then makes no pilot, a short trial run on the data."""
    return isinstance(model, WideLinear) and model.undrawn


def _draws_of(decided: Plan, law: Prediction | PublicLaw | None) -> float | None:
    """Effective draws of one chain: from the predicted correlation of its successive rounds where
    there is a prediction, else from the slope of the link at 0 and the convexity; None where
    neither is known."""
    memory = law.memory if isinstance(law, Prediction) else None
    if memory is None:
        return decided.effective_draws
    kept = decided.num_rounds - decided.num_burn_in
    return draws_with_memory(memory, kept, midpoints=decided.midpoints)


def with_forecast(
    decided: Plan, model: Model, request: Request, cure: Callable[[float], str] | None = None
) -> Plan:
    """The plan with its prediction and all findings against it; rounds, step and gain do not
    change.

    ``cure`` takes a shift of the mean, in posterior standard deviations, and returns words that say
    what helps; None: general advice.
    """
    curvature = request.curvature(model)
    law, against, answer = judge_chain(decided, model, curvature, cure)
    # Effective draws are computed for a chain at rest. A chain that never comes near the posterior
    # still shows its start, so it is worth no draw of the posterior.
    lost = any(each.code == "burn-in" and each.severity == "infeasible" for each in against)
    lost = replace(decided, findings=tuple(against)).never_arrives
    draws = 0.0 if lost else _draws_of(decided, law)
    use = judge_width(answer) if decided.aim == "answer" else judge_use(draws, decided.unknown_step)
    findings = [*judge_budget(decided), *against, *judge_runs(decided), *use]
    prediction = law if isinstance(law, Prediction) else None
    if decided.temperature is None:
        return replace(decided, judged=True, findings=tuple(findings))
    off = any(each.code in ("variance-ratio", "no-prediction") for each in findings)
    if off:
        linear = isinstance(model, LinearGaussian)
        findings += forgotten_shrink(decided.uplink, dim=model.dim if linear else None)
    findings += [
        *unstable_step(decided, curvature),
        *unstable_early_steps(decided, curvature),
        *_pilot_note(model),
    ]
    return replace(
        decided,
        judged=True,
        prediction=prediction,
        answer=answer,
        effective_draws=draws,
        findings=tuple(findings),
    )


def check_model(model: Model, plan: Plan) -> tuple[Finding, ...]:
    """Compare what a model claims, and what a plan assumes, with measurements of a short pilot,
    which goes to the posterior's mode with exact gradients.

    :func:`flmc.run` does it by itself for a model whose posterior is not known. The pilot takes
    less than a hundred batches of gradients, draws from a random stream of its own, and changes
    nothing in the run.

    Parameters
    ----------
    model
        The model; its first data set is looked at.
    plan
        A plan for it, which gives step, clip and temperature.

    Returns
    -------
    tuple of Finding
        What does not fit: gradients that are not finite, random, or not those of any function; a
        smoothness or convexity that is wrong; a mean in place of a sum; a step that is too large;
        a clip that is too small; a link that moves or widens the samples.

    Raises
    ------
    InvalidSetting
        If the plan is for another number of devices or of entries.

    Examples
    --------
    Twenty devices that observe a value of unit variance fifty times each, and a user who claims a
    smoothness that is too small:

    >>> seen = np.random.default_rng(1).normal(size=(20, 50, 2)).sum(axis=1)  # (device, dim)
    >>> model = flmc.Model.from_gradient(
    ...     lambda theta: 50 * theta[:, None] - seen,
    ...     prior=flmc.Normal(),
    ...     dim=2,
    ...     num_devices=20,
    ...     smoothness=10.0,
    ... )
    >>> plan = flmc.plan(model, flmc.Ideal(), num_rounds=100, num_burn_in=50)
    >>> [finding.code for finding in flmc.check_model(model, plan)]
    ['smoothness-too-small']
    """
    if (plan.num_devices, plan.dim) != (model.num_devices, model.dim):
        raise InvalidSetting(
            f"the plan is for {plan.num_devices} devices and dim {plan.dim},"
            f" the model has {model.num_devices} and {model.dim}"
        )
    findings = check_claims(model, plan, survey(model))
    # Wrong gradients, steps or clips also make the law of the chain wrong: findings about them are
    # returned alone, with their cure.
    if plan.temperature is None or gravest(findings):
        return tuple(findings)
    law, response, _ = chain_law(plan, model)
    if law is not None:
        of_answer = plan.answer if plan.aim == "answer" else None
        cure = partial(_cure_in_general, plan)
        findings += judge_shift(law.mean_shift or 0.0, cure, answer=of_answer)
    known = {each.code for each in findings}
    if plan.aim == "answer":
        predicted, curvature = (
            law if isinstance(law, Prediction) else None,
            Curvature.of(model, None, None),
        )
        of_law = judge_linearity(forecast_answer(plan, model, curvature, predicted, response), law)
    else:
        of_law = judge_law(law, plan.temperature)
    findings += [each for each in of_law if each.code not in known]
    return tuple(findings)


_HOT = 1.5
"""Temperature above which a smaller step is named as a cure of a shifted mean: hotter chains, as
plans for an answer make them, wander where gradients are not straight."""


def _cure_in_general(plan: Plan) -> str:
    """General advice against a shift of the samples' mean, in words, for when no better link or
    clip is searched for."""
    uplink = plan.uplink
    if plan.temperature is not None and plan.temperature > _HOT:
        # The shift is that of the whole chain's law: which of the causes it has is not known.
        hot = f"a smaller step, as chains at temperature {plan.temperature:.2g} go where a gradient"
        return f"use {hot} may bend, or {_cure_by_bounds(uplink)}"
    return f"use {_cure_by_bounds(uplink)}"


def _cure_by_bounds(uplink: Uplink) -> str:
    """The part of that advice which concerns link, clip and the bound of examples."""
    if not uplink.clips_examples:
        return "the linear link with a clip that is rarely reached, or a flatter link"
    name = "example_clip" if uplink.example_norm is None else "example_norm"
    return (
        f"a larger bound of examples than {name} = {uplink.example_bound:g}, which costs"
        " privacy, or more examples; else another link or clip"
    )


def objections(plan: Plan) -> list[Finding]:
    """Findings of the gravest severity among those about a plan's sampling that some value of a
    setting could cure."""
    return gravest(all_objections(plan))


def all_objections(plan: Plan) -> list[Finding]:
    """Warnings and graver findings about a plan's sampling that some value of a setting could cure:
    those that make the plan infeasible first, then warnings."""
    curable = [
        each for each in plan.findings if each.light == "sampling" and each.code not in INCURABLE
    ]
    return [
        each for grade in ("infeasible", "warning") for each in curable if each.severity == grade
    ]


def no_slope() -> Finding:
    """Warning for a plan whose link has no slope: nothing is known of what its chain samples."""
    text = "the link has no slope: temperature and rounds needed are unknown"
    return Finding("no-slope", "warning", text)


def judge_temperature(heat: float, cure: str = "") -> list[Finding]:
    """List with one finding where the temperature ``heat`` (sampled over posterior variance)
    differs from 1 by more than 0.05; else empty. ``cure`` is the end of the finding's sentence,
    which says what helps."""
    if abs(heat - 1.0) <= HEAT_TOLERANCE:
        return []
    meaning = "too wide" if heat > 1 else "too narrow, collapsing towards the mode"
    text = f"temperature {heat:.3g} instead of 1: the samples' variance will be {meaning}{cure}"
    short = f"temperature {heat:.3g}, must be 1"
    return [Finding("temperature", _grade_of(heat), text, short, {"temperature": heat})]


def judge_runs(decided: Plan) -> list[Finding]:
    """List with one finding where the temperature differs so much from run to run, on a random
    channel, that one number does not describe it; else empty. An answer takes out the temperature
    of its own run."""
    runs = decided.over_runs
    if decided.aim == "answer" or runs is None or not runs.uneven:
        return []
    short = f"temperature of single runs: {runs}"
    text = (
        f"{short}, over {runs.num_runs} drawn ones: a few deep fades decide how much noise a run"
        " has, and no mean over rounds settles; let devices in a deep fade be silent (scheduling"
        " threshold or strongest)"
    )
    grade: Grade = "infeasible" if runs.low > HOPELESS_HEAT else "warning"
    numbers = {"low": runs.low, "median": runs.median, "high": runs.high}
    return [Finding("deep-fades", grade, text, short, numbers)]


def _judge_batches(decided: Plan, curvature: Curvature) -> list[Finding]:
    """List with one finding where batches of examples make the samples too wide, or nothing is
    known of their noise, for a plan without a forecast from data; else empty."""
    uplink, step = decided.uplink, decided.effective_step_size
    if not uplink.batched:
        return []
    if step is None or curvature.smoothness is None:
        short = "the noise of batches is not known"
        text = f"{short} without the smoothness of the model and the slope of the link"
        return [Finding("batch-noise", "unknown", text, short)]
    heat = batch_heat(uplink.batch_share, step, curvature.smoothness)
    if heat <= HEAT_TOLERANCE:
        return []
    short = f"batches add {heat:.3g} to the temperature"
    text = (
        f"{short} where the curvature is largest: use a step below"
        f" {decided.step_size * BATCH_HEAT / heat:.3g}, or a batch_share above"
        f" {_fitting_share(step, curvature.smoothness):.3g}"
    )
    grade: Grade = "infeasible" if heat > HOPELESS_HEAT - 1.0 else "warning"
    return [Finding("batch-noise", grade, text, short, {"batch_heat": heat})]


def _fitting_share(step: float, smoothness: float) -> float:
    """Share of the examples with which batches add ``BATCH_HEAT`` to the temperature."""
    return 1.0 / (1.0 + 2.0 * BATCH_HEAT / (step * smoothness))


def _judge_noise_law(uplink: Uplink) -> list[Finding]:
    """List with one finding where the receiver's noise is not normal; else empty."""
    if is_normal(uplink.noise_law):
        return []
    name = type(uplink.noise_law).__name__
    short = f"the noise has the law {name}, not the normal one"
    stated = f" ({name} states that it is 1)" if uplink.noise_law.unit_variance else ""
    text = (
        f"{short}: gain and predictions rest on its variance alone{stated}, and the shape of the"
        " draws is not known before a run, which looks at their fourth moments where the posterior"
        " is known"
    )
    return [Finding("noise-law", "unknown", text, short)]


def _judge_update(decided: Plan) -> list[Finding]:
    """List with one finding where the server's update is not Langevin's; else empty."""
    update = decided.update
    if is_langevin(update):
        return []
    name = type(update).__name__
    if update.step_factor is None:
        short = f"what the server's update {name} samples is not known"
        text = f"{short}: neither its temperature nor its effective step is declared"
    else:
        short = f"the law of the server's update {name} is not predicted"
        text = (
            f"{short}: temperature and effective step are those that it declares, to leading order"
            " in the step"
        )
    return [Finding("server-update", "unknown", text, short)]


def cure_of_heat(decided: Plan) -> str:
    """End of a sentence that says what helps against a temperature that is not 1, depending on the
    constraint that decides the plan's gain."""
    heat = decided.temperature or 1.0
    step = f"a step of {decided.step_size / heat:.3g} at the same gain"
    if heat < 1:
        return f"; use a smaller gain, langevin 'calibrated', or {step}"
    if not decided.uplink.known_fading.constant and decided.binding == "power":
        # With more power an automatic step would grow as well, and as many rounds in a deep fade
        # would still lack power for it: more SNR helps only if the step stays.
        chosen = math.isclose(decided.gain_limits.langevin, decided.gain_limits.power, rel_tol=1e-9)
        power = "more SNR at this step" if chosen else "more SNR"
        return f"; deep fades do it: let devices in them be silent, or use {power}, or {step}"
    ways = {"power": "more SNR", "privacy": "a larger epsilon", "given": "a larger gain"}
    return f"; use {ways.get(decided.binding, 'a smaller slope')}, or {step} (or step_size 'auto')"


def _grade_of(ratio: float) -> Grade:
    """Severity of a finding about a ratio of variances that should be 1: ``infeasible`` if it is
    above 1.5 or below 1/1.5, else ``warning``."""
    off = max(ratio, 1.0 / max(ratio, 1e-300))
    return "infeasible" if off > HOPELESS_HEAT else "warning"


def judge_shift(
    shift: float,
    cure: Callable[[], str],
    tolerances: Tolerances = PREDICTED,
    *,
    answer: PredictedAnswer | None = None,
) -> list[Finding]:
    """List with one finding where the samples' mean is off by more than ``tolerances`` accept; else
    empty. ``shift`` is the mean's distance from the posterior mean, in posterior standard
    deviations, in the worst direction. For an ``answer`` the accepted shift grows with the answer's
    width in its narrowest direction, because wide intervals hold in spite of a shift. ``cure``
    returns words that say what helps, and is called only for a finding: it may search long."""
    unit = 1.0 if answer is None else max(1.0, answer.least_width)
    if shift <= tolerances.shift * unit:
        return []
    grade: Grade = "infeasible" if shift > HOPELESS_SHIFT * unit else "warning"
    short = f"the mean will be off by {shift:.2g} posterior sd"
    if unit > 1.0:
        short += f", {shift / unit:.2g} of the answer's"
    text = (
        f"{short} in the worst direction: devices or examples differ, and a curved link or a clip"
        f" weighs large gradients too little; {cure()}"
    )
    return [Finding("mean-shift", grade, text, short, {"mean_shift": shift})]


def _burn_in_needed(
    decided: Plan, model: Model, law: Prediction | PublicLaw | None, curvature: Curvature
) -> int | None:
    """Rounds of burn-in that the sampler needs; None where nothing is known. Where the prediction
    ``law`` followed chains from their starts to the posterior, it is the rounds that they took;
    else the estimate of the plan (``rounds_needed``), made again for the distance to the posterior
    mean where that is known and further away than the plan assumed."""
    if isinstance(law, Prediction) and law.rounds_to_arrive is not None:
        return law.rounds_to_arrive
    needed, exact = decided.rounds_needed, model.posterior
    if needed is None or exact is None or curvature.public or curvature.convexity is None:
        return needed
    at_prior = decided.start == "prior"
    away = exact.mean[:EXPERIMENTS_PREDICTED] - (model.prior.mean if at_prior else 0.0)
    # ``distance_to_travel`` is two standard deviations of start minus truth, which a draw exceeds
    # with a probability of 4.6 %. Here the posterior mean stands for the truth, so only the start
    # varies, and only on one side: it exceeds 1.7 standard deviations with that probability.
    distance = float((np.abs(away) + (1.7 * model.prior.sd if at_prior else 0.0)).max())
    if distance <= distance_to_travel(model, decided.start):
        return needed
    factor, fast = decided.burn_in_step_factor, decided.num_fast
    further = rounds_needed(
        decided.uplink,
        decided.step_size,
        factor,
        fast,
        decided.num_devices,
        distance,
        curvature.convexity,
    )
    return max(needed, further)


def _travel_of(
    decided: Plan, model: Model, law: Prediction | PublicLaw | None, *, short: bool
) -> tuple[float, float] | None:
    """Errors of the kept rounds that the chains' starts cause: of their mean, in standard
    deviations, and of their variance, relative to the chain's; None where chains were not followed.
    The chains of a linear regression are followed only if its burn-in is ``short``, that is below
    an estimate by a formula, which is often more than chains need."""
    if not isinstance(law, Prediction):
        return None
    if law.left_shift is not None and law.left_variance is not None:
        return law.left_shift, law.left_variance
    if not short or not isinstance(model, LinearGaussian):
        return None
    travel = follow_linear(decided, model)
    return None if travel is None else (travel.left_shift, travel.left_variance)


def _start_error(
    travel: tuple[float, float] | None, law: Prediction | PublicLaw | None, heat: float
) -> float | None:
    """Error of the kept rounds that the chains' starts cause, from the two errors of ``travel`` (of
    the mean, in standard deviations, and of the variance, relative to the chain's): the larger one,
    or 0 if it is small; None where ``travel`` is None.

    It is small if it is at most 0.1, and does not make the shift of the predicted ``law`` or its
    largest variance, relative to the temperature ``heat``, exceed what is accepted."""
    if travel is None:
        return None
    shift, variance = travel
    small = max(travel) <= _START_ERROR
    if small and isinstance(law, Prediction):
        off, most = law.mean_shift or 0.0, _UNEVEN * max(heat, 1.0)
        moved = off <= SHIFT_TOLERANCE < off + shift
        widened = law.variance_ratio_largest <= most < law.variance_ratio_largest * (1 + variance)
        small = not (moved or widened)
    return 0.0 if small else max(travel)


def judge_burn_in(
    decided: Plan,
    needed: int | None,
    curvature: Curvature,
    tolerances: Tolerances = PREDICTED,
    *,
    left: float | None = None,
    travel: tuple[float, float] | None = None,
) -> list[Finding]:
    """List with one finding where a plan's burn-in is shorter than the ``needed`` rounds, or where
    their number is not known (None); else empty.

    ``left`` is the error of the kept rounds that the starts of followed chains cause, 0 if it is
    small, and ``travel`` its two parts, of the mean and of the variance; None: chains were not
    followed. Where it is known, it decides instead of ``needed``, because many kept rounds make up
    for a short burn-in."""
    if left == 0.0:
        return []
    if needed is None:
        text = (
            "whether the burn-in is long enough cannot be judged without the convexity of the model"
        )
        return [Finding("burn-in-unknown", "unknown", text, "the burn-in needed is not known")]
    planned = decided.num_burn_in
    if left is None and needed <= tolerances.burn_in * planned:
        return []
    cure = "use more rounds" + (" or start 'zero'" if decided.start == "prior" else "")
    if (curvature.smoothness or 0.0) > 100.0 * (curvature.convexity or math.inf):
        cure += (
            "; smoothness and convexity differ by more than a factor of 100: if they are right,"
            " rescale theta (flmc.whiten, --precondition)"
        )
    if decided.limits.scope == "run" and decided.binding == "privacy":
        cure = (
            "under a run budget more rounds shrink the steps: use more data, a larger epsilon, a"
            " smaller clip"
        )
        if decided.limits.neighbouring == "device":
            cure += " or neighbouring = 'example', if single examples are what is to be hidden"
    hopeless = needed > HOPELESS_BURN_IN * planned if left is None else left > _HOPELESS_START_ERROR
    grade: Grade = "infeasible" if hopeless else "warning"
    text = (
        f"burn-in of {planned} rounds is short: about {needed} are needed, and a chain"
        f" that still travels can have any variance; {cure}"
    )
    short = f"{needed} rounds of burn-in needed, {planned} planned"
    if left is not None and needed <= planned:
        # The expected gradient brings chains home within the burn-in, and the kept rounds still
        # show where they come from: these are few, or the noise of early steps has widened the
        # chains beyond the posterior.
        what = f"the mean of the kept rounds is off by {left:.2g} posterior sd"
        early = ""
        if travel is not None and travel[1] >= travel[0]:
            what = (
                f"the variance of the kept rounds is about {100 * left:.2g} % larger than at rest"
            )
            if decided.num_fast and decided.burn_in_step_factor > 1.0:
                early = f", or of the first steps, {decided.burn_in_step_factor:.3g} times as large"
                cure += ", or a smaller burn_in_step_factor"
        text = (
            f"after {planned} rounds of burn-in {what}, because of the starts{early}, although"
            f" without noise chains arrive within about {needed}; {cure}"
        )
        short = f"{planned} rounds of burn-in are short: {what}"
    return [Finding("burn-in", grade, text, short, {"needed": needed, "planned": planned})]


def _judge_bend(decided: Plan, bend: float | None) -> list[Finding]:
    """List with one finding where the mean gradient estimate is so far from a linear function of
    theta that a normal law need not be the chain's; else empty. ``bend`` is the variance of its
    nonlinear part over that of a round's noise (None: not known), and grows with the step.

    The forecast leaves the nonlinear part out. Where it is large the curvature differs so much over
    the posterior that a step which suits its middle may be unstable in its tail."""
    if bend is None or bend <= _BENT:
        return []
    short = f"the gradient bends: {100 * bend:.2g} % of a round's noise, at most 10 % are accepted"
    text = (
        f"{short}; the curvature differs over the posterior, and chains may leave it where it is"
        f" largest: use a step_size below {decided.step_size * _BENT / bend:.1g}, or other"
        " parameters"
    )
    return [Finding("bent", "warning", text, short, {"bend": bend})]


def unstable_step(decided: Plan, curvature: Curvature) -> list[Finding]:
    """List with one finding where the effective step times the smoothness is above 2, so that
    chains diverge; else empty."""
    relative = (decided.effective_step_size or 0.0) * (curvature.smoothness or 0.0)
    if relative <= 2.0 or not is_langevin(decided.update):  # the bound 2 is for Langevin's update
        return []
    text = (
        f"the effective step times the smoothness is {relative:.3g}, and above 2 chains diverge"
        f" where the curvature is largest: use a step below {decided.step_size / relative:.2g}, or"
        " step_size 'auto'"
    )
    short = f"step times smoothness {relative:.3g}, must be below 2"
    return [Finding("unstable-step", "warning", text, short, {"relative_step": relative})]


def unstable_early_steps(decided: Plan, curvature: Curvature) -> list[Finding]:
    """List with one finding where the larger steps of a plan's first rounds come near instability
    (effective step times smoothness above 1); else empty."""
    step = decided.burn_in_step_factor * (decided.effective_step_size or 0.0)
    early = step * (curvature.smoothness or 0.0)
    if not decided.num_fast or early <= 1.0 or not is_langevin(decided.update):
        return []
    factor = decided.burn_in_step_factor
    text = (
        f"burn_in_step_factor {factor:.3g} makes the early steps unstable: the"
        f" effective step times the smoothness is {early:.3g}, and should stay below 1"
    )
    numbers = {"relative_step": early, "burn_in_step_factor": factor}
    return [Finding("unstable-early-steps", "warning", text, numbers=numbers)]


def judge_use(draws: float | None, unknown_step: str | None = None) -> list[Finding]:
    """List with one finding where the kept rounds of one chain are worth too few independent draws
    to describe the posterior, or where the number of these, ``draws``, is None, not known; else
    empty. ``unknown_step`` says why the effective step is not known; with None the convexity is
    what is missing."""
    if draws is None:
        text = "how many independent draws the kept rounds are worth is not known" + (
            " without the convexity of the model: give public_convexity"
            if unknown_step is None
            else f": {unknown_step}"
        )
        return [Finding("few-draws", "unknown", text, "effective draws not known", light="use")]
    if draws >= FEW_DRAWS:
        return []
    grade: Grade = "infeasible" if draws < HOPELESSLY_FEW_DRAWS else "warning"
    short = f"one chain is worth {draws:.2g} independent draws"
    text = (
        f"{short}: fewer than {FEW_DRAWS:g} describe neither mean nor spread of the posterior; use"
        " more rounds, or a larger step"
    )
    return [Finding("few-draws", grade, text, short, {"effective_draws": draws}, "use")]


ROUND_BUDGET = "round-budget"
"""Code of the finding that the budget is for one round only."""


def judge_budget(decided: Plan) -> list[Finding]:
    """Findings where a gain that the user gave costs more than the privacy budget, or where the
    budget is for one round only."""
    limits = decided.limits
    if limits.epsilon is None or limits.privacy == "off" or decided.uplink.noise_is_exact:
        return []
    findings = over_budget(decided) if decided.binding == "given" else []
    if limits.scope == "round":
        text = (
            f"epsilon {limits.epsilon:g} is the budget of a single round, and the"
            f" {decided.num_rounds} rounds of the run add up; use scope = 'run' for a budget of all"
        )
        short = "the budget is for a round only"
        findings.append(Finding(ROUND_BUDGET, "warning", text, short, light="privacy"))
    return findings


def over_budget(decided: Plan) -> list[Finding]:
    """List with one finding where a gain that the user gave spends more than the privacy budget;
    else empty."""
    limits = decided.limits
    assert limits.epsilon is not None
    if limits.scope == "round":
        once = decided.round_cost
        if once is None or once.epsilon <= limits.epsilon * (1 + 1e-9):
            return []
        text = (
            f"the given gain spends epsilon {format_up(once.epsilon)} in a round, and the budget is"
            f" {limits.epsilon:g}"
        )
        numbers = {"epsilon": once.epsilon, "budget": limits.epsilon}
        return [Finding("over-budget", "warning", text, numbers=numbers, light="privacy")]
    if decided.affordable_rounds >= decided.num_rounds:
        return []
    text = (
        f"the given gain has spent the run's budget of epsilon {limits.epsilon:g} after"
        f" {decided.affordable_rounds} of {decided.num_rounds} rounds: a run stops there"
    )
    short = f"the budget is spent after {decided.affordable_rounds} of {decided.num_rounds} rounds"
    numbers = {"affordable_rounds": float(decided.affordable_rounds), "budget": limits.epsilon}
    return [Finding("over-budget", "infeasible", text, short, numbers, "privacy")]


def judge_law(
    law: Prediction | PublicLaw | None, heat: float, tolerances: Tolerances = PREDICTED
) -> list[Finding]:
    """Findings about the predicted ``law`` of a plan's chain: its variance over the posterior's,
    overall or in one direction, is unlike the temperature ``heat``; many gradient entries will be
    clipped; or there is no prediction (None)."""
    if law is None:
        text = (
            "what the chain samples cannot be predicted: the step or the problem is too large,"
            " nearly every gradient is clipped, or the posterior is far from normal"
        )
        short = "what the chain samples is not known"
        return [Finding("no-prediction", "unknown", text, short)]
    findings = []
    ratio = law.variance_ratio
    if ratio < tolerances.narrow * min(heat, 1.0) or ratio > tolerances.wide * max(heat, 1.0):
        text = (
            f"predicted variance ratio {ratio:.3g}, unlike the temperature"
            f" {heat:.3g}: the step is too large, or local gradients are too large for this link;"
            " use a smaller step or slope parameter, the linear link, or a larger clip"
        )
        short = f"predicted variance ratio {ratio:.3g}, must be 1"
        numbers = {"variance_ratio": ratio, "temperature": heat}
        findings.append(Finding("variance-ratio", _grade_of(ratio), text, short, numbers))
    low, high = law.variance_ratio_smallest, law.variance_ratio_largest
    if not findings and (high > _UNEVEN * max(heat, 1.0) or low < min(heat, 1.0) / _UNEVEN):
        worst = high if high > _UNEVEN * max(heat, 1.0) else low
        text = (
            f"predicted variance ratio {worst:.3g} in one direction: the step is too large for the"
            " curvature there; use a smaller step"
        )
        short = f"predicted variance ratio {worst:.3g} in one direction, must be 1"
        numbers = {"smallest": low, "largest": high}
        findings.append(Finding("variance-ratio", _grade_of(worst), text, short, numbers))
    share = law.clipped_fraction
    if share > tolerances.clipped:
        text = (
            f"{100 * share:.2g} % of gradient entries will be clipped: predictions are rough; use a"
            " larger clip"
        )
        # Clipping alone is noted, not warned of, where its predicted effect on the variance is
        # small.
        grade: Grade = "warning" if findings or share > HOPELESSLY_CLIPPED else "note"
        findings.append(Finding("clipped", grade, text, numbers={"clipped_fraction": share}))
    return findings


# The functions below make findings against plans that clip the gradients of single examples before
# a device sums them.


def clip_in_words(uplink: Uplink) -> str:
    """Bound of single examples' gradients in words: ``4`` (of each entry), or ``a norm of 4``."""
    size = f"{uplink.example_bound:g}"
    return size if uplink.example_norm is None else f"a norm of {size}"


def forgotten_shrink(uplink: Uplink, *, dim: int | None) -> list[Finding]:
    """List with one finding where single examples' gradients are clipped but ``example_shrink``,
    the share of the gradient that this leaves, is stated as 1, so that samples may be too wide;
    else empty. ``dim`` is the number of entries of a linear regression, for which the share can be
    estimated; None: another model."""
    if not uplink.clips_examples or uplink.example_shrink != 1.0:
        return []
    if dim is None:
        text = (
            "example_shrink is 1, as if clipping examples took nothing from the gradient: if it"
            " does, the samples are too wide; give the share of the curvature that it leaves"
        )
        return [Finding("example-shrink", "warning", text)]
    typical = typical_shrink(uplink.example_clip, uplink.example_norm, dim)
    if typical > 0.999:
        return []
    text = (
        f"example_shrink is 1, as if clipping examples at {clip_in_words(uplink)} left their"
        f" gradients as they are: it leaves {typical:.3f} where features and residuals are standard"
        " normal (flmc.uplink.example_clipping.typical_shrink)"
    )
    return [Finding("example-shrink", "warning", text, numbers={"typical_shrink": typical})]
