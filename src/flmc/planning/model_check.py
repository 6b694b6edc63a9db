"""A check, before a run and from gradients alone, of a model's claims (smoothness, convexity) and a
plan's assumptions (step, clip, link).

A short pilot finds the mode and measures the curvature there, and other modes are searched from
starts all over the prior (:mod:`flmc.planning.modes`). Then claims and plan are compared with the
measurements. The check cannot see a prior that is counted twice, a likelihood that is wrong by the
same factor everywhere, examples that are missing, modes that no start leads to, or any data set but
the first. Gradients that are means over examples, where they must be sums, are
seen where devices are alike, or where the claimed smoothness is that of the sum."""

from __future__ import annotations

import math
from functools import cached_property
from weakref import WeakKeyDictionary

import numpy as np

from flmc.base.arrays import Array
from flmc.base.findings import Finding, Grade
from flmc.base.randomness import Purpose, generator
from flmc.models.model import Model
from flmc.planning.forecast import Law, posterior_law
from flmc.planning.modes import arriving, judge_modes
from flmc.planning.pilot import MeasuredCurvature, Pilot, places_at_once
from flmc.planning.plans import Plan
from flmc.planning.step_size import stable_step

TOO_LARGE = 10.0
"""Ratio of the claimed smoothness to the largest measured curvature above which a note says that
the claim is too large; generous public bounds stay below it."""
_ALIKE = 0.2
"""Ratio of the variance of local gradients over devices to the variance that their curvature
implies, below which gradients are too alike to be sums over examples."""
_FEWEST_DEVICES = 4
"""Smallest number of devices with which the spread of their gradients is judged; with fewer there
is no finding about it."""


def mean_not_sum(model: Model, pilot: Pilot, excess: float | None) -> list[Finding]:
    """List with one finding where local gradients look like means over a device's examples, though
    they must be sums; else empty. ``excess`` is the smoothness that the model claims over the
    largest curvature that the pilot measured; None without a claim."""
    # For a sum over n examples both the variance of a local gradient and its curvature grow like n:
    # in a likelihood that fits they are equal (Fisher's information), and unlike devices only add
    # to the variance. For a mean over n examples the variance is n times less than the curvature.
    if model.num_devices < _FEWEST_DEVICES or not pilot.arrived:
        return []
    mean = np.broadcast_to(np.asarray(model.prior.mean, dtype=np.float64), (model.dim,))
    # Labels without noise also make gradients too alike, but at the mode only. So the prior's mean
    # is judged too, unless the claimed smoothness already suggests that gradients are means.
    spreads = [_spread(model, pilot.curves[-1], pilot.theta)]
    if excess is None or excess < TOO_LARGE:
        spreads.append(_spread(model, pilot.curves[0], mean))
    if any(spread is None for spread in spreads):
        return []
    spread = max(each for each in spreads if each is not None)
    freedom = (model.num_devices - 1) * len(pilot.curves[-1].basis)
    # Chernoff's bound of the probability that a chi-squared variable is so small must be below
    # 1e-6. Devices whose gradients are equal to the last digit have no data, which says nothing
    # about sums.
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
    # The prior adds the same to every device's gradient, and so nothing to their variance.
    local = model.gradient(theta[None, None], slice(0, 1))[0, 0]
    away = ((local - local.mean(axis=0)) @ curve.basis.T) / scale
    covariance = away.T @ away / (len(away) - 1) * len(away)
    return float(np.trace(np.linalg.solve(scaled, covariance)) / len(scaled))


