"""Privacy event of bits whose probabilities are known in the worst case: all data of a device are
replaced.

Losses of many entries are composed on a grid (``tight``) or bounded by their tails (``tail``,
``paper``)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from flmc.base.errors import InvalidSetting
from flmc.base.special import log_ndtr
from flmc.privacy import gaussian
from flmc.privacy.bit_pairs import PairHull
from flmc.privacy.bit_tails import BitPair, LossLaw, exceedance
from flmc.privacy.composed_loss import (
    composed_delta,
    composed_epsilon,
    delta_of_loud_bits,
    limited_without_noise,
)
from flmc.privacy.event import CRITERIA, Event
from flmc.privacy.root_finding import largest_argument
from flmc.privacy.transmissions import Transmissions, mu_of

SYMMETRY_TOLERANCE = 1e-12
"""Distance of high + low from 1 up to which a pair counts as symmetric: rounding of the link."""

_MANY, _NEAR, _FAR = 1000, 0.02, 0.15
"""Entries sent from which on the loss is nearly Gaussian at the gains that a budget allows; first
steps of a search from the Gaussian gain, in logarithms, from there on and below."""


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
    def error(self) -> float:
        """Probability 1 - p of the symmetric pair (p, 1 - p); of two values that differ by rounding
        the more revealing one."""
        return min(self.low, 1.0 - self.high)

    @property
    def deterministic(self) -> bool:
        """Whether a bit reveals the gradient's sign for certain, so that only the channel's noise
        hides it."""
        return self.symmetric and self.error <= 0.0

    @property
    def hull(self) -> PairHull:
        """All pairs that neighbours can make: one, or both orders of one that is not symmetric,
        because neighbours may mix the orders over entries."""
        if self.symmetric:
            return PairHull.of([(self.error, self.error)])
        return PairHull.of([(self.low, 1.0 - self.high), (1.0 - self.high, self.low)])

    @property
    def largest_loss(self) -> float:
        r"""Upper bound of the privacy loss at any signal-to-noise ratio.

        It is :math:`\ln(\Phi(\ell)/\Phi(-\ell))` for each entry if the pair is symmetric, else the
        larger of both orders."""
        return self.hull.largest_loss * self.num_transmissions

    @property
    def mu(self) -> float:
        """Distance of the means in standard deviations if bits are deterministic: they move
        by 2 A."""
        return mu_of(2.0, self.noise_power, self.transmissions)

    @property
    def pairs(self) -> list[tuple[BitPair, int]]:
        """Symmetric worst-case pair of every distinct gain, and the number of entries that were
        sent with it."""
        scale, error = math.sqrt(self.noise_power), self.error
        return [
            (BitPair(1.0 - error, error, gain / scale), count)
            for gain, count in self.transmissions
            if count and gain > 0
        ]

    @property
    def criteria(self) -> tuple[str, ...]:
        """Every criterion for a symmetric pair, else ``tight``: neighbours may mix the two orders
        over entries."""
        return CRITERIA if self.symmetric else ("tight",)

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
        return composed_delta(self, epsilon)

    def tight_epsilon_if_sent(self, delta: float) -> tuple[float, bool]:
        """Upper bound of epsilon, never above the largest loss, and whether the grid was coarsened.

        Parameters
        ----------
        delta
            Probability with which the loss may be larger.
        """
        if self.deterministic:
            return gaussian.epsilon(delta, self.mu), False
        return composed_epsilon(self, delta)

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
        if criterion == "tail":
            return self._tail_of_counts(epsilon)
        return delta_of_loud_bits(self, epsilon)

    def _tail_of_counts(self, epsilon: float) -> float:
        """Pr(abs(loss) > epsilon) of symmetric bits that are received without error: of n losses of
        plus or minus the same size, k are positive."""
        n, error = self.num_transmissions, self.error
        # ln(p/(1 - p)), with the digits that the quotient loses for p near 1/2.
        each = math.log1p((1.0 - 2.0 * error) / error)
        # Only counts within 40 standard deviations of the mean have mass.
        mean, reach = n * (1.0 - error), 40.0 * math.sqrt(n * error * (1.0 - error)) + 40.0
        k = np.arange(max(0, math.floor(mean - reach)), min(n, math.ceil(mean + reach)) + 1)
        ways = np.array([_log_choose(n, int(i)) for i in k])
        mass = np.exp(ways + k * math.log1p(-error) + (n - k) * math.log(error))
        found = mass[np.abs((2 * k - n) * each) > epsilon * (1 - 1e-12)].sum()
        return min(1.0, float(found) * (1 + 1e-8))  # logarithms of large factorials are rounded

    def guess_gain(self, epsilon: float, delta: float) -> tuple[float, float]:
        """Gain by the Gaussian mechanism whose means differ as much as those of the bits, which is
        close where so much is sent that gains are small, and how far to look from it.

        Parameters
        ----------
        epsilon, delta
            The budget.
        """
        apart = 2.0 * (self.high - self.low)
        like = gaussian.GaussianEvent(apart, self.noise_power, self.transmissions)
        near = _NEAR if self.num_transmissions >= _MANY else _FAR
        return like.allowed_gain(epsilon, delta), near

    def surely_limited(self, epsilon: float, delta: float) -> bool:
        """Whether it is known at once that some gain breaks the budget by ``tight``.

        Parameters
        ----------
        epsilon, delta
            The budget.
        """
        if not self.symmetric or self.error <= 0.0:
            return False
        number = sum(count for gain, count in self.transmissions if gain > 0)
        return limited_without_noise(self.error, number, epsilon, delta)

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
            # The gain that was found keeps the budget: so ended the search for it.
            if high != found and breaks(high):
                return largest_argument(lambda gain: spent(gain) - delta, low, high, tolerance=1e-9)
        return found


def _log_choose(n: int, k: int) -> float:
    """Logarithm of the number of ways to choose k of n."""
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
