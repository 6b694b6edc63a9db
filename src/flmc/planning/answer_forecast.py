"""Forecast of the answer that a plan's run will give, and the findings against a plan whose aim is
an answer.

A chain for an answer may be hot (have a temperature above 1): its temperature is known, and taken
out of the answer. What counts is that the gradient is linear in theta wherever the chain goes, that
kept rounds begin after the chain has come near the mode (its arrival), and that intervals are
narrow enough to be of use."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from flmc.base.arrays import Array
from flmc.base.findings import Finding, Grade
from flmc.base.special import ndtr
from flmc.models.linear import LinearGaussian
from flmc.models.model import Model
from flmc.planning.answer_law import (
    MOST_ANSWERED,
    WELL_KNOWN,
    PredictedAnswer,
    Response,
    flat_response,
    predicted_answer,
)
from flmc.planning.answer_step import linear_share
from flmc.planning.burn_in import distance_to_travel, rounds_to_near
from flmc.planning.plans import Plan
from flmc.planning.prediction import Prediction
from flmc.planning.public_model import PublicLaw, PublicModel
from flmc.planning.server_update import is_langevin
from flmc.planning.step_size import Curvature
from flmc.uplink.csi import bit_noise

ANSWER_CODES = frozenset({"width", "not-linear", "curvature-unknown"})
"""Codes of the findings about an answer: about its width, about gradients that are not linear in
theta, and about a curvature that is estimated from too few degrees of freedom."""
WIDE = 2.0
"""Standard deviation of an answer over that of the exact posterior above which a finding warns of
wide intervals."""
_UNLEARNT = 0.9
"""Ratio of an answer's total variance to the prior's from which on a run is said to teach nothing.
"""
_BENT, _HOPELESSLY_BENT = 1.25, 2.0
"""Ratio of the curvature that the rounds show to the posterior's (or one over it) above which an
answer gets a warning, because its width is off by 12 %; and above which the plan is infeasible,
because intervals mean nothing."""
_Z, _OUTSIDE = 1.6448536269514722, 0.1
"""Number of standard deviations that an interval of 90 % reaches to either side of the mean of a
normal law, and the probability that theta lies outside; both for the interval score."""
_CLIPPED = 0.015
"""Share of clipped gradient entries above which an answer gets a warning, for a model of which only
the sizes of the data are known."""
_NEAR = 4.0
"""Distance of a chain from the mode, in standard deviations of the chain, below which its rounds
count for the answer."""
_FEW_MORE = 4
"""Number of rounds that are added to the time that ``rounds_to_near`` estimates for a chain's way
to the mode, after this time is lengthened by a quarter: the estimate ignores noise."""


def forecast_answer(
    plan: Plan,
    model: Model,
    curvature: Curvature,
    law: Prediction | None,
    response: Response | None,
) -> PredictedAnswer | None:
    """Prediction of a plan's answer; None where neither ``response`` nor the convexity is known,
    the link has no slope, the step is unstable, the server's update is not Langevin's, or theta has
    too many entries.

    ``law`` is the predicted law of the plan's chain, and ``response`` holds the curvature and the
    noise that its server sees; None where they are not known. Without ``response`` the convexity is
    taken for the curvature in every direction, so that the answer is predicted too wide, if
    anything."""
    slope, heat, effective = plan.slope, plan.temperature, plan.effective_step_size
    if slope is None or heat is None or effective is None:
        return None
    if plan.dim > MOST_ANSWERED or not is_langevin(plan.update):
        return None
    rounds = rounds_that_count(plan, model, curvature, law)
    unevenness = _unevenness(plan)
    if response is not None:
        shown = response.over(slope)
        public = plan.public_curvature
        return predicted_answer(shown, _prior_precision(model), rounds, unevenness, public)
    convexity = curvature.convexity
    if convexity is None:
        return None
    flat = flat_response(plan.dim, convexity, 2.0 * heat / effective, effective)
    if flat is None:
        return None
    # The prior is taken to be as wide in every direction as in its widest entry: this understates
    # what the prior tells of theta, so the predicted answer is rather too wide.
    least = 1.0 / float(np.square(np.max(model.prior.sd)))
    prior = min(least, convexity) * np.eye(plan.dim)
    answer = predicted_answer(flat, prior, rounds, unevenness)
    return None if answer is None else replace(answer, response=None)


def public_response(plan: Plan, model: PublicModel) -> Response | None:
    """Curvature and noise that the server of a plan's chain will see in its estimates, from public
    sizes of the data; None where the step is unstable or not known. One direction of theta is given
    the smallest curvature that is likely, all others the typical one."""
    slope, heat, effective = plan.slope, plan.temperature, plan.effective_step_size
    if slope is None or heat is None or effective is None:
        return None
    curvature = np.full(plan.dim, float(model.num_samples))
    curvature[0] = model.typical_convexity
    left = 2.0 - effective * curvature
    if left.min() <= 0.0:
        return None
    # Two temperatures: 0, as if the chain stayed at the mode, and that of the chain itself. The
    # share of the curvature that estimates show at the second is relative to that at the first.
    heats = np.array([0.0, 2.0 * heat / left[-1]])
    shown = curvature * linear_share(model, plan.uplink, heats, model.num_samples)[1]
    noise = 2.0 * heat / effective
    chain = effective * noise / (shown * (2.0 - effective * shown))
    return Response(
        slope * np.diag(shown),
        np.diag(chain),
        np.full(plan.dim, slope**2 * noise),
        np.diag(1.0 / curvature),
    )


def rounds_that_count(
    plan: Plan, model: Model, curvature: Curvature, law: Prediction | None
) -> int:
    """Number of a plan's rounds from which its answer is computed: the kept ones, and those of the
    burn-in after the chain has come within four of its standard deviations of the mode; rounds in
    which nobody transmits do not count."""
    kept, arrival = (
        plan.num_rounds - plan.num_burn_in,
        rounds_to_arrive(plan, model, curvature, law),
    )
    settled = 0 if arrival is None else max(0, plan.num_burn_in - arrival)
    drawn = plan.expected.rounds
    heard = 1.0 if drawn is None else 1.0 - drawn.skipped
    return int(heard * (kept + settled))


def rounds_to_arrive(
    plan: Plan, model: Model, curvature: Curvature, law: Prediction | None = None
) -> int | None:
    """Rounds after which chains are within four of their standard deviations of the mode; None
    where that is not known. The number comes from the chains without noise that were followed for
    the prediction ``law``; where none were, from an estimate that uses the convexity."""
    convexity, heat, effective = curvature.convexity, plan.temperature, plan.effective_step_size
    followed = None if law is None else law.rounds_to_arrive
    if followed is not None and law is not None and law.memory is not None:
        # ``rounds_to_arrive`` ends where chains are within a quarter of a standard deviation of
        # their mean. Four are enough here, so the time in which the distance shrinks by a factor of
        # 16 is taken off.
        decay = -math.log(min(max(law.memory, 1e-12), 1.0 - 1e-12))
        arrival = math.ceil(followed - math.log(4 * _NEAR) / decay)
    elif effective is None or heat is None or convexity is None:
        return None
    else:
        decay = effective * convexity
        arrival = rounds_to_near(
            plan.uplink,
            plan.step_size,
            plan.burn_in_step_factor,
            plan.num_fast,
            plan.num_devices,
            distance_to_travel(model, plan.start),
            convexity,
            _NEAR * math.sqrt(heat / convexity),
        )
        # ``rounds_to_near`` ignores noise. Where chains were followed, they took up to a quarter
        # longer than it says, and a few rounds more where the way is short.
        arrival = math.ceil(1.25 * arrival) + _FEW_MORE
    if plan.num_fast and plan.burn_in_step_factor > 1.0:
        # Larger first steps raise the temperature of a chain by their factor; after them it takes
        # some rounds to cool, as the excess shrinks by exp(-2 decay) in a round.
        cooling = math.log(plan.burn_in_step_factor) / (2.0 * decay)
        arrival = max(arrival, plan.num_fast + math.ceil(cooling))
    return max(0, arrival)


def _prior_precision(model: Model) -> Array:
    """Precision matrix of the prior, (dim, dim): the Hessian of its negative log density at its
    mean, with negative eigenvalues replaced by 0."""
    if isinstance(model, LinearGaussian):
        return model.prior_precision
    mean = np.broadcast_to(np.asarray(model.prior.mean, dtype=np.float64), (model.dim,))
    matrix = model.prior.curvature(mean, np.eye(model.dim))
    values, directions = np.linalg.eigh((matrix + matrix.T) / 2)
    return np.asarray((directions * np.maximum(values, 0.0)) @ directions.T)


def _unevenness(plan: Plan) -> float:
    """Harmonic over arithmetic mean, over rounds, of the noise variance in the server's estimate: 1
    where all rounds are alike, less where they differ."""
    gain, active = plan.expected.gain, np.maximum(plan.expected.num_active, 1.0)
    bits = bit_noise(plan.uplink, plan.num_devices, plan.scheduler) * active
    noise = np.square(plan.num_devices / active) * (
        plan.uplink.noise_power / np.square(gain) + bits
    )
    of_round = noise.mean(axis=1)
    return float(1.0 / (of_round.mean() * np.mean(1.0 / of_round)))


def interval_score(answer: PredictedAnswer, shift_variance: float = 0.0) -> float:
    r"""Predicted interval score of an answer's intervals of 90 %, over that of the exact
    posterior's; 1 is perfect. ``shift_variance`` is the mean square of a shift of the answer's mean
    of which the answer does not know, in units of the posterior's variance.

    The score of an interval is its length, plus 20 times the distance by which it misses theta.
    Over many data sets it is smallest for the true law of theta: wide intervals cost length, and
    overconfident ones cost misses, so that nobody gains by stating less than is true. With the
    stated standard deviation s (``mean_width``), the true one e and k = z s/e, z = 1.645, its mean
    is :math:`2zs + 40e(\varphi(k) - k\Phi(-k))` for normal laws. The square of e holds the
    posterior's own variance, the error of the mean and the shift, but not what the unknown
    curvature adds to s."""
    stated = answer.mean_width
    error = math.sqrt(1.0 + answer.noise * stated**2 + shift_variance)
    reach = _Z * stated / error
    missed = error * (_density(reach) - reach * float(ndtr(np.array(-reach))))
    return (_Z * stated * _OUTSIDE / 2.0 + missed) / _density(_Z)


def _density(z: float) -> float:
    """Density of the standard normal law at ``z``."""
    return math.exp(-z * z / 2.0) / math.sqrt(2.0 * math.pi)


def judge_width(answer: PredictedAnswer | None) -> list[Finding]:
    """List with one finding where the predicted ``answer`` is too wide to be of use, or where
    nothing is known of its width (None); else empty."""
    if answer is None:
        text = (
            "how wide the answer's intervals will be is not known: neither the chain's law, for"
            " which the step may be too large, nor the convexity of the model is; give"
            " public_convexity"
        )
        return [Finding("width", "unknown", text, "width of the answer not known", light="use")]
    numbers = {"width": answer.width, "of_prior": answer.of_prior}
    cure = "use more rounds, a higher SNR, a larger epsilon or more examples"
    if answer.of_prior >= _UNLEARNT:
        short = "nothing will be learnt: the answer is as wide as the prior"
        return [Finding("width", "infeasible", f"{short}; {cure}", short, numbers, "use")]
    if answer.width > WIDE:
        short = f"intervals will be {answer.width:.3g} times as wide as the exact posterior's"
        return [Finding("width", "warning", f"{short}; {cure}", short, numbers, "use")]
    return []


def judge_linearity(
    answer: PredictedAnswer | None, law: Prediction | PublicLaw | None
) -> list[Finding]:
    """Findings about how well the server will learn the posterior's curvature from the rounds: the
    gradient is not linear in theta wherever the chain goes, so that the rounds show another
    curvature; whether it is linear is not known; or an estimated curvature has so few degrees of
    freedom that intervals cannot be trusted. Where ``law`` follows from public sizes alone, the
    share of clipped gradient entries is judged too."""
    findings: list[Finding] = []
    if isinstance(law, PublicLaw) and law.clipped_fraction > _CLIPPED:
        text = f"{100 * law.clipped_fraction:.2g} % of gradient entries will be clipped"
        findings.append(Finding("clipped", "warning", f"{text}: use a larger clip", text))
    if answer is None or answer.response is None:
        short = "whether the gradient is linear where the chain goes is not known"
        text = f"{short}: the chain's law cannot be predicted"
        findings.append(Finding("no-prediction", "unknown", text, short))
    else:
        low, high = answer.response
        worst = low if low * high < 1.0 else high
        off = max(worst, 1.0 / max(worst, 1e-300))
        if off > _BENT:
            grade: Grade = "infeasible" if off > _HOPELESSLY_BENT else "warning"
            short = f"rounds will show {worst:.2g} times the posterior's curvature in a direction"
            text = (
                f"{short}: clip, link, or the posterior's own shape bend the gradient where the"
                " chain goes; use a larger clip, a flatter link, or a smaller step"
            )
            numbers = {"smallest": low, "largest": high}
            findings.append(Finding("not-linear", grade, text, short, numbers))
    return [*findings, *judge_degrees(answer)]


def judge_degrees(answer: PredictedAnswer | None) -> list[Finding]:
    """List with a warning where the curvature that the server estimates from the rounds will have
    fewer than 16 degrees of freedom in some direction, too few for an answer; else empty."""
    if answer is None or answer.degrees >= WELL_KNOWN:
        return []
    short = f"the curvature will have {answer.degrees:.2g} degrees of freedom in a direction"
    text = (
        f"{short}, and with fewer than {WELL_KNOWN:g} an answer is partly the prior there; use"
        " more rounds, a larger step, coordinates in which the posterior is round, or a"
        " public_convexity"
    )
    return [Finding("curvature-unknown", "warning", text, short, {"degrees": answer.degrees})]


def judge_arrival(plan: Plan, arrival: int | None) -> list[Finding]:
    """List with one finding where kept rounds begin before a chain comes near the mode, which takes
    ``arrival`` rounds, or where this number is not known (None); else empty."""
    if arrival is None:
        text = "when kept rounds may begin is not known without the convexity of the model"
        return [Finding("burn-in-unknown", "unknown", text, "the burn-in needed is not known")]
    if arrival <= plan.num_burn_in:
        return []
    short = f"{arrival} rounds of burn-in needed, {plan.num_burn_in} planned"
    text = (
        f"burn-in of {plan.num_burn_in} rounds is short: chains take about {arrival} to come where"
        " gradients are linear; use burn_in 'auto' with more rounds, or start 'zero'"
    )
    grade: Grade = "infeasible" if arrival > 2 * plan.num_burn_in else "warning"
    numbers = {"needed": float(arrival), "planned": float(plan.num_burn_in)}
    return [Finding("burn-in", grade, text, short, numbers)]
