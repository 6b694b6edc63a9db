"""Runs of the best designs of both schemes in a few settings of the map, to check the predicted
widths and errors of the servers' answers, and whether the intervals that servers state hold.

Both schemes are run on the same data sets. The planner computes the gain from the privacy budget
itself, so that the gain of a predicted design is checked, too."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from flmc.base.arrays import Array
from flmc.base.progress import Progress
from flmc.data.synthetic import draw_linear_statistics
from flmc.evaluation.metrics import Estimate
from flmc.models.linear import LinearGaussian
from flmc.papers.qflmc.best_designs import (
    A_FEW,
    EVERYTHING,
    EXAMPLES,
    Design,
    Place,
    Tried,
    best_design,
)
from flmc.papers.qflmc.claims import paired
from flmc.planning.limits import Limits
from flmc.planning.planner import plan
from flmc.planning.plans import Plan
from flmc.runs.execution import run
from flmc.sampling.engine import Engine
from flmc.uplink.links import Linear, Sigmoid
from flmc.uplink.schemes import Analog, Digital
from flmc.uplink.uplink import Uplink

PLACES = (
    Place(25.0, 20, 5, 10.0),
    Place(25.0, 20, 5, 100.0),
    Place(40.0, 20, 5, 1000.0),
    Place(10.0, 200, 5, 10.0),
    Place(25.0, 200, 1, 1.0),
    Place(40.0, 1, 1, 100.0),
    Place(40.0, 1, 5, 300.0),
)
"""Settings of the map in which designs are run: three of the paper's size, one with a low SNR, one
with a strict privacy budget, and two with one device, where the digital scheme is predicted to be
ahead."""
INTERVAL = 0.9
"""Stated probability of the servers' intervals that are checked against the exact posterior."""


@dataclass(frozen=True)
class Measured:
    """Answers of the servers of one scheme, compared with the exact posterior over all data sets.

    Attributes
    ----------
    design
        The design that was run.
    width
        Variance that a server states for an entry of theta, over the exact posterior's: mean over
        entries and data sets.
    mean_error
        Squared distance of the server's mean from the posterior mean, over the posterior's
        variance: mean over entries and data sets.
    held
        Probability that the exact posterior has in the server's intervals, which state 0.9: mean
        over entries and data sets.
    each
        The variance ratio of ``width`` in every data set, averaged over entries, (data set).
    """

    design: Design
    width: Estimate
    mean_error: Estimate
    held: Estimate
    each: Array


@dataclass(frozen=True)
class Trial:
    """Measurements of the best designs of both schemes in one setting, ``place``, run on the same
    ``data_sets`` data sets."""

    place: Place
    data_sets: int
    digital: Measured
    analog: Measured

    @property
    def ratio(self) -> Array:
        """Width of digital answers over that of analog ones, with the lower and upper end of its 99
        % confidence interval, (3)."""
        return np.sqrt(np.maximum(paired(self.digital.each, self.analog.each), 0.0))

    def to_rows(self) -> list[dict[str, Any]]:
        """Rows of the CSV of trials, one for each scheme."""
        middle, low, high = map(float, self.ratio)
        return [
            {
                **self.place._asdict(),
                "scheme": scheme,
                "data_sets": self.data_sets,
                "predicted_width": measured.design.width,
                "width": math.sqrt(measured.width.mean),
                "width_se": measured.width.se / (2.0 * math.sqrt(measured.width.mean)),
                "predicted_mean_error": math.hypot(measured.design.noise, measured.design.shift),
                "mean_error": math.sqrt(measured.mean_error.mean),
                "mean_error_se": measured.mean_error.se
                / (2.0 * math.sqrt(measured.mean_error.mean)),
                "held": measured.held.mean,
                "held_se": measured.held.se,
                "ratio": middle,
                "ratio_low": low,
                "ratio_high": high,
            }
            for scheme, measured in (("digital", self.digital), ("analog", self.analog))
        ]


def planned(place: Place, scheme: str, design: Design, model: LinearGaussian) -> Plan:
    """The plan of ``design`` for the linear regression ``model`` in the setting ``place``. Clip and
    step size are converted to the model's units; the planner chooses the largest gain that the
    privacy budget of the run and the power limit allow."""
    # Standard deviation of an entry of a local gradient over draws of the data.
    unit = math.sqrt(place.curvature / place.num_devices)
    clip = design.clip * unit
    uplink: Uplink
    if scheme == "analog":
        uplink, slope = Analog(clip=clip, snr_db=place.snr_db), 1.0
    else:
        curved = design.link == "sigmoid"
        link = Sigmoid(2.0 * design.slope / clip) if curved else Linear(design.peak)
        uplink = Digital(link=link, clip=clip, snr_db=place.snr_db)
        slope = design.slope / clip
    return plan(
        model,
        uplink,
        Limits(epsilon=place.epsilon, scope="run"),
        num_rounds=design.rounds,
        num_burn_in=design.travel,
        step_size=design.pull / (design.share * slope * place.curvature),
        start="zero",
        aim="answer",
        forecast=False,
    )


def try_out(
    place: Place,
    data_sets: int,
    seed: int,
    engine: str | Engine = "auto",
    tried: Tried = EVERYTHING,
) -> Trial:
    """Find the best designs of both schemes in the setting ``place``, among those that are
    ``tried``, run them on ``data_sets`` data sets, and return the measurements."""
    statistics = draw_linear_statistics(
        seed,
        num_experiments=data_sets,
        num_samples=EXAMPLES * place.num_devices,
        dim=place.dim,
        num_devices=place.num_devices,
    )
    model = LinearGaussian(statistics)
    exact = np.diagonal(model.posterior.covariance, axis1=1, axis2=2)

    def measured(scheme: str) -> Measured:
        design = best_design(place, scheme, tried)
        result = run(planned(place, scheme, design, model), model, seed, engine=engine)
        answer = result.posterior()
        stated = np.diagonal(answer.covariance, axis1=1, axis2=2) / exact
        wrong = np.square(answer.mean - model.posterior.mean) / exact
        held = answer.held(INTERVAL)
        if held is None:
            raise AssertionError("the posterior of linear regression is known")
        each = stated.mean(axis=1)
        rest = (Estimate.over(each), Estimate.over(wrong.mean(axis=1)))
        return Measured(design, *rest, Estimate.over(held.mean(axis=1)), each)

    return Trial(place, data_sets, measured("digital"), measured("analog"))


def try_all(
    data_sets: int,
    seed: int,
    *,
    whole: bool,
    engine: str | Engine = "auto",
    progress: Progress | None = None,
) -> list[Trial]:
    """Measurements of the best designs in all settings ``PLACES``, each on ``data_sets`` data sets.
    Without ``whole`` only the first setting is run, with the best of the few designs of a
    preview."""
    places = PLACES if whole else PLACES[:1]
    trials = []
    for index, place in enumerate(places):
        trials.append(try_out(place, data_sets, seed, engine, EVERYTHING if whole else A_FEW))
        if progress is not None:
            progress((index + 1) / len(places))
    return trials
