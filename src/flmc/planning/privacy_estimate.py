"""Quick estimate of the gain that a privacy budget allows, for searches that try many plans.

Over many rounds the gain is small, and what a device sends is told apart like two normal
distributions whose means differ by the gain times the *sensitivity*, the largest difference of mean
symbols: a Gaussian mechanism, whose accountant takes no time. The randomness of bits, which hides a
little more, is left out. An estimate guides a search; what is stated comes from the accountant."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np

from flmc.models.model import Model
from flmc.planning.decision import Request
from flmc.planning.limits import Limits
from flmc.planning.plans import Plan
from flmc.planning.privacy_cost import chance_of, has_budget, privacy_limited_gain
from flmc.privacy.gaussian import GaussianEvent
from flmc.privacy.neighbours import moves
from flmc.privacy.scheduled_event import ScheduledEvent
from flmc.privacy.uncertain_gain_event import UncertainGainEvent
from flmc.uplink.schedulers import AllDevices
from flmc.uplink.uplink import Uplink

_PLACE_MARGIN = 0.95
"""Factor by which the estimated gain of random bits is lowered where neighbouring data differ in
one example: the accountant bounds the cost for the worst sum of the other examples' gradients,
which is a few per cent more than for any one sum."""


def sensitivity(uplink: Uplink, neighbouring: str, relation: str = "replace") -> float:
    """Largest difference, in one entry, between a device's mean symbols for two neighbouring data
    sets, which differ in all data of the device (``device``) or in one example of it (``example``).
    """
    clip = uplink.clip
    if neighbouring == "device" or not uplink.clips_examples:
        low, zero, high = (float(x) for x in uplink.mean_symbol(np.array([-clip, 0.0, clip])))
        if relation == "replace":
            return high - low
        other = zero if relation == "zero_out" else 0.0
        return max(high - other, other - low)
    reach = min(moves(relation) / 2 * uplink.example_bound, clip)
    # Replacing one example moves the sum of a device's clipped gradients by at most twice their
    # bound, leaving it out by the bound. The sum may lie anywhere, so the largest difference over
    # all its positions counts.
    centre = np.linspace(-(clip - reach), clip - reach, 101)
    moved = uplink.mean_symbol(centre + reach) - uplink.mean_symbol(centre - reach)
    return float(moved.max())


def estimate_gain(
    uplink: Uplink, limits: Limits, num_devices: int, dim: int, num_transmitting: int
) -> float:
    """Estimate of the largest constant gain within the privacy budget; infinite without a budget.

    A device transmits in ``num_transmitting`` rounds. For a criterion other than ``tight`` the
    accountant's exact limit is returned.
    """
    return gain_estimator(uplink, limits, num_devices, dim)(num_transmitting)


def gain_estimator(
    uplink: Uplink, limits: Limits, num_devices: int, dim: int
) -> Callable[[int], float]:
    """Function that estimates the largest constant gain within the privacy budget, as
    :func:`estimate_gain` does; its argument is the number of rounds in which a device transmits.

    It is for a search that tries many numbers of rounds: all that does not depend on the number is
    computed once, here.
    """
    if limits.criterion != "tight" or not has_budget(uplink, limits):
        return partial(privacy_limited_gain, uplink, limits, num_devices, dim)
    of_run = limits.scope == "run"
    # Where the norm of examples is bounded, all entries of a round share one move: a round then
    # counts as one transmission, else as one for each entry.
    shared = uplink.shares_move(limits.neighbouring)
    # The budget fixes mu, the largest distance that the means of two normal laws may have, in
    # standard deviations. The distance over all transmissions grows with the root of their number.
    one = GaussianEvent(1.0, 1.0, ((1.0, 1),))
    mu = one.allowed_gain(limits.epsilon or 0.0, limits.run_delta if of_run else limits.delta)
    apart = sensitivity(uplink, limits.neighbouring, limits.relation)
    by_bits = limits.neighbouring == "example" and uplink.bit_variance > 0
    unit = uplink.event_of_rounds(np.ones((1, 1)), dim, limits.neighbouring, 1, limits.relation)

    def estimate(num_transmitting: int) -> float:
        """Estimate of the gain at which a device that transmits in ``num_transmitting`` rounds
        spends the budget."""
        count = (1 if shared else dim) * (num_transmitting if of_run else 1)
        # Squared distances of the means add up over transmissions, so with the gain A and the noise
        # power N_0 the budget is spent at mu^2 = count (A apart)^2 / N_0, which is solved for A
        # here.
        allowed = mu * math.sqrt(uplink.noise_power / count) / apart if apart > 0 else math.inf
        allowed = _PLACE_MARGIN * allowed if by_bits else allowed
        if not isinstance(unit, UncertainGainEvent):
            return allowed
        if unit.planned(allowed) <= 0:
            raise unit.too_loud(limits.epsilon or 0.0, allowed)
        return unit.planned(allowed)

    return estimate


def estimate_limit(model: Model, uplink: Uplink, limits: Limits, request: Request) -> float | None:
    """Estimate of the largest gain that a privacy budget of the whole run allows for the rounds and
    the scheduler of ``request``. None where there is no budget, where it is for a round, for which
    the exact accountant is quick, or where it is allocated adaptively."""
    if limits.scope != "run" or limits.allocation != "static" or not has_budget(uplink, limits):
        return None
    policy = request.scheduler or AllDevices()
    often = policy.most_rounds(request.num_rounds, model.num_devices)
    often = math.ceil(often * (chance_of(uplink, policy, model.num_devices) or 1.0))
    return estimate_gain(uplink, limits, model.num_devices, model.dim, often)


def estimate_epsilon(plan: Plan) -> float:
    """Quick estimate (no bound) of the epsilon that a plan's run costs at the run's delta, for a
    search; infinite where the privacy is unknown."""
    if plan.exposure is None:
        return math.inf
    apart = sensitivity(plan.uplink, plan.limits.neighbouring, plan.limits.relation)
    run = plan.exposure.run
    # A random schedule is replaced by one in which the device transmits as often as it is expected
    # to, rounded up.
    if isinstance(run, ScheduledEvent):
        run = run.once.repeated(math.ceil(run.rounds * run.chance))
    sent = (run.loud if isinstance(run, UncertainGainEvent) else run).transmissions
    return GaussianEvent(apart, plan.uplink.noise_power, sent).epsilon(plan.limits.run_delta)
