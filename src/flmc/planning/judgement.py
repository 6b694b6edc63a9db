"""The judge: the law that a plan's chain is predicted to sample, and the findings against the plan,
each with its numbers and a cure.

Every plan passes here, those that are handed out (:func:`with_forecast`) and the candidates of a
search (:func:`judge_chain`). Spread and place of the samples are judged alike. A temperature that
is off by 0.05 makes the mean square error of exact samples larger by 5 %; a mean that is off by
0.25 posterior standard deviations makes it larger by 6 % in that direction."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from flmc.base.arrays import Array
from flmc.base.findings import Finding, Grade, gravest
from flmc.base.tables import format_up
from flmc.models.linear import LinearGaussian
from flmc.models.model import Model
from flmc.planning.decision import Request
from flmc.planning.plans import Plan
from flmc.planning.prediction import Prediction, predict
from flmc.planning.public_model import PublicLaw, PublicModel
from flmc.planning.step_size import Curvature
from flmc.uplink.example_clipping import typical_shrink
from flmc.uplink.uplink import Uplink


def predict_plan(decided: Plan, model: Model) -> Prediction | None:
    """Prediction of what a plan's chain will sample; None unless the model is a linear regression,
    every device transmits, and neither examples nor norms are clipped."""
    if (
        not isinstance(model, LinearGaussian)
        or not decided.scheduler.everyone
        or decided.uplink.clips_examples
        or decided.uplink.clips_norm  # the law of a clipped norm is not that of single entries
    ):
        return None
    return predict(model, decided.uplink, decided.step_size, noise_of(decided))


def noise_of(decided: Plan) -> Array:
    """Mean variance N_0/A^2 of the channel's noise at the server in kept rounds, (dim)."""
    return np.asarray(decided.uplink.noise_power * np.mean(decided.planned_gain**-2.0, axis=0))


HEAT_TOLERANCE = 0.05
"""Largest difference of the temperature (sampled over posterior variance) from 1 without a warning.
"""
HOPELESS_HEAT = 1.5
"""Temperature (or one over it) beyond which a plan cannot be called sampling from the posterior."""
HOPELESS_SHIFT = 1.0
"""Shift of the mean, in posterior standard deviations, beyond which the place of the samples is
wrong."""
WIDTH_TOLERANCE = 1.15
"""Variance of the samples over that which the temperature implies, as a short pilot run measures
it, above which a link is warned of. The samples of the run are wider than a pilot sees: 1.27 where
it sees 1.16."""
_UNEVEN = 1.35
"""Largest predicted variance ratio in a single direction (or one over it), relative to the
temperature, without a warning; with the automatic step it stays below 1.25."""
HOPELESS_BURN_IN = 2.0
"""Rounds of burn-in that are needed, over those planned, beyond which chains cannot have reached
the posterior."""
INCURABLE = frozenset({"missing-devices", "burn-in-unknown"})
"""Codes of findings that no value of a setting can cure: a search does not count them."""


class Tolerances(NamedTuple):
    """Largest deviations of a chain from the posterior that are accepted without a finding."""

    shift: float
    """Largest distance of the samples' mean from the posterior mean, in posterior standard
    deviations."""
    burn_in: float
    """Largest ratio of the rounds of burn-in that are needed to those that are planned."""
    narrow: float
    """Smallest variance of the samples, relative to the variance that they should have."""
    wide: float
    """Largest variance of the samples, relative to the variance that they should have."""
    clipped: float
    """Largest share of gradient entries beyond the clip."""


# The rounds that are needed are a rough estimate: a burn-in 5 % too short is no finding.
PREDICTED = Tolerances(shift=0.25, burn_in=1.05, narrow=0.95, wide=1.25, clipped=0.02)
"""Tolerances for a law that is predicted from the devices' data; variances are relative to the
posterior's times the temperature."""
# Two thirds of the shift above, because data differ from what their sizes alone tell.
PUBLIC = Tolerances(shift=0.17, burn_in=1.0, narrow=1 / 1.15, wide=1.15, clipped=0.015)
"""Tolerances for a law that follows from public sizes alone; variances are relative to the
posterior's."""
SHIFT_TOLERANCE = PREDICTED.shift
"""Largest distance of the samples' mean from the posterior mean without a warning, in posterior
standard deviations."""


class Verdict(NamedTuple):
    """Judgement of a plan: the law that its chain samples (None where it is not known), and the
    findings against the plan."""

    law: Prediction | PublicLaw | None
    findings: list[Finding]


