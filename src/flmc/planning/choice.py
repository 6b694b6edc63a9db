r"""Clip, link, slope and rounds chosen for a model, each with its reason.

Clip, slope and rounds follow rules that use the curvature. Near the posterior the sum of local
gradients has covariance H, the curvature, and where devices are alike each of the K devices has a
share 1/K of that: an entry of a local gradient has a standard deviation of at most
:math:`\sqrt{L/K}`. Where devices are not alike, local gradients are larger and cancel in the sum.
So where data are at hand and the plan may depend on them, the clip is raised until it cuts few of
the devices' gradients around the posterior and hardly moves the mean of the samples.

The link of linear regression is searched for by prediction, and the plan is then marked as
depending on data. A curved link, or a clip, weighs large gradients too little: where devices
differ, the mean symbols sum to zero at another theta than the gradients do, and the mean of the
samples moves. A straight link moves it only through the clip. A flatter link moves it less but
makes the chain slower, because the step that quantisation allows shrinks with the slope."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from flmc.base.arrays import Array, one_blas_thread
from flmc.base.errors import InvalidSetting
from flmc.base.findings import Finding
from flmc.models.linear import LinearGaussian
from flmc.models.model import Model
from flmc.models.wide_linear import WideLinear
from flmc.planning.answer_forecast import forecast_answer
from flmc.planning.decision import Request, decide
from flmc.planning.forecast import Law
from flmc.planning.judgement import law_of
from flmc.planning.limits import Limits
from flmc.planning.model_check import survey
from flmc.planning.pilot import places_at_once
from flmc.planning.plans import Plan
from flmc.planning.plans.release import rounds_per_draw
from flmc.planning.prediction import Prediction
from flmc.planning.privacy_cost import has_budget
from flmc.planning.privacy_estimate import estimate_limit
from flmc.planning.public_model import PublicModel
from flmc.planning.search import Candidate, Sloped, Trial, ask, bends, lengthen, variants
from flmc.planning.step_size import Curvature
from flmc.uplink.links import Linear, Probit, Sigmoid
from flmc.uplink.schemes import Digital
from flmc.uplink.uplink import Uplink

CLIPPED_AT = 4.25
"""Ratio of the clip that the rule chooses to the standard deviation of an entry of a local
gradient: where devices are alike 2 in 100 000 entries are clipped, and where they differ their
larger gradients mostly still fit."""
_MOST_CLIPPED, _MOST_SHIFT = 0.005, 0.1
"""Largest share of gradient entries that an automatic clip may cut, and largest shift of the
samples' mean that it may cause, in posterior standard deviations; a clip beyond either limit is
raised. The share alone would not reveal one odd device among hundreds."""
_COSTLY_CLIP = 1.5
"""Rounds per independent draw with a clip that was raised because devices' data differ, over those
with the clip for like devices: from this ratio on the note about the chosen clip states it."""
_STEEPNESS = 0.5
"""Product of slope and clip that the rule gives a curved link: at the clip its mean bit is 8 %
(sigmoid) or 6 % (probit) below that of a straight link with the same slope at 0."""
_FAMILIES = (
    (Linear(), (0.5, 0.25)),
    (Sigmoid(), (0.25, 0.5, 1.0, 2.0, 4.0)),
    # These factors give the probit slope parameters of 1.25 s/clip, which keeps the choices of
    # earlier versions; with sqrt(pi/2) in place of 1.25 its products would be exactly s.
    (Probit(), tuple(1.25 * math.sqrt(2 / math.pi) * s for s in (0.25, 0.5, 1.0, 2.0, 4.0))),
)
"""Families of links that a search tries, each with the products of its slope at 0 and the clip that
are tried. The straight link with the largest slope that the clip allows is tried too."""
_CLIPS = (1.0, 0.6, 0.4, 1.6, 2.5, 4.0, 6.5)
"""Factors by which the clip is multiplied when a search looks for a cure of a shifted mean."""
_FLATTER = (0.5, 0.25)
"""Factors by which the link's slope is multiplied when a search looks for a cure of a shifted mean.
"""
_WANTED_DRAWS = 400.0
"""Independent draws that the kept rounds of one chain should be worth when the number of rounds is
chosen: means are then known to 0.05 standard deviations, standard deviations to 4 %."""
_WANTED_WIDTH = 1.1
"""Ratio of an answer's standard deviation to the exact posterior's that the chosen number of rounds
is to reach."""
_FEW_DRAWS = 20.0
"""Independent draws of one chain below which the chosen number of rounds comes with a warning."""
_BURN_IN_MARGIN = 1.1
"""Ratio of the burn-in to the rounds after which chains that were followed from eight starts have
all reached the posterior; above 1, because other starts may take longer."""
_FIRST_TRIAL, _MOST_ROUNDS, _MOST_TRIALS = 300, 1_000_000, 12
"""In the search for a number of rounds: the rounds of the first trial, the largest number of rounds
that is tried, and the largest number of further trials, each longer than the last."""
_WORTHWHILE = 1.1
"""Factor by which a longer run must raise the number of effective draws; where it does not, the
search for more rounds ends."""


@dataclass(frozen=True)
class Choice:
    """Result of choosing settings by rule: the uplink and the settings (``request``) of a plan,
    with the chosen values filled in."""

    uplink: Uplink
    request: Request
    notes: tuple[Finding, ...]
    """One note for each setting that was chosen, with the reason for its value."""
    from_data: bool
    """Whether any value was chosen with numbers that were computed from the devices' private data.
    """


def choose(held: Candidate, free: Collection[str]) -> Choice:
    """Choose the settings that ``free`` names (of clip, link, slope and rounds, in this order), and
    keep everything else of the candidate ``held``.

    Raises ``InvalidSetting`` where the curvature that a rule needs is not known, the uplink has no
    link to choose, or its link's slope cannot be chosen."""
    model, request = held.model, held.request
    curvature = request.curvature(model)
    notes = []
    if "clip" in free:
        held, note = _with_clip(held, curvature)
        notes.append(note)
    if "link" in free or "slope" in free:
        _check_link(held.uplink)
        # Links are compared by plans, which need a number of rounds: where it is free too, the
        # default of 300 with 200 of burn-in.
        settled = replace(request, num_rounds=300, num_burn_in=200) if "rounds" in free else request
        with_link = _with_link if "link" in free else _with_slope
        uplink, note = with_link(replace(held, request=settled))
        held = replace(held, uplink=uplink)
        notes.append(note)
    if "rounds" in free:
        request, note = _with_rounds(held)
        notes.append(note)
    # A link that is chosen by prediction depends on the private data through the posterior, even
    # where the curvature is public: the plan must say so.
    predicted = "link" in free and isinstance(model, LinearGaussian)
    return Choice(held.uplink, request, tuple(notes), predicted or not curvature.public)


