"""Suggestion of settings that meet a user's requirements, from public knowledge alone: sizes of the
data, and the scale of the features.

Many plans are made with a quick estimate of the privacy limit; the best are made again with the
exact accountant, and returned only if they have no findings but notes. Where no settings fit, the
same search with one requirement relaxed at a time tells which requirements are too strict, and by
how much."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

from flmc.base.errors import InvalidSetting
from flmc.base.findings import Finding
from flmc.planning.decision import Request
from flmc.planning.judgement import FEW_DRAWS, clip_in_words
from flmc.planning.plans import Plan
from flmc.planning.plans.release import rounds_per_draw
from flmc.planning.privacy_cost import has_budget, privacy_limited_gain
from flmc.planning.privacy_estimate import estimate_gain, gain_estimator
from flmc.planning.public_model import PublicModel
from flmc.planning.search import (
    Answer,
    Candidate,
    Sloped,
    Trial,
    ask,
    bends,
    bisect,
    lengthen,
    variants,
)
from flmc.uplink.links import Linear, Sigmoid
from flmc.uplink.uplink import Uplink

MOST_ROUNDS = 100_000
"""Largest number of rounds that is suggested; a candidate that needs more is given up."""
_KEPT = 60
"""Number of kept rounds in a suggestion, unless the user fixed the number of rounds."""
_FEWEST_BURN_IN = 40
"""Smallest number of rounds of burn-in that is suggested."""
_MARGIN = 1.05
"""Ratio of the suggested rounds of burn-in to those needed: above 1, because the number needed is a
rough estimate."""
_MOST_TRIALS = 39
"""Largest number of trials with one uplink, each with more rounds than the one before."""
_LONGER = 2.0
"""Ratio of the suggested kept rounds to those that make one chain worth enough independent draws if
the link is straight: with links that bend, chains forget more slowly."""
MOST_SUGGESTIONS = 4
"""Largest number of candidates, the best of the search, whose plans are made again with the exact
privacy accountant."""
_LARGEST_FACTOR = math.log(1000.0)
"""Natural logarithm of the largest factor by which a requirement is relaxed, in the search for
requirements that keep all settings from fitting; a requirement that would have to be relaxed
further is not named."""
_RESOLUTION = 0.03
"""Largest error, in natural logarithms, of the smallest factor that is found by which a requirement
must be relaxed."""
PROMISING = 4
"""Number of candidates that are tried again with a relaxed requirement: those that need the fewest
rounds."""


@dataclass(frozen=True)
class PublicQuestion:
    """Search for settings with which no finding speaks against a plan, where only the sizes of the
    data are known."""

    held: Candidate
    """The candidate that the search starts from: the given settings, starting values of the free
    ones, and a model of which only sizes are known."""
    fixed: frozenset[str] = frozenset()
    """Names of the settings that were given among ``link``, ``slope_parameter``, ``clip``,
    ``example_bound``, ``num_rounds`` and ``num_burn_in``; the rest of these are free. A step, a
    gain, a start and a factor of early steps are fixed by the request itself."""
    steepness: ClassVar[tuple[float, ...]] = (0.07, 0.1, 0.14, 0.2, 0.28, 0.4)
    """Slopes of links that are tried, multiplied by the standard deviation of an entry of a local
    gradient; links of larger slope bend more."""
    clips: ClassVar[tuple[float, ...]] = (3.0, 3.5, 4.5)
    """Clips that are tried where privacy hides whole devices, in standard deviations of an entry of
    a local gradient."""
    wide_clips: ClassVar[tuple[float, ...]] = (3.5, 6.0)
    """Clips that are tried where privacy hides single examples, in standard deviations of an entry
    of a local gradient. They may be wide, because the bound of examples decides the privacy cost.
    """
    example_norms: ClassVar[tuple[float, ...]] = (2.1, 2.5, 3.0, 3.5)
    """Bounds of the norm of an example's gradient that are tried, divided by sqrt(dim + 2)."""
    correction: float = 1.0
    """Factor by which the estimated privacy limit of the gain is multiplied: the exact limit over
    the estimate for one trial, slightly lowered; 1 before it is measured."""

    @property
    def model(self) -> PublicModel:
        """The model of the search: a linear regression of which only sizes are known."""
        assert isinstance(self.held.model, PublicModel)
        return self.held.model

    def relaxed(self, name: str, value: Any) -> PublicQuestion:
        """A copy of this search with another value of the setting ``name``."""
        held = self.held.with_value(name, value)
        assert held is not None
        return replace(self, held=held)

    def suggestions(self) -> Iterator[Trial]:
        """At most four trials whose plans were made with the accountant's exact privacy limit and
        have no findings but notes; the shortest run first."""
        for trial in self.calibrated.answer.ranked[:MOST_SUGGESTIONS]:
            verified = self.calibrated._verified(trial)
            if verified is not None:
                yield verified

    @cached_property
    def calibrated(self) -> PublicQuestion:
        """A copy of this search whose ``correction`` is the exact privacy limit of the gain over
        the estimated one, for the best trial; the search itself where there is no such trial, no
        budget, or power clearly decides the gain."""
        limits = self.held.limits
        best = self.answer.best
        if best is None or not has_budget(self.held.uplink, limits):
            return self
        plan = _plan_of(best)
        sizes = (self.model.num_devices, self.model.dim, plan.num_rounds)
        guess = estimate_gain(plan.uplink, limits, *sizes)
        if plan.binding == "power" and self.correction * guess > 1.3 * plan.gain_limits.power:
            # Power limits the gain by a margin larger than the estimate's error, so the exact
            # privacy limit is not needed.
            return self
        exact = privacy_limited_gain(plan.uplink, limits, *sizes)
        # The factor is slightly lowered, so that trials with nearby links and rounds keep the exact
        # budget too.
        return replace(self, correction=0.999 * exact / guess)

    @cached_property
    def answer(self) -> Answer:
        """Result of the search with the estimated privacy limit: trials with no findings but notes
        are ranked, the shortest run first."""
        return ask(self.candidates(), self.rank, required=self.fits, try_out=self.settle)

    def rank(self, trial: Trial) -> tuple[float, float]:
        """Sort key of a trial, smallest for the best: its number of rounds, then its needed rounds
        of burn-in."""
        return trial.length

    def fits(self, trial: Trial) -> bool:
        """Whether a trial may be suggested: a plan could be made, and there are no findings against
        it but notes."""
        return trial.good

    @property
    def lacking(self) -> str:
        """What the best trial lacks, as the end of a sentence, for the message that no settings
        fit. It is empty here, because the obstacles tell more; subclasses may have it."""
        return ""

    def candidates(self) -> Iterator[Candidate]:
        """Candidates with every combination of the tried values of the settings that the user left
        open; the number of rounds is not among these."""
        spread, example = self.model.spread, self.held.limits.neighbouring == "example"
        free: dict[str, Sequence[Any]] = {}
        if "clip" not in self.fixed:
            clips = self.wide_clips if example else self.clips
            free["clip"] = [factor * spread for factor in clips]
        if example and "example_bound" not in self.fixed:
            # The norm of an example is bounded, not its entries: all entries share the bound, which
            # costs less privacy.
            root = math.sqrt(self.model.dim + 2.0)
            free["example_norm"] = [factor * root for factor in self.example_norms]
        links = self._links()
        if links:
            free["link"] = links
        return variants(self.held, free)

    def _links(self) -> list[Sloped]:
        """Links that are tried: of the family that the user fixed, else sigmoid and linear; empty
        where the slope is fixed or the uplink has no link."""
        given, clip = self.held.uplink.link, self.held.uplink.clip
        if given is None or "slope_parameter" in self.fixed:
            return []
        families = [given] if "link" in self.fixed else [Sigmoid(), Linear()]
        # A family without a link of the small slope 1e-3/clip has no slope to choose, and is left
        # out.
        families = [each for each in families if each.with_slope(1e-3 / clip, clip) is not None]
        links = [
            Sloped(family, steepness / self.model.spread)
            for steepness in self.steepness
            for family in families
        ]
        # The straight link is also tried with the largest slope that the clip allows, which is its
        # default.
        straight = any(not bends(family, clip) for family in families)
        return [*links, Sloped(Linear())] if straight else links

    def settle(self, candidate: Candidate) -> Trial:
        """Trial of the candidate with the estimated privacy limit of the gain. Its number of rounds
        is the one that the user fixed, or else as many as the candidate needs."""
        open_rounds = "num_rounds" not in self.fixed
        first = _FEWEST_BURN_IN + _KEPT if open_rounds else candidate.request.num_rounds

        def wanted(trial: Trial) -> int:
            if trial.plan is None or trial.good or not rounds_may_mend(trial.findings):
                return 0
            count = self._rounds_for(trial.plan)
            return count if count <= MOST_ROUNDS else 0

        at = self.trial_of(candidate)
        return lengthen(at, first, wanted, _MOST_TRIALS if open_rounds else 0)

    def trial_of(self, candidate: Candidate) -> Callable[[int], Trial]:
        """Function that makes the trial of the candidate for a number of rounds, its argument, with
        the estimated privacy limit of the gain."""
        try:
            estimate = gain_estimator(
                candidate.uplink, candidate.limits, self.model.num_devices, self.model.dim
            )
        except InvalidSetting as error:
            refused = Trial(candidate, None, None, (), str(error))
            return lambda rounds: refused

        def at(rounds: int) -> Trial:
            asked = self.asked(candidate, rounds)
            return asked.try_out(lambda: self.correction * estimate(rounds))

        return at

    def more_rounds(self, plan: Plan) -> int:
        """Number of rounds to try next, at least 5 % more than the plan's, where findings speak
        against a plan that was made with the exact privacy limit."""
        return max(math.ceil(1.05 * plan.num_rounds), self._rounds_for(plan))

    def _rounds_for(self, plan: Plan) -> int:
        """Number of rounds that a plan needs: its burn-in with a margin of 5 % (at least 40 rounds,
        and at least what the user fixed), and 60 kept rounds."""
        needed = max(_FEWEST_BURN_IN, math.ceil(_MARGIN * (plan.rounds_needed or 0)))
        if "num_burn_in" in self.fixed:
            needed = max(needed, int(self.held.request.num_burn_in))
        return needed + _KEPT

    def asked(
        self, candidate: Candidate, rounds: int, burn_in: int | str | None = None
    ) -> Candidate:
        """The candidate with ``rounds`` rounds, ``burn_in`` of them burn-in, and curvature from
        public knowledge. Where ``burn_in`` is None it is the number that the user fixed, an
        automatic one if the user fixed only the number of all rounds, else all rounds but 60."""
        request, model = candidate.request, self.model
        if burn_in is None:
            burn_in = request.num_burn_in
            if "num_burn_in" not in self.fixed:
                burn_in = "auto" if "num_rounds" in self.fixed else rounds - _KEPT
        smoothness = request.public_smoothness or model.smoothness or 0.0
        convexity = request.public_convexity or model.convexity or 0.0
        asked = replace(
            request,
            num_rounds=rounds,
            num_burn_in=burn_in,
            public_smoothness=max(smoothness, convexity),
            public_convexity=min(smoothness, convexity),
        )
        return replace(candidate, request=asked)

    def _verified(self, trial: Trial) -> Trial | None:
        """The trial made again with the exact privacy limit of the gain, and with more rounds, up
        to twice, where findings speak against it; None where findings graver than notes remain."""
        candidate, rounds = trial.candidate, _plan_of(trial).num_rounds
        for _ in range(3):
            again = self.asked(candidate, rounds).try_out(lambda: None)
            plan = again.plan
            if plan is not None and self.fits(again):
                settled = self.asked(candidate, rounds, plan.num_burn_in)
                return self.of_use(replace(again, candidate=settled))
            if plan is None or "num_rounds" in self.fixed:
                return None
            rounds = self.more_rounds(plan)
        return None

    def of_use(self, trial: Trial) -> Trial:
        """The trial with so many more kept rounds that one chain is worth enough independent draws;
        the trial itself where the number of rounds is fixed, the budget is for the run (so that
        more rounds cost gain), or the longer run has findings."""
        plan = _plan_of(trial)
        free = "num_rounds" not in self.fixed and self.held.limits.scope == "round"
        convexity = trial.candidate.request.public_convexity or 0.0
        forgotten = min(1.0, (plan.effective_step_size or 0.0) * convexity)
        if not free or forgotten <= 0.0:
            return trial
        each = rounds_per_draw(forgotten, midpoints=plan.midpoints)
        kept = math.ceil(_LONGER * FEW_DRAWS * each)
        if kept <= plan.num_rounds - plan.num_burn_in:
            return trial
        longer = self.asked(trial.candidate, plan.num_burn_in + kept, plan.num_burn_in)
        tried = longer.try_out(lambda: None)
        return replace(tried, candidate=longer) if tried.plan is not None and tried.good else trial

    @property
    def promising(self) -> list[int]:
        """Indices of the four candidates of the search that need the fewest rounds where the
        privacy budget is left out.

        Indices are returned, not candidates, because the candidates of a relaxed search have other
        clips and slopes, in the same order."""
        loose = self.relaxed("privacy", "off")
        free = replace(loose, fixed=self.fixed - {"num_rounds"})
        lengths = []
        for candidate in loose.candidates():
            trial = free.settle(candidate)
            if not trial.good and free.fixed != loose.fixed:
                trial = loose.settle(candidate)
            lengths.append(trial.length[0] if trial.good else math.inf)
        order = sorted(range(len(lengths)), key=lengths.__getitem__)
        return order[:PROMISING]


