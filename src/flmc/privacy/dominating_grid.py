"""Grid of losses for bits whose two probabilities are not symmetric."""

from __future__ import annotations

import math

import numpy as np

from flmc.base.arrays import Array
from flmc.privacy.bit_pair import BitPair
from flmc.privacy.loss_grid import LossGrid


def align_step(step: float, pair: BitPair) -> float:
    """A slightly smaller step that divides the largest loss, on which nearly all mass sits at high
    SNR.

    Parameters
    ----------
    step, pair
        Step of the grid, and the pair whose largest loss it shall divide.
    """
    bound = pair.bound
    return bound / math.ceil(bound / step) if bound / step < 1e6 else step


def dominating_grid(pair: BitPair, step: float) -> LossGrid:
    """Grid of one pair that dominates an asymmetric pair in both orders.

    Neighbours may mix the orders over entries, so the larger profile is taken entry by entry,
    before composition.

    Parameters
    ----------
    pair, step
        The asymmetric pair, and the step of the grid.
    """
    other = pair.reversed

    def profile(epsilon: Array) -> Array:
        return np.maximum(pair.delta(epsilon), other.delta(epsilon))

    ranges = (pair.loss_range, other.loss_range)
    bound = max(pair.bound, other.bound)
    return LossGrid.of_profile(
        profile, min(low for low, _ in ranges), max(high for _, high in ranges), step, bound
    )
