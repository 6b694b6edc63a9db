"""Results of the study of the analog predecessor: points, and what they say together."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from flmc.base.documents import ANSWER_VERSION
from flmc.base.tables import Grid, Row
from flmc.base.version import VERSION
from flmc.papers.wflmc.base_case import NUM_RUNS, BaseCase

FEWEST_COMPARED = 5
"""Experiments below which the published value is not compared: their scatter is not known."""


@dataclass(frozen=True)
class Point:
    """A curve at one SNR, over all experiments.

    Attributes
    ----------
    curve, snr_db
        Name of the curve, and where.
    mean
        Geometric mean over experiments of the largest squared W2 over kept rounds.
    log_sd
        Standard deviation of its logarithm over experiments; NaN for one.
    pooled
        The same distance for the runs of all experiments together: near what infinitely many runs
        would give.
    experiments
        Experiments of 100 runs.
    published, z
        The published value and how many standard deviations its logarithm is above the mean; NaN
        where nothing was published.
    """

    curve: str
    snr_db: float
    mean: float
    log_sd: float
    pooled: float
    experiments: int
    published: float = math.nan
    z: float = math.nan

    def to_dict(self) -> dict[str, Any]:
        """The point by the names of its columns, for a table."""
        return asdict(self)


@dataclass
class Study:
    """All results of the reproduction."""

    case: BaseCase
    seed: int
    experiments: int
    published: bool
    """Whether the published curves were there to compare with."""
    budgets: tuple[float, float]
    """Budget R of a device as published, and of the exact Gaussian mechanism."""
    floor: float
    """Largest distance that 100 runs of an exact sampler have on average."""
    population: float
    """Largest distance of noiseless Langevin Monte Carlo with infinitely many runs."""
    own_curves: tuple[str, ...] = ()
    """Names of a user's own curves."""
    points: list[Point] = field(default_factory=list)
    changed: bool = False
    """Whether settings of the base case were changed."""
    own_settings: Mapping[str, str] = field(default_factory=dict)
    """Settings of a user's own curves in words, by name."""

    @property
    def budget_db(self) -> float:
        """How much more the exact budget allows than the published one, in dB."""
        return 10.0 * math.log10(self.budgets[1] / self.budgets[0])

    @property
    def snr_db(self) -> list[float]:
        """Where the curves have points."""
        return list(dict.fromkeys(point.snr_db for point in self.points))

    @property
    def curves(self) -> list[str]:
        """Names of the curves in the order in which they were measured."""
        return list(dict.fromkeys(point.curve for point in self.points))

    def at(self, curve: str, snr_db: float) -> Point:
        """The point of a curve at an SNR.

        Parameters
        ----------
        curve, snr_db
            Name of the curve, and where.
        """
        return next(p for p in self.points if p.curve == curve and p.snr_db == snr_db)

    @property
    def why_not_compared(self) -> str:
        """Why there is no comparison with print, where there is none."""
        if self.changed:
            return "the base case was changed (--set)"
        if not self.published:
            return "that needs the published data and curves (--data-file)"
        return f"that needs {FEWEST_COMPARED} experiments at least, for their scatter"

    @property
    def largest_z(self) -> Point | None:
        """The compared point that is farthest from print; None if nothing was compared."""
        compared = [point for point in self.points if not math.isnan(point.z)]
        return max(compared, key=lambda point: abs(point.z), default=None)

    def grid(self) -> Grid:
        """A table with the distance of every curve at every SNR, and z of the published value."""
        rows = []
        for curve in self.curves:
            points = [self.at(curve, snr) for snr in self.snr_db]
            rows.append((curve, *(_two_digits(1e4 * point.mean) for point in points)))
            if not math.isnan(points[0].z):
                rows.append(("  z of print", *(f"{point.z:+.1f}" for point in points)))
        title = (
            f"squared W2 in 1e-4, largest over kept rounds, {self.experiments} experiments of"
            f" {NUM_RUNS} runs"
        )
        header = ("curve", *(f"{snr:g} dB" for snr in self.snr_db))
        return Grid(header, tuple(rows), title, tuple(self._summary()))

    def _summary(self) -> list[Row]:
        """What came out, in sentences."""
        rows = [Row("", f"Data: {self.case.source}.")]
        worst = self.largest_z
        if worst is None:
            rows.append(Row("", f"Nothing is compared with print: {self.why_not_compared}."))
        else:
            rows.append(
                Row(
                    "",
                    "z of print: standard deviations from the mean of the experiments to the"
                    f" published value, in logarithms. The largest is {worst.z:+.2f},"
                    f" {worst.curve} at {worst.snr_db:g} dB.",
                )
            )
        rows.append(
            Row(
                "",
                f"{NUM_RUNS} runs of an exact sampler have {self.floor:.2g}; infinitely many runs"
                f" of noiseless Langevin Monte Carlo have {self.population:.3g}. The exact privacy"
                f" budget is {self.budget_db:.2f} dB above the published one.",
            )
        )
        return rows

    def to_document(self) -> dict[str, Any]:
        """All results as plain values, for JSON; what is not known is null."""
        return {
            "schema_version": ANSWER_VERSION,
            "experiments": self.experiments,
            "seed": self.seed,
            "version": VERSION,
            "data": self.case.source,
            "budget_published": self.budgets[0],
            "budget_exact": self.budgets[1],
            "budget_db": self.budget_db,
            "floor": self.floor,
            "population": self.population,
            "points": [
                {
                    name: None if isinstance(value, float) and math.isnan(value) else value
                    for name, value in point.to_dict().items()
                }
                for point in self.points
            ],
        }


def _two_digits(value: float) -> str:
    """A number to two digits, without an exponent."""
    return f"{value:.2g}" if value < 99.5 else f"{value:.0f}"
