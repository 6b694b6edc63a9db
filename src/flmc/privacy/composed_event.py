"""Privacy events of one-bit symbols whose privacy losses are added on a grid: epsilon and delta
follow from the probabilities of a +1 bit under two neighbouring data sets, and from the gains of
all entries."""

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
"""Largest number of distinct gains that are accounted for one by one; if there are more, gains are
rounded up until this many distinct ones are left."""
_TINY = 1e-24
"""Delta below which the rare noise beyond 13 standard deviations may matter, so that delta is
computed again with noise up to 37 standard deviations."""
_FAR = 600.0
"""Minus the natural logarithm of the probability, under the law tilted by exp(theta loss), that an
FFT may cut off on either side of the summed loss, where delta is below 1e-24."""
_FEW, _FINE_FOR_MANY = 4, 40.0
"""The grid of one entry's privacy loss has its usual number of steps (220 per standard deviation)
for up to ``_FEW`` distinct gains and a single possible pair of bit probabilities; otherwise it has
``_FINE_FOR_MANY`` steps per standard deviation, to limit the work."""
_LOUD = 1e6
"""Amplitude of a bit, in standard deviations of the noise, that stands for an infinite one: the
noise changes no bit."""


class ComposedEvent(Event):
    """Privacy event of a run with one-bit symbols. In an entry of theta, a device's bit is +1 with
    some probability under each of two neighbouring data sets; the event knows a polygon, ``hull``,
    around all pairs of these two probabilities that can occur."""

    @property
    @abstractmethod
    def hull(self) -> PairHull:
        """Polygon around all pairs that neighbouring data sets can make of the probabilities of a
        +1 bit, under one and under the other, in one transmitted entry of theta."""

    @property
    def deterministic(self) -> bool:
        """Whether a bit reveals the gradient's sign for certain, so that only the channel's noise
        hides it: then the event is a Gaussian mechanism."""
        return False

    @property
    def largest_loss(self) -> float:
        """Upper bound of the privacy loss at any gain and noise: the number of entries times the
        largest loss that one entry can have."""
        return self.hull.largest_loss * self.num_transmissions

    def tight_delta(self, epsilon: float) -> float:
        """Upper bound of the delta that goes with ``epsilon`` in standard differential privacy:
        from privacy losses added on a grid, or in closed form for deterministic bits."""
        if self.deterministic:
            return gaussian.delta(epsilon, self.mu)
        delta = composed_loss(self, REACH).delta(epsilon)
        return delta if delta > _TINY else composed_loss(self, FAR_REACH).delta(epsilon)

    def curve_delta(self, epsilon: float) -> float:
        """Upper bound of the delta that goes with ``epsilon`` in standard differential privacy,
        from a few laws of the summed loss that all epsilons of a curve share."""
        if self.deterministic or self.silent or epsilon >= self.largest_loss:
            return self.delta(epsilon)
        return composed_loss(self, REACH).curve_delta(epsilon)

    def solve_epsilon(self, delta: float) -> tuple[float, bool]:
        """Upper bound of the epsilon that goes with ``delta`` in standard differential privacy, and
        whether it is looser than usual because the exact sum of privacy losses would take too much
        work.

        It is the smallest of three bounds: the one from losses added on a grid; the largest
        possible loss; and, computed only if the first is loose, that of a Gaussian mechanism, as if
        bits had no randomness, which reveals more."""
        if self.deterministic:
            return gaussian.epsilon(delta, self.mu), False
        composed = composed_loss(self, REACH if delta > _TINY else FAR_REACH).afresh()
        epsilon = composed.epsilon(delta)
        if composed.loose or math.isinf(epsilon):
            certain = total_mu(2.0, self.noise_power, self.transmissions)
            return min(epsilon, self.largest_loss, gaussian.epsilon(delta, certain)), True
        return min(epsilon, self.largest_loss), False

    def averaged_delta(self, epsilon: float, rounds: int, chance: float) -> float:
        """Upper bound of the delta that goes with ``epsilon`` if this event, as one round, happens
        in each of ``rounds`` rounds with probability ``chance``, and everybody sees in which. The
        privacy loss of a round is mixed with the loss 0 of a silent round, and the losses of all
        rounds are added."""
        if self.deterministic:
            return super().averaged_delta(epsilon, rounds, chance)
        delta = composed_loss(self, REACH, rounds, chance).delta(epsilon)
        if delta > _TINY:
            return delta
        return composed_loss(self, FAR_REACH, rounds, chance).delta(epsilon)

    def averaged_curve_delta(self, epsilon: float, rounds: int, chance: float) -> float:
        """What :meth:`averaged_delta` returns, from a few laws of the summed loss that all epsilons
        of a curve share."""
        if self.deterministic:
            return self.averaged_delta(epsilon, rounds, chance)
        return composed_loss(self, REACH, rounds, chance).curve_delta(epsilon)

    def averaged_epsilon(self, delta: float, rounds: int, chance: float) -> tuple[float, bool]:
        """Upper bound of the epsilon that goes with ``delta`` if this event, as one round, happens
        in each of ``rounds`` rounds with probability ``chance``, and everybody sees in which; and
        whether the bound is looser than usual because the exact sum of privacy losses would take
        too much work."""
        if self.deterministic:
            return super().averaged_epsilon(delta, rounds, chance)
        reach = REACH if delta > _TINY else FAR_REACH
        composed = composed_loss(self, reach, rounds, chance).afresh()
        epsilon = composed.epsilon(delta)
        # The epsilon of the event in every one of the rounds is an upper bound too, and may be
        # smaller than a bound that is loose.
        if composed.loose or math.isinf(epsilon):
            worst, _ = self.repeated(rounds).tight_epsilon(delta)
            return min(epsilon, worst), True
        return epsilon, False

    def delta_without_noise(self, epsilon: float, criterion: str, num_devices: int | None) -> float:
        """Upper bound of the delta that goes with ``epsilon`` in standard differential privacy, in
        the limit of an infinite gain, where the noise changes no bit."""
        number = sum(count for gain, count in self.transmissions if gain > 0)
        loud = ((_LOUD * math.sqrt(self.noise_power), number),)
        event = dataclasses.replace(self, transmissions=loud)  # type: ignore[type-var]  # all are dataclasses
        return composed_loss(event, REACH).delta(epsilon)


