"""One search for settings: link, slope, clip, bounds of examples, rounds, SNR, epsilon, sizes.

A :class:`Candidate` holds everything that a plan is made from. A query (such as ``suggest``) holds
most of it fixed, and lists the values of what is free (:func:`variants`), says how rounds grow
(:func:`lengthen`), or searches one number along an :class:`Axis` (:func:`smallest`). Every
candidate becomes a :class:`Trial`: its plan, made with a quick estimate of the privacy limit where
the accountant would be slow, and the findings against the plan (:mod:`flmc.planning.judgement`). A
query also says what is required of a trial and what is minimised (:func:`ask`); the :class:`Answer`
has the best trial, the table of all trials, and the counts of findings against them. The best
candidate is planned again with the accountant before the user gets it.

The queries: :mod:`flmc.planning.choice` (``choose``, link ``auto``, cures of a shift),
:mod:`flmc.planning.suggestion` (``suggest`` and its obstacles), ``what_if`` of
:mod:`flmc.planning.planner`, and :mod:`flmc.settings.questions` (``solve``)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from flmc.base.errors import InvalidSetting
from flmc.base.findings import Finding
from flmc.models.model import Model
from flmc.planning.answer_forecast import interval_score
from flmc.planning.answer_law import PredictedAnswer
from flmc.planning.decision import Request, decide
from flmc.planning.judgement import judge_chain
from flmc.planning.limits import Limits
from flmc.planning.plans import Plan
from flmc.planning.prediction import Prediction
from flmc.planning.privacy_estimate import estimate_limit
from flmc.planning.public_model import PublicLaw, PublicModel
from flmc.uplink.example_clipping import norm_shrink_factor
from flmc.uplink.link import Link
from flmc.uplink.uplink import Uplink

_GRAVITY = {"note": 0.0, "unknown": 1.0, "warning": 1.0, "infeasible": 10.0}
"""Weight of a finding by its severity. Trials are ranked by the sum over their findings: no plan
has ten warnings, so one ``infeasible`` finding outweighs all warnings."""


class Sloped(NamedTuple):
    """Choice of a link by its slope, before the clip is known: the link of the ``family`` that has
    the ``slope`` at 0; with slope None, ``family`` itself."""

    family: Link
    slope: float | None = None

    def at(self, clip: float) -> Link | None:
        """The chosen link, for gradients clipped at ``clip``; None where no link of the family has
        so large a slope with this clip."""
        return self.family if self.slope is None else self.family.with_slope(self.slope, clip)


def bends(link: Link, clip: float) -> bool:
    """Whether a link is curved below the clip: its mean bit at the clip is smaller than a straight
    line with its slope at 0 would give."""
    bound = link.bound_to(clip)  # a straight link gets its shape from the clip
    return float(bound.mean(np.array(clip), clip)) < (1 - 1e-6) * clip * bound.slope(clip)


@dataclass(frozen=True)
class Candidate:
    """Everything that one plan is made from: model, uplink, limits and settings (``request``)."""

    model: Model
    uplink: Uplink
    limits: Limits
    request: Request = field(default_factory=Request)

    def with_value(self, name: str, value: Any) -> Candidate | None:
        """The candidate with another value of the setting ``name``, which is a field of its uplink,
        limits or request, or a size of its public model; None where the new link would need a
        larger slope than any link of its family has.

        A ``link`` is given as a :class:`Sloped`. An ``example_norm`` replaces any bound of single
        examples. ``num_samples`` and ``num_devices`` are the sizes that may be changed.
        """
        if name == "link":
            link = value.at(self.uplink.clip)
            return None if link is None else self._with_uplink(link=link)
        if name == "example_norm":
            share = norm_shrink_factor(value, self.model.dim)
            return self._with_uplink(example_clip=None, example_norm=value, example_shrink=share)
        if name in ("num_samples", "num_devices"):
            assert isinstance(self.model, PublicModel)
            sizes = {
                "num_samples": self.model.num_samples,
                "num_devices": self.model.num_devices,
                "dim": self.model.dim,
            }
            return replace(self, model=PublicModel(**{**sizes, name: value}))
        # Limits, requests and uplinks have no names in common, so the name tells which of them is
        # changed.
        if name in Limits.__dataclass_fields__:
            return replace(self, limits=replace(self.limits, **{name: value}))
        if name in Request.__dataclass_fields__:
            return replace(self, request=replace(self.request, **{name: value}))
        return self._with_uplink(**{name: value})

    def _with_uplink(self, **changes: Any) -> Candidate:
        return replace(self, uplink=replace(self.uplink, **changes))

    def try_out(self, limit: Callable[[], float | None] | None = None) -> Trial:
        """Trial of this candidate: its plan with the findings against the plan, or the reason why
        none can be made.

        ``limit`` returns a gain that is taken for the largest within the privacy budget; where it
        returns None, the accountant computes that gain. Without ``limit`` the gain is estimated
        where the budget is for the run, for which the accountant is slow, and computed by the
        accountant elsewhere.
        """
        model, uplink, limits, request = self.model, self.uplink, self.limits, self.request
        try:
            allowed = limit() if limit else estimate_limit(model, uplink, limits, request)
            plan = decide(model, uplink, limits, request, allowed)
        except InvalidSetting as error:
            return Trial(self, None, None, (), str(error))
        judged = judge_chain(plan, model, request.curvature(model), candidate=True)
        return Trial(self, plan, judged.law, tuple(judged.findings), answer=judged.answer)


def variants(held: Candidate, free: Mapping[str, Sequence[Any]]) -> Iterator[Candidate]:
    """Candidates made from ``held`` with every combination of the values that ``free`` lists by
    name of the setting; combinations for which there is no link are left out. The last setting
    changes fastest."""
    if not free:
        yield held
        return
    (name, values), *rest = free.items()
    for value in values:
        changed = held.with_value(name, value)
        if changed is not None:
            yield from variants(changed, dict(rest))


@dataclass(frozen=True)
class Trial:
    """A candidate that was tried out: its plan, and the findings about that plan."""

    candidate: Candidate
    plan: Plan | None
    """The plan. Its own fields for prediction and findings are empty: the trial holds them, as
    ``law`` and ``findings``. None where no plan can be made."""
    law: Prediction | PublicLaw | None
    """The law that the plan's chain is predicted to sample; None where it is not known."""
    findings: tuple[Finding, ...]
    refusal: str = ""
    """The message that says why no plan can be made for this candidate; empty where a plan was
    made."""
    answer: PredictedAnswer | None = None
    """The predicted answer of the plan's run; None where it is not known."""

    @property
    def good(self) -> bool:
        """Whether a plan could be made, and all findings about it are notes."""
        return self.plan is not None and not self.gravity

    @property
    def gravity(self) -> float:
        """Sum of the weights of all findings (1 for a warning or an unknown, 10 for an infeasible,
        0 for a note)."""
        return sum(_GRAVITY[each.severity] for each in self.findings)

    @property
    def mean_shift(self) -> float:
        """Predicted shift of the samples' mean from the posterior mean, in posterior standard
        deviations; infinite if unknown."""
        shift = None if self.law is None else self.law.mean_shift
        return math.inf if shift is None else shift

    @property
    def score(self) -> float:
        """Predicted interval score of the plan's answer, with the shift of its mean counted in,
        over the score of the exact posterior; infinite where the answer is not known."""
        if self.plan is None or self.answer is None:
            return math.inf
        # ``mean_shift`` is the length of the shift over all entries together, in posterior standard
        # deviations; the score needs the mean square of one entry.
        return interval_score(self.answer, self.mean_shift**2 / self.plan.dim)

    @property
    def closeness(self) -> tuple[float, float]:
        """Sort key, smallest for the best samples. The first number is ``gravity``, the weight of
        the findings; the second is the expected squared distance of a chain's draws from the
        posterior, in posterior units, or ``score`` for a plan whose aim is an answer.

        The distance is roughly the squared 2-Wasserstein distance of the predicted law, plus dim
        over the number of independent draws that the kept rounds are worth; infinite without a
        prediction.
        """
        plan = self.plan
        if plan is None:
            return math.inf, math.inf
        if plan.aim == "answer":
            return self.gravity, self.score
        law = self.law
        off = (law.distance_squared or 0.0) if isinstance(law, Prediction) else math.inf
        # Effective draws of the kept rounds: the needed burn-in is about five relaxation times of
        # the chain, and an independent draw takes about two.
        draws = (plan.num_rounds - plan.num_burn_in) * 5.0 / (2.0 * (plan.rounds_needed or 1))
        return self.gravity, off + plan.dim / draws

    @property
    def length(self) -> tuple[float, float]:
        """Sort key, smallest for the shortest run: number of rounds, then number of needed rounds
        of burn-in."""
        plan = self.plan
        if plan is None:
            return math.inf, math.inf
        return plan.num_rounds, plan.rounds_needed or 0


