r"""Significance of Stein ratios and shifts, by entry and by direction, from nearly independent
groups of draws.

Whole chains are independent. Where there are few of them, each is cut into batches that are long
compared with its memory. The mean of a batch of B draws has the variance :math:`\sigma^2\tau/B`
with the autocorrelation time :math:`\tau`, less a share of about :math:`\tau/(2B)` for memory that
fades exponentially: what a batch owes to its neighbours. A batch that holds n effective draws has
:math:`\tau/B = 1/n`, so errors from batches are widened by :math:`(1 - 1/(2n))^{-1/2}`.

Every quantity has a value from each group, and Student's t of its mean. Ratios are judged by their
logarithm: a mean square is skewed, like a gamma variable, and its error grows with it, so that t of
the ratio itself would call draws too narrow too often; the error of the logarithm does not depend
on the ratio. Directions are chosen from a third of the groups and judged on the others: along
directions chosen from the same draws, right draws would look too wide.

With M quantities some are far off by chance, so each is judged at the level :math:`\alpha/M`
(Bonferroni, which holds however they depend on each other): draws from the posterior are blamed in
a share of at most about :math:`\alpha` of all runs."""

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
"""Smallest number of effective draws of a group: its mean is then nearly normal, and hardly depends
on the neighbouring groups'."""
FEWEST_GROUPS = 8
"""Smallest number of groups with which errors are stated: a third of them chooses directions, and
Student's t of fewer than five others is of no use."""
_MOST_GROUPS = 40
"""Largest number of groups: more would hardly sharpen an error, and shorter groups are less
normal."""
_MOST_QUANTITIES = 20
"""Largest number of entries, and of principal directions, whose effective draws are computed."""


@dataclass(frozen=True)
class Groups:
    """Nearly independent groups of the draws of some chains.

    Attributes
    ----------
    parts
        Chains and draws of each group, as a pair of slices.
    widening
        Factor by which errors are widened for the memory between batches of one chain; 1 for
        groups of whole chains.
    """

    parts: tuple[tuple[slice, slice], ...]
    widening: float

    def __len__(self) -> int:
        return len(self.parts)

    def means(self, values: Array) -> Array:
        """Mean of each group, (group, ...), of values (chain, draw, ...)."""
        return np.stack([values[part].mean(axis=(0, 1)) for part in self.parts])


def effective_draws(theta: Array) -> float:
    """Number of independent draws that ``theta`` (chain, draw, dim) is worth in the worst of some
    entries and principal directions; at least the number of chains, which are independent of each
    other."""
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
    """Principal directions of draws (draw, dim): unit vectors, widest first, (direction, dim), as
    many as the draws span."""
    deviation = draws - draws.mean(axis=0)
    if draws.shape[1] <= draws.shape[0]:
        squares, columns = np.linalg.eigh(deviation.T @ deviation)
        squares, directions = squares[::-1], columns.T[::-1]
    # with more entries than draws, by a matrix of draws: one of dim x dim entries may be too large
    else:
        _, widths, directions = np.linalg.svd(deviation, full_matrices=False)
        squares = np.square(widths)
    return np.asarray(directions[squares > 1e-12 * squares[0]])


def make_groups(num_chains: int, num_draws: int, effective: float) -> Groups | None:
    """Groups of whole chains, or batches of single chains where chains are few, each with at least
    5 of the ``effective`` draws; None if there would be fewer than 8 groups."""
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
"""Level alpha: largest share of runs with right draws in which any quantity is significant."""
_MOST_DIRECTIONS = 20
"""Largest number of principal directions that are judged; where there are more, half of the judged
ones are the widest and half the narrowest."""

Quantity = Literal["ratio", "shift"]
"""A Stein ratio, or a shift of the mean in posterior standard deviations."""
What = Literal["all", "entry", "direction"]
"""Subject of a judgement: the mean over all entries, an entry, or a principal direction."""


class Judged(NamedTuple):
    """A ratio or shift with its standard error, and how significantly it differs from 1 or 0.

    Attributes
    ----------
    quantity
        ``ratio`` or ``shift``.
    what, rank
        Subject, ``all``, ``entry`` or ``direction``, and its number: of the entry (from 0), of the
        direction (from 0, widest first), or 0 for all entries.
    value, se
        Estimate and standard error: of a ratio, or of a shift in posterior standard deviations.
    score
        Student's t over its critical value: beyond 1 or -1 it is significant.
    """

    quantity: Quantity
    what: What
    rank: int
    value: float
    se: float
    score: float

    @property
    def significant(self) -> bool:
        """Whether the deviation is larger than chance explains, corrected for the number of judged
        quantities (Bonferroni)."""
        return abs(self.score) > 1.0

    @property
    def place(self) -> str:
        """Name of the entry of theta or of the direction that was judged, for sentences."""
        if self.what == "all":
            return "over all entries"
        if self.what == "entry":
            return f"in entry {self.rank + 1}"
        return f"along principal direction {self.rank + 1} of the draws (1 is the widest)"


class Judgement(NamedTuple):
    """All quantities that were judged.

    Attributes
    ----------
    overall
        Stein ratio over all entries.
    spread
        Stein ratios: overall, of the entries, of the directions.
    shifts
        Shifts of the mean in posterior standard deviations: of the entries, of the directions.
    """

    overall: Judged
    spread: tuple[Judged, ...]
    shifts: tuple[Judged, ...]