def judge_chain(
    decided: Plan, model: Model, curvature: Curvature, cure: Callable[[float], str] | None = None
) -> Verdict:
    """Verdict on a plan's chain: whether it arrives at the posterior within the burn-in, and
    whether mean and spread of its samples are those of the posterior.

    ``cure`` takes a shift of the mean, in posterior standard deviations, and returns words of what
    helps against it; it is called only where the mean is off."""
    heat = decided.temperature
    if heat is None:  # without a slope nothing is known of the law
        return Verdict(None, [no_slope()])
    public = isinstance(model, PublicModel)
    law = model.law(decided) if isinstance(model, PublicModel) else predict_plan(decided, model)
    tolerances = PUBLIC if public else PREDICTED
    # Chains that have not arrived make everything else moot: the burn-in comes first.
    findings = judge_burn_in(decided, curvature, tolerances)
    if law is not None:
        shift = law.mean_shift or 0.0
        words = "use another link or clip"
        findings += judge_shift(shift, lambda: cure(shift) if cure else words, tolerances)
    findings += judge_temperature(heat, cure_of_heat(decided))
    clipped = decided.uplink.clips_examples
    if public:
        findings += judge_law(law, 1.0, tolerances)
    elif isinstance(model, LinearGaussian) and decided.scheduler.everyone and not clipped:
        findings += judge_law(law, heat)
    return Verdict(law, findings)


def with_forecast(
    decided: Plan, model: Model, request: Request, cure: Callable[[float], str] | None = None
) -> Plan:
    """The plan with the predicted law and all findings; what is decided does not change.

    ``cure`` is that of :func:`judge_chain`.
    """
    curvature = request.curvature(model)
    findings = over_budget(decided)
    law, against = judge_chain(decided, model, curvature, cure)
    findings += against
    prediction = law if isinstance(law, Prediction) else None
    if decided.temperature is None:
        return replace(decided, judged=True, findings=tuple(findings))
    linear = isinstance(model, LinearGaussian)
    findings += forgotten_shrink(decided.uplink, dim=model.dim if linear else None)
    findings += unstable_early_steps(decided, curvature)
    if not decided.scheduler.everyone:
        findings.append(missing_devices(decided))
    elif isinstance(model, LinearGaussian) and decided.uplink.clips_examples:
        findings.append(shift_by_clipped_examples(model, decided.uplink))
        # The prediction knows nothing of clipped examples: it is made without them, and judged
        # roughly.
        unclipped = replace(
            decided.uplink, example_clip=None, example_norm=None, example_shrink=1.0
        )
        rough = predict(model, unclipped, decided.step_size, noise_of(decided))
        findings += judge_roughly(rough)
    return replace(decided, judged=True, prediction=prediction, findings=tuple(findings))


def objections(plan: Plan) -> list[Finding]:
    """The gravest findings against a plan that some setting could cure."""
    return gravest([each for each in plan.findings if each.code not in INCURABLE])


def no_slope() -> Finding:
    """Note for a plan whose link has no slope: nothing is known of what its chain samples."""
    text = "the link has no slope: temperature and rounds needed are unknown"
    return Finding("no-slope", "warning", text)


def judge_temperature(heat: float, cure: str = "") -> list[Finding]:
    """List with one finding where the temperature ``heat`` (sampled over posterior variance)
    differs from 1 by more than 0.05; else empty. ``cure`` is words of what helps, for the finding.
    """
    if abs(heat - 1.0) <= HEAT_TOLERANCE:
        return []
    meaning = "too wide" if heat > 1 else "too narrow, collapsing towards the mode"
    text = f"temperature {heat:.3g} instead of 1: the samples' variance will be {meaning}{cure}"
    short = f"temperature {heat:.3g}, must be 1"
    return [Finding("temperature", _grade_of(heat), text, short, {"temperature": heat})]


def cure_of_heat(decided: Plan) -> str:
    """Words of what helps against a temperature that is not 1, depending on which constraint
    decides the plan's gain."""
    heat = decided.temperature or 1.0
    step = f"a step of {decided.step_size / heat:.3g} at the same gain"
    if heat < 1:
        return f"; use a smaller gain, langevin 'calibrated', or {step}"
    if not decided.uplink.known_fading.constant and decided.binding == "power":
        return f"; deep fades do it: use more SNR, fewer devices in a round, or {step}"
    ways = {"power": "more SNR", "privacy": "a larger epsilon", "given": "a larger gain"}
    return f"; use {ways.get(decided.binding, 'a smaller slope')}, or {step} (or step_size 'auto')"


def _grade_of(ratio: float) -> Grade:
    """Severity of a ratio of variances that should be 1: the further from 1, the graver."""
    off = max(ratio, 1.0 / max(ratio, 1e-300))
    return "infeasible" if off > HOPELESS_HEAT else "warning"


