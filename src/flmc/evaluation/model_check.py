"""Whether a model is what it claims to be, from gradients alone and before anything is simulated.

A short pilot finds the mode and measures the curvature there. Then claims and plan are compared
with what was measured. It cannot see a prior that is counted twice, a likelihood that is wrong in
all places alike, examples that are missing, modes that the pilot does not visit, or any data set
but the first. A mean in place of a sum is seen where devices are alike, or where the claimed
smoothness is that of the sum."""

from __future__ import annotations

import math

import numpy as np

from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.base.findings import Finding, Grade
from flmc.base.randomness import Purpose, generator
from flmc.evaluation.device_spread import TOO_LARGE, mean_not_sum
from flmc.evaluation.example_check import judge_examples
from flmc.evaluation.link_check import judge_link
from flmc.evaluation.pilot import Curve, Pilot
from flmc.evaluation.summed_gradients import places_at_once
from flmc.models.model import Model
from flmc.planning.plans import Plan
from flmc.planning.step_size import STABLE_SHARE

_NUM_PRIOR_DRAWS = 4
"""Draws from the prior at which gradients must be finite."""
_CLIPPED, _HOPELESSLY_CLIPPED = 0.02, 0.2
"""Shares of clipped gradient entries above which there is a warning, and no hope."""
_FITTING_QUANTILE = 0.995
"""Share of gradient entries that a clip should leave as they are."""
_TOO_SMALL = 1.5
"""Measured over claimed smoothness from which on it is warned of. An automatic step then has a
discretisation error of up to 43 % of the variance, where it promises at most 25 %."""
_TOO_CONVEX = 2.0
"""Claimed over measured convexity from which on it is warned of."""
_UNSTABLE = 2.0
"""Effective step times curvature at which a chain leaves the posterior for good."""
_COARSE = 1.0
"""Effective step times curvature at which the variance is twice the posterior's."""
_ASYMMETRIC = 0.1
"""Asymmetry of the curvature, relative to its diagonal, that differences do not explain."""


