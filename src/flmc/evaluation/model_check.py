"""A check of a model's claims and a plan's assumptions, from gradients alone, before a run.

A short pilot finds the mode and measures the curvature there. Then claims and plan are compared
with the measurements. The check cannot see a prior that is counted twice, a likelihood that is
wrong in all places alike, examples that are missing, modes that the pilot does not visit, or any
data set but the first. A mean in place of a sum is seen where devices are alike, or where the
claimed smoothness is that of the sum."""

from __future__ import annotations

import math

import numpy as np

from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.base.findings import Finding, Grade
from flmc.base.randomness import Purpose, generator
from flmc.evaluation.pilot import MeasuredCurvature, Pilot, places_at_once
from flmc.models.model import Model
from flmc.planning.judgement import judge_shift, judge_width
from flmc.planning.plans import Plan
from flmc.planning.step_size import STABLE_SHARE

TOO_LARGE = 10.0
"""Claimed smoothness over the largest measured curvature from which on it is reported: generous
public bounds stay below it."""
_ALIKE = 0.2
"""Variance of local gradients over devices, relative to the one that their curvature implies, below
which devices are too alike for gradients that are sums over examples."""
_FEWEST_DEVICES = 4
"""Number of devices below which the spread of their gradients is not judged."""


def mean_not_sum(model: Model, pilot: Pilot, excess: float | None) -> list[Finding]:
    """A list with at most one finding: local gradients look like means over a device's examples,
    where they must be sums. ``excess`` is the smoothness that the model claims over the largest
    curvature that the pilot measured; None without a claim."""
    # For a sum over n examples both the variance of a local gradient and its curvature grow like n:
    # in a likelihood that fits they are equal (Fisher's information), and devices that differ only
    # add to the variance. For a mean over n examples the variance is n times less than that.
    if model.num_devices < _FEWEST_DEVICES or not pilot.arrived:
        return []
    mean = np.broadcast_to(np.asarray(model.prior.mean, dtype=np.float64), (model.dim,))
    # Labels without noise make gradients too alike as well, but only at the mode: so the prior's
    # mean is judged too, unless the claimed smoothness already suggests a mean.
    spreads = [_spread(model, pilot.curves[-1], pilot.theta)]
    if excess is None or excess < TOO_LARGE:
        spreads.append(_spread(model, pilot.curves[0], mean))
    if any(spread is None for spread in spreads):
        return []
    spread = max(each for each in spreads if each is not None)
    freedom = (model.num_devices - 1) * len(pilot.curves[-1].basis)
    # Chernoff's bound of the probability that a chi-squared variable is so small must be below
    # 1e-6. Devices that agree to the last digit have no data, which says nothing about sums.
    if not 1e-9 < spread < _ALIKE or freedom / 2 * (spread - 1 - math.log(spread)) < math.log(1e6):
        return []
    text = (
        f"local gradients differ {1 / spread:.2g} times less (in variance) than their curvature"
        f" implies, as if each were the mean over about {1 / spread:.2g} examples: is the gradient"
        " a mean? It must be the sum over all examples of a device (or the likelihood assumes that"
        " much more noise than the data have)"
    )
    if excess is not None and excess >= TOO_LARGE:
        text += f"; the claimed smoothness, too, is {excess:.2g} times the curvature"
    short = "the gradient looks like a mean over examples, not a sum"
    return [Finding("mean-not-sum", "warning", text, short, {"spread": spread})]


def _spread(model: Model, curve: MeasuredCurvature, theta: Array) -> float | None:
    """Variance over devices of the likelihood's local gradients at ``theta``, over the variance
    that the likelihood's curvature there implies (1 for devices with like data); None where the
    likelihood has no positive curvature."""
    prior = model.prior.curvature(theta, curve.basis) @ curve.basis.T
    matrix = (curve.matrix + curve.matrix.T) / 2 - prior
    scale = np.sqrt(np.maximum(np.diag(matrix), 1e-300))
    scaled = matrix / np.outer(scale, scale)
    if not np.isfinite(scaled).all() or np.linalg.eigvalsh(scaled)[0] <= 1e-6:
        return None
    local = model.gradient(theta[None, None], slice(0, 1))[0, 0]  # the prior's share is a constant
    away = ((local - local.mean(axis=0)) @ curve.basis.T) / scale
    covariance = away.T @ away / (len(away) - 1) * len(away)
    return float(np.trace(np.linalg.solve(scaled, covariance)) / len(scaled))


