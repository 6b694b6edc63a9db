"""Charts of a federation against its rounds: who answers, what is spent, how long they take."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from flmc.base.tables import format_up
from flmc.views.charts.chart import Axis, Chart, Layer, Line, Mark, numbers


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
