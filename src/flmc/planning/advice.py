"""Forecast of a plan: the law that is predicted, and warnings with their cure."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from flmc.base.arrays import Array
from flmc.models.linear import LinearGaussian
from flmc.models.model import Model
from flmc.planning.constraints import Curvature
from flmc.planning.plans import Plan
from flmc.planning.prediction import Prediction, predict
from flmc.uplink.example_clipping import shrink_factor
from flmc.uplink.uplink import Uplink


def with_forecast(decided: Plan, model: Model, curvature: Curvature) -> Plan:
    """The plan with a forecast of the run: predicted law and warnings.

    Parameters
    ----------
    decided
        The plan, with everything decided.
    model
        The model that it was made for. A prediction needs linear regression with all devices active
        and examples not clipped.
    curvature
        What the plan was made with: the model's own curvature, or public values in its place.

    Returns
    -------
    Plan
        A copy with ``prediction`` and ``warnings``; what is decided does not change.
    """
    warnings = _over_budget(decided)
    heat = decided.temperature
    if heat is None:  # without a slope nothing is known of the law
        warnings.append("the link has no slope: temperature and rounds needed are unknown")
        return replace(decided, warnings=tuple(warnings))
    warnings += _burn_in_too_short(decided, curvature)
    warnings += _forgotten_shrink(decided.uplink, isinstance(model, LinearGaussian))
    warnings += _unstable_early_steps(decided, curvature)
    if abs(heat - 1.0) > 0.05:
        meaning = "too wide" if heat > 1 else "too narrow, collapsing towards the mode"
        warnings.append(
            f"temperature {heat:.3g} instead of 1: the samples' variance will be {meaning}"
        )
    prediction = None
    if not decided.scheduler.everyone:
        warnings.append(
            "only some devices transmit in a round: the gradients of the others are missing from"
            " the estimate, which adds noise that neither the temperature nor a prediction includes"
        )
    elif isinstance(model, LinearGaussian) and decided.uplink.example_clip is not None:
        warnings.append(_shift_in_words(model, decided.uplink.example_clip))
        # The prediction knows nothing of clipped examples: it is made without them, and judged
        # roughly.
        unclipped = replace(decided.uplink, example_clip=None, example_shrink=1.0)
        warnings += _judge_roughly(predict(model, unclipped, decided.step_size, _noise_of(decided)))
    elif isinstance(model, LinearGaussian):
        prediction = predict(model, decided.uplink, decided.step_size, _noise_of(decided))
        warnings += _judge(prediction, heat)
    return replace(decided, prediction=prediction, warnings=tuple(warnings))


def _burn_in_too_short(decided: Plan, curvature: Curvature) -> list[str]:
    """Warning where the burn-in is shorter than what is needed, with a cure."""
    needed = decided.rounds_needed
    if needed is None:
        return [
            "whether the burn-in is long enough cannot be judged without the convexity of the model"
        ]
    # What is needed is a rough estimate: 5 % short is not worth a warning.
    if needed <= 1.05 * decided.num_burn_in:
        return []
    cure = "use more rounds" + (" or start 'zero'" if decided.start == "prior" else "")
    if (curvature.smoothness or 0.0) > 100.0 * (curvature.convexity or math.inf):
        cure += ", or rescale theta: its scales differ much (condition number above 100)"
    if decided.limits.scope == "run" and decided.binding == "privacy":
        cure = (
            "under a run budget more rounds shrink the steps: use more data, a larger epsilon, a"
            " smaller clip"
        )
        if decided.limits.neighbouring == "device":
            cure += " or neighbouring = 'example', if single examples are what is to be hidden"
    return [
        f"burn-in of {decided.num_burn_in} rounds is short: about {needed} are needed, and a chain"
        f" that still travels can have any variance; {cure}"
    ]


def _unstable_early_steps(decided: Plan, curvature: Curvature) -> list[str]:
    """Warning where the larger steps of the first rounds are near instability."""
    step = decided.burn_in_step_factor * (decided.effective_step_size or 0.0)
    early = step * (curvature.smoothness or 0.0)
    if not decided.num_fast or early <= 1.0:
        return []
    return [
        f"burn_in_step_factor {decided.burn_in_step_factor:.3g} makes the early steps unstable: the"
        f" effective step times the smoothness is {early:.3g}, and should stay below 1"
    ]


def _forgotten_shrink(uplink: Uplink, linear: bool) -> list[str]:
    """Warnings where examples are clipped but ``example_shrink`` is 1, which makes samples too
    wide."""
    if uplink.example_clip is None or uplink.example_shrink != 1.0:
        return []
    if not linear:
        return [
            "example_shrink is 1, as if clipping examples took nothing from the gradient: if it"
            " does, the samples are too wide; give the share of the curvature that it leaves"
        ]
    typical = shrink_factor(uplink.example_clip)
    if typical > 0.999:
        return []
    return [
        f"example_shrink is 1, as if clipping examples at {uplink.example_clip:g} left their"
        f" gradients as they are: it leaves {typical:.3f} where features and residuals are standard"
        " normal (flmc.uplink.example_clipping.shrink_factor)"
    ]


def _noise_of(decided: Plan) -> Array:
    """Mean variance N_0/A^2 of the channel's noise at the server, (dim)."""
    return np.asarray(decided.uplink.noise_power * np.mean(decided.planned_gain**-2.0, axis=0))


