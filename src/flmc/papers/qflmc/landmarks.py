"""Landmarks are numbers that the paper's text states, such as the SNR at which two curves cross:
what is measured for them under each reading, and a contradiction among them that needs no
simulation."""

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
    """A number that the paper's text states: the figure it is about, its meaning in words, the
    printed value, and the unit."""

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
"""Measured values of landmarks, by name; several or none where curves cross often or never."""


def landmarks_of(reading: Reading, figures: Figures, laboratory: Laboratory) -> Landmarks:
    """Values found under one reading for the landmarks (numbers that the paper's text states), by
    name, as far as their figures were measured."""
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
    """Smallest epsilon, to 0.1 %, at which privacy no longer limits the gain of an uplink; the
    search goes from 0.01 to 100."""

    def gain(epsilon: float | None) -> float:
        point = FigurePoint("3", reading, uplink.scheme, epsilon or 0.0, uplink, epsilon)
        return laboratory.plan(point).typical_gain

    free = gain(None) * (1 - 1e-9)
    # The gain grows with epsilon. Plans at the figure's epsilons exist already, so bisection starts
    # between two of them.
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
    """The x at which two curves of mean errors cross, found by interpolating the logarithm of their
    ratio; ``x`` is (point), ``ours`` and ``theirs`` are (point, experiment)."""
    height = np.log(ours.mean(axis=1) / theirs.mean(axis=1))
    return tuple(
        float(x[i] + (x[i + 1] - x[i]) * height[i] / (height[i] - height[i + 1]))
        for i in range(len(x) - 1)
        if height[i] * height[i + 1] < 0
    )


def digital_stops_db(epsilon: float = readings.EPSILON_OF_SNR_FIGURE) -> float:
    """SNR in dB from which more power does not help the digital scheme under the printed privacy
    bound, for a budget ``epsilon`` of a round.

    The bound's gain depends neither on the SNR nor on the step; power allows a gain of h sqrt(P_0).
    Where both are equal, digital stops: from there on its chain is the same at every SNR.

    Examples
    --------
    >>> from flmc.papers.qflmc.landmarks import digital_stops_db
    >>> round(digital_stops_db(), 1)
    13.7
    """
    unit = Digital().privacy_event([(1.0, DIM)])
    gain = unit.allowed_gain(epsilon, readings.DELTA, "paper", DEVICES)
    return 20 * math.log10(gain / FADING)