def judge(theta: Array, gradient: Array, groups: Groups) -> Judgement:
    """Judge draws by the gradients of the negative log posterior at them, (chain, draw, dim) each:
    Stein ratios and shifts of the mean over all entries, by entry and along principal directions,
    each with its significance."""
    dim = theta.shape[2]
    deviation = theta - theta.mean(axis=(0, 1))
    by_entry = entry_ratios(groups, deviation, gradient)
    along = _Directions.of(groups, deviation, gradient)
    # Tested quantities: the overall ratio, and a ratio and a shift of each entry and direction.
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
    # The draws' covariance times the mean gradient is r times the shift b. Over the variance v and
    # times sqrt(v/r), which is the unit, it is b in posterior standard deviations.
    moved = _times_covariance(groups.means(gradient), deviation) / variances
    shifts = test.shifts(moved * unit, "entry", entries)
    widths = np.square(deviation @ along.directions.T).mean(axis=(0, 1))
    unit = _shift_unit(widths, np.array([each.value for each in ratios_along]))
    shifts_along = test_along.shifts(along.slopes * unit, "direction", along.ranks)
    return Judgement(overall[0], (*overall, *ratios, *ratios_along), (*shifts, *shifts_along))


def entry_ratios(groups: Groups, deviation: Array, gradient: Array) -> Array:
    """Stein ratio of every group and entry, (group, dim), from deviations of the draws from their
    mean and gradients, (chain, draw, dim) each; deviations are taken from the mean of the other
    groups."""
    # About any fixed point the mean of (theta - point) x gradient is 1 for draws from the
    # posterior. A group's own mean is no fixed point and would make the ratio too small; the mean
    # of the other groups is independent of the group, so it is as good as fixed.
    sizes = np.array([deviation[part].shape[0] * deviation[part].shape[1] for part in groups.parts])
    sums = groups.means(deviation) * sizes[:, None]
    centres = (sums.sum(axis=0) - sums) / (sizes.sum() - sizes)[:, None]
    return np.asarray(groups.means(deviation * gradient) - centres * groups.means(gradient))


def _times_covariance(slopes: Array, deviation: Array) -> Array:
    """Mean gradients ``slopes`` (group, dim) times the covariance of the draws, (group, dim),
    computed from their deviations without forming that matrix."""
    flat = deviation.reshape(-1, deviation.shape[2])
    return np.asarray((slopes @ flat.T) @ flat / len(flat))


def _shift_unit(variances: Array, ratios: Array) -> Array:
    r"""Factors by which mean gradients are multiplied to give the shift of the draws' mean in
    posterior standard deviations, from the draws' ``variances`` v and their Stein ratios r.

    A mean that is off by b has the mean gradient :math:`b/\sigma^2`; draws with the ratio r have
    the variance :math:`r\sigma^2`. So :math:`\sqrt{v/r}` times the mean gradient is b over
    sigma."""
    return np.sqrt(variances / np.maximum(ratios, 1e-12))


class _Directions(NamedTuple):
    """Principal directions (direction, dim) that were chosen from a third of the groups, with their
    ranks, 0 for the widest; and the Stein ratios and mean gradients along them in the other
    ``num_groups`` groups, (group, direction) each."""

    directions: Array
    ranks: Sequence[int]
    ratios: Array
    slopes: Array
    num_groups: int

    @classmethod
    def of(cls, groups: Groups, deviation: Array, gradient: Array) -> _Directions:
        """Principal directions of the draws in every third group, with ratios and mean gradients
        along them from the other groups."""
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
    """Student's t test of means over ``num_groups`` groups, at the level divided by the ``count``
    of tested quantities (Bonferroni); ``widening`` multiplies standard errors."""

    def __init__(self, num_groups: int, widening: float, count: int) -> None:
        # importing this function takes a tenth of the time of importing scipy.stats
        from scipy.special import stdtrit

        self.widening = widening
        self.critical = float(stdtrit(num_groups - 1, 1.0 - LEVEL / count / 2))

    def shifts(self, values: Array, what: What, ranks: Sequence[int]) -> tuple[Judged, ...]:
        """Judge shifts, whose values (group, quantity) have the mean 0 for draws from the
        posterior."""
        mean, se = self._errors(values)
        return self._judged(("shift", what), ranks, mean, se, mean)

    def ratios(self, values: Array, what: What, ranks: Sequence[int]) -> tuple[Judged, ...]:
        """Judge Stein ratios, whose values (group, quantity) have the mean 1 for draws from the
        posterior."""
        mean, se = self._errors(values)
        # The logarithm suits ratios that are means of squares of 40 draws or more. A standard error
        # of half the ratio shows that this one is not (a posterior far from normal), and there the
        # logarithm would hide a ratio far below 1. off = ln(r) r, because the error of ln(r) is
        # se/r.
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
        """Each mean (quantity) with its score: ``off``, the deviation from what it should be, over
        its standard error ``se`` and the critical value of t."""
        scores = off / se / self.critical
        return tuple(
            Judged(*kind, rank, float(value), float(error), float(score))
            for rank, value, error, score in zip(ranks, mean, se, scores, strict=True)
        )
