"""What speaks against a plan that clips every example's gradient, beside the device's."""

from __future__ import annotations

import numpy as np

from flmc.base.findings import Finding, Grade
from flmc.models.linear import LinearGaussian
from flmc.planning.advice import judgement
from flmc.planning.prediction import Prediction
from flmc.uplink.example_clipping import shrink_factor
from flmc.uplink.uplink import Uplink


def forgotten_shrink(uplink: Uplink, *, linear: bool) -> list[Finding]:
    """Findings where examples are clipped but ``example_shrink`` is 1, which makes samples too
    wide.

    Parameters
    ----------
    uplink
        Says how examples are clipped.
    linear
        Whether the model is linear regression, for which the share is known.
    """
    if uplink.example_clip is None or uplink.example_shrink != 1.0:
        return []
    if not linear:
        text = (
            "example_shrink is 1, as if clipping examples took nothing from the gradient: if it"
            " does, the samples are too wide; give the share of the curvature that it leaves"
        )
        return [Finding("example-shrink", "warning", text)]
    typical = shrink_factor(uplink.example_clip)
    if typical > 0.999:
        return []
    text = (
        f"example_shrink is 1, as if clipping examples at {uplink.example_clip:g} left their"
        f" gradients as they are: it leaves {typical:.3f} where features and residuals are standard"
        " normal (flmc.uplink.example_clipping.shrink_factor)"
    )
    return [Finding("example-shrink", "warning", text, numbers={"typical_shrink": typical})]


def judge_roughly(prediction: Prediction | None) -> list[Finding]:
    """Findings of a prediction that does not know that examples are clipped as well.

    Parameters
    ----------
    prediction
        What the chain would sample if examples were not clipped; None if that is not known.
    """
    share = 1.0 if prediction is None else prediction.clipped_fraction
    if prediction is None or share <= 0.02:
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


def shift_by_example_clip(model: LinearGaussian, example_clip: float) -> Finding:
    """Finding that says how far clipping examples moves the mean, from the first data set.

    Parameters
    ----------
    model, example_clip
        The regression, and the bound of one example's gradient entries.
    """
    # The point where the clipped gradients cancel, by steps with the posterior's covariance, which
    # stands in for the inverse curvature of the clipped cost.
    theta = model.posterior.mean[:1, None].copy()
    covariance = model.posterior.covariance[0]
    for _ in range(100):
        pull = model.clipped_gradient(theta, example_clip, slice(0, 1)).sum(axis=2)
        theta = theta - (covariance @ pull[0].T).T[None]
        if np.abs(pull).max() < 1e-6 * example_clip:
            break
    away = theta[0, 0] - model.posterior.mean[0]
    share = 100 * float(np.square(away).sum()) / float(np.trace(covariance))
    shift = float(np.sqrt(away @ np.linalg.solve(covariance, away)))
    text = (
        f"clipping examples at {example_clip:g} shifts the mean by {share:.2g} % of trace(Sigma),"
        f" squared; {shift:.2g} posterior sd in the worst direction"
    )
    short = f"clipping examples shifts the mean by {shift:.2g} posterior sd"
    if shift > judgement.SHIFT_TOLERANCE:
        grade: Grade = "infeasible" if shift > judgement.HOPELESS_SHIFT else "warning"
        return Finding(
            "mean-shift", grade, f"{text}; use a larger example clip", short, {"mean_shift": shift}
        )
    return Finding("example-clip-shift", "note", text, short, {"mean_shift": shift})