_NUM_PRIOR_DRAWS = 4
"""Number of draws from the prior at which the survey checks that gradients are finite."""
_CLIPPED, HOPELESSLY_CLIPPED = 0.02, 0.2
"""Share of clipped gradient entries above which a plan gets a warning; and the share above which it
is infeasible."""
_FITTING_QUANTILE = 0.995
"""Share of gradient entries near the mode that a clip should leave unchanged; a proposed clip is
this quantile of their absolute values."""
_TOO_SMALL = 1.5
"""Ratio of measured curvature to claimed smoothness above which there is a warning. At this ratio
an automatic step makes a discretisation error of up to 43 % of the variance, where at most 25 % is
intended."""
_TOO_CONVEX = 2.0
"""Ratio of the claimed convexity to the smallest measured curvature above which there is a warning.
"""
_UNSTABLE = 2.0
"""Product of the sampler's effective step and the largest curvature from which on a chain diverges.
"""
_COARSE = 1.0
"""Product of the sampler's effective step and the largest curvature at which the variance of a
chain is twice the posterior's; above it, there is a finding."""
_BEYOND_1 = {
    "positions": "the draws are at least twice too wide",
    "midpoints": "the chain is at least twice as wide as its draws, and these are wrong unless the"
    " posterior is normal",
}
"""What is wrong with draws, in words, where the effective step times the largest curvature is above
1, by where draws are taken (``draw_at`` of the plan)."""
_ASYMMETRIC = 0.1
"""Largest asymmetry of the measured curvature matrix, relative to its diagonal, that is taken for
an error of the difference quotients; above it, a finding says that the model's gradient is not the
gradient of any function."""


class Survey:
    """What a pilot learns of a model before any plan: the posterior's mode and curvature, the
    normal law closest to the posterior, and findings against the model's gradients and modes."""

    def __init__(self, model: Model) -> None:
        rng = generator(0, Purpose.CHECK)
        self.pilot = Pilot(model, rng)
        self._for_mode = self._for_law = 0
        self.random = False
        """Whether the gradient at one theta differs from one evaluation to the next."""
        # Far from the mode a user's function may overflow. NumPy's warnings are switched off,
        # because a finding reports it.
        with np.errstate(all="ignore"):
            draws = np.stack([model.prior.draw(rng, model.dim) for _ in range(_NUM_PRIOR_DRAWS)])
            self.findings = _not_finite(model, draws)
            """Findings of the survey: gradients that are not finite or random, a mode that was not
            found, or several modes."""
            if _is_random(self.pilot):
                self.random = True
                self.findings.append(_random_gradient())
                return
            self.pilot.travel()
            self.pilot = arriving(model, self.pilot)
            if not self.pilot.arrived:
                self.findings.append(_mode_not_found())
            self.findings += judge_modes(model, self.pilot)
            self._for_mode = self.pilot.num_batches

    @cached_property
    def posterior(self) -> Law | None:
        """The normal law closest to the posterior; None where the search for it fails, or gradients
        are random."""
        if self.random:
            return None
        before = self.pilot.num_batches
        with np.errstate(all="ignore"):
            law = posterior_law(self.pilot)
        self._for_law = self.pilot.num_batches - before
        return law

    @property
    def num_batches(self) -> int:
        """Number of batches of gradients that the pilot and the search for the posterior's law have
        evaluated."""
        _ = self.posterior  # evaluates the cached law, so that its batches are counted
        return self._for_mode + self._for_law


_SURVEYS: WeakKeyDictionary[Model, Survey] = WeakKeyDictionary()
"""Surveys of models, kept as long as the model is: a search makes many plans of one model, and
surveys it once."""


def survey(model: Model) -> Survey:
    """The survey of a model: made at the first call, and returned again by later ones."""
    try:
        known = _SURVEYS.get(model)
    except TypeError:  # a model of a user's class may have no hash, so its survey cannot be kept
        return Survey(model)
    if known is None:
        known = _SURVEYS[model] = Survey(model)
    return known


def check_claims(model: Model, plan: Plan, surveyed: Survey) -> list[Finding]:
    """Findings of the survey (what a pilot learnt of the model), and findings where the survey
    contradicts the model's smoothness or convexity, or does not fit the plan's step or clip."""
    pilot = surveyed.pilot
    findings = list(surveyed.findings)
    with np.errstate(all="ignore"):
        if pilot.curves:
            findings += [*_judge_curvature(model, plan, pilot), *_not_a_gradient(pilot.curves[-1])]
        if pilot.arrived:
            findings += _judge_clip(model, plan, pilot)
    return findings


