"""Rows of a plan's privacy: what a round and the run cost, against whom, and what is replaced."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from flmc.base.tables import Row, format_percent, format_up
from flmc.planning.costs.privacy_cost import NEIGHBOURING

if TYPE_CHECKING:
    from flmc.planning.plans.value import Plan

ADVERSARY = (
    "an honest-but-curious server that sees every received signal and knows all other devices'"
    " symbols"
)
"""Whom the privacy statement is about."""
_CRITERIA = {
    "tight": "standard differential privacy",
    "tail": "probability of a larger loss at the worst pair",
    "paper": "the paper's bound",
}
"""Privacy criteria, in words."""


USELESS_EPSILON = 20.0
"""Epsilon of a whole run above which it guarantees next to nothing."""


def privacy_rows(plan: Plan, with_run: bool) -> list[Row]:
    """Privacy of a round and of the run, with all that a statement needs.

    Parameters
    ----------
    plan, with_run
        The plan, and whether to state the privacy of the whole run.
    """
    exposure, once = plan.exposure, plan.round_cost
    if exposure is None or once is None:
        return [Row("privacy", f"none: {plan.unknown_privacy}")]
    rows = []
    limits = plan.limits
    if limits.epsilon is not None and limits.privacy != "off":
        of_round = limits.scope == "round"
        what = (
            f"one round, delta {limits.delta:g}"
            if of_round
            else f"the run, delta {limits.run_delta:g}"
        )
        rows.append(Row("privacy budget", f"epsilon {limits.epsilon:g} for {what}"))
    if limits.scope == "round" or not with_run:  # the delta of a round says little about a run
        meaning = f"{limits.criterion}: {_CRITERIA[limits.criterion]}"
        rows.append(Row("privacy, one round", f"{once} ({meaning}){_below(plan)}"))
    if with_run and plan.run_cost is not None:
        over = f"over {exposure.num_rounds} rounds of one chain (tight)"
        rows.append(Row("privacy, whole run", f"{plan.run_cost}, {over}"))
        if plan.run_cost.epsilon >= exposure.run.largest_loss * (1 - 1e-9):
            rows.append(
                Row(
                    "", "that is the bound without any noise: a delta this small cannot be resolved"
                )
            )
        if plan.run_cost.epsilon > USELESS_EPSILON:
            rows.append(Row("", "such an epsilon for the whole run guarantees next to nothing"))
        rows += _price_row(plan)
    rows += [Row("neighbouring", NEIGHBOURING[limits.neighbouring]), Row("adversary", ADVERSARY)]
    bound = exposure.round.largest_loss
    if math.isfinite(bound):
        cost = f"a round would cost epsilon {format_up(bound)}, so no SNR makes it cost more"
        rows.append(Row("without noise", cost))
    if plan.data_dependent:
        text = (
            "yes: step, features or coordinates were computed from the devices' data. This is a"
            " simulation, not a privacy statement for a deployment; give public_smoothness and"
            " public_convexity, or a step"
        )
        rows.append(Row("data dependent", text))
    return rows


def release_in_words(plan: Plan) -> str:
    """What is given out, one chain, and what it is worth.

    Parameters
    ----------
    plan
        The plan.
    """
    kept = plan.num_rounds - plan.num_burn_in
    given = f"one chain, {kept} kept round{'s' * (kept != 1)}"
    if plan.effective_draws is None:
        return f"{given}; effective draws: unknown (no convexity or no slope)"
    # The mean of so many draws has so much of the variance of the law that the chain samples.
    share = format_percent((plan.temperature or 1.0) / plan.effective_draws)
    return (
        f"{given}, worth about {plan.effective_draws:.3g} effective draws in the worst direction:"
        f" the variance of its mean is {share} of the posterior's"
    )


def _price_row(plan: Plan) -> list[Row]:
    """Row of what an effective draw costs, where that is known."""
    release = plan.release()
    if release.price is None:
        return []
    price = (
        f"mu^2 {format_up(release.price)} per effective draw, burn-in included; every further chain"
        f" that is given out adds mu^2 {format_up(release.mu_squared or 0.0)}"
    )
    return [Row("price", price)]


def _below(plan: Plan) -> str:
    """What a round costs where epsilon is 0 at its delta, which says nothing: the delta that it has
    there, and epsilon at the run's delta."""
    once, exposure = plan.round_cost, plan.exposure
    if once is None or exposure is None or once.epsilon > 0:
        return ""
    finer, _ = exposure.round.tight_epsilon(plan.limits.run_delta)
    return (
        f"; epsilon 0 has delta {format_up(once.delta_at_zero or 0.0)} already, and delta"
        f" {plan.limits.run_delta:g} has epsilon {format_up(finer)}"
    )
