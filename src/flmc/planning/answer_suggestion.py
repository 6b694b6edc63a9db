"""Suggestion of settings for an answer, from public knowledge alone: those with the smallest
predicted interval score (:func:`~flmc.planning.answer_forecast.interval_score`) of all that meet a
user's requirements.

The bound of single examples' gradients is the main choice. With their norm bounded at C, the
noise that privacy needs adds to the answer :math:`4C^2/(N\\rho^2\\mu^2)` times the posterior's
variance, however many rounds share the budget, where N is the number of examples, :math:`\\rho` the
share of the curvature that the bound leaves, and :math:`\\mu` that of the Gaussian mechanism with
the epsilon and delta of the run. But a small C shifts the mean by an amount that an answer does not
know of. The wider an answer is anyway, the smaller C may be."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

from flmc.planning.answer_forecast import judge_width
from flmc.planning.plans import Plan
from flmc.planning.requirements import Requirement
from flmc.planning.search import Answer, Candidate, Trial, ask
from flmc.planning.suggestion import MOST_ROUNDS, MOST_SUGGESTIONS, PROMISING, PublicQuestion

_COMPARED = 1000
"""Number of rounds with which candidates are compared, if the user leaves this number free."""
_FIRST, _GROWTH = 200, 1.3
"""Number of rounds of a candidate's first trial, and the factor by which each further trial is
longer than the one before."""
_NARROW, _WORTHWHILE, _HARDLY = 1.1, 0.98, 0.999
"""Limits at which the search stops making runs longer; a smaller score is better. Where a run meets
the requirements: its answer's width is at most 1.1, or the next longer run still has more than 0.98
of its score. Where it does not: the next longer run has more than 0.999 of both its score and its
width."""


@dataclass(frozen=True)
class AnswerQuestion(PublicQuestion):
    """Search for settings with which an answer has the smallest predicted interval score, where
    only the sizes of the data are known."""

    requirements: tuple[Requirement, ...] = ()
    """What a plan must meet, beside having no findings."""
    # Smaller bounds of the norm of examples' gradients shift the mean further. Wide intervals hold
    # in spite of that, so smaller bounds are tried than for a chain.
    example_norms: ClassVar[tuple[float, ...]] = (
        0.9, 1.2, 1.5, 1.7, 1.9, 2.1, 2.3, 2.5, 2.75, 3.0, 3.5,
    )  # fmt: skip
    # The chain of an answer may be hot, and local gradients are then larger than near the mode: so
    # are these clips, in standard deviations of an entry near the mode.
    wide_clips: ClassVar[tuple[float, ...]] = (6.0, 12.0)

    @cached_property
    def answer(self) -> Answer:
        """Result of the search with the estimated privacy limit: trials that fit, the one with the
        smallest score first."""
        if "num_rounds" in self.fixed:
            return ask(self.candidates(), self.rank, required=self.fits, try_out=self.settle)
        # Which settings are best hardly depends on the number of rounds: all are compared with the
        # same number, and the best of them get as many as they need.
        compared = ask(self.candidates(), self.rank, try_out=lambda each: self._compared(each))
        # Candidates that differ in the clip alone are much alike: the best of these is enough.
        best: dict[object, Candidate] = {}
        for trial in compared.ranked:
            uplink = trial.candidate.uplink
            best.setdefault((uplink.example_norm, uplink.link), trial.candidate)
        few = list(best.values())[:MOST_SUGGESTIONS]
        settled = ask(few, self.rank, required=self.fits, try_out=self.settle)
        return Answer((*compared.table, *settled.table), settled.ranked)

    def _compared(self, candidate: Candidate) -> Trial:
        return self.trial_of(candidate)(_COMPARED)

    def rank(self, trial: Trial) -> tuple[float, float]:
        """Sort key, smallest for the best trial: those that fit first, then by the score."""
        return (0.0 if self.fits(trial) else 1.0 + trial.gravity), trial.score

    def fits(self, trial: Trial) -> bool:
        """Whether a trial may be suggested: there are no findings against its plan but notes, its
        answer is not as wide as the prior, and it meets the requirements."""
        return trial.good and not self._unmet(trial)

    def _unmet(self, trial: Trial) -> list[str]:
        """Sentences that say what a trial lacks: requirements that its plan does not meet, or an
        answer that is not as wide as the prior."""
        plan = trial.plan
        if plan is None:
            return [trial.refusal]
        wide = judge_width(trial.answer)
        judged = replace(plan, judged=True, answer=trial.answer, findings=trial.findings)
        lost = [each.short for each in wide if each.severity in ("infeasible", "unknown")]
        broken = (each.broken(judged, roughly=True) for each in self.requirements)
        return [*lost, *(text for text in broken if text is not None)]

    @property
    def lacking(self) -> str:
        """What the trial with the best rank lacks, as the end of a sentence; empty if nothing."""
        table = sorted(self.answer.table, key=self.rank)
        if not table:
            return ""
        against = [each.short or each.message for each in table[0].findings]
        return "; ".join([*against, *self._unmet(table[0])])

    def settle(self, candidate: Candidate) -> Trial:
        """Trial of the candidate with the estimated privacy limit, and with the number of rounds
        that the user fixed, or with as many as are worth while."""
        at = self.trial_of(candidate)
        if "num_rounds" in self.fixed:
            return at(candidate.request.num_rounds)
        trial = at(_FIRST)
        while trial.plan is not None:
            count, fits = math.ceil(_GROWTH * trial.plan.num_rounds), self.fits(trial)
            if count > MOST_ROUNDS or (fits and trial.answer and trial.answer.width <= _NARROW):
                break
            longer = at(count)
            if longer.score > (_WORTHWHILE if fits else _HARDLY) * trial.score and (
                fits or _width(longer) > _HARDLY * _width(trial)
            ):
                break
            trial = longer
        return trial

    def trial_of(self, candidate: Candidate) -> Callable[[int], Trial]:
        """Function that makes the trial of the candidate; its argument is the number of rounds. The
        privacy limit is an estimate, unless the norm of examples is bounded: then the accountant is
        quick, and for straight links an estimate is up to twice too large."""
        if candidate.uplink.shares_move(candidate.limits.neighbouring):
            return lambda rounds: self.asked(candidate, rounds).try_out(lambda: None)
        return super().trial_of(candidate)

    def asked(
        self, candidate: Candidate, rounds: int, burn_in: int | str | None = None
    ) -> Candidate:
        """The candidate with ``rounds`` rounds, and curvature from public knowledge; its burn-in
        is ``burn_in``, or where that is None what the user fixed, or an automatic one."""
        if burn_in is None:
            fixed = "num_burn_in" in self.fixed
            burn_in = self.held.request.num_burn_in if fixed else "auto"
        return super().asked(candidate, rounds, burn_in)

    def more_rounds(self, plan: Plan) -> int:
        """Number of rounds to try next where a plan does not fit with the exact privacy limit."""
        return math.ceil(_GROWTH * plan.num_rounds)

    def of_use(self, trial: Trial) -> Trial:
        """The trial as it is: :meth:`settle` has already given it as many rounds as are worth
        while for an answer."""
        return trial

    @property
    def promising(self) -> list[int]:
        """Indices, among the candidates of the search, of the four with the best rank."""
        table = [self.settle(each) for each in self.candidates()]
        order = sorted(range(len(table)), key=lambda at: self.rank(table[at]))
        return order[:PROMISING]


def _width(trial: Trial) -> float:
    """Width of a trial's answer; infinite where it is not known."""
    return math.inf if trial.answer is None else trial.answer.mean_width
