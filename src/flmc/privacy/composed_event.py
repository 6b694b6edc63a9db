"""Privacy events of one-bit symbols whose privacy losses are composed on a grid: from the bit
probabilities in one entry under two neighbouring data sets, and the gains of all entries, to
epsilon and delta."""

from __future__ import annotations

import dataclasses
import math
from abc import abstractmethod
from functools import lru_cache, partial

from flmc.privacy import gaussian
from flmc.privacy.bit_pairs import FAR_REACH, REACH, PairHull
from flmc.privacy.composed_loss import FINE, ComposedLoss, EntryLoss
from flmc.privacy.event import Event
from flmc.privacy.loss_grid import LossGrid
from flmc.privacy.tilted_loss import TRUNCATED
from flmc.privacy.transmissions import round_up, total_mu

MOST_GAINS = 64
"""Largest number of distinct gains whose losses are composed one by one; more are rounded up."""
_TINY = 1e-24
"""Delta below which noise beyond its usual reach may matter, so that a longer reach is computed."""
_FAR = 600.0
"""Minus the logarithm of the mass that may leave the window of an FFT when delta is that small."""
_FEW, _FINE_FOR_MANY = 4, 40.0
"""Number of gains up to which grids are as fine as usual, and grid steps per standard deviation of
a loss where there are more, or many pairs are compared at every point."""
_LOUD = 1e6
"""Amplitude of a bit, in standard deviations of the noise, at which the noise changes no bit."""


class ComposedEvent(Event):
    """Privacy event of one-bit symbols, given by the pairs of bit probabilities that two
    neighbouring data sets can make in an entry."""

    @property
    @abstractmethod
    def hull(self) -> PairHull:
        """Polygon around all pairs of bit probabilities that two neighbouring data sets can make in
        an entry."""

    @property
    def deterministic(self) -> bool:
        """Whether a bit reveals the gradient's sign for certain, so that only the channel's noise
        hides it: then the event is a Gaussian mechanism."""
        return False

    @property
    def largest_loss(self) -> float:
        """Upper bound of the privacy loss at any signal-to-noise ratio: that of the most revealing
        pair, for each entry."""
        return self.hull.largest_loss * self.num_transmissions

    def tight_delta(self, epsilon: float) -> float:
        """Upper bound of the delta that goes with ``epsilon`` by ``tight``: composed on a grid, or
        in closed form for deterministic bits."""
        if self.deterministic:
            return gaussian.delta(epsilon, self.mu)
        delta = composed_loss(self, REACH).delta(epsilon)
        return delta if delta > _TINY else composed_loss(self, FAR_REACH).delta(epsilon)

    def solve_epsilon(self, delta: float) -> tuple[float, bool]:
        """Upper bound of epsilon, never above the largest loss, and whether it is looser than
        usual.

        Three bounds hold: the composed loss; the largest loss; and the Gaussian mechanism of bits
        that are certain, which reveal more than any others."""
        if self.deterministic:
            return gaussian.epsilon(delta, self.mu), False
        composed = composed_loss(self, REACH if delta > _TINY else FAR_REACH).afresh()
        epsilon = composed.epsilon(delta)
        if composed.loose or math.isinf(epsilon):
            certain = total_mu(2.0, self.noise_power, self.transmissions)
            return min(epsilon, self.largest_loss, gaussian.epsilon(delta, certain)), True
        return min(epsilon, self.largest_loss), False

    def delta_without_noise(self, epsilon: float, criterion: str, num_devices: int | None) -> float:
        """Upper bound of delta by ``tight`` where the noise changes no bit, whatever the gains."""
        number = sum(count for gain, count in self.transmissions if gain > 0)
        loud = ((_LOUD * math.sqrt(self.noise_power), number),)
        event = dataclasses.replace(self, transmissions=loud)  # type: ignore[type-var]  # all are dataclasses
        return composed_loss(event, REACH).delta(epsilon)


# A search for a gain ends with the event whose epsilon is asked for next, mostly by the same sum.
@lru_cache(maxsize=16)
def composed_loss(event: ComposedEvent, reach: float) -> ComposedLoss:
    """Sum of the privacy losses of all entries of an event, as an upper bound; noise beyond
    ``reach`` standard deviations counts as lost."""
    hull, scale = event.hull, math.sqrt(event.noise_power)
    # Losses of a symmetric pair are plus or minus the largest one where bits are received without
    # error.
    bound = hull.largest_loss
    lattice = bound if len(hull.low) == 1 and math.isfinite(bound) else None
    entries = []
    for gain, count in round_up(event.transmissions, MOST_GAINS):
        low, high = hull.loss_range(gain / scale, reach)
        profile = partial(hull.excess, amplitude=gain / scale)
        grid = partial(LossGrid.of_excess, profile, low, high)
        entries.append(EntryLoss(grid, low, high, hull.spread(gain / scale), count, lattice))
    fine = FINE if lattice and len(entries) <= _FEW else _FINE_FOR_MANY
    return ComposedLoss.of(entries, fine, truncated=TRUNCATED if reach <= REACH else _FAR)