def check_model(model: Model, plan: Plan) -> tuple[Finding, ...]:
    """Compare what a model claims, and what a plan assumes, with a short pilot.

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
    rng = generator(0, Purpose.CHECK)
    pilot = Pilot(model, plan.uplink, rng)
    # Far away a user's function may overflow, as it would in a run; what is not finite is told.
    with np.errstate(all="ignore"):
        draws = np.stack([model.prior.draw(rng, model.dim) for _ in range(_NUM_PRIOR_DRAWS)])
        found = _not_finite(model, draws)
        if _is_random(pilot):
            return (*found, _random_gradient())
        pilot.travel()
        if pilot.curves:
            found += [*_judge_curvature(model, plan, pilot), *_not_a_gradient(pilot.curves[-1])]
        if pilot.arrived:
            found += judge_examples(plan, pilot)
            # Clipping moves the mean too, and its cure comes first.
            found += _judge_clip(plan, pilot) or judge_link(plan, pilot)
        else:
            found.append(_lost())
    return tuple(found)


def _not_finite(model: Model, draws: Array) -> list[Finding]:
    """Finding where gradients are not finite at draws from the prior."""
    local = model.gradient(draws[None, : places_at_once(model)], slice(0, 1))
    share = 1.0 - float(np.isfinite(local).mean())
    if share == 0.0:
        return []
    text = (
        f"{100 * share:.2g} % of the gradient entries are not finite at draws from the prior, where"
        " chains may begin: look for overflows, logarithms of 0 and divisions by 0"
    )
    return [Finding("not-finite", "warning", text, numbers={"share": share})]


def _is_random(pilot: Pilot) -> bool:
    """Whether the gradient at one place is another one when it is asked for again."""
    once, again = pilot.summed(pilot.theta[None]), pilot.summed(pilot.theta[None])
    return not np.allclose(once, again, rtol=1e-6, equal_nan=True)


def _random_gradient() -> Finding:
    """Finding that the gradient is random, which ends the check."""
    text = (
        "the gradient at one theta is another one every time: the model is not checked further,"
        " noise beside the planned one makes the draws wider, and no run can be repeated or resumed"
    )
    return Finding("random-gradient", "warning", text)


def _lost() -> Finding:
    """Note that some things are not checked because the pilot did not find the mode."""
    text = (
        "a short pilot did not arrive at a mode: neither the clip nor the scale of the gradients"
        " was checked, and chains may need a long burn-in too"
    )
    return Finding("mode-not-found", "note", text)


def _judge_curvature(model: Model, plan: Plan, pilot: Pilot) -> list[Finding]:
    """Findings where smoothness, convexity, the step or the scale of gradients do not fit."""
    tops = [float(curve.eigenvalues[-1]) for curve in pilot.curves]
    # A claim is about where chains are. If the mode was not found, the benefit of the doubt.
    here = tops[-1] if pilot.arrived else min(tops)
    claimed = model.smoothness
    found = mean_not_sum(model, pilot, None if claimed is None else claimed / max(tops))
    if claimed is not None and here > _TOO_SMALL * claimed:
        found.append(_too_small(model, plan, here, claimed))
    elif (step := _relative_step(plan, here)) > _COARSE:
        found.append(_coarse(plan, step, here))
    elif not found and claimed is not None and claimed > TOO_LARGE * max(tops) > 0:
        found.append(_too_large(claimed, max(tops)))
    least = float(pilot.curves[-1].eigenvalues[0])
    whole = len(pilot.curves[-1].basis) == model.dim
    convexity = model.convexity
    if pilot.arrived and whole and convexity is not None and convexity > _TOO_CONVEX * least:
        text = (
            f"the smallest curvature at the mode is {least:.3g}, and the model claims a convexity"
            f" of {convexity:.3g}: the burn-in that the plan counts as enough is too short by this"
            " factor"
        )
        numbers = {"measured": least, "claimed": convexity}
        found.append(Finding("convexity-too-large", "warning", text, numbers=numbers))
    return found


def _relative_step(plan: Plan, curvature: float) -> float:
    """Effective step times curvature; 0 for a link without slope."""
    return (plan.effective_step_size or 0.0) * curvature


def _too_small(model: Model, plan: Plan, measured: float, claimed: float) -> Finding:
    """Finding that the curvature is larger than the claimed smoothness."""
    relative = _relative_step(plan, measured)
    convexity = min(model.convexity or measured, measured)
    fitting = STABLE_SHARE * 2.0 / (measured + convexity) / (plan.slope or 1.0)
    effect = (
        f"a stable step is {fitting:.3g} at most, and the plan's is {plan.step_size:.3g}"
        if fitting < plan.step_size
        else f"the plan's step {plan.step_size:.3g} is small enough for other reasons"
    )
    text = (
        f"the curvature at the mode is {measured:.3g}, {measured / claimed:.3g} times the"
        f" smoothness {claimed:.3g} that the model claims: {effect}; give smoothness ="
        f" {_rounded_up(measured)}"
    )
    grade: Grade = "infeasible" if relative >= _UNSTABLE else "warning"
    numbers = {"measured": measured, "claimed": claimed, "step": plan.step_size, "fitting": fitting}
    short = f"smoothness {claimed:.3g} claimed, {measured:.3g} measured"
    return Finding("smoothness-too-small", grade, text, short, numbers)


def _coarse(plan: Plan, relative: float, measured: float) -> Finding:
    """Finding that the step is too large for the curvature."""
    text = (
        f"the effective step times the largest curvature {measured:.3g} is {relative:.3g}: above 1"
        " the draws are at least twice too wide, from 2 on chains diverge; use a step of"
        f" {0.4 * plan.step_size / relative:.2g}"
    )
    grade: Grade = "infeasible" if relative >= _UNSTABLE else "warning"
    numbers = {"relative_step": relative, "measured": measured}
    return Finding("step-too-large", grade, text, numbers=numbers)


def _too_large(claimed: float, measured: float) -> Finding:
    """Note that the curvature is far below the claimed smoothness."""
    text = (
        f"the largest curvature that was found is {measured:.3g}, {claimed / measured:.3g} times"
        f" less than the smoothness {claimed:.3g} that the model claims: steps are smaller than"
        " they could be, unless the gradient is a mean over examples where it must be a sum"
    )
    numbers = {"measured": measured, "claimed": claimed}
    return Finding("smoothness-too-large", "note", text, numbers=numbers)


def _not_a_gradient(curve: Curve) -> list[Finding]:
    """Finding where the curvature is not symmetric, as that of every function is."""
    asymmetry = curve.asymmetry
    if not asymmetry > _ASYMMETRIC:
        return []
    text = (
        f"the changes of the gradient are not symmetric (by {asymmetry:.2g} of their size): it is"
        " not the gradient of any function; look for a sign, an index or a transposition"
    )
    return [Finding("not-a-gradient", "warning", text, numbers={"asymmetry": asymmetry})]


def _judge_clip(plan: Plan, pilot: Pilot) -> list[Finding]:
    """Finding where many gradient entries are clipped at draws around the mode."""
    heat = min(max(plan.temperature or 1.0, 0.1), 10.0)
    local = np.abs(pilot.local_gradients(pilot.draw(heat)))
    share = float((local > plan.uplink.clip).mean())
    if not share > _CLIPPED or not np.isfinite(local).all():
        return []
    fitting = float(np.quantile(local, _FITTING_QUANTILE))
    slope = ", with a slope parameter that fits it" if plan.uplink.bit_variance else ""
    text = (
        f"{100 * share:.2g} % of the gradient entries near the mode are beyond the clip"
        f" {plan.uplink.clip:g}: the samples will be too wide, or off where devices differ; use a"
        f" clip of {_rounded_up(fitting)}{slope}"
    )
    grade: Grade = "infeasible" if share > _HOPELESSLY_CLIPPED else "warning"
    numbers = {"clipped_fraction": share, "clip": plan.uplink.clip, "fitting": fitting}
    short = f"{100 * share:.2g} % of gradient entries will be clipped"
    return [Finding("clipped", grade, text, short, numbers)]


def _rounded_up(value: float) -> str:
    """A number with two significant digits, not below the value."""
    unit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return f"{math.ceil(value / unit - 1e-9) * unit:.3g}"
