"""Privacy event of bits of a gradient entry that one example moves, from an unknown place.

The worst place differs with epsilon, so the profile of one entry is the supremum over places
(:mod:`flmc.privacy.worst_centre`)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from flmc.base.arrays import Array
from flmc.privacy.bit_event import SYMMETRY_TOLERANCE, BitEvent
from flmc.privacy.bit_pair import BitPair
from flmc.privacy.event import Event, refuse_tails
from flmc.privacy.loss_grid import ComposedLoss, LossGrid, choose_step, compose_affordably
from flmc.privacy.root_finding import largest_gain
from flmc.privacy.transmissions import Transmissions, mu_of
from flmc.privacy.worst_centre import ProbabilityCurve, worst_profile


@dataclass(frozen=True)
class ShiftedBitEvent(Event):
    """Privacy event of bits of a gradient entry that moves by at most ``shift`` when one example is
    replaced.

    Attributes
    ----------
    link
        Probability of +1 given the clipped gradient.
    clip
        Bound of the gradient entry, which lies anywhere in [-clip, clip].
    shift
        Largest move of the gradient entry, twice the example clip.
    noise_power
        Variance N_0 of the noise in an entry.
    transmissions
        Gains, each with the number of entries that were sent with it.
    """

    link: ProbabilityCurve
    clip: float
    shift: float
    noise_power: float
    transmissions: Transmissions

    @property
    def largest_loss(self) -> float:
        """Upper bound of the privacy loss at any signal-to-noise ratio, over a fine grid of
        places."""
        # The probability is taken a step further than the shift, so that the loss between two
        # places of the grid is covered too.
        step = self.shift / 64
        x = np.linspace(-self.clip, self.clip - self.shift, 4096)
        step = max(step, x[1] - x[0])
        high = self.link.probability(np.minimum(x + self.shift + step, self.clip))
        low = self.link.probability(x)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = np.log(high) - np.log(low)
            # For an odd link bits of +1 say it all: those of -1 are the same at the opposite place,
            # where probabilities near 1 are not rounded.
            if np.max(np.abs(low + self.link.probability(-x) - 1.0)) > SYMMETRY_TOLERANCE:
                ratios = np.maximum(ratios, np.log1p(-low) - np.log1p(-high))
        return (
            float(np.max(np.nan_to_num(ratios, nan=np.inf, posinf=np.inf))) * self.num_transmissions
        )

    @property
    def mu(self) -> float:
        """Distance of the means if the bits' expectations were sent: the size of a search's first
        step."""
        x = np.linspace(-self.clip, self.clip - self.shift, 1001)
        moved = float(np.max(self.link.probability(x + self.shift) - self.link.probability(x)))
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
        return self.composed_loss().delta(epsilon)

    def tight_epsilon_if_sent(self, delta: float) -> tuple[float, bool]:
        """Upper bound of epsilon, never above the largest loss, and whether the grid was coarsened.

        Parameters
        ----------
        delta
            Probability with which the loss may be larger.
        """
        composed = self.composed_loss()
        return min(composed.epsilon(delta), self.largest_loss), composed.coarsened

    def delta_without_noise(self, epsilon: float, criterion: str, num_devices: int | None) -> float:
        """Upper bound of delta at a gain so large that the noise changes no bit.

        Parameters
        ----------
        epsilon
            Epsilon below the largest loss.
        criterion, num_devices
            Passed on; only ``tight`` is accepted.
        """
        loud = 1e6 * math.sqrt(self.noise_power) / self.softest
        return self.scaled(loud).delta(epsilon, criterion, num_devices)

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
        spent = self.spender(epsilon, criterion, num_devices)
        # The pair in the middle is quick to account and allows about as much: begin near its gain.
        x = np.array([self.shift / 2, -self.shift / 2])
        high, low = (float(value) for value in self.link.probability(x))
        near = BitEvent(high, low, self.noise_power, self.transmissions)
        guess = near.allowed_gain(epsilon, delta)
        if math.isinf(guess):  # in the middle every gain is allowed
            return largest_gain(
                spent, delta, math.sqrt(self.noise_power) / self.softest, tolerance=1e-4
            )
        return largest_gain(spent, delta, guess * 0.98, bracket=0.02, tolerance=1e-4)

    def composed_loss(self) -> ComposedLoss:
        """Distribution of the loss of all entries; the profile of one entry is that of the worst
        place, for every epsilon."""
        (high, low), step, coarsened = self._grid()
        scale = math.sqrt(self.noise_power)
        sent = [(gain / scale, count) for gain, count in self.transmissions if count and gain > 0]
        bound = self.largest_loss / self.num_transmissions

        def part(amplitude: float, step: float) -> LossGrid:
            # A little further than at the places that were tried, which are a grid.
            reach = min(bound, _loss_within_reach(high, low, amplitude)) * 1.05 + step

            def profile(epsilon: Array) -> Array:
                return worst_profile(self.link, self.clip, self.shift, amplitude, epsilon)

            return LossGrid.of_profile(profile, -reach, reach, step, bound)

        return compose_affordably(
            lambda h: [(part(amplitude, h), count) for amplitude, count in sent], step, coarsened
        )

    def _grid(self) -> tuple[tuple[Array, Array], float, bool]:
        """Probabilities at some places with and without the example, the step of the loss grid, and
        whether it is coarse.

        The step is chosen by the place where the two probabilities differ most."""
        x = np.linspace(-self.clip, self.clip - self.shift, 201)
        high, low = (
            self.link.probability(np.minimum(x + self.shift, self.clip)),
            self.link.probability(x),
        )
        widest = int(np.argmax(high - low))
        at_worst = BitEvent(
            float(high[widest]), float(low[widest]), self.noise_power, self.transmissions
        )
        # Every point of the grid costs a supremum over places: fewer points than for a known pair.
        return (high, low), *choose_step(at_worst.pairs, per_spread=12, typical=True)


def _loss_within_reach(high: Array, low: Array, amplitude: float) -> float:
    """Largest magnitude of the loss within reach of the noise, over some places."""
    pairs = [BitPair(float(p), float(q), amplitude) for p, q in zip(high, low, strict=True)]
    return max(max(abs(end) for end in pair.loss_range) for pair in pairs)