def judge_shift(
    shift: float, cure: Callable[[], str], tolerances: Tolerances = PREDICTED
) -> list[Finding]:
    """List with one finding where the samples' mean is off by ``shift`` posterior standard
    deviations in the worst direction and that is too much; else empty. ``cure`` returns words of
    what helps, and is called only then."""
    if shift <= tolerances.shift:
        return []
    grade: Grade = "infeasible" if shift > HOPELESS_SHIFT else "warning"
    short = f"the mean will be off by {shift:.2g} posterior sd"
    text = (
        f"{short} in the worst direction: devices differ, and a curved link or a clip weighs large"
        f" gradients too little; {cure()}"
    )
    return [Finding("mean-shift", grade, text, short, {"mean_shift": shift})]


def judge_width(ratio: float, cure: str) -> list[Finding]:
    """List with one finding where a bent link makes the samples too wide; else empty. ``ratio`` is
    their variance over that which the plan's temperature implies, the mean over directions."""
    if not ratio > WIDTH_TOLERANCE:
        return []
    short = f"the samples' variance will be {ratio:.2g} times too large, or more"
    text = (
        f"{short}: local gradients near the mode lie where the link is flat, so they pull too"
        f" little; {cure}"
    )
    return [Finding("variance-ratio", _grade_of(ratio), text, short, {"variance_ratio": ratio})]


def judge_burn_in(
    decided: Plan, curvature: Curvature, tolerances: Tolerances = PREDICTED
) -> list[Finding]:
    """List with one finding, and a cure, where a plan's burn-in is shorter than the sampler needs;
    else empty."""
    needed = decided.rounds_needed
    if needed is None:
        text = (
            "whether the burn-in is long enough cannot be judged without the convexity of the model"
        )
        return [Finding("burn-in-unknown", "warning", text)]
    planned = decided.num_burn_in
    if needed <= tolerances.burn_in * planned:
        return []
    cure = "use more rounds" + (" or start 'zero'" if decided.start == "prior" else "")
    if (curvature.smoothness or 0.0) > 100.0 * (curvature.convexity or math.inf):
        cure += (
            "; smoothness and convexity differ by more than a factor of 100: if they are right,"
            " rescale theta"
        )
    if decided.limits.scope == "run" and decided.binding == "privacy":
        cure = (
            "under a run budget more rounds shrink the steps: use more data, a larger epsilon, a"
            " smaller clip"
        )
        if decided.limits.neighbouring == "device":
            cure += " or neighbouring = 'example', if single examples are what is to be hidden"
    grade: Grade = "infeasible" if needed > HOPELESS_BURN_IN * planned else "warning"
    text = (
        f"burn-in of {planned} rounds is short: about {needed} are needed, and a chain"
        f" that still travels can have any variance; {cure}"
    )
    short = f"{needed} rounds of burn-in needed, {planned} planned"
    return [Finding("burn-in", grade, text, short, {"needed": needed, "planned": planned})]


def unstable_early_steps(decided: Plan, curvature: Curvature) -> list[Finding]:
    """List with one finding where the larger steps of a plan's first rounds come near those at
    which the chain diverges for this curvature; else empty."""
    step = decided.burn_in_step_factor * (decided.effective_step_size or 0.0)
    early = step * (curvature.smoothness or 0.0)
    if not decided.num_fast or early <= 1.0:
        return []
    factor = decided.burn_in_step_factor
    text = (
        f"burn_in_step_factor {factor:.3g} makes the early steps unstable: the"
        f" effective step times the smoothness is {early:.3g}, and should stay below 1"
    )
    numbers = {"relative_step": early, "burn_in_step_factor": factor}
    return [Finding("unstable-early-steps", "warning", text, numbers=numbers)]


def missing_devices(decided: Plan) -> Finding:
    """Warning for a plan in which only some devices transmit in a round: the missing gradients of
    the others add noise that neither the temperature nor a prediction includes."""
    text = (
        "only some devices transmit in a round: the gradients of the others are missing from"
        " the estimate, which adds noise that neither the temperature nor a prediction includes"
    )
    numbers = {"fewest_devices": float(decided.num_active.min())}
    return Finding("missing-devices", "warning", text, numbers=numbers)


