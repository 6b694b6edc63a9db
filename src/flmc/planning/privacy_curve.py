"""Privacy cost of a plan as a function of the number of rounds that have been run, for plots."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from flmc.planning.plans import Plan
from flmc.planning.privacy_cost import cost_of_run, exposure_of


class SpentAfter(NamedTuple):
    """Privacy cost of a run after its first rounds: their number, and the epsilon."""

    rounds: int
    epsilon: float
    """Upper bound of epsilon of these rounds at the run's delta; infinite where there is none."""


def rounds_to_show(num_rounds: int, num_points: int = 9) -> tuple[int, ...]:
    """Whole numbers from 1 to the number of rounds, evenly spaced by their logarithms.

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
        caps = plan.gain if len(plan.gain) == 1 else plan.gain[:count]
        sizes = (count, plan.num_devices, plan.dim)
        event = exposure_of(plan.uplink, caps, plan.scheduler, *sizes, plan.limits.neighbouring)
        yield SpentAfter(count, cost_of_run(event, plan.limits).epsilon)
