r"""A release: the chains of a run that are given out, their worth in draws, and their privacy cost.

A *release* is a number of chains with all their kept rounds. Quality and privacy of a run are
stated of the same release: of one chain, unless more are named. Along a direction in which the
negative log posterior has curvature :math:`\lambda`, successive rounds have the correlation
:math:`r = 1 - \eta\kappa\lambda`, so that the mean of n kept positions varies like that of
:math:`1/w(r, n)` independent draws, the *effective draws*, where :math:`w(r, n)` is the variance of
this mean over that of one position (:func:`flmc.base.special.variance_of_mean`). They are fewest
where the curvature is smallest."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from flmc.base import checks
from flmc.base.documents import to_document
from flmc.base.special import variance_of_mean
from flmc.base.tables import Row, format_up
from flmc.planning.privacy_cost import Cost, Exposure, cost_of_run
from flmc.privacy import gaussian
from flmc.privacy.root_finding import largest_argument

if TYPE_CHECKING:
    from flmc.planning.plans.plan_value import Plan


@dataclass(frozen=True)
class Release:
    """Chains that are given out together, their worth in independent draws, and their privacy
    cost."""

    num_chains: int
    """Number of chains that are given out; the privacy cost covers all of them."""
    kept_rounds: int
    """Number of rounds of each chain that are given out."""
    effective_draws: float | None
    """Number of independent draws whose mean would vary as little as that of the released draws, in
    the direction in which they are fewest; 0 where chains do not arrive at the posterior, and None
    where curvature or slope are not known."""
    cost: Cost | None
    """Epsilon and delta of all rounds of the released chains, burn-in included; None where they are
    unknown or were not asked for."""

    @property
    def mu_squared(self) -> float | None:
        r"""Privacy cost of the release as a number that adds up over rounds and chains:
        :math:`\mu^2` of the Gaussian mechanism that has the same epsilon and delta. None where the
        cost is unknown or unbounded."""
        if self.cost is None or math.isinf(self.cost.epsilon):
            return None
        return gaussian_mu(self.cost.epsilon, self.cost.delta) ** 2

    @property
    def price(self) -> float | None:
        r"""Privacy cost per effective draw: :math:`\mu^2` of the Gaussian mechanism that has the
        epsilon and delta of the release, over the number of effective draws. None where the cost is
        unknown or unbounded, or where effective draws are unknown or 0."""
        if self.mu_squared is None or not self.effective_draws:
            return None
        return self.mu_squared / self.effective_draws

    def to_document(self) -> dict[str, Any]:
        """The release in plain values, for JSON; what is unknown or unbounded is null."""
        return {
            "num_chains": self.num_chains,
            "kept_rounds": self.kept_rounds,
            "effective_draws": self.effective_draws,
            "epsilon": None if self.cost is None else to_document(self.cost.epsilon),
            "delta": None if self.cost is None else self.cost.delta,
            "mu_squared": self.mu_squared,
            "price": self.price,
        }


@dataclass(frozen=True)
class Coverage:
    """Privacy cost of one chain of a run, which is what the privacy statement covers, and of all
    chains of the run together."""

    covered: int
    """Number of chains that the stated epsilon covers: always 1."""
    num_chains: int
    """Number of chains that were run."""
    cost: Cost
    """Epsilon and delta of one chain."""
    all_chains: Cost
    """Epsilon and delta of all chains together, if every one is given out."""
    data_dependent: bool
    """Whether the plan was computed from the devices' data: then no privacy statement holds for a
    deployment."""
    stated_by: str | None = None
    """Name, as ``module:Class``, of a user's own class that states the privacy; None: flmc states
    it."""

    @property
    def in_words(self) -> str:
        """Text that states the privacy cost of one chain and, where several were run, of all chains
        if they were given out."""
        text = f"{self.cost}, of one chain"
        if self.stated_by is not None:
            text += f", as stated by {self.stated_by}"
        if self.num_chains > 1:
            text += (
                f"; all {self.num_chains} chains together, if they were given out, would cost"
                f" epsilon {format_up(self.all_chains.epsilon)}"
            )
        return text + (f"; {_SIMULATION}" if self.data_dependent else "")

    def to_document(self) -> dict[str, Any]:
        """The coverage in plain values, for JSON; an infinite epsilon is null."""
        return {
            "chains_covered": self.covered,
            "epsilon": to_document(self.cost.epsilon),
            "epsilon_all_chains": to_document(self.all_chains.epsilon),
            "delta": self.cost.delta,
            "data_dependent": self.data_dependent,
            "stated_by": self.stated_by,
        }


_SIMULATION = (
    "the plan was computed from the devices' data, so this is a simulation and no privacy statement"
    " for a deployment"
)
"""Text that goes with a privacy cost where the plan was computed from the devices' data: it is no
statement for a deployment."""


def data_dependence_row(data_dependent: bool) -> Row:
    """Row that says whether a plan was computed from the devices' data."""
    if data_dependent:
        return Row("data dependent", f"yes: {_SIMULATION}", severity="warning")
    return Row(
        "data dependent",
        "no: rounds, step and gains do not depend on the devices' data; the forecast may, and a"
        " federation does not publish it",
    )