def _check_link(uplink: Uplink) -> None:
    """Raise ``InvalidSetting`` for an uplink without a link (the map from a gradient to the
    probability of a +1 bit)."""
    if uplink.link is None:
        raise InvalidSetting(f"link 'auto' is for the digital scheme, got {uplink.scheme!r}")


def _with_clip(held: Candidate, curvature: Curvature) -> tuple[Candidate, Finding]:
    """The candidate with a clip so large that hardly any local gradient near the posterior is
    clipped, and the note that gives the reason. The clip follows from the smoothness, for devices
    with like data; where the plan may look at the devices' gradients and these need a larger clip,
    it is raised."""
    if curvature.smoothness is None:
        raise InvalidSetting("clip 'auto' needs the smoothness, which is not known: give a clip")
    model, uplink = held.model, held.uplink
    spread = math.sqrt(curvature.smoothness / model.num_devices)
    size = f"an entry's standard deviation, sqrt(L/K) = {spread:.3g}"
    if uplink.clips_norm:
        spread *= math.sqrt(model.dim)
        size = f"sqrt(dim L/K) = {spread:.3g}"
    alike = _with_clip_of(held, CLIPPED_AT * spread)
    clip = alike.uplink.clip
    text = (
        f"clip {clip:g}: {CLIPPED_AT:g} times {size}, with smoothness L ="
        f" {curvature.smoothness:.3g} and K = {model.num_devices}, which leaves gradients near the"
        " posterior as they are"
    )
    near = None if curvature.public else _near_posterior(held)
    if near is None:
        text += (
            " if devices are alike; if they are not, more are clipped, and the mean of the samples"
            " moves: compare with the devices' own gradients before you rely on it"
        )
        return alike, Finding("chosen-clip", "note", text)
    effect = near.effect(alike.uplink)
    numbers = {"clip": clip, "clipped_fraction": effect.share}
    kind = "gradients" if uplink.clips_norm else "gradient entries"
    if near.harmless(alike.uplink):
        text += f": {100 * effect.share:.2g} % of the devices' {kind} around it are beyond the clip"
        return alike, Finding("chosen-clip", "note", text, numbers=numbers)
    raised = _with_clip_of(held, near.smallest_clip(alike.uplink))
    now = near.effect(raised.uplink).share
    price = _price_of_clip(alike, raised)
    text = (
        f"clip {raised.uplink.clip:g}: devices are not alike; around the posterior"
        f" {100 * now:.2g} % of their {kind} are beyond it, where the clip {clip:g} of like devices"
        f" ({CLIPPED_AT:g} times {size}) would cut {100 * effect.share:.2g} %"
    )
    if (effect.shift or 0.0) > _MOST_SHIFT:
        text += f" and move the mean by about {effect.shift:.2g} posterior standard deviations"
    if price is not None:
        numbers["rounds_factor"] = price
        if price >= _COSTLY_CLIP:
            text += (
                f"; an independent draw takes {price:.3g} times the rounds that it takes with that"
                " clip: devices whose data are alike would save them"
            )
    numbers |= {"clip": raised.uplink.clip, "clipped_fraction": now, "clip_if_alike": clip}
    return raised, Finding("chosen-clip", "note", text, numbers=numbers)


