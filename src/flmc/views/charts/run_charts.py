"""Charts of runs: traces of draws, R-hat of the chains, two entries of theta against the posterior,
and rounds of a federation on separate machines."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from flmc.base.arrays import Array
from flmc.base.tables import format_up
from flmc.evaluation.diagnostics import AGREED
from flmc.models.distributions import Gaussian
from flmc.views.charts.chart import (
    Chart,
    ChartAxis,
    Colour,
    Layer,
    Line,
    Mark,
    Numbers,
    Points,
    numbers,
)

_COLOURS: tuple[Colour, ...] = ("blue", "green", "purple", "orange")
"""Colours of the chains in a trace, which shows the first chains only: as many as there are
colours."""
_MOST_POINTS = 400
"""Largest number of points in the line of one chain; of longer chains every n-th draw is shown."""


class ChainAgreement(NamedTuple):
    """R-hat and effective draws of a run's chains, computed after some of its rounds.

    Attributes
    ----------
    round
        Number of rounds that were finished.
    r_hat
        Largest R-hat over the entries of theta; about 1 where chains agree.
    effective_draws
        Smallest number of effective draws over the entries of theta.
    """

    round: int
    r_hat: float
    effective_draws: float


def trace_chart(
    draws: Array, first_round: int, thin: int = 1, entry: int = 0, names: Sequence[str] = ()
) -> Chart:
    """Chart of one entry of theta (index ``entry``, from 0) against rounds, for up to four chains
    of kept draws (chain, draw, dim). ``first_round`` is the number of the first draw's round, from
    1, ``thin`` the number of rounds from one draw to the next, and ``names`` are the names of the
    entries, empty where they have none."""
    every = max(1, -(-draws.shape[1] // _MOST_POINTS))
    rounds = first_round + thin * np.arange(draws.shape[1])[::every]
    layers: list[Layer] = [
        Line(numbers(rounds), numbers(chain[::every, entry]), colour, width=1.1)
        for chain, colour in zip(draws, _COLOURS, strict=False)
    ]
    return Chart(
        "trace",
        "Trace",
        ChartAxis("round"),
        ChartAxis(_name(names, entry)),
        tuple(layers),
        f"{min(len(draws), len(_COLOURS))} of {len(draws)} chains"
        + (f", one round in {every * thin}." if every * thin > 1 else "."),
    )


def _name(names: Sequence[str], entry: int) -> str:
    """Name of an entry of theta; its index from 0 if there are no names."""
    return names[entry] if names else f"theta[{entry}]"


def agreement_chart(history: Sequence[ChainAgreement]) -> Chart:
    """Chart of the largest R-hat of a run's chains against rounds, with a line at the R-hat below
    which chains count as agreeing with each other."""
    # R-hat may be huge in early rounds, which would hide its later values: the axis is limited to
    # the range of the last eight values.
    history = [each for each in history if math.isfinite(each.r_hat)]
    rounds, r_hat, _ = zip(*history, strict=True) if history else ((), (), ())
    last = history[-1] if history else None
    return Chart(
        "agreement",
        "Agreement of the chains",
        ChartAxis("round"),
        ChartAxis("largest R-hat", low=0.99, high=max((1.05, *r_hat[-8:]))),
        (
            Line(numbers(rounds), numbers(r_hat), "blue", dots=True),
            Mark("y", AGREED, f"agreed below {AGREED:g}", "green"),
        ),
        ""
        if last is None
        else f"R-hat {last.r_hat:.3f}, at least {last.effective_draws:.0f} effective draws after"
        f" round {last.round}.",
    )


_CORNERS = 72
"""Number of corners of the polygon that stands for an ellipse."""


def posterior_chart(
    exact: Gaussian,
    others: dict[str, Gaussian],
    draws: Array | None = None,
    entries: tuple[int, int] = (0, 1),
    title: str = "What will be sampled",
    names: Sequence[str] = (),
) -> Chart:
    """Chart of two entries of theta (indices from 0) for the first data set: two-sigma ellipses of
    the exact posterior and of the Gaussians in ``others``, whose keys are names in the legend, and
    ``draws`` (draw, dim) as dots. ``names`` are the names of the entries, empty where they have
    none."""
    layers: list[Layer] = []
    if draws is not None and len(draws):
        shown = draws[:: max(1, len(draws) // 800)]
        x, y = numbers(shown[:, entries[0]]), numbers(shown[:, entries[1]])
        layers.append(Points(x, y, label="draws"))
    colours: tuple[Colour, ...] = ("blue", "vermilion", "green", "purple")
    for (name, law), colour in zip(others.items(), colours, strict=False):
        x, y = ellipse(law, entries)
        layers.append(Line(x, y, colour, label=name))
    x, y = ellipse(exact, entries)
    layers.append(Line(x, y, "ink", "dashed", label="exact posterior"))
    return Chart(
        "posterior",
        title,
        ChartAxis(_name(names, entries[0])),
        ChartAxis(_name(names, entries[1]), equal=True),
        tuple(layers),
        "Ellipses hold about 86 % of two entries.",
    )


def ellipse(law: Gaussian, entries: tuple[int, int]) -> tuple[Numbers, Numbers]:
    """x and y of points on the ellipse at Mahalanobis distance 2 from the mean, for two entries of
    the Gaussian of the first data set."""
    angle = np.linspace(0.0, 2.0 * np.pi, _CORNERS + 1)
    circle = np.stack([np.cos(angle), np.sin(angle)])
    root = np.linalg.cholesky(law.covariance[0][np.ix_(entries, entries)])
    x, y = law.mean[0][list(entries)][:, None] + 2.0 * root @ circle
    return numbers(x), numbers(y)


class RoundSeen(NamedTuple):
    """State of a federation (a run on separate machines) after a round.

    Attributes
    ----------
    round, active
        Finished rounds, and devices that were active in the last of them.
    epsilon
        Cost of the rounds so far for the device that spends most; NaN: not known, or not bounded.
    seconds
        Median duration of the last rounds in seconds; NaN: not known.
    """

    round: int
    active: int
    epsilon: float
    seconds: float


def active_chart(seen: Sequence[RoundSeen], num_devices: int) -> Chart:
    """Chart of the number of devices that transmitted against rounds, with a line at the number of
    all devices."""
    active = [each.active for each in seen]
    caption = ""
    if active:
        caption = f"{min(active)} to {max(active)} of {num_devices} devices in the rounds seen."
    every = Mark("y", float(num_devices), "all devices", "muted")
    high = 1.08 * max((num_devices, *active))
    axis = ChartAxis("active devices", low=0.0, high=high)
    return _chart("federation-active", "Active devices", seen, active, axis, caption, every)


def spent_chart(seen: Sequence[RoundSeen]) -> Chart:
    """Chart of the epsilon of the finished rounds against rounds, for the device that has spent
    most. Its caption says that this epsilon is valid only if the round at which a run stops was
    fixed beforehand."""
    # Epsilon is computed later than the rounds are run: rounds whose epsilon is not known yet are
    # left out.
    seen = [each for each in seen if math.isfinite(each.epsilon)]
    spent = [each.epsilon for each in seen]
    caption = (
        f"{format_up(spent[-1])} up to round {seen[-1].round}, for the device that spends most:"
        " valid if the round to stop at was fixed beforehand."
        if seen
        else "Nothing is known of it yet, or it is not bounded."
    )
    axis = ChartAxis("epsilon", low=0.0)
    return _chart("federation-epsilon", "Epsilon of the rounds so far", seen, spent, axis, caption)


def time_chart(seen: Sequence[RoundSeen]) -> Chart:
    """Chart of the median duration of the last rounds, in milliseconds, against rounds."""
    times = [1000 * each.seconds for each in seen]
    known = [value for value in times if math.isfinite(value)]
    caption = f"Median of the last rounds; {known[-1]:.3g} ms now." if known else "Not known yet."
    axis = ChartAxis("time of a round [ms]", low=0.0)
    return _chart("federation-time", "Time of a round", seen, times, axis, caption)


def _chart(
    name: str,
    title: str,
    seen: Sequence[RoundSeen],
    values: Sequence[float],
    axis: ChartAxis,
    caption: str,
    *more: Layer,
) -> Chart:
    """A chart of ``values`` against rounds, one value for each item of ``seen``, with the layers
    ``more``; if there are fewer than three values, each has a dot."""
    rounds = numbers(each.round for each in seen)
    line = Line(rounds, numbers(values), "blue", dots=len(seen) < 3)
    return Chart(name, title, ChartAxis("round"), axis, (line, *more), caption)
