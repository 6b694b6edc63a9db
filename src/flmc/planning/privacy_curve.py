"""Privacy cost of a plan as a function of the number of rounds that have been run, for plots."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from flmc.planning.plans import Plan
from flmc.planning.privacy_cost import cost_of_run


class SpentAfter(NamedTuple):
    """Upper bound of the privacy cost of a run's first rounds."""

    rounds: int
    """Number of rounds, counted from the first, whose cost is stated."""
    epsilon: float
    """Upper bound of the epsilon of these first rounds at the run's delta; infinite where no finite
    bound is known."""


def rounds_to_show(num_rounds: int, num_points: int = 9) -> tuple[int, ...]:
    """Numbers of rounds to plot: at most ``num_points`` whole numbers from 1 to ``num_rounds``,
    evenly spaced in logarithms.

    Examples
    --------
    >>> from flmc.planning.privacy_curve import rounds_to_show
    >>> rounds_to_show(300, 4)
    (1, 7, 45, 300)
    """
    places = np.geomspace(1.0, num_rounds, num_points)
    return tuple(sorted({round(float(place)) for place in places}))


def privacy_over_rounds(plan: Plan, counts: tuple[int, ...]) -> Iterator[SpentAfter]:
    """Privacy cost of a plan's first rounds, for each number of rounds in ``counts``, yielded as
    soon as it is computed; nothing where the privacy is unknown."""
    if plan.exposure is None:
        return
    for count in counts:
        if count == plan.num_rounds and plan.run_cost is not None:
            yield SpentAfter(count, plan.run_cost.epsilon)
            continue
        yield SpentAfter(count, cost_of_run(plan.exposure_of(count), plan.limits).epsilon)