def coverage_of(plan: Plan, num_chains: int) -> Coverage | None:
    """Privacy cost of one chain of a plan's run, and of all its ``num_chains`` chains together;
    None where the privacy is unknown."""
    one, every = plan.release().cost, plan.release(num_chains).cost
    if one is None or every is None:
        return None
    stated_by = plan.uplink.privacy_stated_by
    return Coverage(1, num_chains, one, every, plan.data_dependent, stated_by)


def release_of(plan: Plan, num_chains: int, *, with_cost: bool = True) -> Release:
    """Release of ``num_chains`` chains of a plan; ``with_cost`` includes their privacy cost, which
    may take a second to compute."""
    chains = checks.at_least("chains", num_chains, 1)
    draws, cost = plan.effective_draws, None
    if with_cost and plan.exposure is not None:
        cost = plan.run_cost if chains == 1 else cost_of_chains(plan, plan.exposure, chains)
    kept = plan.num_rounds - plan.num_burn_in
    return Release(chains, kept, None if draws is None else chains * draws, cost)


def cost_of_chains(plan: Plan, exposure: Exposure, num_chains: int) -> Cost:
    """Privacy cost of ``num_chains`` chains of a plan on the same data: the cost of one chain with
    every transmission repeated ``num_chains`` times."""
    return cost_of_run(replace(exposure, run=exposure.run.repeated(num_chains)), plan.limits)


def effective_draws(
    effective_step_size: float | None,
    convexity: float | None,
    num_kept: int,
    *,
    midpoints: bool = False,
) -> float | None:
    r"""Effective draws of one stationary chain in the direction of the smallest curvature,
    ``convexity``: from 1 to ``num_kept``, its number of kept rounds. None without an effective step
    or a known convexity. With ``midpoints`` draws are taken half way between positions, else at
    positions."""
    if effective_step_size is None or convexity is None:
        return None
    return draws_with_memory(1.0 - effective_step_size * convexity, num_kept, midpoints=midpoints)


def draws_with_memory(memory: float, num_kept: int, *, midpoints: bool) -> float:
    """Effective draws of ``num_kept`` successive draws of a chain, at most ``num_kept``: the number
    of independent draws whose mean varies as little. ``memory`` is the correlation of the chain's
    positions in successive rounds; with ``midpoints`` draws are taken half way between positions,
    else at positions."""
    if midpoints:
        r = np.array(max(-1.0, memory))
        return float(1.0 / variance_of_mean(r, num_kept, (1.0 + r) / 2.0))
    # A negative correlation counts as zero, so that no chain is worth more than its rounds.
    return float(1.0 / variance_of_mean(np.array(max(0.0, memory)), num_kept))


def rounds_per_draw(forgotten: float, *, midpoints: bool) -> float:
    """Kept rounds that a long chain needs for each effective draw, at least 1. ``forgotten``, above
    0, is the share of its distance from the mean that the chain loses in a round; with
    ``midpoints`` draws are taken half way between positions, else at positions."""
    # With the correlation r = 1 - forgotten, an effective draw takes (1 + r)/(1 - r) positions. It
    # takes 2/(1 - r) midpoints: their mean varies as that of positions does, but one midpoint has
    # only (1 + r)/2 of the variance of a position.
    return max(1.0, (2.0 if midpoints else 2.0 - forgotten) / forgotten)


def gaussian_mu(epsilon: float, delta: float) -> float:
    r"""Largest distance :math:`\mu` between the means of a Gaussian mechanism, in standard
    deviations, at which it costs at most a finite ``epsilon`` at ``delta``."""
    # At mu = ``high`` the mechanism has a delta of 1, up to rounding, so no larger mu can be the
    # answer.
    high = math.sqrt(2.0 * epsilon) + 40.0
    return largest_argument(lambda mu: gaussian.delta(epsilon, mu) - delta, 0.0, high)
