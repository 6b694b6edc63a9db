r"""Significance of Stein ratios and shifts, by entry and by direction, from nearly independent
groups of draws.

Whole chains are independent. Where there are few of them, each is cut into batches that are long
compared with the autocorrelation time :math:`\tau` of its draws. The mean of a batch of B draws has
the variance :math:`\sigma^2\tau/B`, less a share of about :math:`\tau/(2B)` where autocorrelations
fade exponentially. A batch that holds n effective draws has :math:`\tau/B = 1/n`; because means of
neighbouring batches are correlated, errors from batches are widened by :math:`(1 -
1/(2n))^{-1/2}`.

Every quantity has a value from each group, and Student's t of its mean. Ratios are tested by their
logarithm: a mean square is skewed, like a gamma variable, and its error grows with it, so that t of
the ratio itself would call draws too narrow too often; the error of the logarithm does not depend
on the ratio. Directions are chosen from a third of the groups, and draws tested along them on the
others: along directions chosen from the same draws, even exact draws would look too wide.

Of M quantities some are far off by chance, so each is tested at the level :math:`\alpha/M`
(Bonferroni, which holds however they depend on each other): exact draws of the posterior get a
warning in a share of at most about :math:`\alpha` of all runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np

from flmc.base.arrays import Array
from flmc.evaluation.chain_statistics import FEWEST_DRAWS, chain_statistics

DRAWS_PER_GROUP = 5
"""Smallest number of effective draws in a group of draws: the group's mean is then nearly normal,
and hardly depends on the neighbouring groups."""
FEWEST_GROUPS = 8
"""Smallest number of groups of draws with which standard errors are estimated: a third of the
groups serves to choose directions, and Student's t of fewer than five others is of no use."""
_MOST_GROUPS = 40
"""Largest number of groups of draws: more would hardly make a standard error more precise, and the
means of shorter groups are less normal."""
_MOST_QUANTITIES = 20
"""Largest number of entries, and of principal directions, in which the number of effective draws is
computed."""


@dataclass(frozen=True)
class Groups:
    """Nearly independent groups of the draws of some chains.

    Attributes
    ----------
    parts
        For each group, a slice of chains and a slice of their draws.
    widening
        Factor of standard errors, at least 1, that allows for the correlation of neighbouring
        groups of one chain; 1 for groups of whole chains.
    """

    parts: tuple[tuple[slice, slice], ...]
    widening: float

    def __len__(self) -> int:
        return len(self.parts)

    def means(self, values: Array) -> Array:
        """Mean of each group of draws, (group, ...), of ``values`` (chain, draw, ...)."""
        return np.stack([values[part].mean(axis=(0, 1)) for part in self.parts])


def effective_draws(theta: Array) -> float:
    """Number of independent draws that all of ``theta`` (chain, draw, dim) is worth, in the entry
    or principal direction in which it is smallest; at most 20 of each are looked at. It is at least
    the number of chains, which are independent of each other."""
    num_chains, num_draws, dim = theta.shape
    if num_draws < FEWEST_DRAWS:
        return float(num_chains)
    chosen = np.unique(np.linspace(0, dim - 1, min(dim, _MOST_QUANTITIES)).round().astype(int))
    widest = principal_directions(theta.reshape(-1, dim))[:_MOST_QUANTITIES]
    values = np.concatenate([theta[..., chosen], theta @ widest.T], axis=2)
    sizes = chain_statistics(np.moveaxis(values, 2, 0)).ess_bulk
    sizes = sizes[np.isfinite(sizes)]
    return max(float(num_chains), float(sizes.min())) if sizes.size else float(num_chains)


def principal_directions(draws: Array) -> Array:
    """Principal directions of draws (draw, dim), that is eigenvectors of their covariance with a
    variance above 0: unit vectors as rows, (direction, dim), the largest variance first."""
    deviation = draws - draws.mean(axis=0)
    if draws.shape[1] <= draws.shape[0]:
        squares, columns = np.linalg.eigh(deviation.T @ deviation)
        squares, directions = squares[::-1], columns.T[::-1]
    # With fewer draws than entries, the singular vectors of the deviations are computed instead: a
    # covariance of dim x dim entries may be too large.
    else:
        _, widths, directions = np.linalg.svd(deviation, full_matrices=False)
        squares = np.square(widths)
    return np.asarray(directions[squares > 1e-12 * squares[0]])


