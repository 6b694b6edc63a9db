"""Privacy event of bits of a gradient entry that one example moves, from an unknown place.

The worst place differs with epsilon, so the profile of one entry is the supremum over places
(:mod:`flmc.privacy.bits.moved_bit`)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from flmc.privacy.bit_event import BitEvent
from flmc.privacy.bits.composition import (
    composed_delta,
    composed_epsilon,
    delta_of_loud_bits,
)
from flmc.privacy.bits.moved_bit import MovableLink, hull_of_moves
from flmc.privacy.bits.pair_hull import PairHull
from flmc.privacy.event import Event
from flmc.privacy.refusals import refuse_tails
from flmc.privacy.root_finding import largest_gain
from flmc.privacy.transmissions import Transmissions, mu_of


@dataclass(frozen=True)
class ShiftedBitEvent(Event):
    """Privacy event of bits of a gradient entry that moves by at most ``shift`` when one example is
    replaced.

    Attributes
    ----------
    link
        Probability of +1 given the clipped gradient, with a log-concave density.
    clip
        Bound of the gradient entry, which lies anywhere in [-clip, clip].
    shift
        Largest move of the gradient entry, twice the example clip.
    noise_power
        Variance N_0 of the noise in an entry.
    transmissions
        Gains, each with the number of entries that were sent with it.
    """

    link: MovableLink
    clip: float
    shift: float
    noise_power: float
    transmissions: Transmissions

    @property
    def hull(self) -> PairHull:
        """Polygon around all pairs that neighbours can make, wherever the gradient is."""
        return _hull(self.link, self.clip, self.shift)

    @property
    def largest_loss(self) -> float:
        """Upper bound of the privacy loss at any signal-to-noise ratio."""
        return self.hull.largest_loss * self.num_transmissions

    @property
    def mu(self) -> float:
        """Distance of the means if the bits' expectations were sent: the size of a search's first
        step."""
        moved = float(np.max(self.hull.gap))
        return mu_of(2.0 * moved, self.noise_power, self.transmissions)

    def check_criterion(self, criterion: str, num_devices: int | None) -> None:
        """Refuse every criterion but ``tight``, which alone is proven.

        Parameters
        ----------
        criterion, num_devices
            One of ``CRITERIA``; the number of devices is not used.
        """
        refuse_tails("neighbouring 'example'", criterion, "the worst case is not one pair")

    def delta_within_loss(self, epsilon: float, criterion: str, num_devices: int | None) -> float:
        """Upper bound of delta, from the composed loss of all entries.

        Parameters
        ----------
        epsilon
            Epsilon below the largest loss.
        criterion, num_devices
            Not used: only ``tight`` is accepted.
        """
        return composed_delta(self, epsilon)

    def tight_epsilon_if_sent(self, delta: float) -> tuple[float, bool]:
        """Upper bound of epsilon, never above the largest loss, and whether the grid was coarsened.

        Parameters
        ----------
        delta
            Probability with which the loss may be larger.
        """
        return composed_epsilon(self, delta)

    def delta_without_noise(self, epsilon: float, criterion: str, num_devices: int | None) -> float:
        """Upper bound of delta at a gain so large that the noise changes no bit.

        Parameters
        ----------
        epsilon
            Epsilon below the largest loss.
        criterion, num_devices
            Passed on; only ``tight`` is accepted.
        """
        return delta_of_loud_bits(self, epsilon)

    def solve_gain(
        self, epsilon: float, delta: float, criterion: str, num_devices: int | None
    ) -> float:
        """Factor of all gains within the budget, by few trials, because every trial is costly.

        Parameters
        ----------
        epsilon, delta
            The budget.
        criterion, num_devices
            Only ``tight`` is accepted; the number of devices is not used.
        """
        # The pair in the middle is quick to account and allows about as much: begin near its gain.
        x = np.array([-min(self.shift / 2, self.clip)])
        low = float(self.link.moved(x, self.shift).low[0])
        near = BitEvent(1.0 - low, low, self.noise_power, self.transmissions)
        guess = near.allowed_gain(epsilon, delta)
        spent = self.spender(epsilon, criterion, num_devices)
        if math.isinf(guess):  # in the middle every gain is allowed
            scale = math.sqrt(self.noise_power) / self.softest
            return largest_gain(spent, delta, scale, tolerance=1e-5)
        # A budget that the pair in the middle breaks is broken by all pairs together.
        limited = near.surely_limited(epsilon, delta)
        return largest_gain(spent, delta, guess, 0.01, 1e-5, limited=limited)


@lru_cache(maxsize=64)
def _hull(link: MovableLink, clip: float, shift: float) -> PairHull:
    """Polygon around the pairs of a link, kept: searches for a gain ask for it again and again."""
    return hull_of_moves(link, clip, shift)