def _not_finite(model: Model, draws: Array) -> list[Finding]:
    """List with one finding where some gradient entries are not finite at ``draws`` from the prior,
    (draw, dim); else empty."""
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
    """Whether two evaluations of the gradient at the same theta differ."""
    once, again = pilot.summed(pilot.theta[None]), pilot.summed(pilot.theta[None])
    return not np.allclose(once, again, rtol=1e-6, equal_nan=True)


def _random_gradient() -> Finding:
    """Finding that the gradient is random; further checks are then left out."""
    text = (
        "the gradient at one theta is another one every time: the model is not checked further,"
        " noise beside the planned one makes the draws wider, and no run can be repeated or resumed"
    )
    return Finding("random-gradient", "warning", text)


def _mode_not_found() -> Finding:
    """Note that some checks were left out because the pilot did not find the mode."""
    text = (
        "a short pilot did not arrive at a mode: neither the clip nor the scale of the gradients"
        " was checked, and chains may need a long burn-in too"
    )
    return Finding("mode-not-found", "note", text)


def _judge_curvature(model: Model, plan: Plan, pilot: Pilot) -> list[Finding]:
    """Findings where the model's smoothness or convexity, the plan's step or the scale of gradients
    does not fit the curvature that the pilot measured."""
    tops = [float(curve.eigenvalues[-1]) for curve in pilot.curves]
    # The claimed smoothness is about the region that chains visit, so it is compared with the
    # curvature at the mode; where the mode was not found, with the smallest measured one, in favour
    # of the model.
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
    """The plan's effective step times ``curvature``; 0 for a link without slope."""
    return (plan.effective_step_size or 0.0) * curvature


def _too_small(model: Model, plan: Plan, measured: float, claimed: float) -> Finding:
    """Finding that the measured curvature is larger than the smoothness that the model claims."""
    relative = _relative_step(plan, measured)
    convexity = min(model.convexity or measured, measured)
    factor = (plan.slope or 1.0) * (plan.update.step_factor or 1.0)
    fitting = stable_step(measured, convexity, midpoints=plan.midpoints) / factor
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
        f" {_BEYOND_1[plan.draw_at]}, from 2 on chains diverge; use a step of"
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
    """List with one finding where the measured curvature matrix is not symmetric, so that the
    model's gradient is not the gradient of any function; else empty."""
    asymmetry = curve.asymmetry
    if not asymmetry > _ASYMMETRIC:
        return []
    text = (
        f"the changes of the gradient are not symmetric (by {asymmetry:.2g} of their size): it is"
        " not the gradient of any function; look for a sign, an index or a transposition"
    )
    return [Finding("not-a-gradient", "warning", text, numbers={"asymmetry": asymmetry})]


def _judge_clip(model: Model, plan: Plan, pilot: Pilot) -> list[Finding]:
    """List with one finding where the plan's clip cuts many gradient entries at draws around the
    mode; else empty."""
    heat = min(max(plan.temperature or 1.0, 0.1), 10.0)
    local = np.abs(plan.uplink.drawn_gradients(model, pilot.draw(heat)))
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
    grade: Grade = "infeasible" if share > HOPELESSLY_CLIPPED else "warning"
    numbers = {"clipped_fraction": share, "clip": plan.uplink.clip, "fitting": fitting}
    short = f"{100 * share:.2g} % of gradient entries will be clipped"
    return [Finding("clipped", grade, text, short, numbers)]


def _rounded_up(value: float) -> str:
    """A positive number as text with two significant digits, rounded up."""
    unit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return f"{math.ceil(value / unit - 1e-9) * unit:.3g}"