def _plan_of(trial: Trial) -> Plan:
    assert trial.plan is not None
    return trial.plan


def rounds_may_mend(findings: Sequence[Finding]) -> bool:
    """Whether a plan with another number of rounds might have none of the ``findings``. It cannot
    help where many gradients are clipped, or the mean is shifted by a finite amount: both depend on
    the uplink alone."""
    # An infinite shift says that the step is too large, and the step does depend on the rounds.
    return not any(
        each.code == "clipped"
        or (each.code == "mean-shift" and math.isfinite(each.numbers["mean_shift"]))
        for each in findings
    )


_WHY_STEP = {
    "chain": "as large as stability, power and privacy allow with the right noise",
    "answer": "the one with the narrowest intervals",
}
"""Reason for the automatic step, by the aim of a plan."""


def _expected(trial: Trial) -> str:
    """Text with what is predicted of a trial: the width and the score of its answer, or the
    variance ratio of its chain."""
    if _plan_of(trial).aim == "chain" or trial.answer is None:
        return f"variance ratio {0.0 if trial.law is None else trial.law.variance_ratio:.3g}"
    return (
        f"intervals {trial.answer.width:.3g} times as wide as the exact posterior's (score"
        f" {trial.score:.3g} times its)"
    )


def reasons(trial: Trial) -> list[tuple[str, str]]:
    """Lines that explain a suggested trial, as pairs of a name and a text: each suggested setting
    with its value and reason, and what is expected of the samples."""
    plan, law = _plan_of(trial), trial.law
    uplink, model = trial.candidate.uplink, trial.candidate.model
    assert isinstance(model, PublicModel)
    assert law is not None
    lines = [
        (
            "clip",
            f"{uplink.clip:.4g}, {uplink.clip / model.spread:.3g} standard deviations of a local"
            " gradient near the mode",
        ),
        ("step size", f"{plan.step_size:.4g}, by itself: {_WHY_STEP[plan.aim]}"),
        (
            "rounds",
            f"{plan.num_rounds}, of which {plan.num_burn_in} burn-in, of which"
            f" {plan.rounds_needed} are needed",
        ),
        (
            "expected",
            f"{_expected(trial)}, mean off by {law.mean_shift:.2g}"
            f" posterior sd, {100 * law.clipped_fraction:.2g} % of entries clipped",
        ),
    ]
    link = uplink.link
    if link is not None:
        text = f"slope {uplink.slope * model.spread:.2g} over the spread of local gradients"
        lines.insert(0, ("link", f"{type(link).__name__.lower()}: {text}"))
    if uplink.clips_examples:
        text = f"{clip_in_words(uplink)}: leaves {uplink.example_shrink:.3f} of the gradient"
        lines.append(("example clip", text))
    return lines