_SHIFTED = 0.2
"""Shift of the mean in posterior standard deviations, in the worst direction, above which there is
a warning."""


def judge_examples(plan: Plan, pilot: Pilot) -> list[Finding]:
    """A list with at most one finding: bounding the gradients of single examples moves the mean of
    the samples away from the posterior mean. The pilot must have arrived at the mode."""
    # At the mode the gradients of all examples and of the prior cancel. Examples that are cut down
    # to ``example_clip`` or ``example_norm`` leave a sum r, and the mean of the samples moves by
    # about H^-1 r, with the curvature H.
    if not plan.uplink.clips_examples:
        return []
    place = pilot.theta[None]
    left = pilot.local_gradients(place)[0].sum(axis=0) - pilot.summed(place)[0]
    curve = pilot.curves[-1]
    # In the measured directions only: a lower bound of the shift where these are not all.
    inside = curve.basis @ left
    matrix = (curve.matrix + curve.matrix.T) / 2
    shift = float(np.sqrt(max(0.0, inside @ np.linalg.pinv(matrix, hermitian=True) @ inside)))
    if not shift > _SHIFTED:
        return []
    name = "example_clip" if plan.uplink.example_norm is None else "example_norm"
    text = (
        f"bounding single examples by {name} = {plan.uplink.example_bound:g} moves the mean by"
        f" about {shift:.2g} posterior sd in the worst direction: gradients of examples near the"
        " mode are cut down; use a larger bound, which costs privacy, or more examples"
    )
    numbers = {"shift": shift, "bound": plan.uplink.example_bound}
    short = f"the bound of examples moves the mean by {shift:.2g} sd"
    return [Finding("example-shift", "warning", text, short, numbers)]


_CURE = "use the linear link with a clip that is rarely reached, or a flatter link"


def judge_link(plan: Plan, pilot: Pilot) -> list[Finding]:
    """Findings where the link (the probability of a +1 bit) or the clip moves the mean of the
    samples away from the posterior's, or makes the samples wider; the pilot must have arrived at
    the mode."""
    # A plan takes the link for a straight line of slope kappa. Where devices differ, their
    # gradients do not vanish at the mode, and a curved link weighs the large ones too little.
    if plan.slope is None:
        return []
    there = pilot.local_gradients(pilot.theta[None])[0]
    places = pilot.draw(1.0)
    around = pilot.local_gradients(places)
    if not np.isfinite(there).all() or not np.isfinite(around).all():
        return []
    findings = []
    if (shift := _shift(plan, pilot, there, around)) is not None:
        findings += judge_shift(shift, lambda: _CURE)
    if (width := _width(plan, places - pilot.theta, there, around)) is not None:
        findings += judge_width(width, _CURE)
    return findings


