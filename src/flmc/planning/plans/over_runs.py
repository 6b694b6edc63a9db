"""How the temperature of a plan differs from run to run, on a channel that is random.

A chain adds up the noise of its rounds, so the temperature of a run is a mean over its own rounds.
Where a device with a small path gain makes a round loud, as under channel inversion, few rounds
decide this mean: under Rayleigh or Rician fading it does not settle however long the run is, and
its expectation does not even exist. One number would then be as wrong as it looks precise. So whole
runs are drawn from the channel's law, which is public, and their quantiles are stated."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from flmc.base.randomness import Purpose, generator
from flmc.planning.plans.expectation import calibrated_cap
from flmc.uplink.power import realised_gain

if TYPE_CHECKING:
    from flmc.planning.plans.plan_value import Plan

_RUNS, _FEWEST_RUNS = 39, 9
"""Number of runs that are drawn, so that one of twenty is beyond either end of the stated range;
and the smallest number, where runs are so long that fewer are drawn."""
_MOST_NUMBERS = 2**23
"""Number of path gains of all drawn runs above which fewer runs are drawn."""
_MOST_OF_A_RUN = 2**22
"""Largest number of path gains of one drawn run: of a longer one only so many rounds are drawn
where rounds are independent, and none where they are not."""
_UNEVEN = 1.25
"""Ratio of the ends of the stated range above which runs count as different: as much as a plan
accepts of a predicted variance in one direction."""


class OverRuns(NamedTuple):
    """Temperatures of single runs of a plan on a random channel, over drawn runs."""

    low: float
    """Temperature that one run of twenty stays below."""
    median: float
    """Temperature that half of the runs exceed."""
    high: float
    """Temperature that one run of twenty exceeds."""
    num_runs: int
    """Number of runs that were drawn."""

    @property
    def uneven(self) -> bool:
        """Whether runs differ so much that one number does not describe them."""
        return self.high > _UNEVEN * self.low

    def scaled(self, factor: float) -> OverRuns:
        """The temperatures times a factor, such as that of the discretisation error."""
        return OverRuns(factor * self.low, factor * self.median, factor * self.high, self.num_runs)

    def __str__(self) -> str:
        return f"median {self.median:.3g}, {self.low:.3g} to {self.high:.3g} in nine runs of ten"


def over_runs(plan: Plan) -> OverRuns | None:
    """Temperatures of single runs of a plan; None where the temperature is not known, where the
    path gains are known before the run, so that all runs have one temperature, or where a run with
    a memory is too long to be drawn."""
    fading = plan.uplink.known_fading
    if plan.effective_step_size is None or fading.constant or fading.given:
        return None
    rounds, kept = range(plan.num_rounds), plan.num_rounds - plan.num_burn_in
    most = _MOST_OF_A_RUN // (plan.num_devices * plan.dim)
    if len(rounds) > most:
        if not (fading.independent and plan.scheduler.forgets and len(plan.gain) == 1):
            return None
        # Rounds are alike, so that a shorter run stands for this one; its temperature differs more
        # from run to run.
        kept = max(1, min(kept, most))
        rounds = range(kept)
    each = len(rounds) * plan.num_devices * plan.dim
    count = int(np.clip(_MOST_NUMBERS // each, _FEWEST_RUNS, _RUNS))
    heats = [_temperature(plan, run, rounds, kept) for run in range(count)]
    known = [heat for heat in heats if heat is not None]
    if len(known) < _FEWEST_RUNS:  # nobody transmits in the drawn runs
        return None
    low, median, high = (float(q) for q in np.quantile(known, (0.05, 0.5, 0.95)))
    return OverRuns(low, median, high, len(known))


def _temperature(plan: Plan, run: int, rounds: range, kept: int) -> float | None:
    """Temperature of the last ``kept`` of the ``rounds`` of a drawn run, whose number decides its
    random stream; None if nobody transmits in them."""
    # Streams 0 and 1 are those of the rounds on which the plan counts.
    rng = generator(0, Purpose.PLANNING, 2, run)
    paths = plan.uplink.known_fading.draw_checked(rng, rounds, plan.num_devices, plan.dim)
    policy = plan.scheduler
    # Asked with the drawn path gains, as in a run, whatever the policy says of itself.
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
