r"""Where to spend a run's privacy: later rounds matter more, because early errors contract
geometrically.

The channel adds :math:`\eta_t^2 N_0/A_t^2` to the chain's variance in round t, of which
:math:`\rho^{2(s-t)}` is left in round s. Averaged over kept rounds it weighs :math:`w_t`. Privacy
is spent in proportion to :math:`A_t^2` (exactly for analog; for digital while the signal is small).
Minimise :math:`\sum_t w_t/A_t^2` under :math:`\sum_t A_t^2 \le B` and caps: :math:`A_t =
\min(\text{cap}_t, (w_t/\lambda)^{1/4})`, with one multiplier to be found. The exact cost is checked
afterwards, and the gains are scaled to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from flmc.base.arrays import Array
from flmc.planning.limits import Limits
from flmc.privacy.event import nothing_allowed
from flmc.privacy.transmissions import count_gains
from flmc.uplink.uplink import Uplink

_LEVELS = 6
"""Distinct gains that are used: few, so that their exact composition is quick."""
_ROUNDS_OF_CORRECTION = 2
_MOST_TRIALS = 100

_SMALLEST_WEIGHT = 1e-3
"""Early rounds keep at least this weight, so that their gain is not below a sixth of the largest:
wild chains would be clipped, and contract no longer as the weights assume."""


def noise_weights(step_sizes: Array, contraction: Array, num_burn_in: int) -> Array:
    """How much the noise of each round weighs in the mean variance of kept rounds; ``contraction``
    is rho of every round."""
    num_rounds = len(step_sizes)
    weights = np.zeros(num_rounds)
    left = 0.0  # of a unit of noise after this round, summed over kept rounds from here on
    for t in range(num_rounds - 1, -1, -1):
        after = contraction[t + 1] ** 2 * left if t + 1 < num_rounds else 0.0
        left = (1.0 if t >= num_burn_in else 0.0) + after
        weights[t] = left * step_sizes[t] ** 2
    return np.asarray(np.maximum(weights / weights.max(), _SMALLEST_WEIGHT))


def water_fill(weights: Array, caps: Array, budget: float) -> Array:
    """Gains that minimise the sum of weights/A^2 with the sum of A^2 at most ``budget`` and A at
    most ``caps``."""
    finite = np.minimum(caps, 1e150)
    if np.square(finite).sum() <= budget:
        return finite
    shape = weights**0.25
    low, high = 0.0, float((finite / shape).max())
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
    """Gains of all rounds within the exact budget. ``static_gain`` spends it when all rounds are
    alike; ``allowed_scale`` says by how much given gains may be multiplied."""
    budget = len(weights) * static_gain**2
    gains = np.minimum(caps, static_gain)
    for _ in range(_ROUNDS_OF_CORRECTION):
        filled = _on_levels(water_fill(weights, caps, budget))
        scale = allowed_scale(filled)
        safe = filled * min(scale, 1.0)
        if (weights / safe**2).sum() < (weights / gains**2).sum():
            gains = safe
        if abs(scale - 1.0) < 0.01:
            break
        budget *= min(max(scale, 0.25), 4.0) ** 2
    return gains


def _on_levels(gains: Array) -> Array:
    """Rounded down to a few values."""
    levels = np.geomspace(gains.min(), gains.max(), _LEVELS)
    return np.asarray(
        levels[np.clip(np.searchsorted(levels, gains * (1 + 1e-12), side="right") - 1, 0, None)]
    )


@dataclass(frozen=True)
class RunBudget:
    """A run's privacy budget, and what gains of all rounds spend of it."""

    uplink: Uplink
    limits: Limits
    dim: int

    def spent(self, gains: Array, scale: float) -> float:
        """Epsilon of the run if the gains (round) are multiplied by ``scale``."""
        sent = [(scale * value, count * self.dim) for value, count in count_gains(gains)]
        return self.uplink.privacy_event(sent, self.limits.neighbouring).epsilon(
            self.limits.run_delta
        )

    def allowed_scale(self, gains: Array) -> float:
        """By how much the gains may be multiplied: within the budget, and within 1 % of it, in few
        trials."""
        budget = self.limits.epsilon or 0.0
        scale, safe = 1.0, 0.0
        for _ in range(8):
            epsilon = self.spent(gains, scale)
            if epsilon <= budget:
                safe = max(safe, scale)
                if epsilon > 0.99 * budget:
                    break
            scale *= min(4.0, (0.997 * budget / epsilon) ** 0.9) if epsilon > 0 else 4.0
        for _ in range(_MOST_TRIALS):  # not yet within the budget: down until it is
            if safe:
                return safe
            scale *= 0.7
            safe = scale if self.spent(gains, scale) <= budget else 0.0
        raise nothing_allowed(budget, self.limits.run_delta)
