"""Points of the figures: plan, simulate, and keep the error of every experiment for paired tests."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from flmc.chains import Progress
from flmc.checks import Array
from flmc.engines import simulate
from flmc.linear import LinearGaussian
from flmc.plan import Plan
from flmc.planning import PAPER_STEP_SIZES, plan
from flmc.quantise import Sigmoid
from flmc.reproduce import readings
from flmc.reproduce.readings import Reading
from flmc.uplink import Analog, Digital, Uplink


@dataclass(frozen=True)
class Point:
    """Where a figure has a point: which reading, which curve, which x."""

    figure: str
    reading: Reading
    curve: str
    x: float
    uplink: Uplink
    epsilon: float | None


@dataclass(frozen=True)
class Row:
    """A measured point, as in the CSV."""

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
    experiments: int

    def to_dict(self) -> dict[str, Any]:
        """For a table."""
        return asdict(self)


def points_of(figure: str) -> Iterator[Point]:
    """All points of a figure of the paper, by number."""
    for reading in readings.READINGS:
        if figure == "2":
            epsilon = readings.EPSILON_OF_SNR_FIGURE
            for snr_db in readings.SNR_DB:
                for uplink in (Digital(snr_db=snr_db), Analog(snr_db=snr_db)):
                    yield Point(figure, reading, uplink.scheme, snr_db, uplink, epsilon)
                    yield Point(figure, reading, f"{uplink.scheme} without DP", snr_db, uplink, None)
        elif figure == "3":
            for value in readings.EPSILONS:
                for uplink in (Digital(), Analog()):
                    yield Point(figure, reading, uplink.scheme, value, uplink, value)
                    yield Point(figure, reading, f"{uplink.scheme} without DP", value, uplink, None)
        else:
            for slope in readings.SLOPES:
                for value in readings.EPSILONS_OF_SLOPES:
                    yield Point(figure, reading, f"a = {slope:g}", value, Digital(link=Sigmoid(slope)), value)


@dataclass
class Curves:
    """Errors (point, experiment) by figure, reading and curve, beside the rows of the table."""

    rows: list[Row] = field(default_factory=list)
    errors: dict[tuple[str, str, str], dict[float, Array]] = field(default_factory=dict)

    def add(self, row: Row, errors: Array) -> None:
        """One more point."""
        self.rows.append(row)
        self.errors.setdefault((row.figure, row.reading, row.curve), {})[row.x] = errors

    def curve(self, figure: str, reading: str, name: str) -> tuple[Array, Array]:
        """x (point) and errors (point, experiment) of one curve."""
        found = self.errors[figure, reading, name]
        return np.array(list(found)), np.stack(list(found.values()))


class Laboratory:
    """Runs plans on one set of data sets with one seed; a plan that was run before is not run again."""

    def __init__(self, model: LinearGaussian, seed: int, engine: str = "auto") -> None:
        self.model, self.seed, self.engine = model, seed, engine
        self._done: dict[str, dict[str, Array]] = {}

    def plan(self, point: Point) -> Plan:
        """As the reading says."""
        step = PAPER_STEP_SIZES[point.uplink.scheme] if point.reading.paper_steps else "auto"
        limits = point.reading.limits(point.epsilon, readings.DELTA)
        return plan(self.model, point.uplink, limits, step_size=step, forecast=False)

    def errors(self, plan: Plan) -> dict[str, Array]:
        """Statistics of every experiment; what does not change the chain does not make a new run."""
        key = repr(
            (
                plan.uplink.scheme,
                getattr(plan.uplink, "link", None),
                plan.step_size,
                plan.burn_in_step_factor,
                plan.gain.round(15).tolist(),
            )
        )
        if key not in self._done:
            moments = simulate(plan, self.model, self.seed, engine=self.engine)[1].moments
            shift = moments.sums.sum(axis=1) / moments.counts.sum()
            self._done[key] = {"mse": moments.mean_square, "shift": shift}
        return self._done[key]


def spread_ratio(errors: dict[str, Array], trace: Array) -> tuple[float, float]:
    """Variance ratio over data sets with one chain each, and its standard error.

    A single chain's variance about its own mean is too small, by how much depends on its memory. So deviations from the
    exact posterior means are pooled over data sets, less the shift that they have in common.
    """
    common = errors["shift"].mean(axis=0)
    values = (errors["mse"] - common @ common) / trace.mean()
    return float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values)))


def measure(points: list[Point], laboratory: Laboratory, progress: Progress | None = None) -> Curves:
    """Plan and run every point."""
    curves = Curves()
    trace = np.trace(laboratory.model.posterior.covariance, axis1=1, axis2=2)
    for index, point in enumerate(points):
        planned = laboratory.plan(point)
        errors = laboratory.errors(planned)
        mse = errors["mse"]
        ratio, ratio_se = spread_ratio(errors, trace)
        row = Row(
            point.figure,
            point.reading.name,
            point.curve,
            point.x,
            planned.typical_gain,
            planned.binding,
            planned.step_size,
            planned.temperature or float("nan"),
            planned.rounds_needed or 0,
            float(mse.mean()),
            float(mse.std(ddof=1) / np.sqrt(len(mse))),
            ratio,
            ratio_se,
            len(mse),
        )
        curves.add(row, mse)
        if progress is not None:
            progress((index + 1) / len(points))
    return curves
