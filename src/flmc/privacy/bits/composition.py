"""Composition of bits: from the pairs of one entry and the gains of all to epsilon and delta."""

from __future__ import annotations

import math
from functools import partial
from typing import Protocol

from flmc.privacy import gaussian
from flmc.privacy.bits.pair_hull import FAR_REACH, REACH, PairHull
from flmc.privacy.losses.addition import TRUNCATED
from flmc.privacy.losses.composed_loss import ComposedLoss
from flmc.privacy.losses.composition import FINE
from flmc.privacy.losses.grids import EntryLoss
from flmc.privacy.losses.loss_grid import LossGrid
from flmc.privacy.transmissions import Transmissions, mu_of, round_up

MOST_GAINS = 64
"""Largest number of distinct gains whose losses are composed one by one; more are rounded up."""

_TINY = 1e-24
"""Delta below which mass beyond the usual reach of the noise may matter."""
_FAR = 600.0
"""Minus the logarithm of the mass that may leave a window then."""
_FEW, _FINE_FOR_MANY = 4, 40.0
"""Number of gains up to which grids are as fine as usual, and grid steps per standard deviation of
a loss where there are more, or many pairs are compared at every point."""


def compose_bits(
    hull: PairHull, noise_power: float, transmissions: Transmissions, reach: float = REACH
) -> ComposedLoss:
    """Distribution of the loss of all entries, as an upper bound.

    Parameters
    ----------
    hull
        All pairs of bit probabilities that neighbours can make in an entry.
    noise_power
        Variance N_0 of the noise in an entry.
    transmissions
        Gains, each with the number of entries that were sent with it.
    reach
        How far the noise reaches, in its standard deviations.

    Returns
    -------
    ComposedLoss
        The sum of the losses.
    """
    scale = math.sqrt(noise_power)
    # Losses of a symmetric pair are plus or minus the largest one where bits are received without
    # error.
    bound = hull.largest_loss
    lattice = bound if len(hull.low) == 1 and math.isfinite(bound) else None
    entries = []
    for gain, count in round_up(transmissions, MOST_GAINS):
        low, high = hull.loss_range(gain / scale, reach)
        grid = partial(_grid, hull, gain / scale, low, high)
        entries.append(EntryLoss(grid, low, high, hull.spread(gain / scale), count, lattice))
    fine = FINE if lattice and len(entries) <= _FEW else _FINE_FOR_MANY
    return ComposedLoss.of(entries, fine, truncated=TRUNCATED if reach <= REACH else _FAR)


def _grid(hull: PairHull, amplitude: float, low: float, high: float, step: float) -> LossGrid:
    """Law of the loss of one entry on a grid."""
    return LossGrid.of_excess(partial(hull.excess, amplitude=amplitude), low, high, step)


class ComposableEvent(Protocol):
    """Event of bits whose losses are composed on a grid."""

    @property
    def noise_power(self) -> float:
        """Variance N_0 of the noise in an entry."""

    @property
    def transmissions(self) -> Transmissions:
        """Gains, each with the number of entries that were sent with it."""

    @property
    def hull(self) -> PairHull:
        """All pairs of bit probabilities that neighbours can make in an entry."""

    @property
    def largest_loss(self) -> float:
        """Upper bound of the privacy loss at any signal-to-noise ratio."""


def composed_delta(event: ComposableEvent, epsilon: float) -> float:
    """Upper bound of delta, from the composed losses of all entries.

    Parameters
    ----------
    event
        The event of bits.
    epsilon
        Epsilon below the largest loss.
    """
    hull, sent = event.hull, event.transmissions
    found = compose_bits(hull, event.noise_power, sent).delta(epsilon)
    if found > _TINY:
        return found
    return compose_bits(hull, event.noise_power, sent, FAR_REACH).delta(epsilon)


def composed_epsilon(event: ComposableEvent, delta: float) -> tuple[float, bool]:
    """Upper bound of epsilon, and whether it is looser than usual.

    Three bounds hold: the composed loss; the largest loss; and the Gaussian mechanism of bits that
    are certain, which reveal more than any others.

    Parameters
    ----------
    event
        The event of bits.
    delta
        Probability with which the loss may be larger.
    """
    reach = REACH if delta > _TINY else FAR_REACH
    composed = compose_bits(event.hull, event.noise_power, event.transmissions, reach)
    found = composed.epsilon(delta)
    if composed.loose or math.isinf(found):
        certain = mu_of(2.0, event.noise_power, event.transmissions)
        return min(found, event.largest_loss, gaussian.epsilon(delta, certain)), True
    return min(found, event.largest_loss), False


def delta_of_loud_bits(event: ComposableEvent, epsilon: float) -> float:
    """Upper bound of delta where the noise changes no bit, whatever the gains are.

    Parameters
    ----------
    event
        The event of bits.
    epsilon
        Epsilon below the largest loss.
    """
    number = sum(count for gain, count in event.transmissions if gain > 0)
    loud = 1e6 * math.sqrt(event.noise_power)
    return compose_bits(event.hull, event.noise_power, ((loud, number),)).delta(epsilon)
