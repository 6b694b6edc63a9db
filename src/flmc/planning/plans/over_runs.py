"""How the temperature of a plan differs from run to run, on a channel that is random.

A chain adds up the noise of its rounds, so the temperature of a run is a mean over its own rounds.
Where a device with a small path gain makes a round loud, as under channel inversion, few rounds
decide this mean: under Rayleigh or Rician fading it does not settle however long the run is, and
its expectation does not even exist. A single number would hide how much runs differ. So whole runs
are drawn from the channel's law, which is public, and quantiles of their temperatures are stated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from flmc.base.randomness import Purpose, generator
from flmc.planning.plans.expectation import calibrated_cap
from flmc.uplink.power import realised_gain

if TYPE_CHECKING:
    from flmc.planning.plans.plan_value import Plan

_RUNS, _FEWEST_RUNS = 39, 9
"""Number of runs that are drawn to find the quantiles of the temperature at 5 % and 95 %; and the
smallest number, for runs so long that fewer are drawn."""
_MOST_NUMBERS = 2**23
"""Number of path gains, in all drawn runs together, above which fewer runs are drawn."""
_MOST_OF_A_RUN = 2**22
"""Largest number of path gains (rounds x devices x entries) of one drawn run. A longer run is drawn
with fewer rounds, down to this number, if its rounds are independent; else no run is drawn."""
_UNEVEN = 1.25
"""Ratio of the runs' temperature at the quantile of 95 % to that at 5 %, above which runs count as
different. A predicted variance may be as far from the posterior's, in one direction, before a plan
gets a warning."""


class OverRuns(NamedTuple):
    """Quantiles of the temperatures of single runs of a plan on a random channel, found from drawn
    runs."""

    low: float
    """Temperature that one run of twenty stays below."""
    median: float
    """Temperature that half of the runs exceed."""
    high: float
    """Temperature that one run of twenty exceeds."""
    num_runs: int
    """Number of drawn runs that the quantiles are of."""

    @property
    def uneven(self) -> bool:
        """Whether ``high`` is more than 1.25 times ``low``, so that one temperature does not
        describe all runs."""
        return self.high > _UNEVEN * self.low

    def scaled(self, factor: float) -> OverRuns:
        """A copy in which all three temperatures are multiplied by ``factor``. The predicted
        variance ratio over the temperature, as the factor, makes variance ratios of them."""
        return OverRuns(factor * self.low, factor * self.median, factor * self.high, self.num_runs)

    def __str__(self) -> str:
        return f"median {self.median:.3g}, {self.low:.3g} to {self.high:.3g} in nine runs of ten"


def over_runs(plan: Plan) -> OverRuns | None:
    """Temperatures of single runs of a plan, from drawn runs. None where the temperature is not
    known; where path gains are known before the run, so that all runs have one temperature; where a
    run is too long to be drawn, and its rounds are not independent with one cap of the gain; or
    where too few of the drawn runs have a transmission."""
    fading = plan.uplink.known_fading
    if plan.effective_step_size is None or fading.constant or fading.given:
        return None
    rounds, kept = range(plan.num_rounds), plan.num_rounds - plan.num_burn_in
    most = _MOST_OF_A_RUN // (plan.num_devices * plan.dim)
    if len(rounds) > most:
        if not (fading.independent and plan.scheduler.forgets and len(plan.gain) == 1):
            return None
        # All rounds have the same law, so a shorter run stands for the planned one, although the
        # temperature of shorter runs varies more.
        kept = max(1, min(kept, most))
        rounds = range(kept)
    each = len(rounds) * plan.num_devices * plan.dim
    count = int(np.clip(_MOST_NUMBERS // each, _FEWEST_RUNS, _RUNS))
    heats = [_temperature(plan, run, rounds, kept) for run in range(count)]
    known = [heat for heat in heats if heat is not None]
    if len(known) < _FEWEST_RUNS:  # in too many runs nobody transmits
        return None
    low, median, high = (float(q) for q in np.quantile(known, (0.05, 0.5, 0.95)))
    return OverRuns(low, median, high, len(known))


def _temperature(plan: Plan, run: int, rounds: range, kept: int) -> float | None:
    """Temperature over the last ``kept`` rounds of one drawn run, which has the rounds ``rounds``;
    the number ``run`` selects its random stream. None if nobody transmits in the last ``kept``
    rounds."""
    # The stream has the number 2: streams 0 and 1 draw the rounds of the plan's expected gains.
    rng = generator(0, Purpose.PLANNING, 2, run)
    paths = plan.uplink.known_fading.draw_checked(rng, rounds, plan.num_devices, plan.dim)
    policy = plan.scheduler
    # The policy is asked with the drawn path gains, as in a run, even if it declares that it does
    # not look at them.
    active = None if policy.everyone else policy.draw_checked(rng, rounds, paths)[-kept:]
    cap = plan.gain if len(plan.gain) == 1 else plan.gain[-kept:]
    if active is None:
        cap = np.broadcast_to(cap, (len(cap), plan.dim))
        gain = realised_gain(plan.uplink, cap, paths[-kept:])
        return plan.temperature_at(gain, float(plan.num_devices))
    count = active.sum(axis=1, keepdims=True)
    heard = count[:, 0] > 0  # rounds with nobody are skipped
    if not heard.any():
        return None
    cap = calibrated_cap(plan, cap, count) if policy.by_channel else cap
    cap = np.broadcast_to(cap, (len(cap), plan.dim))
    gain = realised_gain(plan.uplink, cap, paths[-kept:], active)
    return plan.temperature_at(gain[heard], count[heard])