def _with_clip_of(held: Candidate, clip: float) -> Candidate:
    """The candidate whose uplink has the clip ``clip``, rounded to three digits."""
    return replace(held, uplink=replace(held.uplink, clip=float(f"{clip:.3g}")))


class _Cut(NamedTuple):
    """Effect of a clip near the posterior: the share of gradient entries beyond it (of whole
    gradients where their norm is clipped), and roughly how far it moves the mean of the samples, in
    posterior standard deviations (None where the posterior's covariance is not known)."""

    share: float
    shift: float | None


@dataclass(frozen=True)
class _NearPosterior:
    """What the effect of a clip is judged by, for the first data set: local gradients at values of
    theta around the posterior, (place, device, dim), and the posterior's covariance (dim, dim),
    None where it is not known."""

    local: Array
    covariance: Array | None

    def effect(self, uplink: Uplink) -> _Cut:
        """Share of the local gradients that the uplink's clip cuts, and the shift of the samples'
        mean that it causes."""
        size = np.linalg.norm(self.local, axis=2) if uplink.clips_norm else np.abs(self.local)
        share = float((size > uplink.clip).mean())
        if self.covariance is None:
            return _Cut(share, None)
        # What the clip cuts off the gradients, summed over devices and averaged over theta, is a
        # force f. It moves the mean by C f, with the posterior covariance C, which is sqrt(f^T C f)
        # in posterior standard deviations.
        lost = (self.local - uplink.clipped(self.local)).sum(axis=1).mean(axis=0)
        return _Cut(share, math.sqrt(max(0.0, float(lost @ self.covariance @ lost))))

    def harmless(self, uplink: Uplink) -> bool:
        """Whether the uplink's clip cuts at most 0.5 % of the local gradients and moves the mean by
        at most 0.1 posterior standard deviations."""
        cut = self.effect(uplink)
        return cut.share <= _MOST_CLIPPED and (cut.shift or 0.0) <= _MOST_SHIFT

    def smallest_clip(self, uplink: Uplink) -> float:
        """Smallest clip, to one per cent and above the uplink's present one, that cuts at most 0.5
        % of the local gradients and moves the mean by at most 0.1 posterior standard deviations."""
        low = uplink.clip
        high = float(np.linalg.norm(self.local, axis=2).max())
        while high > 1.01 * low:
            middle = math.sqrt(low * high)
            if self.harmless(replace(uplink, clip=middle)):
                high = middle
            else:
                low = middle
        return 1.005 * high  # still harmless after rounding to three digits


def _near_posterior(held: Candidate) -> _NearPosterior | None:
    """Local gradients around the posterior of the first data set; None where only sizes of the data
    are known, for a wide linear regression (whose examples would take long to draw), and where the
    pilot does not find the posterior."""
    model = held.model
    if isinstance(model, (PublicModel, WideLinear)):
        return None
    if model.posterior is not None:
        law: Law | None = Law.of(model.posterior)
    else:
        surveyed = survey(model)
        law = surveyed.posterior
        if law is None and not surveyed.pilot.arrived:
            return None
    with np.errstate(all="ignore"):
        places = survey(model).pilot.draw(1.0) if law is None else law.places
        places = places[: places_at_once(model)]
        local = held.uplink.drawn_gradients(model, places)
    if not np.isfinite(local).all():
        return None
    return _NearPosterior(np.asarray(local), None if law is None else law.covariance)