def _shift(plan: Plan, pilot: Pilot, there: Array, around: Array) -> float | None:
    r"""Shift of the samples' mean from the posterior mean that link and clip cause, in posterior
    standard deviations in the worst direction; None where the curvature is not known in every
    direction.

    At the mode local gradients cancel; their mean symbols leave the sum r. With the averaged slopes
    :math:`\bar\kappa` of the entries and the curvature H the mean moves by about :math:`d =
    (\operatorname{diag}(\bar\kappa) H)^{-1} r`, which is :math:`\sqrt{d^\top H d}` posterior
    standard deviations in the worst direction."""
    curve = pilot.curves[-1]
    if len(curve.basis) < len(pilot.theta):
        return None
    reach = 1e-3 * plan.uplink.clip if math.isfinite(plan.uplink.clip) else 1.0
    symbol = plan.uplink.mean_symbol
    slope = ((symbol(around + reach) - symbol(around - reach)) / (2 * reach)).mean(axis=(0, 1))
    if not (slope > 0).all():
        return None
    # The pilot is not exactly at the mode: the remaining gradient there is no shift.
    rest = symbol(there).sum(axis=0) - slope * there.sum(axis=0)
    hessian = curve.basis.T @ ((curve.matrix + curve.matrix.T) / 2) @ curve.basis
    moved = np.linalg.solve(hessian, rest / slope)
    return math.sqrt(max(0.0, float(moved @ hessian @ moved)))


def _width(plan: Plan, away: Array, there: Array, around: Array) -> float | None:
    r"""Variance of the samples over the one that the plan's temperature predicts, which takes the
    link for a straight line; the mean over directions. None where it cannot be told.

    Draws at the distance :math:`\delta` from the mode are pulled back by the summed symbols
    :math:`D - D_0` in place of :math:`\kappa(G - G_0)`. With the relative pull :math:`\rho =
    \langle\delta^\top(D - D_0)\rangle/(\kappa\langle\delta^\top(G - G_0)\rangle)` the
    variance is :math:`1/\rho` of what it should be. The bits of large gradients are less random,
    which is taken off the noise. Wider draws meet a flatter link, so the true width is larger. What
    bounds of single examples take away is not the link's, and is left out on both sides."""
    uplink, heat = plan.uplink, plan.temperature
    if plan.slope is None or heat is None or not heat > 0:
        return None
    symbols, slope = uplink.mean_symbol(around), uplink.slope / uplink.example_shrink
    wanted = slope * float((away * (around - there).sum(axis=1)).sum())
    pull = float((away * (symbols - uplink.mean_symbol(there)).sum(axis=1)).sum())
    if not wanted > 0 or not pull > 0:
        return None
    bits = plan.step_size * uplink.bit_variance * plan.num_devices / (2.0 * plan.slope)
    noise = 1.0 - min(bits / heat, 1.0) * float(np.square(symbols).mean()) if bits else 1.0
    return noise * wanted / pull


_NUM_PRIOR_DRAWS = 4
"""Draws from the prior at which gradients must be finite."""
_CLIPPED, _HOPELESSLY_CLIPPED = 0.02, 0.2
"""Shares of clipped gradient entries above which a plan gets a warning, and is infeasible."""
_FITTING_QUANTILE = 0.995
"""Share of gradient entries near the mode that a clip should leave unchanged; a proposed clip is
this quantile of their absolute values."""
_TOO_SMALL = 1.5
"""Measured curvature over claimed smoothness above which there is a warning. An automatic step then
has a discretisation error of up to 43 % of the variance, where it promises at most 25 %."""
_TOO_CONVEX = 2.0
"""Claimed convexity over the smallest measured curvature above which there is a warning."""
_UNSTABLE = 2.0
"""Sampler's effective step times largest curvature at which a chain leaves the posterior for
good."""
_COARSE = 1.0
"""Sampler's effective step times largest curvature at which the variance is twice the
posterior's."""
_ASYMMETRIC = 0.1
"""Asymmetry of the measured curvature matrix, relative to its diagonal, above which errors of the
difference quotients do not explain it."""


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
    rng = generator(0, Purpose.CHECK)
    pilot = Pilot(model, plan.uplink, rng)
    # Far from the mode a user's function may overflow, as in a run; a finding reports it, so that
    # NumPy need not.
    with np.errstate(all="ignore"):
        draws = np.stack([model.prior.draw(rng, model.dim) for _ in range(_NUM_PRIOR_DRAWS)])
        findings = _not_finite(model, draws)
        if _is_random(pilot):
            return (*findings, _random_gradient())
        pilot.travel()
        if pilot.curves:
            findings += [*_judge_curvature(model, plan, pilot), *_not_a_gradient(pilot.curves[-1])]
        if pilot.arrived:
            findings += judge_examples(plan, pilot)
            # Clipping moves the mean too; where it does, its cure comes first.
            findings += _judge_clip(plan, pilot) or judge_link(plan, pilot)
        else:
            findings.append(_lost())
    return tuple(findings)


