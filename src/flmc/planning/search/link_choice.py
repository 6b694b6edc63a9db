"""Which link suits the devices, by prediction: plans with other links and clips, judged alike.

Where devices differ, their gradients near the posterior mean are large and cancel in the sum. A
curved link, or a clip, weighs large gradients too little, so that what the server sees cancels
elsewhere: the mean of the samples moves. A straight link moves it only through the clip. A flatter
link moves it less and is slower, because the step that quantisation allows shrinks with the slope.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from flmc.base.arrays import one_blas_thread
from flmc.base.errors import InvalidSetting
from flmc.base.findings import Finding
from flmc.models.linear import LinearGaussian
from flmc.models.model import Model
from flmc.planning import judgement
from flmc.planning.decision import Request, decide
from flmc.planning.judgement import predict_plan
from flmc.planning.limits import Limits
from flmc.planning.plans import Plan
from flmc.planning.prediction import Prediction
from flmc.planning.search.privacy_estimate import estimate_limit
from flmc.uplink.link import Link
from flmc.uplink.links import Linear, Probit, Sigmoid
from flmc.uplink.schemes import Digital
from flmc.uplink.uplink import Uplink

_STEEPNESS = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Slope times clip of the curved links that are tried: how steep a link is over its range."""
_RATIOS = (1.0, 0.5, 0.25)
"""Mean bit at the clip of the straight links that are tried."""
_CLIPS = (1.0, 0.6, 0.4, 1.6, 2.5, 4.0, 6.5)
"""Factors of the clip that are tried as a cure."""
_GRAVITY = {"note": 0.0, "warning": 1.0, "infeasible": 10.0}
"""How much findings count against a plan."""


@dataclass(frozen=True)
class Candidate:
    """A plan that was tried, what it is predicted to sample, and what speaks against it.

    Attributes
    ----------
    plan, prediction, findings
        The plan without a forecast, its prediction (None where there is none), and the findings.
    """

    plan: Plan
    prediction: Prediction | None
    findings: tuple[Finding, ...]

    @property
    def order(self) -> tuple[float, float]:
        """What candidates are compared by, smaller is better: gravity of the findings, then the
        expected squared distance of a chain's draws from the posterior, in posterior units.

        The second is the squared W2 distance of the predicted law, plus dim over the number of
        independent draws that the kept rounds are worth, roughly."""
        gravity = sum(_GRAVITY[each.severity] for each in self.findings)
        law = self.prediction
        off = float("inf") if law is None else law.distance_squared or 0.0
        needed = self.plan.rounds_needed or 1
        # Burn-in takes about five relaxation times, and a relaxation time is two draws' worth.
        draws = (self.plan.num_rounds - self.plan.num_burn_in) * 5.0 / (2.0 * needed)
        return gravity, off + self.plan.dim / draws

    @property
    def works(self) -> bool:
        """Whether nothing speaks against the plan, and its law is predicted."""
        return self.prediction is not None and self.order[0] == 0.0


def assess(model: Model, uplink: Uplink, limits: Limits, request: Request) -> Candidate | None:
    """A plan with this uplink, predicted and judged; None where no plan can be made.

    What a budget of the run allows is estimated.

    Parameters
    ----------
    model, uplink, limits, request
        What is planned.
    """
    try:
        plan = decide(
            model, uplink, limits, request, estimate_limit(model, uplink, limits, request)
        )
    except InvalidSetting:
        return None
    heat = plan.temperature
    if heat is None:
        return Candidate(plan, None, (judgement.no_slope(),))
    law = predict_plan(plan, model)
    findings = [
        *judgement.judge_temperature(heat),
        *judgement.judge_burn_in(plan, request.curvature(model)),
        *([] if law is None else judgement.judge_shift(law.mean_shift or 0.0, lambda: "")),
        *judgement.judge_prediction(law, heat),
    ]
    return Candidate(plan, law, tuple(findings))