class Obstacle(NamedTuple):
    """A requirement that keeps a search from any suggestion: if the requirement ``name`` alone were
    relaxed, some settings would fit."""

    name: str
    given: float | None
    """Value that the requirement has now; None for a requirement without a number."""
    needed: float | None
    """Value of the requirement that would suffice, with all other requirements unchanged; None for
    a requirement without a number."""

    @property
    def words(self) -> str:
        """The relaxed requirement as part of a sentence, such as ``epsilon 8 instead of 5``."""
        if self.name == "neighbouring":
            return "neighbouring 'example' instead of 'device'"
        if self.needed is None:
            return f"{self.name} left open"
        whole = self.name in ("samples", "devices", "rounds", "burn_in")
        needed = f"{self.needed:.0f}" if whole else f"{self.needed:.4g}"
        given = "" if self.given is None else f" instead of {self.given:.6g}"
        return f"{self.name} {needed}{given}"


def find_obstacles(question: PublicQuestion) -> list[Obstacle]:
    """Requirements that keep a search from any suggestion: if one of these alone were relaxed, some
    settings would fit. Settings that the user fixed come first, then privacy budget, SNR, number of
    examples and number of devices."""
    return [*_fixed_obstacles(question), *_scaled_obstacles(question)]


def _fixed_obstacles(question: PublicQuestion) -> Iterator[Obstacle]:
    """Obstacles among the settings that the user fixed: each of these, left open alone, would let
    some settings fit. The neighbouring relation is an obstacle if settings would fit where privacy
    hides examples in place of devices."""
    held = question.held
    for name in sorted(question.fixed):
        best = replace(question, fixed=question.fixed - {name}).answer.best
        if best is not None:
            plan = _plan_of(best)
            given = _setting_number(name, held.uplink, held.request)
            yield Obstacle(
                name.removeprefix("num_"), given, _setting_number(name, plan.uplink, plan)
            )
    step = held.request.step_size
    if step != "auto":
        best = question.relaxed("step_size", "auto").answer.best
        if best is not None:
            yield Obstacle("step_size", float(step), _plan_of(best).step_size)
    effective = held.request.effective_step_size
    if effective is not None:
        best = question.relaxed("effective_step_size", None).answer.best
        if best is not None:
            needed = _plan_of(best).effective_step_size
            yield Obstacle("effective_step_size", effective, needed)
    if held.limits.neighbouring == "device" and has_budget(held.uplink, held.limits):
        hidden = question.relaxed("neighbouring", "example")
        if any(hidden.fits(hidden.settle(each)) for each in hidden.candidates()):
            yield Obstacle("neighbouring", None, None)


