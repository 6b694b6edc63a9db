r"""Allocation of a run's privacy budget over rounds: later rounds get larger gains, because the
noise of early rounds contracts geometrically before the kept rounds.

The channel's noise, of variance :math:`N_0` and received at the gain :math:`A_t`, adds
:math:`\eta_t^2 N_0/A_t^2` to the chain's variance in round t, where the step is :math:`\eta_t`.
Each round contracts deviations from the mode by a factor :math:`\rho`, so the share
:math:`\rho^{2(s-t)}` of this variance is left in round s. The weight :math:`w_t` is the share that
is left of round t's noise, averaged over the kept rounds. Privacy is spent in proportion to
:math:`A_t^2` (exactly for analog; for digital while the signal is small). The allocation minimises
:math:`\sum_t w_t/A_t^2` under :math:`\sum_t A_t^2 \le B`, where B is what the budget allows, with
gains at most :math:`\text{cap}_t`, the largest that the other constraints allow in round t:
:math:`A_t = \min(\text{cap}_t, (w_t/\lambda)^{1/4})`, with one multiplier :math:`\lambda` to be
found. The exact cost is checked afterwards, and the gains are scaled to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from flmc.base.arrays import Array
from flmc.planning.limits import Limits
from flmc.privacy.event import nothing_allowed
from flmc.privacy.neighbours import relation_argument
from flmc.uplink.uplink import Uplink

_LEVELS = 6
"""Largest number of distinct gains among the rounds of a run: with few distinct gains the exact
privacy cost is quick to compute."""
_ROUNDS_OF_CORRECTION = 2
"""Largest number of times that gains are allocated. The sum of squared gains that the budget is
taken to allow is corrected after each allocation by the exact privacy cost of its gains."""
_MOST_TRIALS = 100
"""Largest number of ever smaller factors by which all gains are multiplied in a search, before it
concludes that no gain keeps the budget."""

_SMALLEST_WEIGHT = 1e-3
"""Smallest weight of a round's noise in the allocation of gains, relative to the largest weight.
Gains grow with the fourth root of the weight, so no gain is below about a sixth of the largest:
smaller ones would let so much noise into early rounds that gradients are clipped, and deviations
from the mode would not contract as the weights assume."""


def noise_weights(step_sizes: Array, contraction: Array, num_burn_in: int) -> Array:
    r"""Weight of each round's channel noise in the chain's variance, averaged over kept rounds:
    (round), relative to the largest weight.

    With the step sizes :math:`\eta_t`, and the factors :math:`\rho_t` by which a round contracts
    deviations from the mode (``contraction``), the weight is :math:`w_t \propto \eta_t^2 \sum_s
    \prod_{r=t+1}^{s} \rho_r^2` over the kept rounds :math:`s \ge t`, and at least 0.001."""
    num_rounds = len(step_sizes)
    weights = np.zeros(num_rounds)
    left = 0.0  # Variance that a unit of noise in the next round leaves, summed over kept rounds.
    # Rounds are visited from the last to the first, because the variance that a round's noise
    # leaves follows from the variance that the next round's noise leaves.
    for t in range(num_rounds - 1, -1, -1):
        after = contraction[t + 1] ** 2 * left if t + 1 < num_rounds else 0.0
        left = (1.0 if t >= num_burn_in else 0.0) + after
        weights[t] = left * step_sizes[t] ** 2
    return np.asarray(np.maximum(weights / weights.max(), _SMALLEST_WEIGHT))


def water_fill(weights: Array, caps: Array, budget: float) -> Array:
    r"""Gains :math:`A_t`, (round), that minimise the channel noise in the kept rounds,
    :math:`\sum_t w_t/A_t^2`, with :math:`\sum_t A_t^2 \le B` and no gain above its cap.
    ``weights`` w (round) say how much of each round's noise is left in kept rounds, ``caps``
    (round) may be infinite, and ``budget`` is B, a sum of squared gains."""
    # Caps may be infinite, and squares of numbers above 1e150 would overflow.
    finite = np.minimum(caps, 1e150)
    if np.square(finite).sum() <= budget:
        return finite
    # Without caps the sum of w_t/A_t^2, at a fixed sum of A_t^2, is smallest where w_t/A_t^3 is
    # proportional to A_t (the derivatives of both sums), so A_t ~ w_t^(1/4).
    shape = weights**0.25
    # The gains are the level times the shape, but at most the caps. At the upper end of the search
    # all are at their caps, and their squares add up to more than the budget; at level 0 to less.
    low, high = 0.0, float((finite / shape).max())
    # Bisection to the last bit. The lower end is returned, because its gains keep the budget.
    for _ in range(200):
        level = (low + high) / 2
        if np.square(np.minimum(finite, level * shape)).sum() <= budget:
            low = level
        else:
            high = level
    return np.minimum(finite, low * shape)


def allocate(
    weights: Array, caps: Array, static_gain: float, allowed_scale: Callable[[Array], float]
) -> Array:
    """Gains (round) that keep the run's exact privacy budget and add less noise to kept rounds than
    one constant gain does; where no such gains are found, ``static_gain``, or the cap of a round
    where that is smaller.

    ``weights`` (round) say how much of each round's noise is left in kept rounds, and ``caps``
    (round) are the largest gains that the other constraints allow. ``static_gain`` is the constant
    gain that spends the budget; ``allowed_scale`` gives the factor by which gains (round) may be
    multiplied within the budget.
    """
    budget = len(weights) * static_gain**2
    gains = np.minimum(caps, static_gain)
    for _ in range(_ROUNDS_OF_CORRECTION):
        filled = _on_levels(water_fill(weights, caps, budget))
        scale = allowed_scale(filled)
        # Gains are only scaled down, which makes them keep the exact budget: scaled up, they might
        # exceed their caps.
        safe = filled * min(scale, 1.0)
        if (weights / safe**2).sum() < (weights / gains**2).sum():
            gains = safe
        if abs(scale - 1.0) < 0.01:
            break
        # Only for the analog uplink is the privacy cost exactly proportional to the sum of squared
        # gains: for others, gains are allocated again with the sum that their exact cost suggests.
        budget *= min(max(scale, 0.25), 4.0) ** 2
    return gains


def _on_levels(gains: Array) -> Array:
    """Gains (round), each rounded down to one of at most six values: smaller gains cost no more
    privacy, and few distinct ones are quick to account for."""
    levels = np.geomspace(gains.min(), gains.max(), _LEVELS)
    # A gain that equals a level but for rounding keeps that level, not the one below.
    return np.asarray(
        levels[np.clip(np.searchsorted(levels, gains * (1 + 1e-12), side="right") - 1, 0, None)]
    )


@dataclass(frozen=True)
class RunBudget:
    """Privacy budget of a whole run, which ``limits`` state, with methods for the epsilon that the
    gains of all rounds cost and for the factor by which gains may be multiplied. Devices send
    ``dim`` entries in each round."""

    uplink: Uplink
    limits: Limits
    dim: int

    def spent(self, gains: Array, scale: float) -> float:
        """Upper bound of the epsilon that the run costs at the delta ``run_delta``, if the gains
        (round) are all multiplied by ``scale``."""
        event = self.uplink.event_of_rounds(
            scale * gains[:, None],
            self.dim,
            self.limits.neighbouring,
            1,
            **relation_argument(self.limits.relation),
        )
        return event.epsilon(self.limits.run_delta)

    def allowed_scale(self, gains: Array) -> float:
        """Factor by which all gains (round) may be multiplied so that the run stays within its
        budget. The search ends once 99 % of the budget is spent, or after a few trials. Raises
        ``InvalidSetting`` if no factor is found that keeps the budget."""
        # The slack lets gains that were chosen to spend the budget count as within it: the
        # accountant's epsilon is accurate to about ten digits.
        budget = (self.limits.epsilon or 0.0) * (1 + 1e-9)
        scale, safe = 1.0, 0.0
        for _ in range(8):
            # Few trials are made, because each composes the privacy loss of all rounds exactly,
            # which is costly.
            epsilon = self.spent(gains, scale)
            if epsilon <= budget:
                safe = max(safe, scale)
                if epsilon > 0.99 * budget:
                    break
            # The next scale aims at 0.997 of the budget, between the 0.99 and the 1 that end the
            # search, and is at most four times the last. Epsilon grows about like a power p of the
            # gain, from p = 1 (small gains) to 2 (large gains). With the exponent 0.9 a trial
            # leaves the factor 1 - 0.9 p of the error in log epsilon, which is below 1 in magnitude
            # for all p up to 2.2.
            scale *= min(4.0, (0.997 * budget / epsilon) ** 0.9) if epsilon > 0 else 4.0
        # If no trial was within the budget, the scale shrinks until the exact cost is.
        for _ in range(_MOST_TRIALS):
            if safe:
                return safe
            scale *= 0.7
            safe = scale if self.spent(gains, scale) <= budget else 0.0
        raise nothing_allowed(budget, self.limits.run_delta)
