"""Quadratic local costs that are kept in less memory: Hessians without their lower triangles."""

from __future__ import annotations

import numpy as np

from flmc.models.local_costs import Quadratic


class KeptCosts:
    """Local costs of the first data sets of many, to the bit as they were handed over.

    Parameters
    ----------
    most_numbers
        Numbers that may be kept.
    num_experiments, num_devices, dim
        Data sets that there are, devices of each, and entries of theta.
    """

    def __init__(self, most_numbers: int, num_experiments: int, num_devices: int, dim: int) -> None:
        rows, columns = np.triu_indices(dim)
        self._upper = rows * dim + columns
        """Where the upper triangle is in a matrix whose rows lie one behind the other."""
        self._place = np.empty((dim, dim), np.intp)
        """Where each entry of a matrix is in its upper triangle."""
        self._place[rows, columns] = self._place[columns, rows] = np.arange(len(rows))
        each = num_devices * (len(rows) + dim)
        self._room = min(num_experiments, most_numbers // each)
        # Pages of memory that nothing is written to take none.
        self._hessian = np.empty((self._room, num_devices, len(rows)))
        self._offset = np.empty((self._room, num_devices, dim))
        self.count = 0
        """Data sets that are kept, from the first on."""

    def add(self, costs: Quadratic) -> None:
        """Keep the costs of the next data sets, or of as many of them as there is room for.

        Those whose Hessians are not symmetric to the bit, and all behind them, are not kept.

        Parameters
        ----------
        costs
            Of the data sets behind those that were added before.
        """
        hessian, offset = (array[: self._room - self.count] for array in costs)
        if not np.array_equal(hessian, np.swapaxes(hessian, 2, 3)):
            self._room = self.count
        if self._room == self.count:
            return
        part = slice(self.count, self.count + len(hessian))
        flat = hessian.reshape(*hessian.shape[:2], -1)
        np.take(flat, self._upper, axis=2, out=self._hessian[part], mode="clip")
        self._offset[part] = offset
        self.count = part.stop

    def rows(self, experiments: range) -> Quadratic:
        """Costs of some data sets that are kept, as arrays of their own.

        Parameters
        ----------
        experiments
            Their numbers, consecutive and below ``count``.
        """
        part = slice(experiments.start, experiments.stop)
        return Quadratic(
            np.take(self._hessian[part], self._place, axis=2), self._offset[part].copy()
        )