def _price_of_clip(alike: Candidate, raised: Candidate) -> float | None:
    """Rounds per independent draw with the clip of ``raised`` over those with the clip of
    ``alike``, estimated by the effective steps of their plans; None where either cannot be planned.
    """
    steps = []
    for each in (alike, raised):
        try:
            limit = estimate_limit(each.model, each.uplink, each.limits, each.request)
            plan = decide(each.model, each.uplink, each.limits, each.request, limit)
        except InvalidSetting:
            return None
        steps.append(plan.effective_step_size)
    before, after = steps
    return None if before is None or not after else before / after


def _with_slope(held: Candidate) -> tuple[Uplink, Finding]:
    """The candidate's uplink with the slope of its link fitted to the clip (their product is 0.5),
    and the note that says why."""
    clip = held.uplink.clip
    link: Any = held.uplink.link
    steep: Any = link.with_slope(_STEEPNESS / clip, clip)
    if steep is None or not bends(steep, clip):
        raise InvalidSetting(
            f"slope 'auto' is for the links sigmoid and probit, got {type(link).__name__}"
        )
    words = "slope"
    if hasattr(steep, "slope_parameter"):
        parameter = float(f"{steep.slope_parameter:.3g}")
        steep, words = replace(steep, slope_parameter=parameter), f"slope parameter {parameter:g}"
    text = (
        f"{words}: the slope at 0 times the clip {clip:g} is {_STEEPNESS:g}, so that the link bends"
        " by 8 % at the clip and hardly below it"
    )
    return _uplink_with(held, Sloped(steep)), Finding("chosen-slope", "note", text)


def _uplink_with(held: Candidate, link: Sloped) -> Uplink:
    changed = held.with_value("link", link)
    assert changed is not None
    return changed.uplink