# Cached: a search for a gain ends with the event whose epsilon is asked for next, and mostly both
# follow from the same sum of privacy losses.
@lru_cache(maxsize=16)
def composed_loss(
    event: ComposedEvent, reach: float, rounds: int = 1, chance: float = 1.0
) -> ComposedLoss:
    """Sum of the privacy losses of all entries of an event that happens in each of ``rounds``
    rounds with probability ``chance``; its deltas are upper bounds. A received value farther than
    ``reach`` standard deviations of the noise from a bit counts as an infinite loss."""
    hull, scale = event.hull, math.sqrt(event.noise_power)
    # Where bits are received without error, the losses of a symmetric pair are plus or minus the
    # largest one: they lie on a lattice.
    lattice = hull.lattice
    entries = []
    for gain, count in round_up(event.transmissions, MOST_GAINS):
        low, high = hull.loss_range(gain / scale, reach)
        profile = partial(hull.excess, amplitude=gain / scale)
        grid = partial(LossGrid.of_excess, profile, low, high)
        entries.append(EntryLoss(grid, low, high, hull.spread(gain / scale), count, lattice))
    fine = FINE if lattice and len(entries) <= _FEW else _FINE_FOR_MANY
    truncated = TRUNCATED if reach <= REACH else _FAR
    return ComposedLoss.of(entries, fine, truncated=truncated, rounds=rounds, chance=chance)