def make_groups(num_chains: int, num_draws: int, effective: float) -> Groups | None:
    """Groups of draws, each with at least 5 of the ``effective`` draws: one or more whole chains a
    group or, where chains are few, parts of single chains. None if there would be fewer than 8
    groups."""
    wanted = min(_MOST_GROUPS, int(effective / DRAWS_PER_GROUP))
    batches = max(1, min(wanted // num_chains, num_draws))
    if batches == 1:
        edges = [round(each) for each in np.linspace(0, num_chains, min(wanted, num_chains) + 1)]
        parts = [(slice(a, b), slice(None)) for a, b in pairwise(edges)]
        widening = 1.0
    else:
        length = num_draws // batches
        first = (
            num_draws - length * batches
        )  # batches end at the last draw: the oldest draws, which fill no batch, are left out
        parts = [
            (slice(chain, chain + 1), slice(first + k * length, first + (k + 1) * length))
            for chain in range(num_chains)
            for k in range(batches)
        ]
        widening = 1.0 / math.sqrt(1.0 - len(parts) / (2.0 * effective))
    return Groups(tuple(parts), widening) if len(parts) >= FEWEST_GROUPS else None


LEVEL = 0.01
"""Largest share of runs with exact draws of the posterior in which some Stein ratio or shift is
found significant by chance."""
_MOST_DIRECTIONS = 20
"""Largest number of principal directions along which draws are tested; if there are more, half of
the tested ones have the largest variances and half the smallest."""

Quantity = Literal["ratio", "shift"]
"""Quantity that is tested: a Stein ratio (variance of the draws over the posterior's), or a shift
of their mean in posterior standard deviations."""
What = Literal["all", "entry", "direction"]
"""Part of theta for which a quantity is tested: the mean over all entries, one entry, or one
principal direction of the draws."""


class Judged(NamedTuple):
    """A Stein ratio or a shift of the draws' mean, with its standard error and the significance of
    its difference from 1 (a ratio) or 0 (a shift).

    Attributes
    ----------
    quantity
        ``ratio`` or ``shift``.
    what, rank
        Part of theta, and its index: ``entry`` with the number of the entry from 0, ``direction``
        with that of the principal direction from 0 (largest variance first), ``all`` with 0.
    value, se
        Estimate and standard error: of a ratio, or of a shift in posterior standard deviations.
    score
        Student's t over its critical value: above 1 or below -1 the difference is significant.
    name
        Name of the entry; empty if it has none, or for another part of theta.
    """

    quantity: Quantity
    what: What
    rank: int
    value: float
    se: float
    score: float
    name: str = ""

    @property
    def significant(self) -> bool:
        """Whether the difference from 1 or 0 is larger than chance explains, corrected for the
        number of tested quantities (Bonferroni)."""
        return abs(self.score) > 1.0

    @property
    def place(self) -> str:
        """Words for the tested part of theta, such as ``in slope[age]``, as the end of a
        sentence."""
        if self.what == "all":
            return "over all entries"
        if self.what == "entry":
            return f"in {self.name or f'theta[{self.rank}]'}"
        return f"along principal direction {self.rank + 1} of the draws (1 is the widest)"


class Judgement(NamedTuple):
    """All Stein ratios and shifts of the mean that were tested for the draws of a data set.

    Attributes
    ----------
    overall
        Mean Stein ratio over all entries of theta.
    spread
        Stein ratios: ``overall``, that of each entry, and that along each principal direction.
    shifts
        Shifts of the mean in posterior standard deviations, of each entry and along each
        principal direction.
    """

    overall: Judged
    spread: tuple[Judged, ...]
    shifts: tuple[Judged, ...]


def judge(theta: Array, gradient: Array, groups: Groups) -> Judgement:
    """Stein ratios and shifts of the mean of draws ``theta``, over all entries, by entry and along
    principal directions, each with its significance. ``gradient`` is that of the negative log
    posterior at the draws; both are (chain, draw, dim). ``groups`` are groups of draws from whose
    differences standard errors are estimated."""
    dim = theta.shape[2]
    deviation = theta - theta.mean(axis=(0, 1))
    by_entry = entry_ratios(groups, deviation, gradient)
    along = _Directions.of(groups, deviation, gradient)
    # Number of tested quantities: the mean ratio, and a ratio and a shift of each entry and
    # direction.
    count = 1 + 2 * dim + 2 * len(along.directions)
    test, test_along = (
        _StudentTest(number, groups.widening, count) for number in (len(groups), along.num_groups)
    )
    entries = range(dim)
    overall = test.ratios(by_entry.mean(axis=1, keepdims=True), "all", entries[:1])
    ratios = test.ratios(by_entry, "entry", entries)
    ratios_along = test_along.ratios(along.ratios, "direction", along.ranks)
    variances = np.square(deviation).mean(axis=(0, 1))
    unit = _shift_unit(variances, np.full(dim, overall[0].value))
    # With the shift b of the mean, the draws' covariance times the mean gradient is r b (Stein
    # ratio r). Over the variance v, and times sqrt(v/r), it is b in posterior standard deviations.
    moved = _times_covariance(groups.means(gradient), deviation) / variances
    shifts = test.shifts(moved * unit, "entry", entries)
    widths = np.square(deviation @ along.directions.T).mean(axis=(0, 1))
    unit = _shift_unit(widths, np.array([each.value for each in ratios_along]))
    shifts_along = test_along.shifts(along.slopes * unit, "direction", along.ranks)
    return Judgement(overall[0], (*overall, *ratios, *ratios_along), (*shifts, *shifts_along))


def entry_ratios(groups: Groups, deviation: Array, gradient: Array) -> Array:
    """Stein ratio of every group of draws and entry, (group, dim), from the draws' deviations from
    their overall mean and the gradients of the negative log posterior, (chain, draw, dim) each. In
    each group, deviations are taken anew from the mean of all other groups."""
    # The mean of (theta - point) x gradient is 1 for exact draws and any fixed point. A group's own
    # mean is not fixed, and would make the ratio too small; the mean of the other groups is
    # independent of the group, so it may be treated as fixed.
    sizes = np.array([deviation[part].shape[0] * deviation[part].shape[1] for part in groups.parts])
    sums = groups.means(deviation) * sizes[:, None]
    centres = (sums.sum(axis=0) - sums) / (sizes.sum() - sizes)[:, None]
    return np.asarray(groups.means(deviation * gradient) - centres * groups.means(gradient))


def _times_covariance(slopes: Array, deviation: Array) -> Array:
    """Each group's mean gradient, ``slopes`` (group, dim), times the covariance of the draws,
    (group, dim), from their ``deviation`` (chain, draw, dim) from the mean. The covariance, a
    matrix (dim, dim), is never formed."""
    flat = deviation.reshape(-1, deviation.shape[2])
    return np.asarray((slopes @ flat.T) @ flat / len(flat))


def _shift_unit(variances: Array, ratios: Array) -> Array:
    r"""Factors by which mean gradients are multiplied to give the shift of the draws' mean in
    posterior standard deviations, from the draws' ``variances`` v and their Stein ratios r.

    With the posterior's standard deviation :math:`\sigma`, draws whose mean is off by b have the
    mean gradient :math:`b/\sigma^2`, and their variance is :math:`v = r\sigma^2`. So
    :math:`\sqrt{v/r} = \sigma` times the mean gradient is :math:`b/\sigma`."""
    return np.sqrt(variances / np.maximum(ratios, 1e-12))


class _Directions(NamedTuple):
    """Principal ``directions`` (direction, dim) of the draws in a third of the groups, with their
    ``ranks``, 0 for the largest variance; and the Stein ``ratios`` and mean gradients (``slopes``)
    along them in each of the other ``num_groups`` groups, (group, direction)."""

    directions: Array
    ranks: Sequence[int]
    ratios: Array
    slopes: Array
    num_groups: int

    @classmethod
    def of(cls, groups: Groups, deviation: Array, gradient: Array) -> _Directions:
        """Principal directions of the draws in every third group, with Stein ratios and mean
        gradients along them from the other groups. ``deviation`` of the draws from their mean and
        ``gradient`` are (chain, draw, dim)."""
        dim = deviation.shape[2]
        chosen = np.concatenate([deviation[part].reshape(-1, dim) for part in groups.parts[::3]])
        directions = principal_directions(chosen)
        ranks = list(range(len(directions)))
        if len(ranks) > _MOST_DIRECTIONS:
            half = _MOST_DIRECTIONS // 2
            ranks = ranks[:half] + ranks[-half:]
            directions = directions[ranks]
        others = tuple(part for k, part in enumerate(groups.parts) if k % 3)
        judged = replace(groups, parts=others)
        away, slopes = (deviation - chosen.mean(axis=0)) @ directions.T, gradient @ directions.T
        return cls(
            directions, ranks, judged.means(away * slopes), judged.means(slopes), len(others)
        )


class _StudentTest:
    """Student's t test of means over ``num_groups`` groups of draws, at a level of 1 per cent
    divided by ``count``, the number of tested quantities (Bonferroni); ``widening`` is a factor of
    standard errors."""

    def __init__(self, num_groups: int, widening: float, count: int) -> None:
        # From scipy.special, because importing scipy.stats takes ten times as long.
        from scipy.special import stdtrit

        self.widening = widening
        self.critical = float(stdtrit(num_groups - 1, 1.0 - LEVEL / count / 2))

    def shifts(self, values: Array, what: What, ranks: Sequence[int]) -> tuple[Judged, ...]:
        """Results of testing shifts of the mean, whose ``values`` (group, quantity) have the mean 0
        for exact draws; ``ranks`` are the indices of the entries or directions (``what``)."""
        mean, se = self._errors(values)
        return self._judged(("shift", what), ranks, mean, se, mean)

    def ratios(self, values: Array, what: What, ranks: Sequence[int]) -> tuple[Judged, ...]:
        """Results of testing Stein ratios, whose ``values`` (group, quantity) have the mean 1 for
        exact draws; ``ranks`` are the indices of the entries or directions (``what``)."""
        mean, se = self._errors(values)
        # The logarithm suits ratios that are means of squares of at least 40 draws. A standard
        # error above half the ratio shows that a ratio is no such mean (a posterior far from
        # normal); its logarithm would hide a ratio far below 1. The difference from 1 is ln(r) r,
        # because the error of ln(r) is se/r.
        usual = se < 0.5 * mean
        safe = np.where(usual, mean, 1.0)
        off = np.where(usual, np.log(safe) * safe, mean - 1.0)
        return self._judged(("ratio", what), ranks, mean, se, off)

    def _errors(self, values: Array) -> tuple[Array, Array]:
        """Means over groups and their standard errors, (quantity) each, from ``values`` (group,
        quantity)."""
        se = values.std(axis=0, ddof=1) * self.widening / np.sqrt(len(values))
        return values.mean(axis=0), np.maximum(se, 1e-300)

    def _judged(
        self, kind: tuple[Quantity, What], ranks: Sequence[int], mean: Array, se: Array, off: Array
    ) -> tuple[Judged, ...]:
        """Each tested quantity with its ``mean``, its standard error ``se``, and its score:
        ``off``, the difference from the value for exact draws, over ``se`` and the critical value
        of t. Arrays are (quantity); ``kind`` is ratio or shift, and the part of theta."""
        scores = off / se / self.critical
        return tuple(
            Judged(*kind, rank, float(value), float(error), float(score))
            for rank, value, error, score in zip(ranks, mean, se, scores, strict=True)
        )
