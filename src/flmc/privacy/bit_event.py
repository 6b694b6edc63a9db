"""Privacy event of one-bit symbols if neighbouring data sets differ in all data of one device. In
the worst case every gradient entry then moves from one end of the clipping interval to the other,
so the probability of a +1 bit is known under both data sets.

For standard differential privacy (criterion ``tight``) the privacy losses of all entries are added
on a grid; for the paper's criteria (``tail``, ``paper``) the tails of their sum are bounded."""

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
"""The probabilities of a +1 bit under two data sets count as symmetric if their sum differs from 1
by at most this, because the computed values of links are rounded."""

_MANY, _NEAR, _FAR = 1000, 0.02, 0.15
"""Three constants of the search for the allowed gain, which starts at the gain that a Gaussian
mechanism would be allowed: ``_NEAR`` is its first step, in the natural logarithm of the gain, if at
least ``_MANY`` entries are sent, so that the summed privacy loss is nearly Gaussian; ``_FAR`` is
the first step with fewer entries."""
_SUMMED = 64
"""Number of bits up to which the tail of a binomial distribution is summed term by term; for more
bits Hoeffding's inequality bounds the tail."""


@dataclass(frozen=True)
class BitEvent(ComposedEvent):
    r"""Privacy event of bits that are +1 with probability :math:`\Phi(\ell)` under one data set and
    :math:`\Phi(-\ell)` under the other, with the link :math:`\Phi` and the clip :math:`\ell`. The
    bits are received with the gains in ``transmissions``, each with its number of entries, in noise
    of variance ``noise_power``."""

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
        """Whether ``high`` and ``low``, the probabilities of +1 under the two data sets, add up to
        1 (up to rounding). Exchanging the two data sets, in all entries or in some, then leaves the
        privacy cost the same."""
        return abs(self.high + self.low - 1.0) <= SYMMETRY_TOLERANCE

    @property
    def error(self) -> float:
        """Probability of the less likely bit, 1 - p, if a bit is +1 with probability p under one
        data set and 1 - p under the other: the smaller one of ``low`` and 1 - ``high``, which then
        differ by rounding only."""
        return min(self.low, 1.0 - self.high)

    @property
    def deterministic(self) -> bool:
        """Whether a bit gives the sign of the gradient for certain in the worst case, so that only
        the channel's noise hides the data."""
        return self.symmetric and self.error <= 0.0

    @property
    def hull(self) -> PairHull:
        """Polygon around all pairs that neighbouring data sets can give to the probabilities of a
        +1 bit in one entry. It has one vertex if ``high`` and ``low`` add up to 1. Otherwise it has
        one vertex for each order of the two probabilities, because the larger one may belong to the
        first data set in some entries and to the second in others."""
        if self.symmetric:
            return PairHull.of([(self.error, self.error)])
        return PairHull.of([(self.low, 1.0 - self.high), (1.0 - self.high, self.low)])

    @property
    def mu(self) -> float:
        """Distance of the means of a Gaussian mechanism, in standard deviations of the noise: the
        root of the sum of :math:`(2 A)^2/N_0` over all entries. Replacing the data moves a received
        entry by twice its gain A if bits have no randomness; the noise power is :math:`N_0`."""
        return total_mu(2.0, self.noise_power, self.transmissions)

    @property
    def pairs(self) -> list[tuple[BitPair, int]]:
        """Worst-case probabilities of a +1 bit under the two data sets at each positive gain, with
        the number of entries that are sent with that gain; valid only if ``symmetric``."""
        scale, error = math.sqrt(self.noise_power), self.error
        return [
            (BitPair(1.0 - error, error, gain / scale), count)
            for gain, count in self.transmissions
            if count and gain > 0
        ]

    @property
    def criteria(self) -> tuple[str, ...]:
        """Names of the privacy criteria that are proven for this event: ``tight`` (standard
        differential privacy) always, ``tail`` and ``paper`` (of the paper) only if the
        probabilities ``high`` and ``low`` add up to 1."""
        return CRITERIA if self.symmetric else ("tight",)

    def check_criterion(self, criterion: str, num_devices: int | None) -> None:
        """Raise ``InvalidSetting`` for the criteria ``tail`` and ``paper`` if ``high`` and ``low``
        do not add up to 1, and for ``paper`` unless ``num_devices`` is at least 2."""
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
        """Upper bound of the probability that the magnitude of the privacy loss exceeds
        ``epsilon``: of the loss itself by the criterion ``tail``, of the paper's bound of the loss
        by ``paper``."""
        if criterion == "paper":
            return self._paper_delta(epsilon, num_devices or 2)
        if self.deterministic:
            return gaussian.tail_delta(epsilon, self.mu)
        return exceedance(self.losses, epsilon, both=True)

    @property
    def losses(self) -> list[tuple[BitLossLaw, int]]:
        """Law of one entry's privacy loss under the first data set for each distinct positive gain,
        with the number of entries that are sent with that gain."""
        return [(BitLossLaw.under_first(pair), count) for pair, count in self.pairs]

    def _paper_delta(self, epsilon: float, num_devices: int) -> float:
        """Probability that the magnitude of the paper's bound X of the privacy loss exceeds
        ``epsilon``, from above: twice the probability that X exceeds epsilon, because the bound for
        the other sign of the loss is the mirror image of X.

        X is the privacy loss at the received value w = z + A (K - 1), with noise z, gain A and K =
        ``num_devices``."""
        if self.deterministic:  # The loss is linear in the noise, so its tail has a closed form.
            mean = (num_devices - 1) * self.mu**2 / 2
            return min(1.0, 2 * math.exp(log_ndtr((mean - epsilon) / self.mu)))
        laws = [(BitLossLaw.of_paper(pair, num_devices), count) for pair, count in self.pairs]
        return min(1.0, 2 * exceedance(laws, epsilon))

    def delta_without_noise(self, epsilon: float, criterion: str, num_devices: int | None) -> float:
        """Delta that goes with ``epsilon`` by the given ``criterion`` when every bit is received as
        it was sent, so that only the randomness of bits hides the data."""
        # Deterministic bits that are received without noise reveal the sign of the gradient. The
        # paper's bound of the privacy loss tends to the largest possible loss, which exceeds
        # epsilon. So delta is 1 in both cases.
        if self.deterministic or criterion == "paper":
            return 1.0
        if criterion == "tail":
            return self._tail_of_counts(epsilon)
        return super().delta_without_noise(epsilon, criterion, num_devices)

    def _tail_of_counts(self, epsilon: float) -> float:
        """Probability that the magnitude of the sum of all entries' privacy losses exceeds
        ``epsilon``, for symmetric bits that are received without error. Each of the n losses is
        then plus or minus the same number, so the sum follows from the binomial number k of
        positive losses."""
        n, error = self.num_transmissions, self.error
        # ln(p/(1 - p)) with p = 1 - error, written so that no digits are lost for p near 1/2.
        each = math.log1p((1.0 - 2.0 * error) / error)
        # A number k of positive losses that is more than 40 standard deviations from its mean has a
        # negligible probability.
        mean, reach = n * (1.0 - error), 40.0 * math.sqrt(n * error * (1.0 - error)) + 40.0
        k = np.arange(max(0, math.floor(mean - reach)), min(n, math.ceil(mean + reach)) + 1)
        ways = np.array([_log_choose(n, int(i)) for i in k])
        mass = np.exp(ways + k * math.log1p(-error) + (n - k) * math.log(error))
        beyond = float(mass[np.abs((2 * k - n) * each) > epsilon * (1 - 1e-12)].sum())
        # The probability is raised by a relative 1e-8, because logarithms of large factorials are
        # rounded.
        return min(1.0, beyond * (1 + 1e-8))

    def gain_search(self, epsilon: float, delta: float, criterion: str) -> GainSearch:
        """Settings of the search for the largest gain within the budget (``epsilon``, ``delta``).
        By the criterion ``tight`` (standard differential privacy) it starts at the gain that is
        allowed to a Gaussian mechanism whose means are as far apart as the expected bits; this is
        close to the result if many entries are sent with small gains."""
        if criterion != "tight":
            return super().gain_search(epsilon, delta, criterion)
        apart = 2.0 * (self.high - self.low)
        like = gaussian.GaussianEvent(apart, self.noise_power, self.transmissions)
        step = _NEAR if self.num_transmissions >= _MANY else _FAR
        start = like.allowed_gain(epsilon, delta)
        return GainSearch(start, step, limited=self.surely_limited(epsilon, delta))

    def surely_limited(self, epsilon: float, delta: float) -> bool:
        r"""Whether a quick test proves that some gain breaks the budget (``epsilon``, ``delta``) in
        standard differential privacy; False if the test leaves it open.

        Let n symmetric bits, +1 with probability p under the first data set and 1 - p under the
        second, be received as they are sent. Then k of them have the privacy loss :math:`a =
        \ln(p/(1-p))`, the others :math:`-a`. Delta is at least :math:`1 - 1/e` times the
        probability that the sum of losses, (2 k - n) a, is :math:`\epsilon + 1` or more. This
        probability is summed for few bits, and bounded by Hoeffding's inequality for many. The test
        spares the exact delta at an infinite gain, which is costly."""
        if not self.symmetric or self.error <= 0.0:
            return False
        number = sum(count for gain, count in self.transmissions if gain > 0)
        error, right = self.error, 1.0 - self.error
        each = math.log1p((1.0 - 2.0 * error) / error)
        if not each > 0:
            return False
        # Smallest number k of positive losses (of n losses, each plus or minus a) at which the sum
        # of all losses, (2 k - n) a, reaches epsilon + 1.
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
        """Largest factor of all gains, at most ``gain``, such that every smaller factor keeps the
        budget (``epsilon``, ``delta``).

        Only by the criterion ``tail`` may a gain break the budget that a larger one keeps, because
        bits are received nearly without error at the larger one. For this criterion smaller gains
        are tried too, in steps of 10 %, each first with a bound of delta that is quick to
        compute."""
        if criterion != "tail" or self.deterministic or gain == 0 or epsilon >= self.largest_loss:
            return gain
        spent = partial(
            self.delta_at_gain, epsilon=epsilon, criterion=criterion, num_devices=num_devices
        )

        def breaks(factor: float) -> bool:
            """Whether all gains times ``factor`` break the budget; the exact delta is computed only
            if a bound that is quick to compute exceeds the allowed delta."""
            quick = exceedance(self.scaled(factor).losses, epsilon, both=True, quick=True)
            return quick > delta and spent(factor) > delta

        # Noise practically never changes a bit whose amplitude is 12 standard deviations of the
        # noise. Where all gains are that large, delta no longer changes, so the ladder ends there.
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
