"""Paired differences of the methods in a sweep: results on the same data sets, less those of the
first method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from flmc.evaluation.data_sets import PairedDifference
from flmc.runs.sweeps.grid import SweepGrid
from flmc.runs.sweeps.table import DATA_SETS


def paired_rows(grid: SweepGrid, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Paired differences, one row for each metric of each point that is not of the first method:
    the metric of the point less that of the first method on the same data sets. A row has the
    settings that vary, ``against`` (the first method), ``metric``, and mean, median and errors of
    the difference. No rows for one data set, or where no methods are compared."""
    name = grid.methods
    if name is None:
        return []
    found = []
    for index, row in enumerate(rows):
        first = rows[grid.compared_with(index)[0]]
        if first is row:
            continue
        own, others = (each.get(DATA_SETS) or {} for each in (row, first))
        for metric in own:
            values = [_numbers(each.get(metric)) for each in (own, others)]
            if values[0] is None or values[1] is None or len(values[0]) != len(values[1]):
                continue  # only one of the two methods has this metric
            found.append(
                {
                    **{axis: row[axis] for axis in grid.axes},
                    "against": first[name],
                    "metric": metric,
                    **PairedDifference.of(values[0], values[1]).to_document(),
                }
            )
    return found


def _numbers(values: Sequence[float | None] | None) -> Any:
    """The values of a metric, one for each data set, as an array (experiment); None if there are no
    values, or one value is not known."""
    return None if values is None or None in values else np.array(values)
