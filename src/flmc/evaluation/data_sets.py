"""Values of single data sets: their middle half, whether their tails are heavy, and differences of
two methods that were measured on the same data sets.

A mean over data sets with its standard error says nothing where one data set in twenty decides both
(9.4 ± 7.7). There the median and the middle half are given beside it, and of differences the median
with an interval that holds for any law."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from flmc.base.arrays import Array
from flmc.base.documents import to_document

FEWEST = 10
"""Data sets below which tails are not called heavy: with 5 normal values the mean lies outside the
middle half in one case of ten, with 10 in one of a hundred."""
_LEVEL = 0.95
"""Probability with which the interval of a median holds, at least."""

PAIRED_IN_WORDS = (
    "mean of the differences ± standard error; where tails are heavy, the median [its 95 %"
    " interval]"
)
"""What a table of paired differences shows, in words."""


class Middle(NamedTuple):
    """Median and quartiles of the values of single data sets.

    Attributes
    ----------
    median, low, high
        Median, and the ends of the middle half of data sets: quantiles at 50, 25 and 75 per cent.
    heavy
        Whether the tails are heavy: the mean lies outside the middle half of at least 10 data sets,
        so that it is not the value of a usual one.
    """

    median: float
    low: float
    high: float
    heavy: bool

    @classmethod
    def of(cls, values: Array) -> Middle:
        """Median and quartiles of ``values`` (data set); NaN where a value is."""
        low, median, high = (float(q) for q in np.quantile(values, (0.25, 0.5, 0.75)))
        mean = float(values.mean())
        heavy = len(values) >= FEWEST and (mean < low or mean > high)
        return cls(median, low, high, heavy)

    def __str__(self) -> str:
        return f"median {self.median:.4g}, middle half {self.low:.3g} to {self.high:.3g}"

    def to_document(self) -> dict[str, Any]:
        """The numbers by name, for JSON; what is not a number is null."""
        return {name: to_document(value) for name, value in self._asdict().items()}


def middles(each: Mapping[str, Array]) -> dict[str, Middle]:
    """Middle of the values of every metric, given by name as (data set); empty for one data set."""
    return {name: Middle.of(values) for name, values in each.items() if len(values) > 1}


class PairedDifference(NamedTuple):
    """A method's values less those of another on the same data sets.

    Attributes
    ----------
    mean, se
        Mean of the differences and its standard error, over data sets.
    median, median_low, median_high
        Their median, and the ends of its 95 per cent interval, which holds for any law because it
        counts data sets only; NaN for fewer than 6 data sets, which allow none.
    heavy
        Whether the tails of the differences are heavy, as :class:`Middle` says: then the median is
        to be believed, not the mean.
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
        """Differences of ``values`` and ``others``, (data set) each, of at least two data sets."""
        differences = np.sort(np.asarray(values) - np.asarray(others))
        count = len(differences)
        rank = _rank(count)
        low, high = (
            (math.nan, math.nan)
            if rank is None
            else (float(differences[rank]), float(differences[count - 1 - rank]))
        )
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
        """The numbers by name, for JSON; what is not a number is null."""
        return {name: to_document(value) for name, value in self._asdict().items()}


def _rank(count: int) -> int | None:
    """Place, from 0, of the lower end of the median's interval among ``count`` sorted values; the
    upper end is as far from the other end. None where even the extremes are too few."""
    # The number of values below the median of any continuous law is binomial with 1/2.
    below, rank = 0.0, None
    for place in range(count // 2):
        below += math.comb(count, place) / 2.0**count
        if 1.0 - 2.0 * below < _LEVEL:
            break
        rank = place
    return rank