def _over_budget(decided: Plan) -> list[str]:
    """Warnings where a gain that was given spends more than the privacy budget."""
    limits = decided.limits
    if decided.binding != "given" or limits.epsilon is None or limits.privacy == "off":
        return []
    if limits.scope == "round":
        once = decided.round_cost
        if once is None or once.epsilon <= limits.epsilon * (1 + 1e-9):
            return []
        return [
            f"the given gain spends epsilon {once.epsilon:.4g} in a round, and the budget is"
            f" {limits.epsilon:g}"
        ]
    if decided.affordable_rounds >= decided.num_rounds:
        return []
    return [
        f"the given gain has spent the run's budget of epsilon {limits.epsilon:g} after"
        f" {decided.affordable_rounds} of {decided.num_rounds} rounds: a run stops there"
    ]


def _judge_roughly(prediction: Prediction | None) -> list[str]:
    """Warnings of a prediction that does not know that examples are clipped as well."""
    share = 1.0 if prediction is None else prediction.clipped_fraction
    if prediction is None or share <= 0.02:
        return []
    return [
        f"about {100 * share:.2g} % of a device's gradient entries will be clipped, beside its"
        " examples: the samples are wider than the temperature says,"
        f" {prediction.variance_ratio:.3g} times the posterior's variance if examples were not"
        " clipped; use a larger clip or a smaller slope parameter"
    ]


def _shift_in_words(model: LinearGaussian, example_clip: float) -> str:
    """Warning that says how far clipping examples moves the mean, from the first data set."""
    # The point where the clipped gradients cancel, by steps with the posterior's covariance, which
    # stands in for the inverse curvature of the clipped cost.
    theta = model.posterior.mean[:1, None].copy()
    for _ in range(100):
        pull = model.clipped_gradient(theta, example_clip, slice(0, 1)).sum(axis=2)
        theta = theta - (model.posterior.covariance[0] @ pull[0].T).T[None]
        if np.abs(pull).max() < 1e-6 * example_clip:
            break
    shift = float(np.square(theta[0, 0] - model.posterior.mean[0]).sum())
    share = 100 * shift / float(np.trace(model.posterior.covariance[0]))
    return (
        f"clipping examples at {example_clip:g} shifts the mean by {share:.2g} % of trace(Sigma),"
        " squared"
    )


def _judge(prediction: Prediction | None, heat: float) -> list[str]:
    """Warnings where the prediction differs from the temperature, or many gradients will be
    clipped."""
    if prediction is None:
        return [
            "no prediction of the spread: the step or the problem is too large, or nearly every"
            " gradient is clipped"
        ]
    warnings = []
    if prediction.variance_ratio < 0.95 * min(heat, 1.0) or prediction.variance_ratio > 1.25 * max(
        heat, 1.0
    ):
        warnings.append(
            f"predicted variance ratio {prediction.variance_ratio:.3g}, unlike the temperature"
            f" {heat:.3g}: the step is too large, or local gradients are too large for this link;"
            " use a smaller step or slope parameter, or a larger clip"
        )
    if prediction.clipped_fraction > 0.02:
        share = 100 * prediction.clipped_fraction
        warnings.append(f"{share:.2g} % of gradient entries will be clipped: predictions are rough")
    return warnings