def _not_finite(model: Model, draws: Array) -> list[Finding]:
    """A list with at most one finding: some gradient entries are not finite at draws from the
    prior, (place, dim)."""
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
    """Whether two evaluations of the gradient at one place differ."""
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
    """Findings where the model's smoothness or convexity, the plan's step or the scale of gradients
    does not fit the curvature that the pilot measured."""
    tops = [float(curve.eigenvalues[-1]) for curve in pilot.curves]
    # A claim is about the region of the chains. Without the mode, the smallest curvature gives the
    # model the benefit of the doubt.
    here = tops[-1] if pilot.arrived else min(tops)
    claimed = model.smoothness
    findings = mean_not_sum(model, pilot, None if claimed is None else claimed / max(tops))
    if claimed is not None and here > _TOO_SMALL * claimed:
        findings.append(_too_small(model, plan, here, claimed))
    elif (step := _relative_step(plan, here)) > _COARSE:
        findings.append(_coarse(plan, step, here))
    elif not findings and claimed is not None and claimed > TOO_LARGE * max(tops) > 0:
        findings.append(_too_large(claimed, max(tops)))
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
        findings.append(Finding("convexity-too-large", "warning", text, numbers=numbers))
    return findings


def _relative_step(plan: Plan, curvature: float) -> float:
    """The plan's effective step times a curvature; 0 for a link without slope."""
    return (plan.effective_step_size or 0.0) * curvature


def _too_small(model: Model, plan: Plan, measured: float, claimed: float) -> Finding:
    """Finding that the measured curvature is larger than the smoothness that the model claims."""
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
    """Finding that the plan's step is too large for the measured curvature."""
    text = (
        f"the effective step times the largest curvature {measured:.3g} is {relative:.3g}: above 1"
        " the draws are at least twice too wide, from 2 on chains diverge; use a step of"
        f" {0.4 * plan.step_size / relative:.2g}"
    )
    grade: Grade = "infeasible" if relative >= _UNSTABLE else "warning"
    numbers = {"relative_step": relative, "measured": measured}
    return Finding("step-too-large", grade, text, numbers=numbers)


def _too_large(claimed: float, measured: float) -> Finding:
    """Note that the largest measured curvature is far below the smoothness that the model
    claims."""
    text = (
        f"the largest curvature that was found is {measured:.3g}, {claimed / measured:.3g} times"
        f" less than the smoothness {claimed:.3g} that the model claims: steps are smaller than"
        " they could be, unless the gradient is a mean over examples where it must be a sum"
    )
    numbers = {"measured": measured, "claimed": claimed}
    return Finding("smoothness-too-large", "note", text, numbers=numbers)


def _not_a_gradient(curve: MeasuredCurvature) -> list[Finding]:
    """A list with at most one finding: the measured curvature matrix is not symmetric, as that of
    every function is, so that the model's gradient is not the gradient of a function."""
    asymmetry = curve.asymmetry
    if not asymmetry > _ASYMMETRIC:
        return []
    text = (
        f"the changes of the gradient are not symmetric (by {asymmetry:.2g} of their size): it is"
        " not the gradient of any function; look for a sign, an index or a transposition"
    )
    return [Finding("not-a-gradient", "warning", text, numbers={"asymmetry": asymmetry})]


def _judge_clip(plan: Plan, pilot: Pilot) -> list[Finding]:
    """A list with at most one finding: the plan's clip cuts many gradient entries at draws around
    the mode."""
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
    """A positive number as text with two significant digits, not below ``value``."""
    unit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return f"{math.ceil(value / unit - 1e-9) * unit:.3g}"