def over_budget(decided: Plan) -> list[Finding]:
    """Findings where a gain that was given spends more than the privacy budget."""
    limits = decided.limits
    if decided.binding != "given" or limits.epsilon is None or limits.privacy == "off":
        return []
    if limits.scope == "round":
        once = decided.round_cost
        if once is None or once.epsilon <= limits.epsilon * (1 + 1e-9):
            return []
        text = (
            f"the given gain spends epsilon {format_up(once.epsilon)} in a round, and the budget is"
            f" {limits.epsilon:g}"
        )
        numbers = {"epsilon": once.epsilon, "budget": limits.epsilon}
        return [Finding("over-budget", "warning", text, numbers=numbers)]
    if decided.affordable_rounds >= decided.num_rounds:
        return []
    text = (
        f"the given gain has spent the run's budget of epsilon {limits.epsilon:g} after"
        f" {decided.affordable_rounds} of {decided.num_rounds} rounds: a run stops there"
    )
    short = f"the budget is spent after {decided.affordable_rounds} of {decided.num_rounds} rounds"
    numbers = {"affordable_rounds": float(decided.affordable_rounds), "budget": limits.epsilon}
    return [Finding("over-budget", "infeasible", text, short, numbers)]


def judge_law(
    law: Prediction | PublicLaw | None, heat: float, tolerances: Tolerances = PREDICTED
) -> list[Finding]:
    """Findings where the variance of a law is unlike the temperature ``heat``, or many gradients
    will be clipped."""
    if law is None:
        text = (
            "no prediction of the spread: the step or the problem is too large, or nearly every"
            " gradient is clipped"
        )
        return [Finding("no-prediction", "warning", text)]
    findings = []
    ratio = law.variance_ratio
    if ratio < tolerances.narrow * min(heat, 1.0) or ratio > tolerances.wide * max(heat, 1.0):
        text = (
            f"predicted variance ratio {ratio:.3g}, unlike the temperature"
            f" {heat:.3g}: the step is too large, or local gradients are too large for this link;"
            " use a smaller step or slope parameter, or a larger clip"
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
        findings.append(Finding("clipped", "warning", text, numbers={"clipped_fraction": share}))
    return findings


# What speaks against a plan that clips every example's gradient, beside the device's.


def clip_in_words(uplink: Uplink) -> str:
    """How single examples are bounded: ``4``, or ``a norm of 4``."""
    size = f"{uplink.example_bound:g}"
    return size if uplink.example_norm is None else f"a norm of {size}"


def forgotten_shrink(uplink: Uplink, *, dim: int | None) -> list[Finding]:
    """Findings where single examples' gradients are clipped but ``example_shrink``, the share of
    the response that clipping leaves, is 1, which makes samples too wide; ``dim`` is that of a
    linear regression, None for other models."""
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


def judge_roughly(prediction: Prediction | None) -> list[Finding]:
    """List with one finding where a prediction, made as if single examples were not clipped,
    expects too many of a device's gradient entries beyond its clip; else empty."""
    share = 1.0 if prediction is None else prediction.clipped_fraction
    if prediction is None or share <= PREDICTED.clipped:
        return []
    ratio = prediction.variance_ratio
    text = (
        f"about {100 * share:.2g} % of a device's gradient entries will be clipped, beside its"
        " examples: the samples are wider than the temperature says,"
        f" {ratio:.3g} times the posterior's variance if examples were not"
        " clipped; use a larger clip or a smaller slope parameter"
    )
    numbers = {"clipped_fraction": share, "variance_ratio": ratio}
    return [Finding("clipped", "warning", text, numbers=numbers)]


def shift_by_clipped_examples(model: LinearGaussian, uplink: Uplink) -> Finding:
    """Finding that says by how many posterior standard deviations clipping single examples'
    gradients moves the samples' mean, computed for the first data set."""
    # The point where the clipped gradients cancel, by steps with the posterior's covariance, which
    # stands in for the inverse curvature of the clipped cost.
    theta = model.posterior.mean[:1, None].copy()
    covariance = model.posterior.covariance[0]
    for _ in range(100):
        pull = uplink.local_gradients(model, theta, slice(0, 1)).sum(axis=2)
        theta = theta - (covariance @ pull[0].T).T[None]
        if np.abs(pull).max() < 1e-6 * uplink.example_bound:
            break
    away = theta[0, 0] - model.posterior.mean[0]
    share = 100 * float(np.square(away).sum()) / float(np.trace(covariance))
    shift = float(np.sqrt(away @ np.linalg.solve(covariance, away)))
    text = (
        f"clipping examples at {clip_in_words(uplink)} shifts the mean by {share:.2g} % of"
        f" trace(Sigma), squared; {shift:.2g} posterior sd in the worst direction"
    )
    short = f"clipping examples shifts the mean by {shift:.2g} posterior sd"
    if shift > SHIFT_TOLERANCE:
        grade: Grade = "infeasible" if shift > HOPELESS_SHIFT else "warning"
        return Finding(
            "mean-shift", grade, f"{text}; use a larger example clip", short, {"mean_shift": shift}
        )
    return Finding("example-clip-shift", "note", text, short, {"mean_shift": shift})
