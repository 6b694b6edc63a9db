r"""Stein's evidence: a test of draws against a posterior of which only the gradient is known.

For draws from a density proportional to :math:`e^{-U}` integration by parts (Stein's identity)
gives, for every unit vector v (an entry, or any direction) and the mean :math:`\bar\theta` of the
density,

.. math:: E[v\cdot\nabla U] = 0, \qquad E[v\cdot(\theta - \bar\theta)\;v\cdot\nabla U] = 1,

and at temperature T, with density proportional to :math:`e^{-U/T}`, the second is T. So the second,
the *Stein ratio*, measures how much wider than the posterior the draws are along v, whatever the
posterior's shape. If the mean of the draws is off by d, the first is about :math:`v\cdot\Sigma^{-1}
d` with the posterior's covariance :math:`\Sigma`. Both need the true gradients of all devices at
the draws, so they belong to a simulation, not to a deployment."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from flmc.base.arrays import Array
from flmc.base.findings import Finding, Grade
from flmc.base.tables import Row
from flmc.evaluation.diagnostics import APART, Mixing
from flmc.evaluation.named_draws import sampled_names
from flmc.evaluation.stein_judgement import (
    DRAWS_PER_GROUP,
    FEWEST_GROUPS,
    Judged,
    Judgement,
    effective_draws,
    judge,
    make_groups,
)
from flmc.models.model import Model
from flmc.planning.pilot import summed_gradients

NARROW, WIDE = 0.8, 1.25
"""Stein ratios (variance of the draws over the posterior's): one of at most ``NARROW`` or at least
``WIDE`` brings a warning if its difference from 1 is statistically significant."""
SHIFTED = 0.5
"""Largest shift of the draws' mean, in posterior standard deviations, that brings no warning."""
_CURES = (
    "gradients may be too large for clip or link, the link too steep, or smoothness too small for"
    " the step"
)
"""Text that names likely causes of draws that are too wide or shifted although the chains agree."""


@dataclass(frozen=True)
class Evidence:
    """Evidence for or against the draws of the first data set, from the posterior's gradients at
    the draws (Stein's identity); a number is NaN where it could not be computed."""

    stein_ratio: float
    r"""Mean over entries of :math:`E[(\theta_i - \bar\theta_i)\,\partial_i U]` with the negative
    log posterior U. For a normal posterior it is :math:`\operatorname{tr}(C\Sigma^{-1})/d`, with
    the draws' covariance C, the posterior's :math:`\Sigma` and the number d of entries; exact draws
    give 1. The *variance ratio* of a known posterior is another number,
    :math:`\operatorname{tr}C/\operatorname{tr}\Sigma`."""
    stein_ratio_se: float
    """Standard error of ``stein_ratio``."""
    smallest: float
    """Smallest Stein ratio over the entries of theta."""
    largest: float
    """Largest Stein ratio over the entries of theta."""
    mean_shift: float
    """Largest distance of the draws' mean from the posterior mean over the entries of theta, in
    posterior standard deviations."""
    mean_shift_se: float
    """Standard error of ``mean_shift``."""
    smallest_direction: float = math.nan
    """Smallest Stein ratio over the principal directions of the draws (eigenvectors of their
    covariance)."""
    largest_direction: float = math.nan
    """Largest Stein ratio over the principal directions of the draws (eigenvectors of their
    covariance)."""
    mean_shift_direction: float = math.nan
    """Largest shift of the draws' mean over their principal directions, in posterior standard
    deviations."""
    effective_draws: float = math.nan
    """Number of independent draws that all chains together are worth, in the entry or principal
    direction in which it is smallest."""
    num_groups: int = 0
    """Number of groups of draws from whose differences standard errors are estimated; a group is
    one or more whole chains, or a long part of one chain."""
    num_judged: int = 0
    """Number of Stein ratios and shifts that were tested; the significance of each is corrected for
    it (Bonferroni)."""
    score: float = math.nan
    """Largest Student's t of all tested Stein ratios and shifts of the mean, over its critical
    value: above 1 at least one of them is significant."""
    why_unknown: str = ""
    """Reason why standard errors, or all numbers, are unknown; empty where all are known."""
    shifted: str = ""
    """Name of the entry whose mean is shifted by ``mean_shift``; empty where it is not known."""
    off: tuple[Judged, ...] = ()
    """The most significant quantity of each kind (variance too large, variance too small, mean
    shifted) that is significant and beyond its limit for a warning; kinds without one are left
    out."""

    def to_document(self) -> dict[str, Any]:
        """All fields but ``off`` as plain values, for JSON; a number that is not finite is null."""
        return {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in asdict(self).items()
            if name != "off"
        }

    @property
    def rows(self) -> list[Row]:
        """Stein ratio and shift of the mean, as rows of a printed result."""
        if math.isnan(self.stein_ratio):
            return [Row("Stein ratio", f"not known: {self.why_unknown}", severity="warning")]
        error = " (error not known)" if self.why_unknown else ""
        ratio = f"{self.stein_ratio:.3g}{_plus_minus(self.stein_ratio_se)}{error} (1 is right)"
        ratio += f"; {self.smallest:.3g} to {self.largest:.3g} over entries"
        shift = f"{self.mean_shift:.2g}{_plus_minus(self.mean_shift_se)} posterior sd in"
        shift += f" {self.shifted or 'the worst entry'}{error}"
        if not self.why_unknown:
            ratio += f", {self.smallest_direction:.3g} to {self.largest_direction:.3g} over"
            ratio += " directions"
            shift += (
                f", the worst; {self.mean_shift_direction:.2g} in the worst principal direction"
            )
        return [Row("Stein ratio", ratio), Row("mean off by about", shift)]

    def findings(self, mixing: Mixing | None = None) -> list[Finding]:
        """Findings against the draws. Deviations that disagreement of the chains (``mixing``) may
        explain are left out; if these are the only ones, a note says that the draws cannot be
        judged yet."""
        r_hat = 1.0 if mixing is None else mixing.doubt
        if self.why_unknown:
            return self._unknown(r_hat)
        findings, unclear = [], False
        for each in self.off:
            if self._explained(each, r_hat):
                unclear = True
            else:
                findings.append(_finding(each))
        return [self._not_judged(r_hat)] if unclear and not findings else findings

    @staticmethod
    def _explained(each: Judged, r_hat: float) -> bool:
        """Whether the Stein ratio or shift in ``each`` may be beyond its limit only because the
        chains disagree, as their ``r_hat`` measures it."""
        if r_hat > APART:
            return True
        if each.quantity == "ratio":
            # The variance of the draws of all chains together is R-hat squared times that of one
            # chain.
            return NARROW / r_hat**2 < each.value < WIDE * r_hat**2
        # The means of chains differ by sqrt(R-hat^2 - 1) standard deviations (root mean square);
        # the mean of all chains is allowed to be off by twice that.
        return r_hat > 1 and abs(each.value) < SHIFTED + 2 * math.sqrt(r_hat**2 - 1)

    def _unknown(self, r_hat: float) -> list[Finding]:
        """A list with one finding for evidence without standard errors: a warning where the draws
        look wrong, are not finite or do not vary, else a note."""
        seems = [
            *([] if NARROW < self.stein_ratio < WIDE else [f"Stein ratio {self.stein_ratio:.3g}"]),
            *(
                [f"mean off by {self.mean_shift:.2g} posterior sd"]
                if self.mean_shift > SHIFTED
                else []
            ),
        ]
        numbers = {"stein_ratio": self.stein_ratio, "mean_shift": self.mean_shift}
        numbers["effective_draws"] = self.effective_draws
        short = "whether the draws are right is not known"
        if math.isnan(self.stein_ratio):
            grade: Grade = "note" if math.isfinite(self.effective_draws) else "warning"
            return [Finding("draws-unknown", grade, f"{short}: {self.why_unknown}", short, numbers)]
        if not seems:
            text = f"{short} to any error: {self.why_unknown}"
            return [Finding("draws-unknown", "note", text, short, numbers)]
        if r_hat > APART:
            return [self._not_judged(r_hat)]
        text = (
            f"the draws look wrong ({', '.join(seems)}), but to what error is not known:"
            f" {self.why_unknown}. If it is no chance, {_CURES}"
        )
        return [Finding("draws-unknown", "warning", text, "the draws look wrong", numbers)]

    def _not_judged(self, r_hat: float) -> Finding:
        """A note that the draws cannot be judged before the chains agree, with their R-hat
        ``r_hat``."""
        text = (
            "whether the draws are from the posterior cannot be judged before the chains agree:"
            f" the Stein ratio is {self.stein_ratio:.3g} and the mean off by {self.mean_shift:.2g}"
            " posterior sd now, which chains that have not mixed explain"
        )
        numbers = {
            "stein_ratio": self.stein_ratio,
            "mean_shift": self.mean_shift,
            "r_hat": r_hat,
        }
        return Finding("draws-not-judged", "note", text, numbers=numbers)

    @property
    def warnings(self) -> list[str]:
        """Messages of all findings against the draws that are more than notes, a sentence each, as
        if the chains agreed."""
        return [each.message for each in self.findings() if each.severity != "note"]


def _finding(each: Judged) -> Finding:
    """Finding that the draws are too wide or too narrow, or their mean shifted, in the entry or
    direction of ``each``."""
    numbers = {"se": each.se, "score": each.score, "rank": float(each.rank)}
    if each.quantity == "ratio":
        short = f"the draws are too {'wide' if each.value > 1 else 'narrow'}"
        text = f"{short}, {each.value:.3g} times the posterior's variance {each.place}: {_CURES}"
        numbers |= {"stein_ratio": each.value, "stein_ratio_se": each.se}
        return Finding("draws-spread", "warning", text, short, numbers)
    size = abs(each.value)
    short = f"the mean of the draws is about {size:.2g} posterior sd off"
    text = (
        f"the mean of the draws is about {size:.2g} posterior standard deviations off"
        f" {each.place}: {_CURES}, or devices differ so much that clipping or a curved link"
        " outvotes them"
    )
    numbers |= {"mean_shift": size, "mean_shift_se": each.se}
    return Finding("draws-place", "warning", text, short, numbers)


def _plus_minus(se: float) -> str:
    """Text such as `` ± 0.02``, to put behind a number, for the standard error ``se``; empty if it
    is NaN."""
    return "" if math.isnan(se) else f" ± {se:.1g}"


_MOST_DRAWS = 2000
"""About the largest number of draws at which the posterior's gradient is computed for the evidence;
of more draws, only every n-th is used."""
_MOST_NUMBERS = 2_000_000_000
"""About the largest number of gradient entries, over all draws and devices, that are computed for
the evidence: they take some seconds. Where ``_MOST_DRAWS`` draws would take more, fewer are
used."""
_FEWEST_DRAWS = DRAWS_PER_GROUP * FEWEST_GROUPS
"""Smallest number of draws, and of effective draws, with which standard errors of the evidence are
estimated."""


def examine(model: Model, draws: Array) -> Evidence:
    """Stein's evidence for or against draws of the first data set, (chain, draw, dim), from the
    gradients of the ``model`` at about 2000 of them at most. Its ``why_unknown`` says why standard
    errors, or all numbers, are missing."""
    num_chains, num_draws, dim = draws.shape
    # Draws are thinned, because gradients are costly and successive draws hardly differ.
    most = min(_MOST_DRAWS, max(_FEWEST_DRAWS, _MOST_NUMBERS // (model.num_devices * dim)))
    theta = draws[:, :: max(1, num_chains * num_draws // most)]
    count = theta.shape[0] * theta.shape[1]
    if count < 2:
        return _nothing(f"one draw has no spread; at least {_FEWEST_DRAWS} are needed", count)
    gradient = summed_gradients(model, theta.reshape(-1, dim)).reshape(theta.shape)
    if not np.isfinite(gradient).all() or not np.isfinite(theta).all():
        return _nothing("draws, or gradients at the draws, are not finite")
    still = np.flatnonzero(np.ptp(theta, axis=(0, 1)) == 0)
    if still.size:
        return _nothing(f"the draws do not vary in {sampled_names(model)[still[0]]}")
    effective = effective_draws(theta)
    groups = make_groups(theta.shape[0], theta.shape[1], min(effective, float(count)))
    if groups is None:
        return _without_errors(theta, gradient, effective, sampled_names(model))
    return _evidence(judge(theta, gradient, groups), effective, len(groups), sampled_names(model))


def _evidence(
    judgement: Judgement, effective: float, num_groups: int, names: Sequence[str]
) -> Evidence:
    """Evidence from all tested ratios and shifts: the extreme values, and the quantities that are
    significantly off. ``effective`` is the number of effective draws, ``num_groups`` that of the
    groups behind the standard errors, and ``names`` are those of the entries."""
    by_entry, along, shifts, shifts_along = (
        [each for each in kind if each.what == what]
        for kind in (judgement.spread, judgement.shifts)
        for what in ("entry", "direction")
    )
    worst = max(shifts, key=lambda each: abs(each.value))
    judged = (*judgement.spread, *judgement.shifts)
    return Evidence(
        stein_ratio=judgement.overall.value,
        stein_ratio_se=judgement.overall.se,
        smallest=min(each.value for each in by_entry),
        largest=max(each.value for each in by_entry),
        mean_shift=abs(worst.value),
        mean_shift_se=worst.se,
        shifted=names[worst.rank],
        smallest_direction=min(each.value for each in along),
        largest_direction=max(each.value for each in along),
        mean_shift_direction=max(abs(each.value) for each in shifts_along),
        effective_draws=effective,
        num_groups=num_groups,
        num_judged=len(judged),
        score=max(abs(each.score) for each in judged),
        off=tuple(
            each._replace(name=names[each.rank]) if each.what == "entry" else each
            for each in _worst_of_each_kind(judgement)
        ),
    )


def _worst_of_each_kind(judgement: Judgement) -> tuple[Judged, ...]:
    """The most significant quantity of each kind (variance too large, variance too small, mean
    shifted) that is significant and beyond its limit for a warning; kinds without one are left
    out."""
    kinds = (
        [each for each in judgement.spread if each.value >= WIDE],
        [each for each in judgement.spread if each.value <= NARROW],
        [each for each in judgement.shifts if abs(each.value) > SHIFTED],
    )
    significant = ([each for each in kind if each.significant] for kind in kinds)
    return tuple(max(kind, key=lambda each: abs(each.score)) for kind in significant if kind)


def _without_errors(
    theta: Array, gradient: Array, effective: float, names: Sequence[str]
) -> Evidence:
    """Evidence without standard errors, from draws ``theta`` that are too few to estimate these and
    the gradients of the negative log posterior at them, (chain, draw, dim) each; ``effective`` is
    the number of effective draws, and ``names`` are those of the entries."""
    dim = theta.shape[2]
    deviation = (theta - theta.mean(axis=(0, 1))).reshape(-1, dim)
    slopes = gradient.reshape(-1, dim)
    by_entry = (deviation * slopes).mean(axis=0)
    ratio, variance = float(by_entry.mean()), np.square(deviation).mean(axis=0)
    # The draws' covariance times the mean gradient is about the shift of the mean; in this order of
    # products the covariance, a matrix (dim, dim), is never formed.
    moved = (slopes.mean(axis=0) @ deviation.T) @ deviation / len(deviation)
    shift = moved / np.sqrt(variance * max(ratio, 1e-12))
    why = (
        f"the chains hold about {effective:.0f} effective draws, and errors need"
        f" {_FEWEST_DRAWS} ({FEWEST_GROUPS} batches of {DRAWS_PER_GROUP}); use more rounds or more"
        " chains"
    )
    return Evidence(
        ratio,
        math.nan,
        float(by_entry.min()),
        float(by_entry.max()),
        float(np.abs(shift).max()),
        math.nan,
        effective_draws=effective,
        why_unknown=why,
        shifted=names[int(np.argmax(np.abs(shift)))],
    )


def _nothing(why: str, effective: float = math.nan) -> Evidence:
    """Evidence with all numbers unknown, for the reason ``why``, but for the number of
    ``effective`` draws, where that is given."""
    nan = math.nan
    return Evidence(nan, nan, nan, nan, nan, nan, effective_draws=effective, why_unknown=why)
