"""Landmarks, which are numbers that the paper's text states, such as the SNR at which two curves
cross: their measured values under each reading, and a contradiction among them that follows from
formulas alone."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from flmc.base.arrays import Array
from flmc.papers.qflmc import readings
from flmc.papers.qflmc.claims import Figures
from flmc.papers.qflmc.design_search import DEVICES, DIM, FADING
from flmc.papers.qflmc.experiment import FigurePoint, Laboratory
from flmc.papers.qflmc.readings import Reading
from flmc.uplink.schemes import Analog, Digital
from flmc.uplink.uplink import Uplink


class Landmark(NamedTuple):
    """A number that the paper's text states: the number of the figure that it describes, its
    meaning in words, the printed value, and its unit (empty: none)."""

    figure: str
    words: str
    printed: float
    unit: str = ""


LANDMARKS = {
    "digital until": Landmark("3", "epsilon from which privacy no longer limits digital", 7.5),
    "analog until": Landmark("3", "epsilon from which privacy no longer limits analog", 15.0),
    "crossing epsilon": Landmark("3", "epsilon at which the errors of both schemes cross", 7.5),
    "crossing SNR": Landmark("2", "SNR at which the errors of both schemes cross", 17.5, " dB"),
}

Landmarks = Mapping[str, tuple[float, ...]]
"""Measured values of landmarks (numbers that the paper's text states), by name. A landmark that is
the crossing of two curves has several values if they cross several times, none if never."""


def landmarks_of(reading: Reading, figures: Figures, laboratory: Laboratory) -> Landmarks:
    """Measured values, under one reading of the paper, of the landmarks (numbers that its text
    states), by name; only of those whose figure is in ``figures``."""
    values: dict[str, tuple[float, ...]] = {}
    if "3" in figures:
        values["digital until"] = (_unlimited_from(reading, Digital(), laboratory),)
        values["analog until"] = (_unlimited_from(reading, Analog(), laboratory),)
    for name, number in (("crossing epsilon", "3"), ("crossing SNR", "2")):
        if number in figures:
            x, digital = figures[number]["digital"]
            values[name] = crossings(x, digital, figures[number]["analog"][1])
    return values


def _unlimited_from(reading: Reading, uplink: Uplink, laboratory: Laboratory) -> float:
    """Smallest privacy budget epsilon of a round at which privacy no longer limits the gain of an
    uplink under one reading of the paper. It is searched for between 0.01 and 100, and accurate to
    a relative 0.1 %."""

    def gain(epsilon: float | None) -> float:
        point = FigurePoint("3", reading, uplink.scheme, epsilon or 0.0, uplink, epsilon)
        return laboratory.plan(point).typical_gain

    free = gain(None) * (1 - 1e-9)
    # The gain grows with epsilon, so the first of the figure's epsilons at which privacy does not
    # limit it, and the one before, enclose the result. Plans at these epsilons exist already, which
    # saves the bisection steps outside this interval.
    place = bisect_left(readings.EPSILONS, True, key=lambda epsilon: gain(epsilon) >= free)
    known = (0.0, *readings.EPSILONS, math.inf)
    limited, unlimited = known[place], known[place + 1]
    low, high = math.log(0.01), math.log(100.0)
    while high - low > 1e-3:
        middle = (low + high) / 2
        epsilon = math.exp(middle)
        reached = epsilon >= unlimited or (epsilon > limited and gain(epsilon) >= free)
        low, high = (low, middle) if reached else (middle, high)
    return math.exp(high)


def crossings(x: Array, ours: Array, theirs: Array) -> tuple[float, ...]:
    """The values of x at which the mean errors of two curves are equal, by linear interpolation of
    the logarithm of their ratio. ``x`` is (point); ``ours`` and ``theirs``, (point, experiment),
    are the errors of the two curves."""
    height = np.log(ours.mean(axis=1) / theirs.mean(axis=1))
    return tuple(
        float(x[i] + (x[i + 1] - x[i]) * height[i] / (height[i] - height[i + 1]))
        for i in range(len(x) - 1)
        if height[i] * height[i + 1] < 0
    )


def digital_stops_db(epsilon: float = readings.EPSILON_OF_SNR_FIGURE) -> float:
    """SNR in dB above which more power does not help the digital scheme under the privacy bound as
    printed, for a budget ``epsilon`` of a round.

    The gain that the privacy bound allows depends neither on the SNR nor on the step size; the
    power limit allows a gain of h sqrt(P_0), with the path gain h. At the returned SNR the two are
    equal, and at every larger SNR the chains of the digital scheme are the same.

    Examples
    --------
    >>> from flmc.papers.qflmc.landmarks import digital_stops_db
    >>> round(digital_stops_db(), 1)
    13.7
    """
    unit = Digital().privacy_event([(1.0, DIM)])
    gain = unit.allowed_gain(epsilon, readings.DELTA, "paper", DEVICES)
    return 20 * math.log10(gain / FADING)