@dataclass(frozen=True)
class Answer:
    """Result of a search: all trials, and a ranking of the trials that meet the requirements."""

    table: tuple[Trial, ...]
    """All trials of the search, in the order in which the candidates were tried."""
    ranked: tuple[Trial, ...]
    """Trials that meet the requirements, the best first."""

    @property
    def best(self) -> Trial | None:
        """The best trial; None where none meets the requirements."""
        return self.ranked[0] if self.ranked else None

    @property
    def obstacles(self) -> dict[str, int]:
        """Number of trials, for each code of a finding about them, or for each message that says
        why no plan can be made; the most frequent first."""
        counts: Counter[str] = Counter()
        for each in self.table:
            codes = {finding.code for finding in each.findings}
            counts.update([each.refusal] if each.plan is None else codes)
        return dict(counts.most_common())


def ask(
    candidates: Iterable[Candidate],
    minimise: Callable[[Trial], tuple[float, float]],
    *,
    required: Callable[[Trial], bool] = lambda trial: trial.plan is not None,
    try_out: Callable[[Candidate], Trial] = Candidate.try_out,
) -> Answer:
    """Try out every candidate, and rank the trials for which ``required`` is true by the sort key
    ``minimise``, the smallest first; trials with equal keys stay in order."""
    table = tuple(try_out(each) for each in candidates)
    return Answer(table, tuple(sorted(filter(required, table), key=minimise)))


