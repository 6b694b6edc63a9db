"""Values of a metric on single data sets: their median and quartiles, whether their tails are
heavy, and differences of two methods that were measured on the same data sets.

A mean over data sets with its standard error is of little use where one data set in twenty decides
both (9.4 ± 7.7). In that case the median and the quartiles are given beside it; for differences,
the median with a confidence interval that is valid for any law."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from flmc.base.arrays import Array
from flmc.base.documents import to_document

FEWEST = 10
"""Smallest number of data sets on which tails may be called heavy, that is the mean of their values
lies outside the middle half: for normal values, that happens in one case of ten with 5 data sets,
and in one of a hundred with 10."""
_LEVEL = 0.95
"""Smallest probability with which the confidence interval of a median contains the true median."""

PAIRED_IN_WORDS = (
    "mean of the differences ± standard error; where tails are heavy, the median [its 95 %"
    " interval]"
)
"""Caption of a table of differences between two methods on the same data sets."""


class Middle(NamedTuple):
    """Median and quartiles of the values of single data sets.

    Attributes
    ----------
    median, low, high
        Median, lower quartile and upper quartile of the values.
    heavy
        Whether the tails are heavy: with at least 10 data sets, the mean lies outside the
        quartiles, so that it is not the value of a usual data set.
    """

    median: float
    low: float
    high: float
    heavy: bool

    @classmethod
    def of(cls, values: Array) -> Middle:
        """Median and quartiles of ``values`` (data set); all are NaN if a value is."""
        low, median, high = (float(q) for q in np.quantile(values, (0.25, 0.5, 0.75)))
        mean = float(values.mean())
        heavy = len(values) >= FEWEST and (mean < low or mean > high)
        return cls(median, low, high, heavy)

    def __str__(self) -> str:
        return f"median {self.median:.4g}, middle half {self.low:.3g} to {self.high:.3g}"

    def to_document(self) -> dict[str, Any]:
        """The four fields by name, for JSON; a number that is NaN is null."""
        return {name: to_document(value) for name, value in self._asdict().items()}


def middles(each: Mapping[str, Array]) -> dict[str, Middle]:
    """Median and quartiles over data sets of every metric, by the metric's name, from ``each``,
    arrays (data set) of its values by the same names; empty for a single data set."""
    return {name: Middle.of(values) for name, values in each.items() if len(values) > 1}


class PairedDifference(NamedTuple):
    """Summary of the differences between two methods in the values of one metric, taken data set by
    data set.

    Attributes
    ----------
    mean, se
        Mean of the differences and its standard error, over data sets.
    median, median_low, median_high
        Median of the differences, and the ends of its 95 per cent confidence interval, which are
        order statistics and so valid for any law; the ends are NaN for fewer than 6 data sets,
        which are too few for such an interval.
    heavy
        Whether the tails of the differences are heavy: with at least 10 data sets, their mean lies
        outside their quartiles. The median is then the number to trust.
    smaller
        Number of data sets on which the difference is negative.
    data_sets
        Number of data sets.
    """

    mean: float
    se: float
    median: float
    median_low: float
    median_high: float
    heavy: bool
    smaller: int
    data_sets: int

    @classmethod
    def of(cls, values: Array, others: Array) -> PairedDifference:
        """Summary of the differences ``values`` less ``others``, (data set) each, for at least two
        data sets."""
        differences = np.sort(np.asarray(values) - np.asarray(others))
        count = len(differences)
        low, high = median_interval(differences) or (math.nan, math.nan)
        middle = Middle.of(differences)
        return cls(
            float(differences.mean()),
            float(differences.std(ddof=1) / math.sqrt(count)),
            middle.median,
            low,
            high,
            middle.heavy,
            int((differences < 0).sum()),
            count,
        )

    def __str__(self) -> str:
        text = f"{self.mean:.3g} ± {self.se:.2g}"
        if self.heavy:
            text = f"median {self.median:.3g} [{self.median_low:.3g}, {self.median_high:.3g}]"
        return text

    def to_document(self) -> dict[str, Any]:
        """The fields by name, for JSON; a number that is NaN is null."""
        return {name: to_document(value) for name, value in self._asdict().items()}


def median_interval(values: Array, level: float = _LEVEL) -> tuple[float, float] | None:
    """Ends of a confidence interval of the median of the law of ``values`` (data set), which are
    two of the values and hold for any law; None for so few values that even the smallest and the
    largest do not enclose the median with probability ``level``."""
    rank = _rank(len(values), level)
    if rank is None:
        return None
    ordered = np.sort(values)
    return float(ordered[rank]), float(ordered[len(values) - 1 - rank])


def _rank(count: int, level: float) -> int | None:
    """Index, from 0, of the lower end of the median's confidence interval among ``count`` sorted
    values; the upper end has the same index counted from the other end. None if even the smallest
    and the largest value do not enclose the median with probability ``level``."""
    # For any continuous law, the number of values below its median is binomial with probability
    # 1/2.
    below, rank = 0.0, None
    for place in range(count // 2):
        below += math.comb(count, place) / 2.0**count
        if 1.0 - 2.0 * below < level:
            break
        rank = place
    return rank