def _with_link(held: Candidate) -> tuple[Uplink, Finding]:
    """The candidate's uplink with a chosen link, and the note that says why: for linear regression
    the link whose samples are predicted to be closest to the posterior, else a straight one."""
    if isinstance(held.model, LinearGaussian):
        chosen = with_closest_link(held)
        text = f"link {chosen.link!r}: by prediction its samples are closest to the posterior"
        return chosen, Finding("chosen-link", "note", text)
    text = (
        "link Linear(1.0): straight, so that the mean of the samples stays where it belongs, even"
        " if devices are not alike, as long as their gradients are not clipped; nothing that bends"
        " could be judged without data"
    )
    if held.limits.epsilon is not None:
        text += "; where devices are alike, a sigmoid or probit link costs less privacy"
    return _uplink_with(held, Sloped(Linear(1.0))), Finding("chosen-link", "note", text)


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
    >>> flmc.plan(model, uplink, flmc.Limits(epsilon=2)).verdict.light("sampling").state
    'good'
    """
    best = with_closest_link(Candidate(model, uplink, limits or Limits(), Request(**settings)))
    assert isinstance(best, Digital)
    return best


@one_blas_thread()
def with_closest_link(held: Candidate) -> Uplink:
    """The candidate's uplink with the link whose samples are predicted to be closest to the
    posterior. Raises ``InvalidSetting`` for other models than linear regression, or if no link can
    be planned for."""
    _check_link(held.uplink)
    if not isinstance(held.model, LinearGaussian):
        raise InvalidSetting(
            "link 'auto' chooses by prediction, which is for linear regression: name a link"
            " (linear keeps the mean where devices differ, unless gradients are clipped)"
        )
    links = [Sloped(Linear())]
    for family, steepness in _FAMILIES:
        links += [Sloped(family, steep / held.uplink.clip) for steep in steepness]
    answer = ask(variants(held, {"link": links}), attrgetter("closeness"))
    if answer.best is None:
        why = next(iter(answer.obstacles))
        raise InvalidSetting(
            f"link 'auto' found no link that can be planned for: name a link ({why})"
        )
    return answer.best.candidate.uplink


def cure_of_shift(held: Candidate, shift: float) -> str:
    """Advice, in words, against a shift of the samples' mean: a link or clip with which the shift
    is predicted to be smaller, or general advice where none is found. ``shift`` is the candidate's
    predicted shift, in posterior standard deviations."""
    answer = ask(
        _cures(held),
        attrgetter("closeness"),
        required=lambda trial: trial.law is not None,
    )
    best = answer.best
    if best is None:
        return "use a flatter link or a larger clip, or give the devices data that are alike"
    if best.good:
        return f"{_instruction(best, held)}, would be off by {best.mean_shift:.2g} sd"
    # Infeasible trials (those of gravity 10 or more) come last, however small their shift: they are
    # no cure.
    least = min(answer.ranked, key=lambda each: (each.gravity // 10, each.mean_shift))
    if least.mean_shift > 0.7 * shift:
        return "no other link or clip that was tried does better: give devices data that are alike"
    but = "; ".join(each.short or each.message for each in least.findings)
    return (
        f"{_instruction(least, held)}, would be off by {least.mean_shift:.2g} sd, which is the best"
        f" that was found (but {but})"
    )


def _cures(held: Candidate) -> Iterator[Candidate]:
    """Candidates that may move the samples' mean back to the posterior mean: ``held`` with a
    straight link at several clips, or a flatter link of its own family; for an uplink without a
    link, with larger clips."""
    uplink, link = held.uplink, held.uplink.link
    clips = [factor * uplink.clip for factor in _CLIPS]
    if link is None:
        yield from variants(held, {"clip": [clip for clip in clips if clip > uplink.clip]})
        return
    yield from variants(held, {"clip": clips, "link": [Sloped(Linear())]})
    if bends(link, uplink.clip):
        slopes = [share * link.slope(uplink.clip) for share in _FLATTER]
        yield from variants(held, {"link": [Sloped(link, slope) for slope in slopes]})


def _instruction(trial: Trial, held: Candidate) -> str:
    """Beginning of a sentence, for a user, such as ``use a clip of 5, which, by prediction``: it
    names the link or clip in which a trial differs from the candidate ``held``."""
    before: Any = held.uplink.link
    after: Any = trial.candidate.uplink.link
    parts = []
    if type(after) is not type(before):
        parts.append(f"the {type(after).__name__.lower()} link")
    elif after != before and hasattr(after, "slope_parameter"):
        parts.append(f"a slope parameter of {after.slope_parameter:.3g}")
    clip = trial.candidate.uplink.clip
    if clip != held.uplink.clip:
        parts.append(f"a clip of {clip:.3g}")
    return f"use {' with '.join(parts)}, which, by prediction"


def _with_rounds(held: Candidate) -> tuple[Request, Finding]:
    """The settings with enough rounds for the burn-in and 400 independent draws, or with fewer
    where more rounds add few draws; and the note that says why."""
    if held.request.aim == "answer":
        return _with_rounds_for_answer(held)
    convexity = held.request.curvature(held.model).convexity

    def at(count: int) -> Trial:
        """Trial of the candidate with ``count`` rounds and an automatic burn-in; it has a plan, but
        is not judged."""
        request = replace(held.request, num_rounds=count, num_burn_in="auto")
        # The exact privacy accountant is used, not a quick estimate, because few plans are made. It
        # is asked for every number of rounds, because more rounds share the budget.
        plan = decide(held.model, held.uplink, held.limits, request)
        if plan.effective_step_size is None or convexity is None:
            raise InvalidSetting(
                "rounds 'auto' need slope and convexity, which are not known: give a number, or"
                " public curvature"
            )
        return Trial(replace(held, request=request), plan, None, ())

    wanted = partial(_rounds_for, convexity=convexity or 0.0)
    plan = lengthen(at, _FIRST_TRIAL, wanted, _MOST_TRIALS, _WORTHWHILE).plan
    assert plan is not None
    plan = _until_arrival(held, plan)
    settled = replace(held.request, num_rounds=plan.num_rounds, num_burn_in=plan.num_burn_in)
    few = (plan.effective_draws or 0.0) < _FEW_DRAWS
    return settled, Finding("chosen-rounds", "warning" if few else "note", _rounds_in_words(plan))


def _with_rounds_for_answer(held: Candidate) -> tuple[Request, Finding]:
    """The settings with so many rounds that an answer's intervals are predicted to be 1.1 times as
    wide as the exact posterior's, or with fewer where more rounds hardly narrow them; and the note
    that says why. The prediction takes the convexity for the curvature in every direction."""
    curvature, count, last = held.request.curvature(held.model), _FIRST_TRIAL, math.inf
    while True:
        request = replace(held.request, num_rounds=count, num_burn_in="auto")
        plan = decide(held.model, held.uplink, held.limits, request)
        answer = forecast_answer(plan, held.model, curvature, None, None)
        if answer is None:
            raise InvalidSetting(
                "rounds 'auto' need slope and convexity, which are not known: give a number, or"
                " public curvature"
            )
        # Under a privacy budget of the run, more rounds allow smaller gains, so that the total
        # noise stays the same and the width may stop falling.
        longer = math.ceil(1.3 * count)
        if answer.width <= _WANTED_WIDTH or answer.width > 0.98 * last or longer > _MOST_ROUNDS:
            break
        count, last = longer, answer.width
    text = (
        f"rounds {count}: {plan.num_burn_in} until a chain has arrived, and as many as bring the"
        f" answer's intervals to {answer.width:.3g} times the width of the exact posterior's"
    )
    if answer.width > _WANTED_WIDTH:
        text += f"; {_WANTED_WIDTH:g} was wanted, and more rounds hardly help"
    settled = replace(request, num_burn_in=plan.num_burn_in)
    return settled, Finding("chosen-rounds", "note", text)


def _until_arrival(held: Candidate, plan: Plan) -> Plan:
    """The plan with a longer burn-in, where chains that are followed without noise take more rounds
    to the posterior than its burn-in has; else the plan as it is. The number of kept rounds does
    not change."""
    model = held.model
    shared = held.limits.scope == "run" and has_budget(held.uplink, held.limits)
    # Chains are not followed, and the burn-in stays, where the posterior is known, where more
    # rounds would share a budget of the run, and where a public plan must not look at the data.
    if model.posterior is not None or shared:
        return plan
    if held.request.curvature(model).public:
        return plan
    law = law_of(plan, model)
    arrival = law.rounds_to_arrive if isinstance(law, Prediction) else None
    if arrival is None or arrival <= plan.num_burn_in:
        return plan
    burn_in = math.ceil(_BURN_IN_MARGIN * arrival)
    total = burn_in + plan.num_rounds - plan.num_burn_in
    if total > _MOST_ROUNDS:
        return plan
    request = replace(held.request, num_rounds=total, num_burn_in=burn_in)
    return decide(model, held.uplink, held.limits, request)


def _rounds_for(trial: Trial, convexity: float) -> int:
    """Number of rounds, burn-in included, after which a chain with the step of a trial's plan is
    worth 400 independent draws, rounded up to two significant digits; at most a million."""
    plan = trial.plan
    assert plan is not None
    # Share of a deviation from the mean that a chain forgets in a round.
    forgotten = (plan.effective_step_size or 0.0) * convexity
    each = rounds_per_draw(forgotten, midpoints=plan.midpoints)
    wanted = (plan.rounds_needed or 0) + math.ceil(_WANTED_DRAWS * each)
    unit = int(10 ** max(0, len(str(wanted)) - 2))
    return min(_MOST_ROUNDS, -(-wanted // unit) * unit)


def _rounds_in_words(plan: Plan) -> str:
    """Sentence about a plan's rounds: burn-in, kept rounds, and the independent draws that these
    are worth."""
    needed = plan.rounds_needed or 0
    arrives = "until a chain has arrived"
    if needed > plan.num_burn_in:
        arrives = f"of burn-in, where {needed} would be needed"
    text = (
        f"rounds {plan.num_rounds}: {plan.num_burn_in} {arrives}, and"
        f" {plan.num_rounds - plan.num_burn_in} in which it is worth"
        f" {plan.effective_draws or 0:.3g} independent draws"
    )
    if plan.num_rounds >= _MOST_ROUNDS:
        text += f"; {_WANTED_DRAWS:g} were wanted, and {_MOST_ROUNDS} rounds are the most: the"
        text += " posterior is far wider in one direction than in another, use flmc.whiten"
    elif (plan.effective_draws or 0.0) < 0.9 * _WANTED_DRAWS:
        text += f"; {_WANTED_DRAWS:g} were wanted, but more rounds share the budget of the run"
    return text
