"""Privacy event of one-bit symbols when all data of a device are replaced: the worst-case
probability of a +1 bit is then known for both data sets.

Privacy losses of many entries are composed on a grid (criterion ``tight``), or the tails of their
sum are bounded (``tail``, ``paper``)."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import partial

import numpy as np

from flmc.base.errors import InvalidSetting
from flmc.base.special import log_ndtr
from flmc.privacy import gaussian
from flmc.privacy.bit_pairs import PairHull
from flmc.privacy.bit_tails import BitLossLaw, BitPair, exceedance
from flmc.privacy.composed_event import ComposedEvent
from flmc.privacy.event import CRITERIA, GainSearch
from flmc.privacy.root_finding import largest_argument
from flmc.privacy.transmissions import Transmissions, total_mu

SYMMETRY_TOLERANCE = 1e-12
"""Difference of high + low from 1 up to which the two probabilities of a +1 bit count as symmetric:
computed values of links are rounded."""

_MANY, _NEAR, _FAR = 1000, 0.02, 0.15
"""Number of entries from which on the privacy loss is nearly Gaussian at the gains that a budget
allows; and, for a search of the gain that begins at the Gaussian one, its first step in logarithms:
with so many entries or more, and with fewer."""
_SUMMED = 64
"""Number of bits up to which the tail of a binomial distribution is summed term by term; for more
it is bounded."""


@dataclass(frozen=True)
class BitEvent(ComposedEvent):
    r"""Privacy event of bits that are +1 with probability :math:`\Phi(\ell)` under one data set and
    :math:`\Phi(-\ell)` under the other, with the link :math:`\Phi` and the clip :math:`\ell`."""

    high: float
    r"""Probability of a +1 bit under one data set, :math:`\Phi(\ell)` with the link :math:`\Phi`
    and the clip :math:`\ell`."""
    low: float
    r"""Probability of a +1 bit under the other data set, :math:`\Phi(-\ell)` with the link
    :math:`\Phi` and the clip :math:`\ell`; below ``high``."""
    noise_power: float
    transmissions: Transmissions

    @property
    def symmetric(self) -> bool:
        """Whether the probabilities of +1 under the two data sets, ``high`` and ``low``, add up to
        1, up to rounding: then either order of the data sets, and every mixture of the orders over
        entries, costs the same."""
        return abs(self.high + self.low - 1.0) <= SYMMETRY_TOLERANCE

    @property
    def error(self) -> float:
        """Probability of the less likely bit: 1 - p for the symmetric pair (p, 1 - p). Where
        rounding makes the pair's two values differ, it is the more revealing one."""
        return min(self.low, 1.0 - self.high)

    @property
    def deterministic(self) -> bool:
        """Whether a bit reveals the gradient's sign for certain, so that only the channel's noise
        hides the data."""
        return self.symmetric and self.error <= 0.0

    @property
    def hull(self) -> PairHull:
        """Polygon around all pairs of bit probabilities that neighbouring data can make: one pair,
        or both orders of a pair that is not symmetric, because neighbours may mix the orders over
        entries."""
        if self.symmetric:
            return PairHull.of([(self.error, self.error)])
        return PairHull.of([(self.low, 1.0 - self.high), (1.0 - self.high, self.low)])

    @property
    def mu(self) -> float:
        """Distance of the means of the received entry, in standard deviations of the noise, if
        bits are deterministic: replacing the data then moves a received entry by 2 A, A being
        the gain."""
        return total_mu(2.0, self.noise_power, self.transmissions)

    @property
    def pairs(self) -> list[tuple[BitPair, int]]:
        """Worst-case pair of bit probabilities at each positive gain, and the number of entries
        sent with that gain; meaningful for a symmetric event only."""
        scale, error = math.sqrt(self.noise_power), self.error
        return [
            (BitPair(1.0 - error, error, gain / scale), count)
            for gain, count in self.transmissions
            if count and gain > 0
        ]

    @property
    def criteria(self) -> tuple[str, ...]:
        """Criteria that are proven: every one for a symmetric pair of bit probabilities, else
        ``tight`` alone, because neighbouring data may mix the two orders of the pair over
        entries."""
        return CRITERIA if self.symmetric else ("tight",)

    def check_criterion(self, criterion: str, num_devices: int | None) -> None:
        """Raise ``InvalidSetting`` for the criteria ``tail`` and ``paper`` if the link is not
        symmetric, and for ``paper`` with fewer than two devices."""
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

    def tail_delta(self, epsilon: float, criterion: str, num_devices: int | None) -> float:
        """Upper bound of the delta that goes with ``epsilon`` by the criterion ``tail`` or
        ``paper``, from the tails of the privacy loss; in closed form for deterministic bits."""
        if criterion == "paper":
            return self._paper_delta(epsilon, num_devices or 2)
        if self.deterministic:
            return gaussian.tail_delta(epsilon, self.mu)
        return exceedance(self.losses, epsilon, both=True)

    @property
    def losses(self) -> list[tuple[BitLossLaw, int]]:
        """Law of one entry's privacy loss under the first data set for each distinct gain, and the
        number of entries that were sent with it."""
        return [(BitLossLaw.under_first(pair), count) for pair, count in self.pairs]

    def _paper_delta(self, epsilon: float, num_devices: int) -> float:
        """Delta that goes with ``epsilon`` by the paper's bound X of the privacy loss: twice the
        probability that X exceeds epsilon.

        X is the loss at the received value w = z + A (K - 1), with noise z, gain A and K =
        ``num_devices``. Twice, because the mirror image of X, for the other sign of the loss, may
        fall below -epsilon too."""
        if self.deterministic:  # The loss is linear in the noise, so its tail has a closed form.
            mean = (num_devices - 1) * self.mu**2 / 2
            return min(1.0, 2 * math.exp(log_ndtr((mean - epsilon) / self.mu)))
        laws = [(BitLossLaw.of_paper(pair, num_devices), count) for pair, count in self.pairs]
        return min(1.0, 2 * exceedance(laws, epsilon))

    def delta_without_noise(self, epsilon: float, criterion: str, num_devices: int | None) -> float:
        """Delta that goes with ``epsilon`` when every bit is received as it was sent, so that only
        the randomness of bits hides the data."""
        # Without noise certain bits reveal everything, and the paper's bound of the loss tends to
        # the largest loss, above epsilon: delta is 1.
        if self.deterministic or criterion == "paper":
            return 1.0
        if criterion == "tail":
            return self._tail_of_counts(epsilon)
        return super().delta_without_noise(epsilon, criterion, num_devices)

    def _tail_of_counts(self, epsilon: float) -> float:
        """Probability that the magnitude of the sum of the entries' privacy losses exceeds epsilon,
        for symmetric bits that are received without error: of n losses of plus or minus the same
        size, k are positive."""
        n, error = self.num_transmissions, self.error
        # The logarithm of p/(1 - p), in a form that keeps the digits which the quotient loses for p
        # near 1/2.
        each = math.log1p((1.0 - 2.0 * error) / error)
        # Only numbers k of positive losses within 40 standard deviations of their mean have a
        # probability that counts.
        mean, reach = n * (1.0 - error), 40.0 * math.sqrt(n * error * (1.0 - error)) + 40.0
        k = np.arange(max(0, math.floor(mean - reach)), min(n, math.ceil(mean + reach)) + 1)
        ways = np.array([_log_choose(n, int(i)) for i in k])
        mass = np.exp(ways + k * math.log1p(-error) + (n - k) * math.log(error))
        beyond = float(mass[np.abs((2 * k - n) * each) > epsilon * (1 - 1e-12)].sum())
        # raised by a relative 1e-8, because logarithms of large factorials are rounded
        return min(1.0, beyond * (1 + 1e-8))

    def gain_search(self, epsilon: float, delta: float, criterion: str) -> GainSearch:
        """Settings of the search for the allowed gain: by the criterion ``tight`` it begins at the
        gain of the Gaussian mechanism whose means differ as much as those of the bits, which is
        close to the allowed gain if so much is sent that gains are small."""
        if criterion != "tight":
            return super().gain_search(epsilon, delta, criterion)
        apart = 2.0 * (self.high - self.low)
        like = gaussian.GaussianEvent(apart, self.noise_power, self.transmissions)
        step = _NEAR if self.num_transmissions >= _MANY else _FAR
        start = like.allowed_gain(epsilon, delta)
        return GainSearch(start, step, limited=self.surely_limited(epsilon, delta))

    def surely_limited(self, epsilon: float, delta: float) -> bool:
        r"""Whether it is known at little cost that some gain breaks the budget by the criterion
        ``tight``; False if it is not known.

        Of n symmetric bits that are received as they were sent, k have the loss :math:`a =
        \ln(p/(1-p))`, the others :math:`-a`. Delta is at least :math:`1 - 1/e` times the
        probability that their sum, (2 k - n) a, is :math:`\epsilon + 1` or more: summed up for few
        bits, and by Hoeffding's inequality for many. It spares the exact delta at an infinite gain,
        which is costly."""
        if not self.symmetric or self.error <= 0.0:
            return False
        number = sum(count for gain, count in self.transmissions if gain > 0)
        error, right = self.error, 1.0 - self.error
        each = math.log1p((1.0 - 2.0 * error) / error)
        if not each > 0:
            return False
        # the smallest number k of positive losses whose sum with the others, (2 k - n) a, reaches
        # epsilon + 1
        wanted = (number + (epsilon + 1.0) / each) / 2.0 * (1 + 1e-12)
        if number > _SUMMED:
            short = number * right - wanted
            likely = -math.expm1(-2.0 * short * short / number) if short > 0 else 0.0
        else:
            likely = math.fsum(
                math.comb(number, k) * right**k * error ** (number - k)
                for k in range(math.ceil(wanted), number + 1)
            )
        return likely * -math.expm1(-1.0) > delta * (1 + 1e-6)

    def below_violations(
        self, gain: float, epsilon: float, delta: float, criterion: str, num_devices: int | None
    ) -> float:
        """Largest factor up to ``gain`` below which no gain breaks the budget.

        By the criterion ``tail`` alone a budget may be broken at a gain and kept at a larger one,
        at which bits are received nearly without error. So smaller gains are tried too, in steps of
        10 %, each first with a bound of delta that is quick to compute."""
        if criterion != "tail" or self.deterministic or gain == 0 or epsilon >= self.largest_loss:
            return gain
        spent = partial(
            self.delta_at_gain, epsilon=epsilon, criterion=criterion, num_devices=num_devices
        )

        def breaks(factor: float) -> bool:
            """Whether the gains times ``factor`` break the budget; the exact delta is computed only
            if a bound that is quick to compute does not settle it."""
            quick = exceedance(self.scaled(factor).losses, epsilon, both=True, quick=True)
            return quick > delta and spent(factor) > delta

        # Noise changes no bit whose amplitude is beyond 12 of its standard deviations.
        top = min(gain, 12.0 * math.sqrt(self.noise_power) / self.softest)
        first = min(min(1.0, epsilon) / self.mu, top) / 2
        while breaks(first):
            first /= 2
        ladder = np.geomspace(first, top, 2 + int(math.log(top / first) / 0.1)).tolist()
        for low, high in itertools.pairwise(ladder):
            # The caller's search ended at `gain` because that gain keeps the budget: it is not
            # tried again.
            if high != gain and breaks(high):
                return largest_argument(lambda x: spent(x) - delta, low, high, tolerance=1e-9)
        return gain


def _log_choose(n: int, k: int) -> float:
    """Logarithm of the binomial coefficient n over k."""
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