@one_blas_thread()
def choose_link(
    model: Model, uplink: Digital, limits: Limits | None = None, **settings: Any
) -> Digital:
    """The digital uplink with the link that is predicted to suit the devices best, at its clip.

    Sigmoid, probit and linear links of several slopes are planned, predicted and judged. The one
    with the fewest and mildest findings is chosen; among equals, the one whose draws are expected
    to be closest to the posterior.

    Parameters
    ----------
    model
        Linear regression, whose chain can be predicted.
    uplink
        Gives everything but the link.
    limits
        Privacy budget and Langevin limit; None: no budget, calibrated noise.
    **settings
        The other settings of :func:`flmc.plan`, such as ``num_rounds``.

    Returns
    -------
    Digital
        A copy with the link that was chosen.

    Raises
    ------
    InvalidSetting
        If the chain of the model cannot be predicted, or no link can be planned for.

    Examples
    --------
    >>> model = flmc.LinearGaussian(flmc.data.draw_linear(seed=1))
    >>> uplink = flmc.choose_link(model, flmc.Digital(), flmc.Limits(epsilon=2))
    >>> flmc.plan(model, uplink, flmc.Limits(epsilon=2)).warnings
    ()
    """
    if not isinstance(model, LinearGaussian):
        raise InvalidSetting(
            "link 'auto' chooses by prediction, which is for linear regression: name a link"
            " (linear is unbiased up to its clip where devices differ)"
        )
    request = Request(**settings)
    tried = [
        assess(model, replace(uplink, link=link), limits or Limits(), request)
        for link in _links_at(uplink.clip)
    ]
    found = [each for each in tried if each is not None]
    if not found:
        raise InvalidSetting("link 'auto' found no link that can be planned for: name a link")
    best = min(found, key=lambda each: each.order).plan.uplink
    assert isinstance(best, Digital)
    return best


def _links_at(clip: float) -> Iterator[Link]:
    """Links of several slopes for gradients up to a clip."""
    yield from (Linear(ratio) for ratio in _RATIOS)
    # The slope is a/2 for the sigmoid and 0.8 a for the probit.
    yield from (Sigmoid(2.0 * steep / clip) for steep in _STEEPNESS)
    yield from (Probit(1.25 * steep / clip) for steep in _STEEPNESS)


def cure_of_shift(decided: Plan, model: Model, request: Request, shift: float) -> str:
    """Words about a link or a clip with which the mean stays where it belongs, found by prediction.

    Parameters
    ----------
    decided
        A plan whose mean is predicted to be off.
    model, request
        What it was made for and with.
    shift
        By how many posterior standard deviations its mean is off.
    """
    tried = [assess(model, uplink, decided.limits, request) for uplink in _cures(decided.uplink)]
    found = [each for each in tried if each is not None and each.prediction is not None]
    working = [each for each in found if each.works]
    if working:
        best = min(working, key=lambda each: each.order)
        return f"{_in_words(best, decided)}, would be off by {_shift(best):.2g} sd"
    if not found:
        return "use a flatter link or a larger clip, or give the devices data that are alike"
    least = min(found, key=lambda each: (each.order[0] // 10, _shift(each)))
    if _shift(least) > 0.7 * shift:
        return "no other link or clip that was tried does better: give devices data that are alike"
    but = "; ".join(each.short or each.message for each in least.findings)
    return (
        f"{_in_words(least, decided)}, would be off by {_shift(least):.2g} sd, which is the best"
        f" that was found (but {but})"
    )


def _cures(uplink: Uplink) -> Iterator[Uplink]:
    """Uplinks that may cure a shift: straight and flatter links, other clips."""
    clips = [factor * uplink.clip for factor in _CLIPS]
    if not isinstance(uplink, Digital):
        yield from (replace(uplink, clip=clip) for clip in clips if clip > uplink.clip)
        return
    for clip in clips:
        yield replace(uplink, link=Linear(), clip=clip)
    if isinstance(uplink.link, Sigmoid | Probit):
        for share in (0.5, 0.25):
            flatter = replace(uplink.link, slope_parameter=share * uplink.link.slope_parameter)
            yield replace(uplink, link=flatter)


def _shift(candidate: Candidate) -> float:
    """Predicted shift of the mean, in posterior standard deviations."""
    law = candidate.prediction
    return float("inf") if law is None or law.mean_shift is None else law.mean_shift


def _in_words(candidate: Candidate, decided: Plan) -> str:
    """What a candidate changes, as an instruction."""
    uplink = candidate.plan.uplink
    parts = []
    if isinstance(uplink, Digital) and isinstance(decided.uplink, Digital):
        if type(uplink.link) is not type(decided.uplink.link):
            parts.append(f"the {type(uplink.link).__name__.lower()} link")
        elif uplink.link != decided.uplink.link and isinstance(uplink.link, Sigmoid | Probit):
            parts.append(f"a slope parameter of {uplink.link.slope_parameter:.3g}")
    if uplink.clip != decided.uplink.clip:
        parts.append(f"a clip of {uplink.clip:.3g}")
    return f"use {' with '.join(parts)}, which, by prediction"
