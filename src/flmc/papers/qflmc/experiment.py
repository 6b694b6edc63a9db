"""Planning and running of the points of the paper's figures. The errors of every single experiment
are kept, so that schemes can be compared in pairs on the same data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from flmc.base.arrays import Array
from flmc.base.documents import to_document
from flmc.base.progress import Progress
from flmc.evaluation.exact_posterior import distance_from
from flmc.evaluation.metrics import Estimate, squared_errors, variance_ratio_to
from flmc.models.distributions import Gaussian
from flmc.models.linear import LinearGaussian
from flmc.papers.qflmc import readings
from flmc.papers.qflmc.design_search import entry_gain, limited
from flmc.papers.qflmc.readings import PAPER, BaseCase, Reading
from flmc.planning.planner import plan
from flmc.planning.plans import Plan
from flmc.sampling.engine import Engine
from flmc.sampling.moments import Moments
from flmc.sampling.simulation import simulate
from flmc.settings.assembly import assemble
from flmc.settings.construction import make_uplink
from flmc.settings.schema import Settings
from flmc.uplink.fadings import ConstantFading
from flmc.uplink.uplink import Uplink
from flmc.uplink.uplink import replace as replace_uplink


@dataclass(frozen=True)
class CurveRow:
    """Measurements at one point of a curve, a row of the CSV file of all figures.

    ``figure``, ``reading``, ``curve`` and ``x`` identify the point: number of the figure, name of
    the reading of the paper, name of the curve, and value on the x axis. ``gain`` to
    ``rounds_needed`` are those of the plan; ``binding`` names the limit that decides the gain. The
    columns with ``_se`` are standard errors of the ones before them. ``mse`` is the mean squared
    error over ``experiments`` data sets; ``one_run_wasserstein2_squared`` is the squared W2
    distance from the posterior to the Gaussian fitted to the draws of one run."""

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
        """The row as a dictionary from column names to values, for a table."""
        return asdict(self)


@dataclass
class Curves:
    """All measurements for the paper's figures: a table, and the errors of every experiment.

    Attributes
    ----------
    rows
        Rows of the CSV of all figures, one for each measured point of a curve.
    errors
        Mean squared errors of all experiments, (experiment), for every x, by number of the figure,
        name of the reading and name of the curve.
    """

    rows: list[CurveRow] = field(default_factory=list)
    errors: dict[tuple[str, str, str], dict[float, Array]] = field(default_factory=dict)

    def add(self, row: CurveRow, errors: Array) -> None:
        """Add one measured point of a curve: its row of the table, and the mean squared errors of
        all experiments at the point, (experiment)."""
        self.rows.append(row)
        self.errors.setdefault((row.figure, row.reading, row.curve), {})[row.x] = errors

    def curve(self, figure: str, reading: str, name: str) -> tuple[Array, Array]:
        """The x values (point) of one curve, and the mean squared errors (point, experiment)."""
        by_x = self.errors[figure, reading, name]
        return np.array(list(by_x)), np.stack(list(by_x.values()))


@dataclass(frozen=True)
class FigurePoint:
    """A point of a figure, before it is measured.

    Attributes
    ----------
    figure, reading, curve, x
        Number of the figure, reading of the paper's text, name of the curve, and value on the x
        axis.
    uplink
        The uplink that is planned and run at this point.
    epsilon
        Privacy budget of a round; None: without privacy.
    own
        For a curve that the user added: its settings, completed by those that the reading decides;
        None for a curve of the paper.
    by_entry
        For a curve that the user added: whether its gain is limited by the privacy rule `by entry`,
        a conjecture about the authors' program.
    """

    figure: str
    reading: Reading
    curve: str
    x: float
    uplink: Uplink
    epsilon: float | None
    own: Settings | None = None
    by_entry: bool = False


def points_of(figure: str, base: BaseCase = PAPER) -> Iterator[FigurePoint]:
    """Iterate over all points of a figure of the paper (2, 3 or 4), under every reading of its
    text."""
    schemes = ("digital", "analog")
    for reading in readings.READINGS:
        if figure == "2":
            epsilon = readings.EPSILON_OF_SNR_FIGURE
            for snr_db in readings.SNR_DB:
                for uplink in (base.uplink(scheme, snr_db) for scheme in schemes):
                    yield FigurePoint(figure, reading, uplink.scheme, snr_db, uplink, epsilon)
                    yield FigurePoint(
                        figure, reading, f"{uplink.scheme} without DP", snr_db, uplink, None
                    )
        elif figure == "3":
            for value in readings.EPSILONS:
                for uplink in map(base.uplink, schemes):
                    yield FigurePoint(figure, reading, uplink.scheme, value, uplink, value)
                    yield FigurePoint(
                        figure, reading, f"{uplink.scheme} without DP", value, uplink, None
                    )
        else:
            for slope in readings.SLOPES:
                for value in readings.EPSILONS_OF_SLOPES:
                    yield FigurePoint(
                        figure,
                        reading,
                        f"a = {slope:g}",
                        value,
                        base.uplink("digital", slope=slope),
                        value,
                    )


def own_points_of(figure: str, name: str, settings: Settings) -> Iterator[FigurePoint]:
    """Iterate over all points of the curve ``name``, which the user adds, in a figure of the paper:
    at the SNRs of figure 2, or with the privacy budgets epsilon of figure 3 or 4. There is a point
    for every reading of the paper. If the curve's scheme is digital or analog, the reading decides
    privacy criterion, Langevin limit and step size where ``settings`` do not."""
    places = {
        "2": ("snr_db", readings.SNR_DB),
        "3": ("epsilon", readings.EPSILONS),
        "4": ("epsilon", readings.EPSILONS_OF_SLOPES),
    }
    varied, values = places[figure]
    for value in values:
        asked = settings.model_copy(update={varied: value})
        uplink = make_uplink(asked)
        for reading in readings.READINGS:
            own = reading.for_own(asked)
            by_entry = own is not None and reading.conjecture and reading.decides_privacy(asked)
            yield FigurePoint(
                figure, reading, name, value, uplink, asked.epsilon, own or asked, by_entry
            )


class Measured(NamedTuple):
    """Measurements from the kept rounds of the runs of one plan on all data sets.

    Attributes
    ----------
    errors
        Mean squared error of theta in each data set, (experiment).
    variance_ratio
        Variance of the draws over that of the posterior, with its standard error.
    one_run_wasserstein2_squared
        Squared W2 distance from the posterior to the Gaussian fitted to the draws of one run, mean
        over runs with its standard error.
    """

    errors: Array
    variance_ratio: Estimate
    one_run_wasserstein2_squared: Estimate


_DISTANCES = 100
"""Largest number of data sets for which the squared W2 distance is computed, because this takes
longer than the run itself; of more, the first ones are taken."""


def _first(moments: Moments) -> Moments:
    """A copy of ``moments`` with the sums and products of the first ``_DISTANCES`` data sets only,
    for which alone the squared W2 distance is computed, to save time."""
    kept = slice(0, _DISTANCES)
    return replace(moments, sums=moments.sums[kept], products=moments.products[kept])


def chains_of(plan: Plan) -> str:
    """Text that contains everything in a plan that its chains depend on: on the same data sets and
    with the same seed, plans with equal texts have equal chains."""
    uplink = plan.uplink
    if uplink.known_fading.constant and plan.scheduler.everyone:
        # Where the channel is constant and all devices transmit, the received signal depends on the
        # gain only, so path gains and power limit are replaced by fixed values.
        plain = {"fading": ConstantFading(), "snr_db": 25.0, "average_snr_db": None}
        uplink = replace_uplink(uplink, **plain)
    return repr(
        (
            # The class's identity is included because two classes of a user may have the same name.
            # Both the text and the document of the uplink are included: the text leaves out the
            # middle of large arrays, and the document leaves out private attributes.
            (id(type(uplink)), uplink, to_document(uplink)),
            (plan.scheduler, to_document(plan.scheduler), plan.update, to_document(plan.update)),
            plan.step_size,
            plan.burn_in_step_factor,
            # The gain is rounded because two different limits may give gains that differ only by
            # rounding errors.
            plan.gain.round(15).tolist(),
            (plan.num_rounds, plan.num_burn_in, plan.start, plan.num_fast),
        )
    )


class Laboratory:
    """Runs plans on all data sets of a model with one seed, so that their errors can be compared in
    pairs; plans that lead to equal chains are run only once. ``base`` holds the settings that all
    points of the figures share."""

    def __init__(
        self,
        model: LinearGaussian,
        seed: int,
        engine: str | Engine = "auto",
        base: BaseCase = PAPER,
    ) -> None:
        self.model, self.seed, self.engine, self.base = model, seed, engine, base
        first = slice(0, _DISTANCES)
        posterior = model.posterior
        self._distance = distance_from(Gaussian(posterior.mean[first], posterior.covariance[first]))
        self._ratio = variance_ratio_to(posterior)
        self._done: dict[str, Measured] = {}
        self._planned: dict[tuple[object, ...], Plan] = {}

    def plan(self, point: FigurePoint) -> Plan:
        """The plan of a point of a figure: for its uplink, with the limits and the step size that
        its reading of the paper prescribes, or for the settings of a curve that the user added."""
        reading, uplink, epsilon = point.reading, point.uplink, point.epsilon
        if point.own is not None:
            planned = assemble(point.own, self.model).plan(forecast=False)
            if not point.by_entry:
                return planned
            gain = entry_gain(uplink, point.own.epsilon, point.own.delta, self.model.dim)
            return limited(planned, gain)
        step = uplink.published_step_size or "auto" if reading.paper_steps else "auto"
        limits = reading.limits(uplink.scheme, epsilon, readings.DELTA)
        # Plans are cached by their arguments, because curves without privacy have the same plan at
        # every epsilon.
        known = (uplink, limits, step)
        if known not in self._planned:
            self._planned[known] = plan(
                self.model,
                uplink,
                limits,
                step_size=step,
                forecast=False,
                **self.base.planner_arguments(),
            )
        planned = self._planned[known]
        if reading.conjecture and epsilon is not None:
            return limited(planned, entry_gain(uplink, epsilon, readings.DELTA, self.model.dim))
        return planned

    def measured(self, plan: Plan) -> Measured:
        """Run a plan on every data set and return the measurements; if an earlier plan led to the
        same chains, its measurements are returned without a run."""
        key = chains_of(plan)
        if key not in self._done:
            moments = simulate(plan, self.model, self.seed, engine=self.engine).moments
            self._done[key] = Measured(
                squared_errors(moments),
                self._ratio(moments),
                Estimate.over(self._distance(_first(moments))),
            )
        return self._done[key]


def measure(
    points: list[FigurePoint], laboratory: Laboratory, progress: Progress | None = None
) -> Curves:
    """Plan and run every point; returns the rows of the table, one for each point, together with
    the errors of every experiment."""
    curves = Curves()
    for index, point in enumerate(points):
        planned = laboratory.plan(point)
        errors, ratio, distance = laboratory.measured(planned)
        row = CurveRow(
            point.figure,
            point.reading.name,
            point.curve,
            point.x,
            planned.typical_gain,
            planned.binding,
            planned.step_size,
            planned.temperature or float("nan"),
            planned.rounds_needed or 0,
            *Estimate.over(errors),
            *ratio,
            *distance,
            len(errors),
        )
        curves.add(row, errors)
        if progress is not None:
            progress((index + 1) / len(points))
    return curves
