"""Charts of runs: traces of chains, two entries against the posterior, and a federation's
rounds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from flmc.base.arrays import Array
from flmc.base.tables import format_up
from flmc.evaluation.diagnostics import AGREED
from flmc.models.distributions import Gaussian
from flmc.views.charts.chart import Axis, Chart, Colour, Layer, Line, Mark, Numbers, Points, numbers

_COLOURS: tuple[Colour, ...] = ("blue", "green", "purple", "orange")
"""Colours of the chains that are shown."""
_MOST_POINTS = 400
"""Points of a trace."""


class ChainAgreement(NamedTuple):
    """How the chains agree after some rounds.

    Attributes
    ----------
    round
        Rounds that were done.
    r_hat
        Largest R-hat over the entries.
    effective_draws
        Fewest effective draws over the entries.
    """

    round: int
    r_hat: float
    effective_draws: float


def trace_chart(draws: Array, first_round: int, thin: int = 1, entry: int = 0) -> Chart:
    """Kept draws of one entry against the rounds, for up to four chains.

    Parameters
    ----------
    draws
        Draws of the first data set, (chain, draw, dim).
    first_round, thin
        Round of the first draw, counted from 1, and rounds from one draw to the next.
    entry
        The entry, counted from 0.
    """
    every = max(1, -(-draws.shape[1] // _MOST_POINTS))
    rounds = first_round + thin * np.arange(draws.shape[1])[::every]
    layers: list[Layer] = [
        Line(numbers(rounds), numbers(chain[::every, entry]), colour, width=1.1)
        for chain, colour in zip(draws, _COLOURS, strict=False)
    ]
    return Chart(
        "trace",
        "Trace",
        Axis("round"),
        Axis(f"theta, entry {entry + 1}"),
        tuple(layers),
        f"{min(len(draws), len(_COLOURS))} of {len(draws)} chains"
        + (f", one round in {every * thin}." if every * thin > 1 else "."),
    )


def agreement_chart(history: Sequence[ChainAgreement]) -> Chart:
    """R-hat against the rounds, with the value below which chains count as agreed.

    Parameters
    ----------
    history
        What was found after some rounds, in order.
    """
    # The first values may be huge, and would hide all others: the axis ends at the latest ones.
    history = [each for each in history if math.isfinite(each.r_hat)]
    rounds, r_hat, _ = zip(*history, strict=True) if history else ((), (), ())
    last = history[-1] if history else None
    return Chart(
        "agreement",
        "Agreement of the chains",
        Axis("round"),
        Axis("largest R-hat", low=0.99, high=max((1.05, *r_hat[-8:]))),
        (
            Line(numbers(rounds), numbers(r_hat), "blue", dots=True),
            Mark("y", AGREED, f"agreed below {AGREED:g}", "green"),
        ),
        ""
        if last is None
        else f"R-hat {last.r_hat:.3f}, at least {last.effective_draws:.0f} effective draws after"
        f" round {last.round}.",
    )


# Chart of two entries: ellipses of the exact posterior, of a prediction, and of draws.


_CORNERS = 72
"""Corners of the polygon that stands for an ellipse."""


def posterior_chart(
    exact: Gaussian,
    others: dict[str, Gaussian],
    draws: Array | None = None,
    entries: tuple[int, int] = (0, 1),
    title: str = "What will be sampled",
) -> Chart:
    """Two-sigma ellipses of two entries of the first data set.

    Parameters
    ----------
    exact
        The exact posterior.
    others
        Other laws, such as the predicted one, by their names.
    draws
        Draws to show as dots, (draw, dim); None for none.
    entries
        The two entries, counted from 0.
    title
        Title of the chart.
    """
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
        Axis(f"theta, entry {entries[0] + 1}"),
        Axis(f"theta, entry {entries[1] + 1}", equal=True),
        tuple(layers),
        "Ellipses hold about 86 % of two entries.",
    )


def ellipse(law: Gaussian, entries: tuple[int, int]) -> tuple[Numbers, Numbers]:
    """Points at Mahalanobis distance 2 from the mean of two entries, as x and y.

    Parameters
    ----------
    law
        A law whose first data set is taken.
    entries
        The two entries, counted from 0.
    """
    angle = np.linspace(0.0, 2.0 * np.pi, _CORNERS + 1)
    circle = np.stack([np.cos(angle), np.sin(angle)])
    root = np.linalg.cholesky(law.covariance[0][np.ix_(entries, entries)])
    x, y = law.mean[0][list(entries)][:, None] + 2.0 * root @ circle
    return numbers(x), numbers(y)


# Charts of a federation against its rounds: who answers, what is spent, how long they take.


class RoundSeen(NamedTuple):
    """What was seen of a federation after a round.

    Attributes
    ----------
    round, active
        Rounds that were done, and devices that were active in the last of them.
    epsilon
        Spent so far by the device that spent most; NaN: not known, or not bounded.
    seconds
        Median time of the last rounds; NaN: not known.
    """

    round: int
    active: int
    epsilon: float
    seconds: float


def active_chart(seen: Sequence[RoundSeen], num_devices: int) -> Chart:
    """Active devices against the rounds, with the number of all.

    Parameters
    ----------
    seen
        What was seen, in the order of the rounds.
    num_devices
        Devices of the plan.
    """
    active = [each.active for each in seen]
    caption = ""
    if active:
        caption = f"{min(active)} to {max(active)} of {num_devices} devices in the rounds seen."
    every = Mark("y", float(num_devices), "all devices", "muted")
    high = 1.08 * max((num_devices, *active))
    axis = Axis("active devices", low=0.0, high=high)
    return _chart("federation-active", "Active devices", seen, active, axis, caption, every)


def spent_chart(seen: Sequence[RoundSeen]) -> Chart:
    """Epsilon that was spent against the rounds.

    Parameters
    ----------
    seen
        What was seen, in the order of the rounds.
    """
    # Accounting takes a while: an epsilon belongs to the round up to which it was computed.
    seen = [each for each in seen if math.isfinite(each.epsilon)]
    spent = [each.epsilon for each in seen]
    caption = (
        f"{format_up(spent[-1])} up to round {seen[-1].round}, by the device that spent most."
        if seen
        else "Nothing is known of it yet, or it is not bounded."
    )
    axis = Axis("epsilon", low=0.0)
    return _chart("federation-epsilon", "Epsilon spent", seen, spent, axis, caption)


def time_chart(seen: Sequence[RoundSeen]) -> Chart:
    """Milliseconds of a round against the rounds.

    Parameters
    ----------
    seen
        What was seen, in the order of the rounds.
    """
    times = [1000 * each.seconds for each in seen]
    known = [value for value in times if math.isfinite(value)]
    caption = f"Median of the last rounds; {known[-1]:.3g} ms now." if known else "Not known yet."
    axis = Axis("time of a round [ms]", low=0.0)
    return _chart("federation-time", "Time of a round", seen, times, axis, caption)


def _chart(
    name: str,
    title: str,
    seen: Sequence[RoundSeen],
    values: Sequence[float],
    axis: Axis,
    caption: str,
    *more: Layer,
) -> Chart:
    """A line against the rounds; one point alone is a dot."""
    rounds = numbers(each.round for each in seen)
    line = Line(rounds, numbers(values), "blue", dots=len(seen) < 3)
    return Chart(name, title, Axis("round"), axis, (line, *more), caption)
