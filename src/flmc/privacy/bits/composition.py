"""Composition of bits: from the pairs of one entry and the gains of all to epsilon and delta."""

from __future__ import annotations

import math
from collections.abc import Hashable
from functools import lru_cache, partial
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
_SUMMED = 64
"""Number of bits up to which the probability of a sum is summed up."""


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


class ComposableEvent(Hashable, Protocol):
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


@lru_cache(maxsize=16)
def composed_loss(event: ComposableEvent, reach: float) -> ComposedLoss:
    """Sum of the losses of an event, kept: a search for a gain ends with the event whose epsilon is
    asked for next, and mostly by the same sum.

    Parameters
    ----------
    event
        The event of bits.
    reach
        How far the noise reaches, in its standard deviations.
    """
    return compose_bits(event.hull, event.noise_power, event.transmissions, reach)


def composed_delta(event: ComposableEvent, epsilon: float) -> float:
    """Upper bound of delta, from the composed losses of all entries.

    Parameters
    ----------
    event
        The event of bits.
    epsilon
        Epsilon below the largest loss.
    """
    found = composed_loss(event, REACH).delta(epsilon)
    return found if found > _TINY else composed_loss(event, FAR_REACH).delta(epsilon)


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
    composed = composed_loss(event, reach).afresh()
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


def limited_without_noise(error: float, number: int, epsilon: float, delta: float) -> bool:
    r"""Whether symmetric bits that are received as they were sent surely break a budget.

    Of n losses of plus or minus :math:`a = \ln(p/(1-p))`, k are positive. Delta is at least
    :math:`1 - 1/e` times the probability that their sum, (2 k - n) a, is :math:`\epsilon + 1` or
    more: summed up for few losses, and by Hoeffding's inequality for many. It spares the exact
    answer, which is costly.

    Parameters
    ----------
    error
        Probability 1 - p of a bit that speaks for the wrong data set, above 0.
    number
        Number n of bits.
    epsilon, delta
        The budget.

    Returns
    -------
    bool
        False where it is not known.
    """
    each, right = math.log1p((1.0 - 2.0 * error) / error), 1.0 - error
    if not each > 0:
        return False
    wanted = (number + (epsilon + 1.0) / each) / 2.0 * (1 + 1e-12)  # of the n, at least
    if number > _SUMMED:
        short = number * right - wanted
        likely = -math.expm1(-2.0 * short * short / number) if short > 0 else 0.0
    else:
        likely = math.fsum(
            math.comb(number, k) * right**k * error ** (number - k)
            for k in range(math.ceil(wanted), number + 1)
        )
    return likely * -math.expm1(-1.0) > delta * (1 + 1e-6)