def lengthen(
    at: Callable[[int], Trial],
    first: int,
    wanted: Callable[[Trial], int],
    most_trials: int,
    worthwhile: float = 0.0,
) -> Trial:
    """Trial of a run that grows from ``first`` rounds until it has as many as it needs.

    ``at`` makes the trial with a number of rounds; ``wanted`` gives the number of rounds that a
    trial needs. Under a budget of the run more rounds leave a smaller gain, which needs a smaller
    step, which needs more rounds: the result is the fixed point, if there is one. Growth also ends
    after ``most_trials`` longer runs, or with the last run that had at least ``worthwhile`` times
    as many effective draws as the one before.
    """
    trial = at(first)
    for _ in range(most_trials):
        count = wanted(trial)
        if trial.plan is None or count <= trial.plan.num_rounds:
            break
        longer = at(count)
        if worthwhile and _draws(longer) < worthwhile * _draws(trial):
            break
        trial = longer
    return trial


def _draws(trial: Trial) -> float:
    return (trial.plan.effective_draws or 0.0) if trial.plan is not None else 0.0


class Axis(NamedTuple):
    """Scale on which a search for the value of one number takes its steps: decibels, or natural
    logarithms of the number."""

    step: float
    """First step of a search away from the value at which it starts, in units of the scale
    (decibels, or logarithms of the number)."""
    reach: float
    """Largest distance of a search from the value at which it starts, in units of the scale
    (decibels, or logarithms of the number)."""
    resolution: float
    """Largest error of the result, in units of the scale (decibels, or logarithms of the number).
    """
    whole: bool = False
    """Whether the number that is searched for must be whole."""
    best: bool = False
    """Whether the search is for the value with the best trial; if False, for the smallest value
    that suffices."""


def bisect(meets: Callable[[float], bool], low: float, high: float, resolution: float) -> float:
    """Smallest number between ``low`` and ``high`` at which ``meets`` is true, to ``resolution``;
    ``meets`` is true at ``high`` and assumed to be false at ``low``."""
    while high - low > resolution:
        middle = (low + high) / 2
        low, high = (low, middle) if meets(middle) else (middle, high)
    return high


def smallest(meets: Callable[[float], bool], start: float, axis: Axis) -> float | None:
    """Smallest value on the scale ``axis`` at which ``meets`` is true, found by growing steps from
    ``start`` and then by halving; None where ``meets`` is true at no tried value within reach.

    Where ``meets`` is true at ``start``, smaller values are tried; else larger ones and, if
    ``meets`` is true at none of them, smaller ones after all, because more is not always better."""
    bracket = _bracket(meets, start, axis)
    return None if bracket is None else bisect(meets, *bracket, axis.resolution)


def _bracket(
    meets: Callable[[float], bool], start: float, axis: Axis
) -> tuple[float, float] | None:
    """Two values on the scale ``axis`` between which a search by halving may begin: a lower one at
    which ``meets`` is false, or at which the search ends, and an upper one at which ``meets`` is
    true. None if ``meets`` is true at no tried value."""
    step, last = axis.step, start
    if meets(start):
        while last > start - axis.reach:
            there = max(last - step, start - axis.reach)
            if not meets(there):
                return there, last
            last, step = there, 1.5 * step
        # ``meets`` is true at every tried value within reach, so the lowest of them is the result:
        # the two returned values are closer than the resolution, and leave nothing to halve.
        return last - axis.resolution / 2, last
    for sign in (1.0, -1.0):
        step, last = axis.step, start
        while abs(last + sign * step - start) <= axis.reach:
            there = last + sign * step
            if meets(there):
                return (last, there) if sign > 0 else _bracket_below(meets, there, axis)
            last, step = there, 1.5 * step
    return None


def _bracket_below(meets: Callable[[float], bool], place: float, axis: Axis) -> tuple[float, float]:
    """Two values on the scale ``axis`` between which a search by halving may begin, found by
    growing steps downwards from ``place``, at which ``meets`` is true: a lower one at which
    ``meets`` is false, or at which the search ends, and an upper one at which it is true."""
    step = axis.step
    while meets(place - step) and step < axis.reach:
        place, step = place - step, 1.5 * step
    return place - step, place
