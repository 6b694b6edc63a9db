r"""Whether draws can come from a posterior that is not known, from its gradient alone.

For draws from a density proportional to :math:`e^{-U}` integration by parts (Stein's identity)
gives, for every unit vector v (an entry, or any direction),

.. math:: E[v\cdot\nabla U] = 0, \qquad E[v\cdot(\theta - \bar\theta)\;v\cdot\nabla U] = 1,

and at temperature T, with density proportional to :math:`e^{-U/T}`, the second is T: so the second,
the *Stein ratio*, measures how much wider than the posterior the draws are along v, whatever the
posterior's shape. If the mean of the draws is off by d, the first is about :math:`v\cdot\Sigma^{-1}
d`. Both need the true gradients of all devices at the draws, so they belong to a simulation, not to
a deployment."""

from __future__ import annotations

import math

import numpy as np

from flmc.base.arrays import Array
from flmc.evaluation.stein.evidence import NARROW, SHIFTED, WIDE, Evidence
from flmc.evaluation.stein.groups import (
    DRAWS_PER_GROUP,
    FEWEST_GROUPS,
    effective_draws,
    make_groups,
)
from flmc.evaluation.stein.judging import Judged, Judgement, judge
from flmc.evaluation.summed_gradients import summed_gradients
from flmc.models.model import Model

_MOST_DRAWS = 2000
"""About the largest number of draws at which gradients are computed."""
_MOST_NUMBERS = 2_000_000_000
"""About the largest number of entries of local gradients that are computed in all."""
_FEWEST_DRAWS = DRAWS_PER_GROUP * FEWEST_GROUPS
"""Draws, and effective draws, below which no error is known."""


def examine(model: Model, draws: Array) -> Evidence:
    """Stein's evidence for or against the draws of the first data set.

    Parameters
    ----------
    model
        Gives the gradients of all devices at the draws.
    draws
        Kept draws of the first data set, (chain, draw, dim); some are left out where there are
        many.

    Returns
    -------
    Evidence
        What was judged; where draws are too few, do not vary, or have gradients that are not
        finite, it says so in ``why_unknown``.
    """
    num_chains, num_draws, dim = draws.shape
    # Every so-many-th draw of each chain: neighbours tell little new, and gradients are costly.
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
        return _nothing(f"the draws do not vary in entry {still[0] + 1}")
    effective = effective_draws(theta)
    groups = make_groups(theta.shape[0], theta.shape[1], min(effective, float(count)))
    if groups is None:
        return _without_errors(theta, gradient, effective)
    return _evidence(judge(theta, gradient, groups), effective, len(groups))


def _evidence(found: Judgement, effective: float, num_groups: int) -> Evidence:
    """Evidence from what was judged."""
    by_entry, along, shifts, shifts_along = (
        [each for each in kind if each.what == what]
        for kind in (found.spread, found.shifts)
        for what in ("entry", "direction")
    )
    worst = max(shifts, key=lambda each: abs(each.value))
    judged = (*found.spread, *found.shifts)
    return Evidence(
        stein_ratio=found.overall.value,
        stein_ratio_se=found.overall.se,
        smallest=min(each.value for each in by_entry),
        largest=max(each.value for each in by_entry),
        mean_shift=abs(worst.value),
        mean_shift_se=worst.se,
        smallest_direction=min(each.value for each in along),
        largest_direction=max(each.value for each in along),
        mean_shift_direction=max(abs(each.value) for each in shifts_along),
        effective_draws=effective,
        num_groups=num_groups,
        num_judged=len(judged),
        score=max(abs(each.score) for each in judged),
        off=_worst_of_each_kind(found),
    )


def _worst_of_each_kind(found: Judgement) -> tuple[Judged, ...]:
    """What is significant and beyond its limits: the most significant of what is too wide, of what
    is too narrow, and of the shifts."""
    kinds = (
        [each for each in found.spread if each.value >= WIDE],
        [each for each in found.spread if each.value <= NARROW],
        [each for each in found.shifts if abs(each.value) > SHIFTED],
    )
    significant = ([each for each in kind if each.significant] for kind in kinds)
    return tuple(max(kind, key=lambda each: abs(each.score)) for kind in significant if kind)


def _without_errors(theta: Array, gradient: Array, effective: float) -> Evidence:
    """Ratios and shifts of draws that are too few to tell their errors."""
    dim = theta.shape[2]
    deviation = (theta - theta.mean(axis=(0, 1))).reshape(-1, dim)
    slopes = gradient.reshape(-1, dim)
    by_entry = (deviation * slopes).mean(axis=0)
    ratio, variance = float(by_entry.mean()), np.square(deviation).mean(axis=0)
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
    )


def _nothing(why: str, effective: float = math.nan) -> Evidence:
    """Evidence that knows nothing, and why."""
    nan = math.nan
    return Evidence(nan, nan, nan, nan, nan, nan, effective_draws=effective, why_unknown=why)