def _setting_number(name: str, uplink: Uplink, counts: Request | Plan) -> float | None:
    """Value of the setting ``name`` if it is a number, taken from the uplink, its link or the
    numbers of rounds in ``counts``; else None."""
    held: object = counts if name in ("num_rounds", "num_burn_in") else uplink
    if name == "slope_parameter":
        held = uplink.link
    value = getattr(held, name, None)
    return float(value) if isinstance(value, int | float) else None


def _scaled_obstacles(question: PublicQuestion) -> Iterator[Obstacle]:
    """Obstacles among the requirements that are numbers: privacy budget, SNR, and numbers of
    examples and devices. Each number is multiplied by up to 1000, the SNR as a ratio of amplitudes.
    """
    uplink, limits, model = question.held.uplink, question.held.limits, question.model
    samples, devices, snr = model.num_samples, model.num_devices, uplink.snr_db
    # With fewer than four examples per device local gradients are not nearly normal, although the
    # public model assumes it.
    most = max(devices, samples // 4)
    scaled: dict[str, tuple[float, Callable[[float], float]]] = {
        "snr_db": (snr, lambda factor: snr + 20 * math.log10(factor)),
        "num_samples": (samples, lambda factor: math.ceil(samples * factor)),
        "num_devices": (devices, lambda factor: min(most, math.ceil(devices * factor))),
    }
    if has_budget(uplink, limits):
        budget = limits.epsilon or 0.0
        scaled = {"epsilon": (budget, lambda factor: budget * factor), **scaled}
    promising = question.promising
    for name, (given, value_at) in scaled.items():

        def fits(
            place: float, name: str = name, value_at: Callable[[float], float] = value_at
        ) -> bool:
            relaxed = question.relaxed(name, value_at(math.exp(place)))
            candidates = list(relaxed.candidates())
            return any(
                relaxed.fits(relaxed.settle(candidates[at]))
                for at in promising
                if at < len(candidates)
            )

        if fits(_LARGEST_FACTOR):
            place = bisect(fits, 0.0, _LARGEST_FACTOR, _RESOLUTION)
            yield Obstacle(name.removeprefix("num_"), given, value_at(math.exp(place)))
