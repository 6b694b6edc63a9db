"""What speaks against a plan that clips every example's gradient, beside the device's."""

from __future__ import annotations

import numpy as np

from flmc.base.findings import Finding, Grade
from flmc.models.linear import LinearGaussian
from flmc.planning.advice import judgement
from flmc.planning.prediction import Prediction
from flmc.uplink.example_clipping import typical_shrink
from flmc.uplink.uplink import Uplink


def clip_in_words(uplink: Uplink) -> str:
    """How single examples are bounded: ``4``, or ``a norm of 4``.

    Parameters
    ----------
    uplink
        An uplink that clips examples.
    """
    size = f"{uplink.example_bound:g}"
    return size if uplink.example_norm is None else f"a norm of {size}"


def forgotten_shrink(uplink: Uplink, *, dim: int | None) -> list[Finding]:
    """Findings where examples are clipped but ``example_shrink`` is 1, which makes samples too
    wide.

    Parameters
    ----------
    uplink
        Says how examples are clipped.
    dim
        Number of entries of a linear regression, for which the share is known; None for another
        model.
    """
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


def shift_by_clipped_examples(model: LinearGaussian, uplink: Uplink) -> Finding:
    """Finding that says how far clipping examples moves the mean, from the first data set.

    Parameters
    ----------
    model, uplink
        The regression, and how single examples are bounded.
    """
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
    if shift > judgement.SHIFT_TOLERANCE:
        grade: Grade = "infeasible" if shift > judgement.HOPELESS_SHIFT else "warning"
        return Finding(
            "mean-shift", grade, f"{text}; use a larger example clip", short, {"mean_shift": shift}
        )
    return Finding("example-clip-shift", "note", text, short, {"mean_shift": shift})
