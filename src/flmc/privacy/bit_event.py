"""Privacy event of bits whose probabilities are known in the worst case: all data of a device are
replaced.

The loss of one entry is that of :class:`~flmc.privacy.bit_pair.BitPair`; losses of many entries are
composed on a grid (``tight``) or bounded by their tails (``tail``, ``paper``)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from flmc.base.errors import InvalidSetting
from flmc.base.special import log_ndtr
from flmc.privacy import gaussian
from flmc.privacy.bit_pair import BitPair
from flmc.privacy.dominating_grid import align_step, dominating_grid
from flmc.privacy.event import Event
from flmc.privacy.loss_grid import ComposedLoss, LossGrid, choose_step, compose_affordably
from flmc.privacy.root_finding import largest_argument
from flmc.privacy.tails import LossLaw, exceedance
from flmc.privacy.transmissions import Transmissions, mu_of

SYMMETRY_TOLERANCE = 1e-12
"""Distance of high + low from 1 up to which a pair counts as symmetric: rounding of the link."""

_MANY = 1000
"""Entries sent from which on the loss is nearly Gaussian at the gains that a budget allows."""


@dataclass(frozen=True)
class BitEvent(Event):
    r"""Privacy event of bits that are +1 with one of two probabilities, :math:`\Phi(\pm\ell)`.

    Attributes
    ----------
    high, low
        Probability of +1 under one data set and under the other, :math:`\Phi(\ell) > \Phi(-\ell)`.
    noise_power
        Variance N_0 of the noise in an entry.
    transmissions
        Gains, each with the number of entries that were sent with it.
    """

    high: float
    low: float
    noise_power: float
    transmissions: Transmissions

    @property
    def symmetric(self) -> bool:
        """Whether high + low = 1: then both orders of the pair, and every mixture of them over
        entries, cost the same."""
        return abs(self.high + self.low - 1.0) <= SYMMETRY_TOLERANCE

    @property
    def deterministic(self) -> bool:
        """Whether a bit reveals the gradient's sign for certain, so that only the channel's noise
        hides it."""
        return self.symmetric and max(self.high, 1.0 - self.low) >= 1.0

    @property
    def probability(self) -> float:
        """Probability p of the symmetric pair (p, 1 - p); of two values that differ by rounding the
        more revealing one."""
        return max(self.high, 1.0 - self.low)

    @property
    def largest_loss(self) -> float:
        r"""Upper bound of the privacy loss at any signal-to-noise ratio.

        It is :math:`\ln(\Phi(\ell)/\Phi(-\ell))` for each entry if the pair is symmetric, else the
        larger of both orders."""
        with np.errstate(divide="ignore"):
            ratios = np.log1p((self.high - self.low) / np.array([self.low, 1.0 - self.high]))
        return float(np.max(ratios)) * self.num_transmissions

    @property
    def mu(self) -> float:
        """Distance of the means in standard deviations if bits are deterministic: they move
        by 2 A."""
        return mu_of(2.0, self.noise_power, self.transmissions)

    @property
    def pairs(self) -> list[tuple[BitPair, int]]:
        """Worst-case pair of every distinct gain, and the number of entries that were sent
        with it."""
        scale = math.sqrt(self.noise_power)
        high, low = (
            (self.probability, 1.0 - self.probability) if self.symmetric else (self.high, self.low)
        )
        return [
            (BitPair(high, low, gain / scale), count)
            for gain, count in self.transmissions
            if count and gain > 0
        ]

    def check_criterion(self, criterion: str, num_devices: int | None) -> None:
        """Refuse ``tail`` and ``paper`` for links that are not symmetric, and ``paper`` for one
        device.

        Parameters
        ----------
        criterion, num_devices
            One of ``CRITERIA``, and the number of devices in all.
        """
        if criterion == "tight":
            return
        if criterion == "paper" and (num_devices is None or num_devices < 2):
            raise InvalidSetting(
                "privacy 'paper' is not valid for one device: its bound leaves out the device's own"
                " symbol (at epsilon 5 it would allow a true delta of 0.145 instead of 0.01); use"
                " 'tight'"
            )
        if not self.symmetric:
            raise InvalidSetting(
                f"privacy {criterion!r} is proven only for links with Phi(-clip) = 1 - Phi(clip),"
                f" got {self.low:g} and {self.high:g}: neighbours may mix the two orders over"
                " entries; use 'tight'"
            )

    def delta_within_loss(self, epsilon: float, criterion: str, num_devices: int | None) -> float:
        """Upper bound of delta: composed on a grid, by tails, or in closed form for deterministic
        bits.

        Parameters
        ----------
        epsilon
            Epsilon below the largest loss.
        criterion, num_devices
            One of ``CRITERIA``, and the number of devices in all.
        """
        if criterion == "paper":
            return self._paper_delta(epsilon, num_devices or 2)
        if self.deterministic:
            return (gaussian.delta if criterion == "tight" else gaussian.tail_delta)(
                epsilon, self.mu
            )
        if criterion == "tail":
            return exceedance(self.losses, epsilon, both=True)
        return self.composed_loss().delta(epsilon)

    def tight_epsilon_if_sent(self, delta: float) -> tuple[float, bool]:
        """Upper bound of epsilon, never above the largest loss, and whether the grid was coarsened.

        Parameters
        ----------
        delta
            Probability with which the loss may be larger.
        """
        if self.deterministic:
            return gaussian.epsilon(delta, self.mu), False
        composed = self.composed_loss()
        return min(composed.epsilon(delta), self.largest_loss), composed.coarsened

    def composed_loss(self) -> ComposedLoss:
        """Distribution of the loss of all entries, as an upper bound (connect the dots, FFT)."""
        pairs = self.pairs
        if self.symmetric:
            step, coarsened = choose_step(pairs)
            step = align_step(step, pairs[0][0])
            return compose_affordably(
                lambda h: [(LossGrid.of_pair(pair, h), count) for pair, count in pairs],
                step,
                coarsened,
            )
        # A profile is known by its values only, whose rounding a very fine grid would amplify.
        step, coarsened = choose_step(pairs, per_spread=20)
        return compose_affordably(
            lambda h: [(dominating_grid(pair, h), count) for pair, count in pairs], step, coarsened
        )

    @property
    def losses(self) -> list[tuple[LossLaw, int]]:
        """Laws of the loss of one entry under the first data set, and their counts."""
        return [(LossLaw.under_first(pair), count) for pair, count in self.pairs]

    def _paper_delta(self, epsilon: float, num_devices: int) -> float:
        """Delta of the paper's bound, twice the probability that X exceeds epsilon.

        The event is {X > epsilon or Y < -epsilon} with w = z + A (K - 1) in X and its mirror image
        in Y."""
        if self.deterministic:  # the loss is linear in the noise
            mean = (num_devices - 1) * self.mu**2 / 2
            return min(1.0, 2 * math.exp(log_ndtr((mean - epsilon) / self.mu)))
        laws = [(LossLaw.of_paper(pair, num_devices), count) for pair, count in self.pairs]
        return min(1.0, 2 * exceedance(laws, epsilon))

    def delta_without_noise(self, epsilon: float, criterion: str, num_devices: int | None) -> float:
        """Delta when every bit is received as it was sent.

        Parameters
        ----------
        epsilon
            Epsilon below the largest loss.
        criterion, num_devices
            One of ``CRITERIA``, and the number of devices in all.
        """
        # Certain bits reveal everything; the paper's bound tends to the largest loss.
        if self.deterministic or criterion == "paper":
            return 1.0
        if self.symmetric:
            return self._delta_of_counts(epsilon, criterion)
        # No closed form for two orders: a gain so large that the noise changes no bit serves.
        loud = 1e6 * math.sqrt(self.noise_power) / self.softest
        return self.scaled(loud).delta(epsilon, criterion, num_devices)

    def _delta_of_counts(self, epsilon: float, criterion: str) -> float:
        """Delta of symmetric bits that are received without error: of n losses of plus or minus the
        same size, k are positive."""
        n, p = self.num_transmissions, self.probability
        # ln(p/(1 - p)), with the digits that the quotient loses for p near 1/2.
        each = math.log1p((2.0 * p - 1.0) / (1.0 - p))
        k = np.arange(n + 1)
        ways = math.lgamma(n + 1) - np.array(
            [math.lgamma(i + 1) + math.lgamma(n - i + 1) for i in range(n + 1)]
        )
        mass = np.exp(ways + k * math.log(p) + (n - k) * math.log1p(-p))
        loss = (2 * k - n) * each
        if criterion == "tail":
            found = mass[np.abs(loss) > epsilon * (1 - 1e-12)].sum()
        else:
            found = (mass * -np.expm1(np.minimum(epsilon - loss, 0.0))).sum()
        return float(found) * (1 + 1e-8)  # rounded up, logarithms of large factorials too

    def guess_gain(self, epsilon: float, delta: float) -> float | None:
        """Gain by the Gaussian mechanism whose means differ as much as those of the bits, where so
        much is sent that gains are small; else None.

        Parameters
        ----------
        epsilon, delta
            The budget.
        """
        if self.num_transmissions < _MANY:
            return None
        apart = 2.0 * (self.high - self.low)
        like = gaussian.GaussianEvent(apart, self.noise_power, self.transmissions)
        return like.allowed_gain(epsilon, delta)

    def solve_gain(
        self, epsilon: float, delta: float, criterion: str, num_devices: int | None
    ) -> float:
        """Factor of all gains within the budget; by ``tail`` one below which no gain breaks it
        either.

        Parameters
        ----------
        epsilon, delta
            The budget.
        criterion, num_devices
            One of ``CRITERIA``, and the number of devices in all.
        """
        found = super().solve_gain(epsilon, delta, criterion, num_devices)
        # Only `tail` may fail at a smaller gain than one at which it holds.
        if criterion != "tail" or self.deterministic or found == 0 or epsilon >= self.largest_loss:
            return found
        return self._below_first_violation(
            self.spender(epsilon, criterion, num_devices), epsilon, delta, found
        )

    def _below_first_violation(
        self, spent: Callable[[float], float], epsilon: float, delta: float, found: float
    ) -> float:
        """Factor of all gains below which ``tail`` holds throughout.

        This criterion may hold again as the gain grows, where bits are received nearly without
        error: so every gain below the one that was found is tried too, on a ladder of 10 % steps;
        by a quick bound first."""

        def breaks(gain: float) -> bool:
            quick = exceedance(self.scaled(gain).losses, epsilon, both=True, quick=True)
            return quick > delta and spent(gain) > delta

        top = min(
            found, 12.0 * math.sqrt(self.noise_power) / self.softest
        )  # beyond, the noise changes no bit
        first = min(min(1.0, epsilon) / self.mu, top) / 2
        while breaks(first):
            first /= 2
        ladder = np.geomspace(first, top, 2 + int(math.log(top / first) / 0.1)).tolist()
        for low, high in itertools.pairwise(ladder):
            if breaks(high):
                return largest_argument(lambda gain: spent(gain) - delta, low, high, tolerance=1e-9)
        return found
