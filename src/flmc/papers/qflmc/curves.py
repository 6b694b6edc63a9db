"""Measured points of the figures: the rows of the table, and the errors of every experiment."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from flmc.base.arrays import Array


@dataclass(frozen=True)
class Row:
    """A measured point, as it stands in the CSV."""

    figure: str
    reading: str
    curve: str
    x: float
    gain: float
    binding: str
    step_size: float
    temperature: float
    rounds_needed: int
    mse: float
    mse_se: float
    variance_ratio: float
    variance_ratio_se: float
    one_run_wasserstein2_squared: float
    one_run_wasserstein2_squared_se: float
    experiments: int

    def to_dict(self) -> dict[str, Any]:
        """The row by the names of its columns, for a table."""
        return asdict(self)


@dataclass
class Curves:
    """Everything that was measured for the figures.

    Attributes
    ----------
    rows
        The rows of the table.
    errors
        By figure, reading and curve: for every x the errors of all experiments, (experiment).
    """

    rows: list[Row] = field(default_factory=list)
    errors: dict[tuple[str, str, str], dict[float, Array]] = field(default_factory=dict)

    def add(self, row: Row, errors: Array) -> None:
        """Add one more point.

        Parameters
        ----------
        row
            What the table says of it.
        errors
            Mean squared error of every experiment, (experiment).
        """
        self.rows.append(row)
        self.errors.setdefault((row.figure, row.reading, row.curve), {})[row.x] = errors

    def curve(self, figure: str, reading: str, name: str) -> tuple[Array, Array]:
        """The points x (point) of one curve, and their errors (point, experiment).

        Parameters
        ----------
        figure, reading, name
            Number of the figure, name of the reading, and name of the curve.
        """
        found = self.errors[figure, reading, name]
        return np.array(list(found)), np.stack(list(found.values()))
