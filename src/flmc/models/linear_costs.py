"""Quadratic local costs of linear regressions, computed from sufficient statistics. The costs of as
many data sets as memory allows are kept (Hessians without their lower triangles); the costs of all
other data sets are computed again when they are needed."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from flmc.base.arrays import Array
from flmc.data.linear_data import LinearStatistics, StatisticsSource
from flmc.models.local_costs import Quadratic

_MOST_HELD = 20_000_000
"""Largest count of numbers in the local costs of all data sets with which all of them are held in
memory: 160 MB in double precision."""
_MOST_KEPT = 32_000_000
"""Largest count of numbers that are kept in memory, with half of each symmetric Hessian (256 MB),
where the costs of all data sets take more than ``_MOST_HELD``. The costs of the other data sets are
computed again at every use, which takes about as long as 300 rounds."""
_DRAWN_AT_ONCE = 1024
"""Number of data sets whose statistics are computed at a time: few enough for the processor's cache
if they are small. A multiple of the number of data sets that share a random stream, so that none is
drawn in vain."""


class LinearCosts:
    """Quadratic local costs of the devices for all data sets of ``source``, which gives their
    sufficient statistics; ``noise_variance`` is the variance of a target given its features.

    ``prior_precision`` (dim, dim) and its product ``pull`` (dim) with the prior's mean are shared
    equally by the devices."""

    def __init__(
        self, source: StatisticsSource, noise_variance: float, prior_precision: Array, pull: Array
    ) -> None:
        self._source, self._noise_variance = source, noise_variance
        self._shares = (prior_precision / source.num_devices, pull / source.num_devices)
        count, devices, dim = source.num_experiments, source.num_devices, source.dim
        each = devices * dim * (dim + 1)
        self._at_once = max(1, _MOST_HELD // (8 * each))
        self._held: Quadratic | None = None
        self._kept: KeptCosts | None = None
        if each * count <= _MOST_HELD:
            self._held = self._draw(range(count))
        # If the statistics themselves are in memory, costs are cheap to compute again, so they are
        # not kept.
        elif not isinstance(source, LinearStatistics):
            self._kept = KeptCosts(_MOST_KEPT, count, devices, dim)

    def parts(self) -> Iterator[tuple[slice, Quadratic]]:
        """Iterate over all data sets in order, some at a time: pairs of the slice of data sets and
        their local costs. Costs are kept in memory for later calls, as far as they fit."""
        count = self._source.num_experiments
        for first in range(0, count, self._at_once):
            part = slice(first, min(first + self._at_once, count))
            costs = self.rows(part)
            if self._kept is not None and self._kept.count == first:
                self._kept.add(costs)
            yield part, costs

    def rows(self, experiments: slice) -> Quadratic:
        """Local costs of a slice of consecutive data sets: Hessians (experiment, device, dim, dim)
        and constant parts of the gradients (experiment, device, dim)."""
        if self._held is not None:
            return Quadratic(*(array[experiments] for array in self._held))
        asked = range(*experiments.indices(self._source.num_experiments))
        if self._kept is None or asked.start >= self._kept.count:
            return self._draw(asked)
        within = self._kept.count - asked.start
        costs = self._kept.rows(asked[:within])
        if within >= len(asked):
            return costs
        rest = self._draw(asked[within:])
        return Quadratic(*(np.concatenate(arrays) for arrays in zip(costs, rest, strict=True)))

    def _draw(self, experiments: range) -> Quadratic:
        """Local costs of some data sets, computed anew from their sufficient statistics and each
        device's share of the prior."""
        shape = (len(experiments), self._source.num_devices, self._source.dim)
        costs = Quadratic(np.empty((*shape, self._source.dim)), np.empty(shape))
        # Blocks of data sets begin at multiples of their size, as random streams do, so that no
        # data set is drawn in vain.
        first = experiments.start // _DRAWN_AT_ONCE * _DRAWN_AT_ONCE
        for begin in range(first, experiments.stop, _DRAWN_AT_ONCE):
            end = min(begin + _DRAWN_AT_ONCE, experiments.stop)
            part = range(max(begin, experiments.start), end)
            sums = self._source.rows(part)
            place = slice(part.start - experiments.start, part.stop - experiments.start)
            for cost, of_data, share in zip(
                costs, (sums.gram, sums.moment), self._shares, strict=True
            ):
                np.divide(of_data, self._noise_variance, out=cost[place])
                cost[place] += share
        return costs


class KeptCosts:
    """Memory for the quadratic local costs of the first of many data sets, at most ``most_numbers``
    numbers. Hessians are kept without their lower triangles, and returned bit for bit as they were
    added."""

    def __init__(self, most_numbers: int, num_experiments: int, num_devices: int, dim: int) -> None:
        rows, columns = np.triu_indices(dim)
        self._upper = rows * dim + columns
        """Index of each entry of the upper triangle, (entry), in a matrix (dim, dim) that is
        flattened row by row."""
        self._place = np.empty((dim, dim), np.intp)
        """Index of each entry of a symmetric matrix (dim, dim) in the flattened upper triangle,
        (dim, dim)."""
        self._place[rows, columns] = self._place[columns, rows] = np.arange(len(rows))
        each = num_devices * (len(rows) + dim)
        self._room = min(num_experiments, most_numbers // each)
        # The operating system gives pages of memory when they are first written to: arrays that
        # are never filled cost nothing.
        self._hessian = np.empty((self._room, num_devices, len(rows)))
        self._offset = np.empty((self._room, num_devices, dim))
        self.count = 0
        """Number of data sets whose costs are kept, from the first data set on."""

    def add(self, costs: Quadratic) -> None:
        """Keep the costs of the data sets that follow those kept so far, or of as many of them as
        still fit.

        If one of the new Hessians is not exactly symmetric, neither these data sets nor any later
        ones are kept."""
        hessian, offset = (array[: self._room - self.count] for array in costs)
        if not np.array_equal(hessian, np.swapaxes(hessian, 2, 3)):
            self._room = self.count
        if self._room == self.count:
            return
        part = slice(self.count, self.count + len(hessian))
        flat = hessian.reshape(*hessian.shape[:2], -1)
        # With the mode "clip", unlike the default, np.take writes into ``out`` directly, without a
        # buffer.
        np.take(flat, self._upper, axis=2, out=self._hessian[part], mode="clip")
        self._offset[part] = offset
        self.count = part.stop

    def rows(self, experiments: range) -> Quadratic:
        """Kept costs, as copies, of the consecutive data sets with the numbers ``experiments``, all
        of which must be below ``count``."""
        part = slice(experiments.start, experiments.stop)
        return Quadratic(
            np.take(self._hessian[part], self._place, axis=2), self._offset[part].copy()
        )
